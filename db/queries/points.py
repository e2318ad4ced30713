"""The points of series as rows of one query, for metrics of any layer."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import (
    ARRAY,
    CTE,
    ColumnElement,
    Double,
    FromClause,
    Integer,
    Select,
    SmallInteger,
    Subquery,
    Text,
    case,
    cast,
    func,
    literal,
    null,
    or_,
    select,
    union_all,
)

from roofwatch.collector.record.machine import Outcome
from roofwatch.collector.record.metrics import Layer
from roofwatch.db.queries.series_keys import COSTS, SECONDARY, metrics_of
from roofwatch.db.schema.measurements import (
    AccuracyRow,
    CompilationRow,
    ImportedRow,
    MeasurementRow,
    SeriesRow,
    StaticFactRow,
    TensorErrorRow,
)
from roofwatch.db.schema.runs import CaseRow, CaseVersionRow, ProjectRow
from roofwatch.db.values import SeriesKey

_KEY_PARTS = ("case_id", "implementation", "metric", "runner_class", "function", "target", "tensor")
_COLUMNS = {
    "value": Double,
    "low": Double,
    "high": Double,
    "outcome": Text,
    "message": Text,
    "code_hash": Text,
    "series_id": Integer,
    "block_count": SmallInteger,
    "timer": Text,
    "cache": Text,
}


def select_points(project: str, keys: Sequence[SeriesKey]) -> CTE | None:
    """Select the points of some series, over all runs of the project; None without keys.

    Columns: `number`, the position of the series among the keys; `runner_class`, on which alone its runs count, or
    empty; `run_number`; `value`, NULL if the run failed; `low` and `high`, the quartiles; `outcome`; `message`;
    `code_hash`; for measurements also `series_id`, `timer` and `cache`; for times also `block_count`.
    """
    by_layer: dict[Layer, list[tuple[int, SeriesKey]]] = {}
    for number, key in enumerate(keys):
        by_layer.setdefault(key.definition.layer, []).append((number, key))
    selects = {
        Layer.MEASURED: _measured,
        Layer.ACCURACY: _accuracy,
        Layer.STATIC: _static,
        Layer.IMPORTED: _imported,
    }
    parts = [selects[layer](project, _wanted(own)) for layer, own in by_layer.items()]
    if not parts:
        return None
    points = union_all(*parts).subquery("points")
    return select(points).where(or_(points.c.outcome != Outcome.OK.value, points.c.value.is_not(None))).cte("point")


def _wanted(numbered: Sequence[tuple[int, SeriesKey]]) -> FromClause:
    # arrays, not VALUES, whose SQL would be compiled again for each question
    columns = {
        "number": literal([number for number, _ in numbered], ARRAY(Integer)),
        **{name: literal([getattr(key, name) for _, key in numbered], ARRAY(Text)) for name in _KEY_PARTS},
    }
    return func.unnest(*columns.values()).table_valued(*columns).render_derived()


def _measured(project: str, wanted: FromClause) -> Select[Any]:
    table = MeasurementRow
    series = _first(
        _cases(project, wanted, wanted.c.metric, SeriesRow.id, SeriesRow.timer, SeriesRow.cache, *COSTS.values())
        .join(CaseVersionRow, CaseVersionRow.case_id == CaseRow.id)
        .join(
            SeriesRow,
            (SeriesRow.case_version_id == CaseVersionRow.id)
            & (SeriesRow.implementation == wanted.c.implementation)
            & (SeriesRow.runner_class == wanted.c.runner_class),
        )
    )
    costs = {name: series.c[cost.key] for name, cost in COSTS.items()}
    rates = {name: case((cost > 0, cost / table.median_ns * 1e9)) for name, cost in costs.items()}
    times = {name: getattr(table, name) for name in ("median_ns", "utilisation", *SECONDARY)}
    value = _by_metric(series, times | rates)
    is_time = series.c.metric == "median_ns"
    # a rate is a constant over the time: its upper quartile comes from the lower quartile of the time
    is_rate = series.c.metric.in_([*rates, "utilisation"])
    return _points(
        series,
        table.run_number,
        value=value,
        low=case((is_time, table.q1_ns), (is_rate, value * table.median_ns / table.q3_ns)),
        high=case((is_time, table.q3_ns), (is_rate, value * table.median_ns / table.q1_ns)),
        outcome=table.outcome,
        message=table.message,
        series_id=series.c.id,
        timer=series.c.timer,
        cache=series.c.cache,
        block_count=case((is_time, table.block_count)),
    ).join(table, table.series_id == series.c.id)


def _accuracy(project: str, wanted: FromClause) -> Select[Any]:
    """A failed check counts for all tensors."""
    table, error = AccuracyRow, TensorErrorRow
    found = _first(_cases(project, wanted, wanted.c.metric, wanted.c.implementation, wanted.c.tensor, CaseRow.id))
    value = _by_metric(found, {name: getattr(error, name) for name in metrics_of(Layer.ACCURACY)})
    return (
        _points(
            found,
            table.run_number,
            value=case((table.outcome == Outcome.OK.value, value)),
            outcome=table.outcome,
            message=table.message,
        )
        .join(table, (table.case_id == found.c.id) & (table.implementation == found.c.implementation))
        .outerjoin(
            error,
            (error.run_number == table.run_number)
            & (error.case_id == table.case_id)
            & (error.implementation == table.implementation)
            & (error.tensor == found.c.tensor),
        )
    )


def _static(project: str, wanted: FromClause) -> Select[Any]:
    table = StaticFactRow
    facts = {name: getattr(table, name) for name in metrics_of(Layer.STATIC)}
    found = _first(
        _cases(project, wanted, wanted.c.metric, table.id, table.outcome, table.message, table.code_hash)
        .add_columns(*facts.values())
        .join(
            table,
            (table.case_id == CaseRow.id)
            & (table.implementation == wanted.c.implementation)
            & (table.function == wanted.c.function)
            & (table.target == wanted.c.target),
        )
    )
    value = _by_metric(found, {name: cast(found.c[name], Double) for name in facts})
    return _points(
        found,
        CompilationRow.run_number,
        value=case((found.c.outcome == Outcome.OK.value, value)),
        outcome=found.c.outcome,
        message=found.c.message,
        code_hash=found.c.code_hash,
    ).join(CompilationRow, CompilationRow.static_fact_id == found.c.id)


def _imported(project: str, wanted: FromClause) -> Select[Any]:
    table = ImportedRow
    found = _first(_cases(project, wanted, wanted.c.metric, wanted.c.implementation, CaseRow.id))
    columns = {name: getattr(table, name) for name in ("value", "low", "high", "outcome", "message")}
    return _points(found, table.run_number, **columns).join(
        table,
        (table.case_id == found.c.id)
        & (table.implementation == found.c.implementation)
        & (table.key == found.c.metric),
    )


def _by_metric(asked: FromClause, columns: dict[str, Any]) -> ColumnElement[float | None]:
    return case(*((asked.c.metric == literal(name), value) for name, value in columns.items()))


def _cases(project: str, wanted: FromClause, *columns: Any) -> Select[Any]:
    return (
        select(wanted.c.number, wanted.c.runner_class, *columns)
        .select_from(wanted)
        .join(CaseRow, CaseRow.name == wanted.c.case_id)
        .join(ProjectRow, (ProjectRow.id == CaseRow.project_id) & (ProjectRow.name == project))
    )


def _first(query: Select[Any]) -> Subquery:
    """Evaluate a query before results are joined: without statistics, Postgres would read the results of all cases."""
    return query.offset(0).subquery("asked")


def _points(asked: FromClause, run_number: Any, **columns: Any) -> Select[Any]:
    labelled = [columns.get(name, cast(null(), kind)).label(name) for name, kind in _COLUMNS.items()]
    return select(asked.c.number, asked.c.runner_class, run_number.label("run_number"), *labelled).select_from(asked)

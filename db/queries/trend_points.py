"""Every point of some series as rows of one query, whatever layer their metrics are of."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import (
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
    column,
    literal,
    null,
    or_,
    select,
    type_coerce,
    union_all,
    values,
)
from sqlalchemy.dialects.postgresql import array

from roofwatch.collector.record.machine import Outcome
from roofwatch.collector.record.metrics import METRICS, Layer
from roofwatch.db.queries.measured_series import BESIDE, COSTS
from roofwatch.db.queries.series_filter import metric_keys
from roofwatch.db.schema.measurements import (
    AccuracyRow,
    CompilationRow,
    MeasurementRow,
    SeriesRow,
    StaticFactRow,
    TensorErrorRow,
)
from roofwatch.db.schema.runs import CaseRow, CaseVersionRow, ProjectRow
from roofwatch.db.values import SeriesKey

_OF_CHECKS = ("metric", "implementation", "tensor")
_PARTS = ("case_id", "implementation", "metric", "runner_class", "function", "target", "tensor")


def points_of(project: str, keys: Sequence[SeriesKey]) -> CTE | None:
    """Rows of `number`, the place of a series among the keys; `runner_class`, on which alone its runs count, or empty;
    `run_number`; `value`, NULL where the run failed; `low` and `high`, the quartiles where there are some; `outcome`,
    `message` and `code_hash`; `series_id`, which changes with the timer and the cache state of what is timed. None
    where there are no keys.
    """
    by_layer: dict[Layer, list[tuple[int, SeriesKey]]] = {}
    for number, key in enumerate(keys):
        by_layer.setdefault(METRICS[key.metric].layer, []).append((number, key))
    selects = {Layer.MEASURED: _measured, Layer.ACCURACY: _accuracy, Layer.STATIC: _static}
    parts = [selects[layer](project, _wanted(layer, own)) for layer, own in by_layer.items()]
    if not parts:
        return None
    points = union_all(*parts).subquery("points")
    return select(points).where(or_(points.c.outcome != Outcome.OK.value, points.c.value.is_not(None))).cte("point")


def _wanted(layer: Layer, keys: Iterable[tuple[int, SeriesKey]]) -> FromClause:
    columns: list[ColumnElement[Any]] = [column("number", Integer), *(column(name, Text) for name in _PARTS)]
    return values(*columns, name=f"wanted_{layer}").data(
        [(number, *(getattr(key, name) for name in _PARTS)) for number, key in keys]
    )


def _measured(project: str, wanted: FromClause) -> Select[Any]:
    table, words = MeasurementRow, MeasurementRow.outcome.type.words
    times = {
        "median_ns": table.median_ns,
        "utilisation": table.utilisation,
        **{name: getattr(table, name) for name in BESIDE},
    }
    series = _looked_up_first(
        _of_cases(project, wanted, wanted.c.metric, SeriesRow.id, *COSTS.values())
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
    value = _by_metric(series, {**times, **rates})
    # a rate is a constant over the time, so its quartiles are those of the time upside down
    is_rate = series.c.metric.in_([*rates, "utilisation"])
    is_time = series.c.metric == "median_ns"
    return _points(
        series,
        table.run_number,
        value,
        case((is_time, table.q1_ns), (is_rate, value * table.median_ns / table.q3_ns)),
        case((is_time, table.q3_ns), (is_rate, value * table.median_ns / table.q1_ns)),
        array(list(words))[type_coerce(table.outcome, SmallInteger) + 1],
        table.message,
        cast(null(), Text),
        series.c.id,
    ).join(table, table.series_id == series.c.id)


def _accuracy(project: str, wanted: FromClause) -> Select[Any]:
    """A check that failed counts for all of its tensors."""
    table, error = AccuracyRow, TensorErrorRow
    is_ok = table.outcome == Outcome.OK.value
    of_case = _looked_up_first(_of_cases(project, wanted, *(wanted.c[name] for name in _OF_CHECKS), CaseRow.id))
    value = _by_metric(of_case, {name: getattr(error, name) for name in metric_keys(Layer.ACCURACY)})
    return (
        _points(
            of_case,
            table.run_number,
            case((is_ok, value)),
            *(cast(null(), Double), cast(null(), Double)),
            *(table.outcome, table.message, cast(null(), Text), cast(null(), Integer)),
        )
        .join(table, (table.case_id == of_case.c.id) & (table.implementation == of_case.c.implementation))
        .outerjoin(
            error,
            (error.measured_on == table.measured_on)
            & (error.run_number == table.run_number)
            & (error.case_id == table.case_id)
            & (error.implementation == table.implementation)
            & (error.tensor == of_case.c.tensor),
        )
    )


def _static(project: str, wanted: FromClause) -> Select[Any]:
    table = StaticFactRow
    facts = {name: getattr(table, name) for name in metric_keys(Layer.STATIC)}
    found = _looked_up_first(
        _of_cases(project, wanted, wanted.c.metric, table.id, table.outcome, table.message, table.code_hash)
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
        case((found.c.outcome == Outcome.OK.value, value)),
        *(cast(null(), Double), cast(null(), Double)),
        *(found.c.outcome, found.c.message, found.c.code_hash, cast(null(), Integer)),
    ).join(CompilationRow, CompilationRow.static_fact_id == found.c.id)


def _by_metric(asked: FromClause, columns: dict[str, Any]) -> ColumnElement[float | None]:
    return case(*((asked.c.metric == literal(name), value) for name, value in columns.items()))


def _of_cases(project: str, wanted: FromClause, *columns: Any) -> Select[Any]:
    """Select what is wanted of the cases of a project; more may be joined."""
    return (
        select(wanted.c.number, wanted.c.runner_class, *columns)
        .select_from(wanted)
        .join(CaseRow, CaseRow.name == wanted.c.case_id)
        .join(ProjectRow, (ProjectRow.id == CaseRow.project_id) & (ProjectRow.name == project))
    )


def _looked_up_first(query: Select[Any]) -> Subquery:
    """The few rows that results are found by, known before any result is read: else Postgres, where it has no
    statistics yet, reads the results of all cases of all projects, and looks afterwards which are wanted.
    """
    return query.offset(0).subquery("asked")


def _points(asked: FromClause, run_number: Any, *columns: Any) -> Select[Any]:
    names = ("value", "low", "high", "outcome", "message", "code_hash", "series_id")
    labelled = [each.label(name) for name, each in zip(names, columns, strict=True)]
    return select(asked.c.number, asked.c.runner_class, run_number.label("run_number"), *labelled).select_from(asked)

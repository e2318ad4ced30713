"""The points of series as rows of one query, for metrics of any layer."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import (
    ARRAY,
    CTE,
    Boolean,
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

from roofwatch.db.queries.series_keys import WORK
from roofwatch.db.schema.measurements import (
    AccuracyRow,
    CaseDocumentRow,
    CompilationRow,
    ImportedRow,
    MeasurementRow,
    SeriesRow,
    StaticFactRow,
    TensorErrorRow,
)
from roofwatch.db.schema.run_filter import project_id
from roofwatch.db.schema.runs import CaseRow, CaseVersionRow
from roofwatch.model.history import SeriesKey
from roofwatch.model.machine import Outcome
from roofwatch.model.metrics import METRICS, Layer, Metric

_KEY_PARTS = ("case_id", "implementation", "runner_class", "function", "target", "tensor")
_COUNTED = {
    "moved_bytes": ("read_bytes", "written_bytes", "kernel_bytes"),
    "peak_bytes": ("peak_bytes",),
    "wait_count": ("wait_count",),
}
"""The counts of an operator cost that a metric adds up."""
_COLUMNS = {
    "outcome": Text,
    "value": Double,
    "low": Double,
    "high": Double,
    "code_hash": Text,
    "message": Text,
    "block_count": SmallInteger,
    "timing": Text,
    "series_id": Integer,
    "is_degraded": Boolean,
}


def select_points(project: str, keys: Sequence[SeriesKey]) -> CTE | None:
    """Select the points of some series, over all runs of the project; None without keys.

    Columns: `number`, the position of the series among the keys; `runner_class`, on which alone its
    runs count, or empty; `run_number`; `outcome`; `value`, NULL if the run failed; `low` and
    `high`, the quartiles; `code_hash`; `message`; for times also `block_count`; for measurements
    `series_id`, `timing` (`values.timing_of`) and `is_degraded`.
    """
    by_metric: dict[Metric, list[tuple[int, SeriesKey]]] = {}
    for number, key in enumerate(keys):
        by_metric.setdefault(key.definition, []).append((number, key))
    selects = {
        Layer.MEASURED: _measured,
        Layer.ACCURACY: _accuracy,
        Layer.STATIC: _static,
        Layer.OPERATORS: _operators,
        Layer.IMPORTED: _imported,
    }
    parts = [
        selects[metric.layer](project, _wanted(numbered_keys), metric.key)
        for metric, numbered_keys in by_metric.items()
    ]
    if not parts:
        return None
    points = union_all(*parts).subquery("points")
    return (
        # an outcome that is `ok` without a value says nothing about this metric
        select(points)
        .where(or_(points.c.outcome != Outcome.OK.value, points.c.value.is_not(None)))
        .cte("point")
    )


def _wanted(numbered: Sequence[tuple[int, SeriesKey]]) -> FromClause:
    # arrays, not VALUES, whose SQL would be compiled again for each question
    columns = {"number": literal([number for number, _ in numbered], ARRAY(Integer))}
    for name in _KEY_PARTS:
        columns[name] = literal([getattr(key, name) for _, key in numbered], ARRAY(Text))
    return func.unnest(*columns.values()).table_valued(*columns).render_derived()


def _measured(project: str, keys: FromClause, metric: str) -> Select[Any]:
    table, cost = MeasurementRow, WORK.get(metric)
    series = _first(
        _cases(
            project,
            keys,
            SeriesRow.id,
            SeriesRow.timer,
            SeriesRow.cache,
            *([] if cost is None else [cost]),
        )
        .join(CaseVersionRow, CaseVersionRow.case_id == CaseRow.id)
        .join(
            SeriesRow,
            (SeriesRow.case_version_id == CaseVersionRow.id)
            & (SeriesRow.implementation == keys.c.implementation)
            & (SeriesRow.runner_class == keys.c.runner_class),
        )
    )
    # a rate is computed here, because only the time of each run is stored
    columns: dict[str, Any] = {}
    if cost is None:
        columns["value"] = getattr(table, metric)
    else:
        work = series.c[cost.key]
        columns["value"] = case((work > 0, work / table.median_ns * 1e9))
    if metric == "median_ns":
        columns |= {"low": table.q1_ns, "high": table.q3_ns, "block_count": table.block_count}
    elif cost is not None or METRICS[metric].is_inverse_of_time:
        # a rate is a constant over the time: its upper quartile comes from the lower quartile of
        # the time
        for name, quartile_ns in (("low", table.q3_ns), ("high", table.q1_ns)):
            columns[name] = columns["value"] * table.median_ns / quartile_ns
    return _points(
        series,
        table.run_number,
        **columns,
        outcome=table.outcome,
        message=table.message,
        is_degraded=table.is_degraded,
        series_id=series.c.id,
        timing=func.concat_ws(", ", series.c.timer, series.c.cache),
    ).join(table, table.series_id == series.c.id)


def _accuracy(project: str, keys: FromClause, metric: str) -> Select[Any]:
    """A failed check counts for all tensors."""
    table, error = AccuracyRow, TensorErrorRow
    cases = _first(_cases(project, keys, keys.c.implementation, keys.c.tensor, CaseRow.id))
    return (
        _points(
            cases,
            table.run_number,
            value=case((table.outcome == Outcome.OK.value, getattr(error, metric))),
            outcome=table.outcome,
            message=table.message,
        )
        .join(
            table, (table.case_id == cases.c.id) & (table.implementation == cases.c.implementation)
        )
        .outerjoin(error, error.is_of(table) & (error.part() == cases.c.tensor))
    )


def _static(project: str, keys: FromClause, metric: str) -> Select[Any]:
    table = StaticFactRow
    value = case((table.outcome == Outcome.OK.value, cast(getattr(table, metric), Double))).label(
        "value"
    )
    facts = _first(
        _cases(project, keys, table.id, value, table.outcome, table.message, table.code_hash).join(
            table,
            (table.case_id == CaseRow.id)
            & (table.implementation == keys.c.implementation)
            & (table.function == keys.c.function)
            & (table.target == keys.c.target),
        )
    )
    columns = {name: facts.c[name] for name in ("value", "outcome", "message", "code_hash")}
    return _points(facts, CompilationRow.run_number, **columns).join(
        CompilationRow, CompilationRow.static_fact_id == facts.c.id
    )


def _operators(project: str, keys: FromClause, metric: str) -> Select[Any]:
    table = CaseDocumentRow
    cases = _first(_cases(project, keys, keys.c.implementation, CaseRow.id))
    counts = [table.document[name].as_float() for name in _COUNTED[metric]]
    # counts that are missing are 0: the operator did nothing of the kind
    value = sum((func.coalesce(count, 0.0) for count in counts), start=literal(0.0))
    outcome = literal(Outcome.OK.value, Text)
    return _points(cases, table.run_number, value=value, outcome=outcome).join(
        table,
        (table.case_id == cases.c.id)
        & (table.implementation == cases.c.implementation)
        & (table.kind == "operator_costs"),
    )


def _imported(project: str, keys: FromClause, metric: str) -> Select[Any]:
    table = ImportedRow
    cases = _first(_cases(project, keys, keys.c.implementation, CaseRow.id))
    columns = {
        name: getattr(table, name)
        for name in ("value", "low", "high", "outcome", "message", "code_hash")
    }
    return _points(cases, table.run_number, **columns).join(
        table,
        (table.case_id == cases.c.id)
        & (table.implementation == cases.c.implementation)
        & (table.key == metric),
    )


def _cases(project: str, keys: FromClause, *columns: Any) -> Select[Any]:
    return (
        select(keys.c.number, keys.c.runner_class, *columns)
        .select_from(keys)
        .join(
            CaseRow,
            (CaseRow.name == keys.c.case_id) & (CaseRow.project_id == project_id(project)),
        )
    )


def _first(query: Select[Any]) -> Subquery:
    """Evaluate a query before results are joined: without statistics, Postgres would read the
    results of all cases.
    """
    return query.offset(0).subquery("asked")


def _points(subjects: FromClause, run_number: Any, **columns: Any) -> Select[Any]:
    columns = {"timing": cast("", Text), **columns}  # empty, not unknown, for metrics without
    labelled = [
        columns.get(name, cast(null(), kind)).label(name) for name, kind in _COLUMNS.items()
    ]
    return select(
        subjects.c.number,
        subjects.c.runner_class,
        run_number.label("run_number"),
        *labelled,
    ).select_from(subjects)

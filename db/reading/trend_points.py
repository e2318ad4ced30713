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

from collector.metrics import METRICS, Layer
from collector.part import Outcome
from db.reading.measured_series import BESIDE, COSTS
from db.reading.series_filter import metric_keys
from db.tables.records import (
    AccuracyRow,
    CaseRow,
    CaseVersionRow,
    CompilationRow,
    MeasurementRow,
    ProjectRow,
    SeriesRow,
    StaticFactRow,
    TensorErrorRow,
)
from db.values import SeriesKey

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
    rates = {name: case((cost > 0, cost / table.median_ns * 1e9)) for name, cost in COSTS.items()}
    value = _by_metric(wanted, {**times, **rates})
    # a rate is a constant over the time, so its quartiles are those of the time upside down
    is_rate = wanted.c.metric.in_([*rates, "utilisation"])
    is_time = wanted.c.metric == "median_ns"
    return (
        _of_cases(
            project,
            wanted,
            table.run_number,
            value,
            case((is_time, table.q1_ns), (is_rate, value * table.median_ns / table.q3_ns)),
            case((is_time, table.q3_ns), (is_rate, value * table.median_ns / table.q1_ns)),
            array(list(words))[type_coerce(table.outcome, SmallInteger) + 1],
            table.message,
            cast(null(), Text),
            SeriesRow.id,
        )
        .join(CaseVersionRow, CaseVersionRow.case_id == CaseRow.id)
        .join(
            SeriesRow,
            (SeriesRow.case_version_id == CaseVersionRow.id)
            & (SeriesRow.implementation == wanted.c.implementation)
            & (SeriesRow.runner_class == wanted.c.runner_class),
        )
        .join(table, table.series_id == SeriesRow.id)
    )


def _accuracy(project: str, wanted: FromClause) -> Select[Any]:
    """A check that failed counts for all of its tensors."""
    table, error = AccuracyRow, TensorErrorRow
    is_ok = table.outcome == Outcome.OK.value
    value = _by_metric(wanted, {name: getattr(error, name) for name in metric_keys(Layer.ACCURACY)})
    return (
        _of_cases(
            project,
            wanted,
            table.run_number,
            case((is_ok, value)),
            *(cast(null(), Double), cast(null(), Double)),
            *(table.outcome, table.message, cast(null(), Text), cast(null(), Integer)),
        )
        .join(table, (table.case_id == CaseRow.id) & (table.implementation == wanted.c.implementation))
        .outerjoin(
            error,
            (error.measured_on == table.measured_on)
            & (error.run_number == table.run_number)
            & (error.case_id == table.case_id)
            & (error.implementation == table.implementation)
            & (error.tensor == wanted.c.tensor),
        )
    )


def _static(project: str, wanted: FromClause) -> Select[Any]:
    table = StaticFactRow
    facts = {name: cast(getattr(table, name), Double) for name in metric_keys(Layer.STATIC)}
    return (
        _of_cases(
            project,
            wanted,
            CompilationRow.run_number,
            case((table.outcome == Outcome.OK.value, _by_metric(wanted, facts))),
            *(cast(null(), Double), cast(null(), Double)),
            *(table.outcome, table.message, table.code_hash, cast(null(), Integer)),
        )
        .join(
            table,
            (table.case_id == CaseRow.id)
            & (table.implementation == wanted.c.implementation)
            & (table.function == wanted.c.function)
            & (table.target == wanted.c.target),
        )
        .join(CompilationRow, CompilationRow.static_fact_id == table.id)
    )


def _by_metric(wanted: FromClause, columns: dict[str, Any]) -> ColumnElement[float | None]:
    return case(*((wanted.c.metric == literal(name), value) for name, value in columns.items()))


def _of_cases(project: str, wanted: FromClause, run_number: Any, *columns: Any) -> Select[Any]:
    names = ("value", "low", "high", "outcome", "message", "code_hash", "series_id")
    labelled = [each.label(name) for name, each in zip(names, columns, strict=True)]
    return (
        select(wanted.c.number, wanted.c.runner_class, run_number.label("run_number"), *labelled)
        .select_from(wanted)
        .join(CaseRow, CaseRow.name == wanted.c.case_id)
        .join(ProjectRow, (ProjectRow.id == CaseRow.project_id) & (ProjectRow.name == project))
    )

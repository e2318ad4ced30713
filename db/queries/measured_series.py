"""Series of what was measured. What is the same in all points of a series is read once, then the points by its id."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from sqlalchemy import ColumnElement, Row, Select, and_, case, exists, literal, select
from sqlalchemy.orm import Session

from roofwatch.collector.record.machine import Outcome
from roofwatch.collector.record.metrics import Layer
from roofwatch.db.ingest.samples import unpack
from roofwatch.db.queries.conditions import Conditions, conditions_of
from roofwatch.db.queries.series_filter import SeriesFilter, Subject, is_first_of_layer, metric_keys, subject_columns
from roofwatch.db.queries.series_runs import SeriesRun
from roofwatch.db.schema.measurements import MeasurementRow, SampleSetRow, SeriesRow
from roofwatch.db.schema.runs import CaseRow, CaseVersionRow, ProjectRow, RunRow
from roofwatch.db.values import SeriesKey, SeriesPoint, timing_of

COSTS = {
    "flop_per_s": CaseVersionRow.flop_count,
    "memory_bytes_per_s": CaseVersionRow.memory_bytes,
    "bus_bytes_per_s": CaseVersionRow.bus_bytes,
}
"""Metrics that are what a case costs over its time."""
BESIDE = {
    "joules_per_launch": SeriesRow.has_energy,
    "host_ns": SeriesRow.has_host_time,
    "peak_allocated_bytes": SeriesRow.has_memory,
}
"""Metrics that are measured beside the time, over whole blocks or once: they have no quartiles. Each with whether a
series has any."""
_FLAGS = {**BESIDE, "utilisation": SeriesRow.has_utilisation}


def measured_points(
    session: Session, wanted: SeriesFilter, runs: Mapping[int, SeriesRun]
) -> Iterator[tuple[SeriesKey, SeriesPoint]]:
    metrics = wanted.metric_keys(Layer.MEASURED)
    if not metrics or not runs:
        return
    series = {row.id: row for row in session.execute(_series(wanted))}
    keys = {
        (series_id, metric): SeriesKey(
            wanted.project, row.name, row.implementation, metric, runner_class=row.runner_class
        )
        for series_id, row in series.items()
        for metric in metrics
    }
    timings = {series_id: timing_of(row.timer, row.cache) for series_id, row in series.items()}
    for row in session.execute(_measurements(list(series), wanted)):
        run = runs.get(row.run_number)
        if run is None:
            continue
        timing = timings[row.series_id]
        if row.outcome != Outcome.OK:
            for metric in metrics:
                yield keys[row.series_id, metric], run.point(row.outcome, row.message, None, timing=timing)
            continue
        for metric in metrics:
            point = _point(run, row, series[row.series_id], metric, wanted, timing)
            if point is not None:
                yield keys[row.series_id, metric], point


def measured_subjects(wanted: SeriesFilter) -> Select[Any]:
    """What was measured in the runs that are wanted; of each metric, whether there is any value."""
    # for each series a look at whether there is any such measurement, never at all of them
    values = [case((_has_value(wanted, metric), 1), else_=0) for metric in wanted.metric_keys(Layer.MEASURED)]
    columns = subject_columns(
        Layer.MEASURED, CaseRow.name, SeriesRow.implementation, runner_class=SeriesRow.runner_class, counts=values
    )
    return (
        _series(wanted)
        .with_only_columns(*columns, maintain_column_froms=True)
        .where(_has_measurement(wanted, literal(value=True)))
    )


def measured_keys(wanted: SeriesFilter, subjects: Iterable[Subject]) -> Iterator[SeriesKey]:
    metrics = wanted.metric_keys(Layer.MEASURED)
    found = set()
    for one in subjects:
        for metric, has_value in zip(metrics, one.counts, strict=True):
            if has_value or is_first_of_layer(metric):
                found.add(
                    SeriesKey(
                        wanted.project, one.case_id, one.implementation, metric, runner_class=one.runner_class or ""
                    )
                )
    yield from found


def _series(wanted: SeriesFilter) -> Select[*tuple[Any, ...]]:
    query: Select[*tuple[Any, ...]] = (
        select(
            SeriesRow.id,
            CaseRow.name,
            SeriesRow.implementation,
            SeriesRow.runner_class,
            SeriesRow.timer,
            SeriesRow.cache,
            *(cost.label(f"{metric}_cost") for metric, cost in COSTS.items()),
        )
        .join(CaseVersionRow, CaseVersionRow.id == SeriesRow.case_version_id)
        .join(CaseRow, CaseRow.id == CaseVersionRow.case_id)
        .join(ProjectRow, ProjectRow.id == CaseRow.project_id)
        .where(ProjectRow.name == wanted.project, wanted.subject(SeriesRow.implementation))
    )
    if wanted.keys is not None:
        query = query.where(SeriesRow.runner_class.in_({key.runner_class for key in wanted.keys}))
    return query


def _measurements(series_ids: list[int], wanted: SeriesFilter) -> Select[*tuple[Any, ...]]:
    table = MeasurementRow
    query: Select[*tuple[Any, ...]] = select(
        table.series_id,
        table.run_number,
        table.outcome,
        table.message,
        table.median_ns,
        table.q1_ns.label("low_ns"),
        table.q3_ns.label("high_ns"),
        table.block_count,
        table.utilisation,
        *(getattr(table, metric) for metric in BESIDE),
    ).where(table.series_id.in_(series_ids))
    if wanted.include_conditions:
        samples = SampleSetRow
        query = query.add_columns(samples.content).outerjoin(
            samples,
            (samples.measured_on == table.measured_on)
            & (samples.run_number == table.run_number)
            & (samples.series_id == table.series_id),
        )
    return query


def _point(
    run: SeriesRun, row: Row[Any], series: Row[Any], metric: str, wanted: SeriesFilter, timing: str
) -> SeriesPoint | None:
    """None where the measurement has no such value."""
    if metric == "median_ns":
        seen: Conditions | Mapping[str, Any] = {}
        if wanted.include_conditions and row.content is not None:
            samples = unpack(row.content)
            seen = conditions_of(samples.facts, samples.autotuning)
        return run.point(
            row.outcome,
            row.message,
            row.median_ns,
            low=row.low_ns,
            high=row.high_ns,
            block_count=row.block_count,
            timing=timing,
            **seen,
        )
    if metric in BESIDE:
        value = getattr(row, metric)
        return None if value is None else run.point(row.outcome, row.message, value, timing=timing)
    value = row.utilisation
    if metric in COSTS:
        cost = getattr(series, f"{metric}_cost")
        value = cost / row.median_ns * 1e9 if cost else None
    if value is None:
        return None
    # a constant over the time, so its quartiles are those of the time upside down
    low, high = value * row.median_ns / row.high_ns, value * row.median_ns / row.low_ns
    return run.point(row.outcome, row.message, value, low=low, high=high, timing=timing)


def _has_measurement(wanted: SeriesFilter, condition: ColumnElement[bool]) -> ColumnElement[bool]:
    """Whether a series has any measurement like that in the runs that are wanted."""
    # a look at the run of one measurement after the other, until one will do: of a join Postgres chooses the order, and
    # where it has no statistics yet it looks into every run of every project for each series
    is_wanted = (
        select(wanted.runs())
        .select_from(RunRow)
        .where(RunRow.number == MeasurementRow.run_number)
        .correlate(MeasurementRow, ProjectRow)
        .scalar_subquery()
    )
    return exists(
        select(1)
        .where(MeasurementRow.series_id == SeriesRow.id, condition, is_wanted)
        .correlate(SeriesRow, ProjectRow)
        .offset(0)  # else Postgres makes a join of it, and reads all measurements instead of the first
    )


def _has_value(wanted: SeriesFilter, metric: str) -> ColumnElement[bool]:
    has_time = _has_measurement(wanted, MeasurementRow.outcome == Outcome.OK.value)
    if metric == "median_ns":
        return has_time
    if metric in COSTS:
        return and_(COSTS[metric] > 0, has_time)
    # only a look where there is something to find: else it would go through the whole series in vain
    return case((_FLAGS[metric], _has_measurement(wanted, getattr(MeasurementRow, metric).is_not(None))), else_=False)


assert {*COSTS, *_FLAGS, "median_ns"} == set(metric_keys(Layer.MEASURED))

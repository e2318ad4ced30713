"""Series of how far results lie from the reference."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from sqlalchemy import Select, func, select, true
from sqlalchemy.orm import Session

from roofwatch.collector.record.machine import Outcome
from roofwatch.collector.record.metrics import Layer
from roofwatch.db.queries.series_filter import SeriesFilter, Subject, is_first_of_layer, subject_columns
from roofwatch.db.queries.series_runs import SeriesRun
from roofwatch.db.schema.measurements import AccuracyRow, TensorErrorRow
from roofwatch.db.schema.runs import CaseRow, EnvironmentRow, ProjectRow
from roofwatch.db.values import SeriesKey, SeriesPoint


def accuracy_points(
    session: Session, wanted: SeriesFilter, runs: Mapping[int, SeriesRun]
) -> Iterator[tuple[SeriesKey, SeriesPoint]]:
    metrics = wanted.metric_keys(Layer.ACCURACY)
    if not metrics:
        return
    columns = [
        AccuracyRow.run_number,
        CaseRow.name,
        AccuracyRow.implementation,
        AccuracyRow.outcome,
        AccuracyRow.message,
    ]
    errors = [getattr(TensorErrorRow, metric) for metric in metrics]
    query = _checks([*columns, TensorErrorRow.tensor, *errors], wanted)
    rows = [row for row in session.execute(query) if row.run_number in runs]
    tensors = defaultdict(set)
    for row in rows:
        if row.tensor is not None:
            tensors[row.name, row.implementation, runs[row.run_number].runner_class].add(row.tensor)
    failures = {}
    for row in rows:
        run = runs[row.run_number]
        if row.outcome != Outcome.OK:
            failures[row.run_number, row.name, row.implementation] = row
            continue
        for metric in metrics:
            yield (
                _accuracy_key(wanted, row.name, row.implementation, metric, run.runner_class, row.tensor),
                run.point(row.outcome, row.message, getattr(row, metric)),
            )
    for row in failures.values():
        run = runs[row.run_number]
        for tensor in tensors.get((row.name, row.implementation, run.runner_class), {""}):
            for metric in metrics:
                yield (
                    _accuracy_key(wanted, row.name, row.implementation, metric, run.runner_class, tensor),
                    run.point(row.outcome, row.message, None),
                )


def accuracy_subjects(wanted: SeriesFilter) -> Select[Any]:
    """What was checked in the runs that are wanted; of each metric, how often it came out well."""
    by = (CaseRow.name, AccuracyRow.implementation, EnvironmentRow.runner_class, TensorErrorRow.tensor)
    ok_count = func.count().filter(AccuracyRow.outcome == Outcome.OK.value)
    columns = subject_columns(
        *(Layer.ACCURACY, CaseRow.name, AccuracyRow.implementation),
        runner_class=EnvironmentRow.runner_class,
        tensor=TensorErrorRow.tensor,
        counts=[ok_count] * len(wanted.metric_keys(Layer.ACCURACY)),
    )
    return _checks(columns, wanted).group_by(*by)


def accuracy_keys(wanted: SeriesFilter, subjects: Iterable[Subject]) -> Iterator[SeriesKey]:
    metrics = wanted.metric_keys(Layer.ACCURACY)
    checked = list(subjects)
    compared = {(one.case_id, one.implementation, one.runner_class) for one in checked if one.tensor is not None}
    for one in checked:
        if one.tensor is None and (one.case_id, one.implementation, one.runner_class) in compared:
            continue
        for metric, ok_count in zip(metrics, one.counts, strict=True):
            if ok_count or is_first_of_layer(metric):
                yield _accuracy_key(
                    wanted, one.case_id, one.implementation, metric, one.runner_class or "", one.tensor or ""
                )


def _checks(columns: Collection[Any], wanted: SeriesFilter) -> Select[Any]:
    """Select from checks and their tensors, joined with all that keys and filters need."""
    run = wanted.run_of(AccuracyRow.run_number)
    return (
        select(*columns)
        .select_from(AccuracyRow)
        .join(CaseRow, CaseRow.id == AccuracyRow.case_id)
        .join(ProjectRow, ProjectRow.id == CaseRow.project_id)
        .join(run, true())
        .join(EnvironmentRow, EnvironmentRow.id == run.c.environment_id)
        .outerjoin(
            TensorErrorRow,
            (TensorErrorRow.measured_on == AccuracyRow.measured_on)
            & (TensorErrorRow.run_number == AccuracyRow.run_number)
            & (TensorErrorRow.case_id == AccuracyRow.case_id)
            & (TensorErrorRow.implementation == AccuracyRow.implementation),
        )
        .where(ProjectRow.name == wanted.project, wanted.subject(AccuracyRow.implementation))
    )


def _accuracy_key(
    wanted: SeriesFilter, case_id: str, implementation: str, metric: str, runner_class: str, tensor: str
) -> SeriesKey:
    return SeriesKey(wanted.project, case_id, implementation, metric, runner_class=runner_class, tensor=tensor)

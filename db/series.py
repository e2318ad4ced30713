"""Series: one metric of one thing over the commits of a project. A handful of queries reads any number of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, Select, and_, func, select, tuple_
from sqlalchemy.orm import Session

from collector.metrics import METRICS, Layer
from collector.part import Outcome
from db.conditions import conditions_of
from db.models import (
    AccuracyRow,
    CaseRow,
    CommitRow,
    EnvironmentRow,
    MeasurementRow,
    ProjectRow,
    RunRow,
    StaticFactRow,
    TensorErrorRow,
)
from db.series_runs import SeriesRun, of_series, read_runs
from db.values import Series, SeriesKey, SeriesPoint


def list_series_keys(
    session: Session,
    project: str,
    *,
    kernel: str | None = None,
    metric: str | None = None,
    include_dirty: bool = False,
    include_pairs: bool = False,
    include_branches: bool = False,
) -> list[SeriesKey]:
    """The keys of the series that `read_series` finds with the same filters, in order."""
    metrics = None if metric is None else {metric}
    wanted = _Filter(project, None, kernel, metrics, include_dirty, include_pairs, include_branches)
    keys = [
        *_measured_keys(session, wanted),
        *_accuracy_keys(session, wanted),
        *_static_keys(session, wanted),
    ]
    return sorted(keys)


def read_series(
    session: Session,
    project: str,
    *,
    keys: Collection[SeriesKey] | None = None,
    kernel: str | None = None,
    subjects: Collection[tuple[str, str]] | None = None,
    metrics: Collection[str] | None = None,
    include_dirty: bool = False,
    include_pairs: bool = False,
    include_branches: bool = False,
    include_conditions: bool = False,
) -> list[Series]:
    """Series of a project, in the order of their keys.

    Where a run failed, its point has no value: an accuracy check that failed counts for all of its tensors. A
    thing that never gave a value has one series, of its layer's first metric.

    Args:
        session: Of the store.
        project: Its name.
        keys: Only these; one that has no points is left out.
        kernel: Only of this kernel.
        subjects: Only of these cases, each with an implementation.
        metrics: Only of these metrics.
        include_dirty: Also runs of a work tree that differed from its commit.
        include_pairs: Also runs that are one side of a pair; they measure fewer cases, of commits that may never
            reach the branch.
        include_branches: Also runs of other branches than the project's own, which is `main`, `master`, `trunk` or the
            one with the most runs. A run whose branch is not known counts as its own.
        include_conditions: Also what was seen of the device during each time, and what the autotuner chose: much to
            read, so for few series.
    """
    wanted = _Filter(
        project,
        None if keys is None else frozenset(keys),
        kernel,
        None if metrics is None else frozenset(metrics),
        include_dirty,
        include_pairs,
        include_branches,
        include_conditions,
        None if subjects is None else frozenset(subjects),
    )
    runs = read_runs(session, wanted.runs())
    points: defaultdict[SeriesKey, list[SeriesPoint]] = defaultdict(list)
    for read in (_measured_points, _accuracy_points, _static_points):
        for key, point in read(session, wanted, runs):
            if wanted.keys is None or key in wanted.keys:
                points[key].append(point)
    return [
        Series(key, tuple(sorted(points[key], key=lambda point: (point.commit, point.measured_at, point.run_id))))
        for key in sorted(points)
        if _is_first_of_layer(key.metric) or any(point.value is not None for point in points[key])
    ]


@dataclass(frozen=True)
class _Filter:
    project: str
    keys: frozenset[SeriesKey] | None
    kernel: str | None
    metrics: Collection[str] | None
    include_dirty: bool
    include_pairs: bool
    include_branches: bool
    include_conditions: bool = False
    subjects: frozenset[tuple[str, str]] | None = None

    def metric_keys(self, layer: Layer) -> list[str]:
        """The metrics of a layer that are wanted, first one first."""
        return [
            key
            for key in _metric_keys(layer)
            if (self.metrics is None or key in self.metrics)
            and (self.keys is None or any(series.metric == key for series in self.keys))
        ]

    def runs(self) -> ColumnElement[bool]:
        """Condition on runs that are joined with their commit and project."""
        return of_series(
            self.project,
            include_dirty=self.include_dirty,
            include_pairs=self.include_pairs,
            include_branches=self.include_branches,
        )

    def results(self, table: type[MeasurementRow | AccuracyRow | StaticFactRow]) -> ColumnElement[bool]:
        """Condition on results that are joined with their case."""
        conditions = []
        if self.kernel is not None:
            conditions.append(CaseRow.kernel == self.kernel)
        if self.subjects is not None:
            conditions.append(tuple_(CaseRow.name, table.implementation).in_(self.subjects))
        if self.keys is not None:
            conditions.append(CaseRow.name.in_({key.case_id for key in self.keys}))
            conditions.append(table.implementation.in_({key.implementation for key in self.keys}))
        return and_(True, *conditions)


def _metric_keys(layer: Layer) -> list[str]:
    return [key for key, metric in METRICS.items() if metric.layer is layer]


def _is_first_of_layer(metric: str) -> bool:
    return _metric_keys(METRICS[metric].layer)[0] == metric


def _results(
    columns: Collection[Any], table: type[MeasurementRow | AccuracyRow | StaticFactRow], wanted: _Filter
) -> Select[Any]:
    """Select from one kind of result, joined with all that keys and filters need."""
    return (
        select(*columns)
        .select_from(table)
        .join(CaseRow, CaseRow.id == table.case_id)
        .join(RunRow, RunRow.run_id == table.run_id)
        .join(CommitRow, CommitRow.id == RunRow.commit_id)
        .join(ProjectRow, ProjectRow.id == CommitRow.project_id)
        .join(EnvironmentRow, EnvironmentRow.id == RunRow.environment_id)
        .where(wanted.runs(), wanted.results(table))
    )


def _measured_points(
    session: Session, wanted: _Filter, runs: dict[UUID, SeriesRun]
) -> Iterator[tuple[SeriesKey, SeriesPoint]]:
    metrics = wanted.metric_keys(Layer.MEASURED)
    if not metrics:
        return
    row_type = MeasurementRow
    values = [getattr(row_type, metric) for metric in _metric_keys(Layer.MEASURED)]
    columns: list[Any] = [row_type.run_id, CaseRow.name, row_type.implementation, row_type.outcome, row_type.message]
    columns += [row_type.q1_ns, row_type.q3_ns, func.cardinality(row_type.block_lengths).label("block_count")]
    if wanted.include_conditions:
        columns += [row_type.block_facts, row_type.autotuning]
    query = _results([*columns, *values], row_type, wanted)
    for row in session.execute(query):
        run = runs.get(row.run_id)
        if run is None:
            continue
        seen: Mapping[str, Any] = conditions_of(row.block_facts, row.autotuning) if wanted.include_conditions else {}
        for metric in metrics:
            key = SeriesKey(wanted.project, row.name, row.implementation, metric, runner_class=run.runner_class)
            value = getattr(row, metric)
            if row.outcome != Outcome.OK:
                yield key, run.point(row.outcome, row.message, None)
            elif metric == "median_ns":
                yield (
                    key,
                    run.point(
                        row.outcome,
                        row.message,
                        value,
                        low=row.q1_ns,
                        high=row.q3_ns,
                        block_count=row.block_count,
                        **seen,
                    ),
                )
            elif metric == "joules_per_launch" and value is not None:
                yield key, run.point(row.outcome, row.message, value)  # counted over whole blocks: no quartiles
            elif value is not None:
                # all others are a constant over the time, so their quartiles are those of the time upside down
                low, high = value * row.median_ns / row.q3_ns, value * row.median_ns / row.q1_ns
                yield key, run.point(row.outcome, row.message, value, low=low, high=high)


def _measured_keys(session: Session, wanted: _Filter) -> Iterator[SeriesKey]:
    metrics = wanted.metric_keys(Layer.MEASURED)
    by = (CaseRow.name, MeasurementRow.implementation, EnvironmentRow.runner_class)
    counts = [func.count(getattr(MeasurementRow, metric)).label(metric) for metric in metrics]
    if not metrics:
        return
    for row in session.execute(_results([*by, *counts], MeasurementRow, wanted).group_by(*by)):
        for metric in metrics:
            if getattr(row, metric) or _is_first_of_layer(metric):
                yield SeriesKey(wanted.project, row.name, row.implementation, metric, runner_class=row.runner_class)


def _accuracy_points(
    session: Session, wanted: _Filter, runs: dict[UUID, SeriesRun]
) -> Iterator[tuple[SeriesKey, SeriesPoint]]:
    metrics = wanted.metric_keys(Layer.ACCURACY)
    if not metrics:
        return
    columns = [AccuracyRow.run_id, CaseRow.name, AccuracyRow.implementation, AccuracyRow.outcome, AccuracyRow.message]
    errors = [getattr(TensorErrorRow, metric) for metric in metrics]
    query = _with_tensors(_results([*columns, TensorErrorRow.tensor, *errors], AccuracyRow, wanted))
    rows = [row for row in session.execute(query) if row.run_id in runs]
    tensors = defaultdict(set)
    for row in rows:
        if row.tensor is not None:
            tensors[row.name, row.implementation, runs[row.run_id].runner_class].add(row.tensor)
    failures = {}
    for row in rows:
        run = runs[row.run_id]
        if row.outcome != Outcome.OK:
            failures[row.run_id, row.name, row.implementation] = row
            continue
        for metric in metrics:
            yield (
                _accuracy_key(wanted, row.name, row.implementation, metric, run.runner_class, row.tensor),
                run.point(row.outcome, row.message, getattr(row, metric)),
            )
    for row in failures.values():
        run = runs[row.run_id]
        for tensor in tensors.get((row.name, row.implementation, run.runner_class), {""}):
            for metric in metrics:
                yield (
                    _accuracy_key(wanted, row.name, row.implementation, metric, run.runner_class, tensor),
                    run.point(row.outcome, row.message, None),
                )


def _accuracy_keys(session: Session, wanted: _Filter) -> Iterator[SeriesKey]:
    metrics = wanted.metric_keys(Layer.ACCURACY)
    if not metrics:
        return
    by = (CaseRow.name, AccuracyRow.implementation, EnvironmentRow.runner_class, TensorErrorRow.tensor)
    ok_count = func.count().filter(AccuracyRow.outcome == Outcome.OK.value).label("ok_count")
    rows = session.execute(_with_tensors(_results([*by, ok_count], AccuracyRow, wanted)).group_by(*by)).all()
    compared = {(row.name, row.implementation, row.runner_class) for row in rows if row.tensor is not None}
    for row in rows:
        if row.tensor is None and (row.name, row.implementation, row.runner_class) in compared:
            continue
        for metric in metrics:
            if row.ok_count or _is_first_of_layer(metric):
                yield _accuracy_key(wanted, row.name, row.implementation, metric, row.runner_class, row.tensor or "")


def _with_tensors(query: Select[Any]) -> Select[Any]:
    return query.outerjoin(
        TensorErrorRow,
        (TensorErrorRow.run_id == AccuracyRow.run_id)
        & (TensorErrorRow.case_id == AccuracyRow.case_id)
        & (TensorErrorRow.implementation == AccuracyRow.implementation),
    )


def _accuracy_key(
    wanted: _Filter, case_id: str, implementation: str, metric: str, runner_class: str, tensor: str
) -> SeriesKey:
    return SeriesKey(wanted.project, case_id, implementation, metric, runner_class=runner_class, tensor=tensor)


def _static_points(
    session: Session, wanted: _Filter, runs: dict[UUID, SeriesRun]
) -> Iterator[tuple[SeriesKey, SeriesPoint]]:
    metrics = wanted.metric_keys(Layer.STATIC)
    if not metrics:
        return
    table = StaticFactRow
    columns = [table.run_id, CaseRow.name, table.implementation, table.function, table.target]
    facts = [table.outcome, table.message, table.code_hash, *(getattr(table, metric) for metric in metrics)]
    for row in session.execute(_results([*columns, *facts], table, wanted)):
        run = runs.get(row.run_id)
        if run is None:
            continue
        for metric in metrics:
            value = getattr(row, metric)
            if row.outcome != Outcome.OK or value is not None:
                key = SeriesKey(
                    wanted.project, row.name, row.implementation, metric, function=row.function, target=row.target
                )
                point_value = value if row.outcome == Outcome.OK else None
                yield key, run.point(row.outcome, row.message, point_value, code_hash=row.code_hash)


def _static_keys(session: Session, wanted: _Filter) -> Iterator[SeriesKey]:
    metrics = wanted.metric_keys(Layer.STATIC)
    if not metrics:
        return
    table = StaticFactRow
    by = (CaseRow.name, table.implementation, table.function, table.target)
    ok = table.outcome == Outcome.OK.value
    counts = [func.count(getattr(table, metric)).filter(ok).label(metric) for metric in metrics]
    failure_count = func.count().filter(~ok).label("failure_count")
    for row in session.execute(_results([*by, *counts, failure_count], table, wanted).group_by(*by)):
        for metric in metrics:
            if getattr(row, metric) or (_is_first_of_layer(metric) and row.failure_count):
                yield SeriesKey(
                    wanted.project, row.name, row.implementation, metric, function=row.function, target=row.target
                )

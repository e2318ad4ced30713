"""Whole series as numpy columns, for the analysis of a project.

Postgres concatenates the values of a series in binary, so numpy reads them without a Python object per value.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC
from functools import cached_property
from itertools import compress
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sqlalchemy import Double, Integer, Row, Select, cast, func, literal, select, true
from sqlalchemy.dialects.postgresql import BYTEA
from sqlalchemy.orm import Session

from roofwatch.collector.record.machine import Outcome
from roofwatch.db.queries.run_filter import is_in_series, is_number_of
from roofwatch.db.queries.series_keys import SECONDARY
from roofwatch.db.schema.measurements import AccuracyRow, MeasurementRow, SeriesRow, TensorErrorRow
from roofwatch.db.schema.runs import CaseRow, CaseVersionRow, CommitRow, EnvironmentRow, ProjectRow, RunRow
from roofwatch.db.values import SeriesKey, timing_of

_FLOAT, _INT = ">f8", ">i4"
"""How Postgres sends numbers."""


@dataclass(frozen=True)
class TimeColumns:
    """The successful times of one series by one timer and cache state; shapes are [runs].

    Ordered by commit on the branch, then by time.
    """

    key: SeriesKey
    places: NDArray[np.int64]
    """Position of each run's commit among the measured commits of the project, from 0."""
    medians_ns: NDArray[np.float64]
    relative_spreads: NDArray[np.float64]
    """Interquartile range over median."""
    block_counts: NDArray[np.int64]
    days: NDArray[np.datetime64]
    """Start day of each run, in UTC."""
    has_failures: bool
    last_commit: tuple[int, str] | None
    """First-parent count and sha of the newest commit with a time."""
    timing: str = ""
    """Timer and cache state, such as `cupti, cold`."""
    beside: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)
    """Secondary metrics by name, NaN where not measured; only those with a value in any run."""


@dataclass(frozen=True)
class ErrorColumns:
    """The error of one tensor in each passed check; shapes are [runs], ordered as in `TimeColumns`."""

    key: SeriesKey
    places: NDArray[np.int64]
    rmse_ratios: NDArray[np.float64]


class _Subject(NamedTuple):
    """What all values of one `TimeColumns` have in common."""

    case_id: str
    implementation: str
    runner_class: str
    timer: str
    cache: str


@dataclass(frozen=True)
class _Branch:
    """The runs of a project's default branch, and of pairs, at one moment; other runs may be stored meanwhile."""

    runs: Sequence[Any]
    """`run_number`, `started_at`, `first_parent_count`, `sha` and `place`, ordered by commit, then by time."""

    @cached_property
    def places(self) -> NDArray[np.int64]:
        return np.array([run.place for run in self.runs], dtype=np.int64)

    @cached_property
    def days(self) -> NDArray[np.datetime64]:
        return np.array([run.started_at.astimezone(UTC).replace(tzinfo=None) for run in self.runs], "datetime64[D]")

    @cached_property
    def _index(self) -> Any:
        return pd.Index([run.run_number for run in self.runs], dtype="int64")

    def sort(self, run_numbers: NDArray[Any]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Return the positions in `runs` of values' run numbers in order, and where each lies among the values.

        Values of runs that were stored meanwhile are left out.
        """
        found = self._index.get_indexer(run_numbers.astype(np.int64))
        order = np.argsort(found, kind="stable")
        order = order[np.searchsorted(found, 0, sorter=order) :]
        return found[order], order


def list_case_row_ids(session: Session, project: str) -> list[int]:
    """List the row ids of a project's cases in storage order, so neighbours lie together on disk."""
    query = (
        select(CaseRow.id)
        .join(ProjectRow, ProjectRow.id == CaseRow.project_id)
        .where(ProjectRow.name == project)
        .order_by(CaseRow.id)
    )
    return list(session.scalars(query))


def count_analysed_values(session: Session, project: str) -> int:
    """Count the measurements that an analysis of the project reads."""
    query = (
        select(func.coalesce(func.sum(func.cardinality(RunRow.series_ids)), 0))
        .join(ProjectRow, ProjectRow.id == RunRow.project_id)
        .where(is_in_series(project, include_pairs=True))
    )
    return int(session.scalars(query).one())


def read_time_columns(
    session: Session, project: str, row_ids: Sequence[int], *, beside: Collection[str] = ()
) -> Iterator[TimeColumns]:
    """Read the times of some cases.

    Args:
        session: Database session.
        project: Project name.
        row_ids: Some of `list_case_row_ids`.
        beside: Secondary metrics to read too.
    """
    by_subject: dict[_Subject, list[int]] = defaultdict(list)
    known: set[str] = set()
    for series_id, *parts in session.execute(_series(row_ids, beside)):
        by_subject[_Subject(*parts[:5])].append(series_id)
        known.update(compress(beside, parts[5:]))
    metrics = [metric for metric in beside if metric in known]
    branch = _read_branch(session, project)
    series_ids = [series_id for ids in by_subject.values() for series_id in ids]
    measured = {row.series_id: row for row in session.execute(_times(project, series_ids, metrics))}
    for subject, ids in by_subject.items():
        rows = [measured[series_id] for series_id in ids if series_id in measured]
        if not rows:
            continue
        at, order = branch.sort(_unpack(rows, "numbers", _INT))
        secondary = {metric: _unpack(rows, metric, _FLOAT)[order] for metric in metrics}
        last = branch.runs[at[-1]] if len(at) else None
        yield TimeColumns(
            key=SeriesKey(
                project, subject.case_id, subject.implementation, "median_ns", runner_class=subject.runner_class
            ),
            places=branch.places[at],
            medians_ns=_unpack(rows, "medians", _FLOAT)[order],
            relative_spreads=_unpack(rows, "spreads", _FLOAT)[order],
            block_counts=_unpack(rows, "blocks", _INT)[order],
            days=branch.days[at],
            has_failures=any(row.failure_count > 0 for row in rows),
            timing=timing_of(subject.timer, subject.cache),
            beside={metric: values for metric, values in secondary.items() if not np.isnan(values).all()},
            last_commit=None if last is None else (last.first_parent_count, last.sha),
        )


def read_error_columns(session: Session, project: str, row_ids: Sequence[int]) -> Iterator[ErrorColumns]:
    """Read the errors of some cases in passed checks."""
    branch = _read_branch(session, project)
    check, error = AccuracyRow, TensorErrorRow
    # OFFSET 0 makes this a lookup by key: without statistics, Postgres would compare all errors with all checks
    tensors = (
        select(error.tensor, error.rmse_ratio)
        .where(
            error.measured_on == check.measured_on,
            error.run_number == check.run_number,
            error.case_id == check.case_id,
            error.implementation == check.implementation,
        )
        .correlate(check)
        .offset(0)
        .lateral("tensors")
    )
    by = (CaseRow.name, check.implementation, EnvironmentRow.runner_class, tensors.c.tensor)
    query = (
        select(
            *by,
            _concatenated(func.int4send(check.run_number)).label("numbers"),
            _concatenated(func.float8send(tensors.c.rmse_ratio)).label("ratios"),
        )
        .select_from(check)
        .join(tensors, true())
        .join(CaseRow, CaseRow.id == check.case_id)
        .join(RunRow, RunRow.number == check.run_number)
        .join(EnvironmentRow, EnvironmentRow.id == RunRow.environment_id)
        .where(
            check.case_id.in_(row_ids),
            check.outcome == Outcome.OK.value,
            is_number_of(check.run_number, is_in_series(project, include_pairs=True)),
        )
        .group_by(*by)
    )
    for row in session.execute(query):
        name, implementation, runner_class, tensor = row[:4]
        at, order = branch.sort(_unpack([row], "numbers", _INT))
        key = SeriesKey(project, name, implementation, "rmse_ratio", runner_class=runner_class, tensor=tensor)
        yield ErrorColumns(key, branch.places[at], _unpack([row], "ratios", _FLOAT)[order])


def _read_branch(session: Session, project: str) -> _Branch:
    along = (CommitRow.first_parent_count, CommitRow.sha)
    query = (
        select(
            *(RunRow.number.label("run_number"), RunRow.started_at, *along),
            cast(func.dense_rank().over(order_by=along) - 1, Integer).label("place"),
        )
        .join(CommitRow, CommitRow.id == RunRow.commit_id)
        .join(ProjectRow, ProjectRow.id == RunRow.project_id)
        .where(is_in_series(project, include_pairs=True))
        .order_by(*along, RunRow.started_at, RunRow.run_id)
    )
    return _Branch(session.execute(query).all())


def _series(row_ids: Sequence[int], beside: Collection[str]) -> Select[Any]:
    by = (CaseRow.name, SeriesRow.implementation, SeriesRow.runner_class, SeriesRow.timer, SeriesRow.cache)
    columns: list[Any] = [SeriesRow.id, *by, *(SECONDARY[metric] for metric in beside)]
    return (
        select(*columns)
        .join(CaseVersionRow, CaseVersionRow.id == SeriesRow.case_version_id)
        .join(CaseRow, CaseRow.id == CaseVersionRow.case_id)
        .where(CaseVersionRow.case_id.in_(row_ids))
        .order_by(*by, SeriesRow.id)
    )


def _times(project: str, series_ids: Sequence[int], beside: Sequence[str]) -> Select[Any]:
    """Select one row per stored series. Grouping by numbers alone takes half the time of grouping by names."""
    row = MeasurementRow
    spread = ((row.q3_ns - row.q1_ns) / row.median_ns).label("spread")
    # OFFSET 0 prevents a join: without statistics, Postgres would look for all series run by run
    table = (
        select(row.series_id, row.run_number, row.outcome, row.median_ns, spread, row.block_count)
        .add_columns(*(getattr(row, metric) for metric in beside))
        .where(row.series_id.in_(series_ids))
        .offset(0)
        .subquery("measured")
        .c
    )
    is_ok = table.outcome == Outcome.OK.value
    packed = {
        "numbers": func.int4send(table.run_number),
        "medians": func.float8send(table.median_ns),
        "spreads": func.float8send(table.spread),
        "blocks": func.int4send(cast(table.block_count, Integer)),
        **{metric: func.float8send(func.coalesce(table[metric], cast("NaN", Double))) for metric in beside},
    }
    return (
        select(
            table.series_id,
            func.count().filter(~is_ok).label("failure_count"),
            *(_concatenated(values).filter(is_ok).label(name) for name, values in packed.items()),
        )
        .where(is_number_of(table.run_number, is_in_series(project, include_pairs=True)))
        .group_by(table.series_id)
    )


def _concatenated(values: Any) -> Any:
    return func.string_agg(values, literal(b"", BYTEA), type_=BYTEA)


def _unpack(rows: Sequence[Row[Any]], name: str, kind: str) -> NDArray[Any]:
    """Decode one column of some rows, one after the other."""
    values = np.frombuffer(b"".join(getattr(row, name) or b"" for row in rows), dtype=kind)
    return values.astype(np.float64 if kind == _FLOAT else np.int64)

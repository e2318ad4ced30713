"""Series of times as bare columns: enough to see whether anything moved, and many times quicker to read than points.

Postgres puts the values of a series one after the other, in the eight and four bytes that it would send each in, so
that a series is one row and numpy reads it without a Python object per value.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from datetime import UTC
from itertools import compress
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import CTE, Double, Integer, Row, Select, cast, false, func, literal, select
from sqlalchemy.dialects.postgresql import BYTEA
from sqlalchemy.orm import Session

from roofwatch.collector.record.machine import Outcome
from roofwatch.db.queries.branch import read_branch
from roofwatch.db.queries.columns import TimeColumns
from roofwatch.db.queries.measured_series import BESIDE
from roofwatch.db.schema.measurements import MeasurementRow, SeriesRow
from roofwatch.db.schema.runs import CaseRow, CaseVersionRow, ProjectRow
from roofwatch.db.values import SeriesKey, timing_of


def list_case_row_ids(session: Session, project: str) -> list[int]:
    """Row ids of a project's cases in the order in which they were first stored: neighbours lie together on disk."""
    query = (
        select(CaseRow.id)
        .join(ProjectRow, ProjectRow.id == CaseRow.project_id)
        .where(ProjectRow.name == project)
        .order_by(CaseRow.id)
    )
    return list(session.scalars(query))


def read_time_columns(
    session: Session,
    project: str,
    row_ids: Sequence[int],
    *,
    include_pairs: bool = False,
    beside: Collection[str] = (),
) -> Iterator[TimeColumns]:
    """The times of some cases, a series at a time, and of that what was measured by one timer and cache state.

    Args:
        session: Of the store.
        project: Its name.
        row_ids: Row ids, as `list_case_row_ids` gives them.
        include_pairs: Also runs that are one side of a pair.
        beside: Metrics of what is measured beside times that are wanted too. Where no series of the cases has any, it
            costs no more than to see that.
    """
    by_timing: dict[_Timed, list[int]] = defaultdict(list)
    known_beside: set[str] = set()
    for series_id, case_id, implementation, runner_class, timer, cache, *flags in session.execute(
        _series(row_ids, beside)
    ):
        by_timing[_Timed(case_id, implementation, runner_class, timer, cache)].append(series_id)
        known_beside.update(compress(beside, flags))
    asked = [metric for metric in beside if metric in known_beside]
    branch = read_branch(session, project, include_pairs=include_pairs)
    runs = branch.runs
    places = np.array([run.place for run in runs], dtype=np.int64)
    days = np.array([run.started_at.astimezone(UTC).replace(tzinfo=None) for run in runs], dtype="datetime64[D]")
    series_ids = [series_id for ids in by_timing.values() for series_id in ids]
    measured = {row.series_id: row for row in session.execute(_columns(branch.wanted, series_ids, asked))}
    for timed, ids in by_timing.items():
        rows = [measured[series_id] for series_id in ids if series_id in measured]
        if not rows:
            continue
        numbers, order = branch.in_order(_numbers(rows, "numbers", ">i4"))
        yield TimeColumns(
            key=SeriesKey(project, timed.case_id, timed.implementation, "median_ns", runner_class=timed.runner_class),
            places=places[numbers],
            medians_ns=_numbers(rows, "medians", ">f8").astype(np.float64)[order],
            relative_spreads=_numbers(rows, "spreads", ">f8").astype(np.float64)[order],
            block_counts=_numbers(rows, "blocks", ">i4").astype(np.int64)[order],
            days=days[numbers],
            has_failures=any(row.failure_count > 0 for row in rows),
            timing=timing_of(timed.timer, timed.cache),
            beside={
                metric: values[order]
                for metric in asked
                if not np.isnan(values := _numbers(rows, metric, ">f8").astype(np.float64)).all()
            },
            last_commit=None if not len(numbers) else (runs[numbers[-1]].first_parent_count, runs[numbers[-1]].sha),
        )


class _Timed(NamedTuple):
    """What all values that are held against each other have in common."""

    case_id: str
    implementation: str
    runner_class: str
    timer: str
    cache: str


def _series(row_ids: Sequence[int], beside: Collection[str]) -> Select[Any]:
    """The stored series of the cases, with whether each has what is measured beside times. Several differ in what is
    stored with them alone, and are one here.
    """
    by = (CaseRow.name, SeriesRow.implementation, SeriesRow.runner_class, SeriesRow.timer, SeriesRow.cache)
    columns: list[Any] = [SeriesRow.id, *by, *(BESIDE[metric] for metric in beside)]
    return (
        select(*columns)
        .join(CaseVersionRow, CaseVersionRow.id == SeriesRow.case_version_id)
        .join(CaseRow, CaseRow.id == CaseVersionRow.case_id)
        .where(CaseVersionRow.case_id.in_(row_ids))
        .order_by(*by, SeriesRow.id)
    )


def _columns(wanted: CTE, series_ids: Sequence[int], beside: Sequence[str]) -> Select[Any]:
    """A row for each stored series. Nothing but numbers is joined and grouped: sorting as many values by the names of
    their cases takes as long as all the rest.
    """
    row = MeasurementRow
    spread = ((row.q3_ns - row.q1_ns) / row.median_ns).label("spread")
    values = (row.series_id, row.run_number, row.outcome, row.median_ns, spread, row.block_count)
    # Of a join Postgres chooses the order, and where it has no statistics yet it looks for all series run by run. So
    # it reads the series, has the numbers of the runs hashed, and sees of each row whether its own is among them; all
    # months together, not each with a hash of its own.
    measured = (
        select(*values, *(getattr(row, metric) for metric in beside))
        .where(row.series_id.in_(series_ids))
        .offset(0)
        .subquery("measured")
    )
    table = measured.c
    is_wanted = func.coalesce(table.run_number.in_(select(wanted.c.run_number)), false())
    is_ok = table.outcome == Outcome.OK.value

    def joined(value: Any, name: str) -> Any:
        return func.string_agg(value, literal(b"", BYTEA), type_=BYTEA).filter(is_ok).label(name)

    return (
        select(
            table.series_id,
            joined(func.int4send(table.run_number), "numbers"),
            joined(func.float8send(table.median_ns), "medians"),
            joined(func.float8send(table.spread), "spreads"),
            joined(func.int4send(cast(table.block_count, Integer)), "blocks"),
            func.count().filter(~is_ok).label("failure_count"),
            # a value for each time, so that they lie as the times do
            *(joined(func.float8send(func.coalesce(table[metric], cast("NaN", Double))), metric) for metric in beside),
        )
        .where(is_wanted)
        .group_by(table.series_id)
    )


def _numbers(rows: Sequence[Row[Any]], name: str, kind: str) -> NDArray[Any]:
    """One column of a few stored series, one after the other, as Postgres sent it."""
    return np.frombuffer(b"".join(getattr(row, name) or b"" for row in rows), dtype=kind)

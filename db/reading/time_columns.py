"""Series of times as bare columns: enough to see whether anything moved, and many times quicker to read than points.

Postgres puts the values of a series one after the other, in the eight and four bytes that it would send each in, so
that a series is one row and numpy reads it without a Python object per value.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from datetime import UTC
from itertools import compress
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import CTE, REAL, Integer, Select, cast, false, func, literal, select
from sqlalchemy.dialects.postgresql import BYTEA
from sqlalchemy.orm import Session

from collector.part import Outcome
from db.reading.columns import TimeColumns
from db.reading.measured_series import BESIDE
from db.reading.series_runs import of_series
from db.tables.records import CaseRow, CaseVersionRow, CommitRow, MeasurementRow, ProjectRow, RunRow, SeriesRow
from db.values import SeriesKey, timing_of


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
    known_beside = _known_beside(session, row_ids, beside)
    runs = numbered_runs(project, include_pairs=include_pairs)
    known = session.execute(select(runs).order_by(runs.c.number)).all()
    places = np.array([run.place for run in known], dtype=np.int64)
    days = np.array([run.started_at.astimezone(UTC).replace(tzinfo=None) for run in known], dtype="datetime64[D]")
    for row in session.execute(_columns(runs, row_ids, known_beside)):
        numbers = np.frombuffer(row.numbers or b"", dtype=">i4").astype(np.int64)
        order = np.argsort(numbers)
        numbers = numbers[order]
        yield TimeColumns(
            key=SeriesKey(project, row.name, row.implementation, "median_ns", runner_class=row.runner_class),
            places=places[numbers],
            medians_ns=_floats(row.medians)[order],
            relative_spreads=_floats(row.spreads)[order],
            block_counts=np.frombuffer(row.blocks or b"", dtype=">i4").astype(np.int64)[order],
            days=days[numbers],
            has_failures=row.failure_count > 0,
            timing=timing_of(row.timer, row.cache),
            beside={
                metric: values[order]
                for metric in known_beside
                if not np.isnan(
                    values := np.frombuffer(getattr(row, metric) or b"", dtype=">f4").astype(np.float64)
                ).all()
            },
            last_commit=None if not len(numbers) else (known[numbers[-1]].first_parent_count, known[numbers[-1]].sha),
        )


def numbered_runs(project: str, *, include_pairs: bool) -> CTE:
    """Runs in the order of the branch and of time, numbered from 0, each with the place of its commit."""
    along = (CommitRow.first_parent_count, CommitRow.sha)
    number = func.row_number().over(order_by=(*along, RunRow.started_at, RunRow.run_id)) - 1
    place = func.dense_rank().over(order_by=along) - 1
    return (
        select(
            RunRow.number.label("run_number"),
            RunRow.started_at,
            CommitRow.first_parent_count,
            CommitRow.sha,
            cast(number, Integer).label("number"),
            cast(place, Integer).label("place"),
        )
        .join(CommitRow, CommitRow.id == RunRow.commit_id)
        .join(ProjectRow, ProjectRow.id == RunRow.project_id)
        .where(of_series(project, include_dirty=False, include_pairs=include_pairs, include_branches=False))
        .cte("numbered")
    )


def _known_beside(session: Session, row_ids: Sequence[int], metrics: Collection[str]) -> list[str]:
    """Those that any series of the cases has."""
    if not metrics:
        return []
    flags = (func.coalesce(func.bool_or(BESIDE[metric]), false()) for metric in metrics)
    query = select(*flags).join(CaseVersionRow, CaseVersionRow.id == SeriesRow.case_version_id)
    found = session.execute(query.where(CaseVersionRow.case_id.in_(row_ids))).one()
    return list(compress(metrics, found))


def _columns(runs: CTE, row_ids: Sequence[int], beside: Sequence[str]) -> Select[Any]:
    table = MeasurementRow
    is_ok = table.outcome == Outcome.OK.value

    def joined(value: Any, name: str) -> Any:
        return func.string_agg(value, literal(b"", BYTEA), type_=BYTEA).filter(is_ok).label(name)

    return (
        select(
            CaseRow.name,
            SeriesRow.implementation,
            SeriesRow.runner_class,
            SeriesRow.timer,
            SeriesRow.cache,
            joined(func.int4send(runs.c.number), "numbers"),
            joined(func.float8send(table.median_ns), "medians"),
            joined(func.float8send((table.q3_ns - table.q1_ns) / table.median_ns), "spreads"),
            joined(func.int4send(cast(table.block_count, Integer)), "blocks"),
            func.count().filter(~is_ok).label("failure_count"),
            # a value for each time, so that they lie as the times do
            *(
                joined(func.float4send(func.coalesce(getattr(table, metric), cast("NaN", REAL))), metric)
                for metric in beside
            ),
        )
        .select_from(table)
        .join(runs, runs.c.run_number == table.run_number)
        .join(SeriesRow, SeriesRow.id == table.series_id)
        .join(CaseVersionRow, CaseVersionRow.id == SeriesRow.case_version_id)
        .join(CaseRow, CaseRow.id == CaseVersionRow.case_id)
        .where(CaseVersionRow.case_id.in_(row_ids))
        .group_by(CaseRow.name, SeriesRow.implementation, SeriesRow.runner_class, SeriesRow.timer, SeriesRow.cache)
    )


def _floats(sent: bytes | None) -> NDArray[np.float64]:
    return np.frombuffer(sent or b"", dtype=">f8").astype(np.float64)

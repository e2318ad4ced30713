"""What stands measured on each runner class: one statement, whose cost is that of the newest run of each."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from datetime import datetime
from typing import Any

from sqlalchemy import Select, SmallInteger, Subquery, func, select, type_coerce
from sqlalchemy.dialects.postgresql import aggregate_order_by
from sqlalchemy.orm import Session

from roofwatch.collector.record.machine import Outcome
from roofwatch.db.queries.coverage_values import CaseStanding, RunnerStanding
from roofwatch.db.queries.filters import Narrowing
from roofwatch.db.schema.measurements import MeasurementRow, SeriesRow
from roofwatch.db.schema.runs import CaseRow, CaseVersionRow, CommitRow, EnvironmentRow, ProjectRow, RunRow

_TIMES_KEPT = 51
"""Of results: fifty gaps between them say what is usual."""


def list_runner_standings(
    session: Session, project: str, *, runner_classes: Collection[str] = (), branches: Collection[str] = ()
) -> list[RunnerStanding]:
    """Every runner class that ever gave a result of the project, by name.

    Args:
        session: Of the store.
        project: Its name.
        runner_classes: Only these; all where none is named.
        branches: Only by runs of commits that were measured under the name of one of these; likewise.
    """
    narrowing = Narrowing(project, runner_classes, branches)
    newest_first = aggregate_order_by(RunRow.run_id, RunRow.started_at.desc())
    is_whole = ~RunRow.is_dirty & RunRow.pair_id.is_(None)
    times = func.array_agg(aggregate_order_by(RunRow.started_at, RunRow.started_at.desc()))
    runner = (
        select(
            EnvironmentRow.runner_class,
            func.min(EnvironmentRow.device_name).label("device_name"),
            times.label("times"),
            func.max(CommitRow.committed_at).label("newest_commit_at"),
            func.array_agg(newest_first).filter(is_whole).label("run_ids"),
        )
        .select_from(RunRow)
        .join(CommitRow, CommitRow.id == RunRow.commit_id)
        .join(ProjectRow, ProjectRow.id == CommitRow.project_id)
        .join(EnvironmentRow, EnvironmentRow.id == RunRow.environment_id)
        .where(ProjectRow.name == project, narrowing.admits(RunRow, EnvironmentRow))
        .group_by(EnvironmentRow.runner_class)
        .order_by(EnvironmentRow.runner_class)
        .cte("runner")
    )
    run_id = runner.c.run_ids[1]
    cases = _cases_of(select(run_id))
    kept: Any = runner.c.times[1:_TIMES_KEPT]
    query = (
        select(runner.c.runner_class, runner.c.device_name, kept, runner.c.newest_commit_at, run_id, cases.c.facts)
        .select_from(runner)
        .outerjoin(cases, cases.c.run_id == run_id)
        .order_by(runner.c.runner_class)
    )
    return [_standing(*row) for row in session.execute(query)]


def _cases_of(run_ids: Select[Any]) -> Subquery:
    """The cases of each run as a document, since there are thousands of them to a few runs."""
    measured, series = MeasurementRow, SeriesRow
    degraded = series.id == func.any(RunRow.degraded_series_ids)
    codes = type_coerce(measured.outcome, SmallInteger)
    ended = func.array_agg(codes.distinct()).filter(codes.is_not(None))
    count = func.count(codes)
    by_case = (
        select(
            RunRow.run_id,
            CaseRow.name,
            ended.label("outcomes"),
            count.label("count"),
            count.filter(degraded).label("degraded"),
        )
        .select_from(RunRow)
        .join(CaseVersionRow, CaseVersionRow.id == func.any(RunRow.case_version_ids))
        .join(CaseRow, CaseRow.id == CaseVersionRow.case_id)
        .outerjoin(
            series,
            (series.case_version_id == CaseVersionRow.id) & (series.id == func.any(RunRow.series_ids)),
        )
        .outerjoin(
            measured,
            (measured.measured_on == RunRow.measured_on)
            & (measured.run_number == RunRow.number)
            & (measured.series_id == series.id),
        )
        .where(RunRow.run_id.in_(run_ids))
        .group_by(RunRow.run_id, CaseRow.name)
        .subquery()
    )
    facts = (by_case.c.name, by_case.c.outcomes, by_case.c.count, by_case.c.degraded)
    document = func.json_agg(func.json_build_array(*facts)).label("facts")
    return select(by_case.c.run_id, document).group_by(by_case.c.run_id).subquery()


def _standing(
    runner_class: str,
    device_name: str,
    times: list[datetime],
    newest_commit_at: datetime,
    run_id: object,
    cases: list[list[Any]] | None,
) -> RunnerStanding:
    return RunnerStanding(
        runner_class=runner_class,
        device_name=device_name,
        result_times=tuple(times),
        newest_commit_at=newest_commit_at,
        run_id=None if run_id is None else str(run_id),
        cases=tuple(
            CaseStanding(case_id, frozenset(_outcomes(codes)), count, degraded_count)
            for case_id, codes, count, degraded_count in cases or ()
        ),
    )


def _outcomes(codes: list[int] | None) -> Iterator[Outcome]:
    """A document has the places of words, as they are stored."""
    words = MeasurementRow.outcome.type.words
    yield from (Outcome(words[code]) for code in codes or ())

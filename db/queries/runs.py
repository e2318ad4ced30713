"""Questions about runs: which there are, and everything that one of them found."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from operator import itemgetter
from typing import Any
from uuid import UUID

import orjson
from sqlalchemy import ColumnElement, Select, Text, and_, cast, collate, func, or_, select
from sqlalchemy.orm import InstrumentedAttribute, Session, load_only

from roofwatch.collector.record.machine import Outcome
from roofwatch.db.projects import QUARANTINE, is_quarantine, quarantine_name, record_name
from roofwatch.db.queries.filters import Narrowing, project_id
from roofwatch.db.queries.measured_cases import PLACE, RunPlace, measured_cases, queries_of_cases
from roofwatch.db.queries.run_values import CeilingValue, RunDetail, RunSummary, StaticRow
from roofwatch.db.queries.series_runs import of_series
from roofwatch.db.queries.union_queries import Stacked
from roofwatch.db.schema.measurements import CompilationRow, StaticFactRow
from roofwatch.db.schema.runs import CaseRow, CeilingRow, CommitRow, EnvironmentRow, ProjectRow, RunRow
from roofwatch.db.values import MeasuredCommit

NEWEST_FIRST = (RunRow.started_at.desc(), RunRow.run_id)
BEST_FIRST = (RunRow.is_dirty, RunRow.pair_id.is_not(None), *NEWEST_FIRST)
"""Which run speaks for others: one of a clean work tree before a dirty one, and one by itself before a side of a pair,
which measures fewer cases; then the newest."""
_OF_SUMMARY = (
    *(RunRow.run_id, RunRow.started_at, RunRow.finished_at),
    *(RunRow.harness_version, RunRow.is_dirty, RunRow.pair_id, RunRow.outcome_counts, RunRow.is_unreachable),
)


def list_projects(
    session: Session, *, among: Collection[str] | None = None, after: str = "", limit: int | None = None
) -> list[str]:
    """Names of all projects, in the order of their code points; their quarantines are none.

    Args:
        session: Of the store.
        among: Only of these.
        after: Only what comes after this name.
        limit: So many at most.
    """
    by_code_point = collate(ProjectRow.name, "C")
    query = select(ProjectRow.name).where(~ProjectRow.name.endswith(QUARANTINE, autoescape=True), by_code_point > after)
    if among is not None:
        query = query.where(ProjectRow.name.in_(among))
    return list(session.scalars(query.order_by(by_code_point).limit(limit)))


def list_commits(session: Session, project: str, *, runner_classes: Collection[str] = ()) -> list[MeasuredCommit]:
    """The commits that have runs, in the order of the branch; on some runner classes alone where these are named.

    Those that their branch has left come before all others, so that the last ones are what is compared.
    """
    left = (
        select(RunRow.commit_id)
        .where(RunRow.project_id == project_id(project))
        .group_by(RunRow.commit_id)
        .having(func.bool_and(RunRow.is_unreachable))
    )
    query = select(CommitRow, CommitRow.id.in_(left)).join(ProjectRow).where(ProjectRow.name == project)
    if runner_classes:
        narrowing = Narrowing(project, runner_classes)
        measured_there = (
            select(RunRow.commit_id)
            .join(EnvironmentRow, EnvironmentRow.id == RunRow.environment_id)
            .where(RunRow.project_id == project_id(project), narrowing.admits(RunRow, EnvironmentRow))
        )
        query = query.where(CommitRow.id.in_(measured_there))
    commits = [
        MeasuredCommit(
            row.first_parent_count, row.sha, row.author, row.subject, row.committed_at, is_unreachable=is_left
        )
        for row, is_left in session.execute(query)
    ]
    return sorted(commits, key=lambda commit: (not commit.is_unreachable, commit))


def count_analysed_values(session: Session, project: str) -> int:
    """How many measurements the analysis of a project reads."""
    query = (
        select(func.coalesce(func.sum(func.cardinality(RunRow.series_ids)), 0))
        .join(CommitRow, CommitRow.id == RunRow.commit_id)
        .join(ProjectRow, ProjectRow.id == CommitRow.project_id)
        .where(of_series(project, include_dirty=False, include_pairs=True, include_branches=False))
    )
    return int(session.scalars(query).one())


def list_runs(
    session: Session,
    project: str,
    limit: int | None = 50,
    *,
    after: tuple[datetime, UUID] | None = None,
    is_quarantined: bool = False,
) -> list[RunSummary]:
    """The runs that started last, newest first, of any kind: dirty ones and sides of a pair too.

    Args:
        session: Of the store.
        project: Its name.
        limit: So many; None for all.
        after: When the last run that is known already started, and its id.
        is_quarantined: Those in the project's quarantine instead.
    """
    name = quarantine_name(project) if is_quarantined else project
    query = _runs().where(ProjectRow.name == name).order_by(*NEWEST_FIRST).limit(limit)
    if after is not None:
        time, run_id = after
        query = query.where(or_(RunRow.started_at < time, and_(RunRow.started_at == time, RunRow.run_id > run_id)))
    return _summaries(session, query)


def run_detail(session: Session, run_id: str) -> RunDetail | None:
    """Everything that one run found; None where there is no such run."""
    try:
        key = UUID(run_id)
    except ValueError:
        return None
    return next(iter(read_run_details(session, RunRow.run_id == key)), None)


def read_run_details(session: Session, condition: ColumnElement[bool]) -> list[RunDetail]:
    """Everything that some runs found, the newest first, in two statements however many they are.

    Args:
        session: Of the store.
        condition: On runs, commits and environments that leaves few runs.
    """
    query = _runs(*PLACE).where(condition).order_by(*NEWEST_FIRST)
    runs = session.execute(query).all()
    if not runs:
        return []
    places = [RunPlace._make(getattr(run, column.key) for column in PLACE) for run, *_ in runs]
    roofs = {f"ceilings_{at}": _ceilings(run) for at, (run, *_) in enumerate(runs)}
    codes = {f"codes_{at}": _static_facts(place) for at, place in enumerate(places)}
    stacked = Stacked({**queries_of_cases(places), **roofs, **codes})
    rows = stacked.rows(session.execute(stacked.statement()))
    cases = measured_cases(places, rows)
    return [
        RunDetail(
            summary=_summary(*run),
            ceilings=tuple(CeilingValue(*row) for _, *row in sorted(rows[f"ceilings_{at}"], key=itemgetter(0))),
            cases=cases[at],
            static_rows=tuple(_static_row(*row) for _, *row in sorted(rows[f"codes_{at}"], key=itemgetter(0))),
        )
        for at, run in enumerate(runs)
    ]


def _runs(*more: InstrumentedAttribute[Any]) -> Select[RunRow, CommitRow, str, str, str]:
    """With what a summary tells of a run, and some columns more: its lists have thousands of numbers."""
    return (
        select(
            RunRow,
            CommitRow,
            ProjectRow.name,
            EnvironmentRow.runner_class,
            EnvironmentRow.device_name,
        )
        .join(CommitRow, CommitRow.id == RunRow.commit_id)
        .join(ProjectRow, ProjectRow.id == CommitRow.project_id)
        .join(EnvironmentRow, EnvironmentRow.id == RunRow.environment_id)
        .options(load_only(*_OF_SUMMARY, *more))
    )


def _summaries(session: Session, query: Select[RunRow, CommitRow, str, str, str]) -> list[RunSummary]:
    return [_summary(*row) for row in session.execute(query)]


def _summary(run: RunRow, commit: CommitRow, name: str, runner_class: str, device_name: str) -> RunSummary:
    return RunSummary(
        run_id=str(run.run_id),
        project=record_name(name),
        is_quarantined=is_quarantine(name),
        commit=commit.to_ref(),
        runner_class=runner_class,
        device_name=device_name,
        started_at=run.started_at,
        finished_at=run.finished_at,
        harness_version=run.harness_version,
        is_dirty=run.is_dirty,
        outcome_counts=run.outcome_counts,
        is_pair_side=run.pair_id is not None,
        is_unreachable=run.is_unreachable,
    )


def _ceilings(run: RunRow) -> Select[*tuple[Any, ...]]:
    """Those that were measured: the datasheet's are no roof of what was measured beside them."""
    return select(CeilingRow.position, CeilingRow.resource, CeilingRow.level, CeilingRow.dtype, CeilingRow.per_s).where(
        CeilingRow.run_id == run.run_id, CeilingRow.source == "measured"
    )


def _static_facts(place: RunPlace) -> Select[*tuple[Any, ...]]:
    table = StaticFactRow
    return (
        select(
            CompilationRow.position,
            *(CaseRow.name, table.implementation, table.function, table.target, table.outcome, table.message),
            *(cast(table.configuration, Text).label("configuration"), table.registers, table.spilled_registers),
            *(table.local_bytes, table.shared_bytes, table.code_bytes, table.code_hash),
        )
        .join(CompilationRow, CompilationRow.static_fact_id == table.id)
        .join(CaseRow, CaseRow.id == table.case_id)
        .where(CompilationRow.measured_on == place.measured_on, CompilationRow.run_number == place.number)
    )


def _static_row(
    case_id: str,
    implementation: str,
    function: str,
    target: str,
    outcome: str,
    message: str | None,
    configuration: str,
    *figures: Any,
) -> StaticRow:
    said = (message, orjson.loads(configuration))
    return StaticRow(case_id, implementation, function, target, Outcome(outcome), *said, *figures)

"""Questions about runs: which there are, and everything that one of them found."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from sqlalchemy import Select, and_, or_, select
from sqlalchemy.orm import Session

from collector.part import Outcome
from db.projects import is_quarantine, quarantine_name, record_name
from db.reading.measured_cases import list_measured_cases
from db.tables.records import (
    CaseRow,
    CeilingRow,
    CommitRow,
    CompilationRow,
    EnvironmentRow,
    ProjectRow,
    RunRow,
    StaticFactRow,
)
from db.values import CeilingValue, CommitRef, RunDetail, RunSummary, StaticRow


def list_projects(session: Session) -> list[str]:
    """Names of all projects, in alphabetical order; their quarantines are none."""
    names = session.scalars(select(ProjectRow.name).order_by(ProjectRow.name))
    return [name for name in names if not is_quarantine(name)]


def list_commits(session: Session, project: str) -> list[CommitRef]:
    """The commits that have runs, in the order of the branch."""
    query = select(CommitRow).join(ProjectRow).where(ProjectRow.name == project)
    return sorted(commit.to_ref() for commit in session.scalars(query))


def list_runs(
    session: Session,
    project: str,
    limit: int = 50,
    *,
    after: tuple[datetime, UUID] | None = None,
    is_quarantined: bool = False,
) -> list[RunSummary]:
    """The runs that started last, newest first, of any kind: dirty ones and sides of a pair too.

    Args:
        session: Of the store.
        project: Its name.
        limit: So many.
        after: When the last run that is known already started, and its id.
        is_quarantined: Those in the project's quarantine instead.
    """
    name = quarantine_name(project) if is_quarantined else project
    query = _runs().where(ProjectRow.name == name).order_by(RunRow.started_at.desc(), RunRow.run_id).limit(limit)
    if after is not None:
        time, run_id = after
        query = query.where(or_(RunRow.started_at < time, and_(RunRow.started_at == time, RunRow.run_id > run_id)))
    return _summaries(session, query)


def find_run(session: Session, project: str, sha: str, *, runner_class: str | None = None) -> RunSummary | None:
    """The run that speaks for a commit: the newest, but one of a clean work tree before a dirty one, and one by
    itself before a side of a pair, which measures fewer cases.
    """
    query = _runs().where(ProjectRow.name == project, CommitRow.sha == sha)
    if runner_class is not None:
        query = query.where(EnvironmentRow.runner_class == runner_class)
    best = query.order_by(RunRow.is_dirty, RunRow.pair_id.is_not(None), RunRow.started_at.desc(), RunRow.run_id)
    return next(iter(_summaries(session, best.limit(1))), None)


def run_detail(session: Session, run_id: str) -> RunDetail | None:
    """Everything that one run found; None where there is no such run."""
    try:
        key = UUID(run_id)
    except ValueError:
        return None
    summaries = _summaries(session, _runs().where(RunRow.run_id == key))
    if not summaries:
        return None
    run = session.get_one(RunRow, key)
    return RunDetail(
        summary=summaries[0],
        ceilings=_ceilings(session, key),
        cases=list_measured_cases(session, run),
        static_rows=_static_rows(session, run),
    )


def _runs() -> Select[RunRow, CommitRow, str, str, str]:
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
    )


def _summaries(session: Session, query: Select[RunRow, CommitRow, str, str, str]) -> list[RunSummary]:
    return [
        RunSummary(
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
        )
        for run, commit, name, runner_class, device_name in session.execute(query)
    ]


def _ceilings(session: Session, run_id: UUID) -> tuple[CeilingValue, ...]:
    """Those that were measured: the datasheet's are no roof of what was measured beside them."""
    query = (
        select(CeilingRow)
        .where(CeilingRow.run_id == run_id, CeilingRow.source == "measured")
        .order_by(CeilingRow.position)
    )
    return tuple(
        CeilingValue(resource=row.resource, level=row.level, dtype=row.dtype, per_s=row.per_s)
        for row in session.scalars(query)
    )


def _static_rows(session: Session, run: RunRow) -> tuple[StaticRow, ...]:
    query = (
        select(StaticFactRow, CaseRow.name)
        .join(CompilationRow, CompilationRow.static_fact_id == StaticFactRow.id)
        .join(CaseRow, CaseRow.id == StaticFactRow.case_id)
        .where(CompilationRow.measured_on == run.measured_on, CompilationRow.run_number == run.number)
        .order_by(CompilationRow.position)
    )
    return tuple(
        StaticRow(
            case_id=case_id,
            implementation=facts.implementation,
            function=facts.function,
            target=facts.target,
            outcome=Outcome(facts.outcome),
            message=facts.message,
            configuration=facts.configuration,
            registers=facts.registers,
            spilled_registers=facts.spilled_registers,
            local_bytes=facts.local_bytes,
            shared_bytes=facts.shared_bytes,
            code_bytes=facts.code_bytes,
            code_hash=facts.code_hash,
        )
        for facts, case_id in session.execute(query)
    )

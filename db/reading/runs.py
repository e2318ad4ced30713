"""Questions about runs: which there are, and everything that one of them found."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, Select, and_, or_, select
from sqlalchemy.orm import Session, undefer

from collector.part import Outcome
from db.projects import is_quarantine, quarantine_name, record_name
from db.reading.documents import document_of
from db.reading.measured_cases import documents_of_cases, measured_cases
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

NEWEST_FIRST = (RunRow.started_at.desc(), RunRow.run_id)
BEST_FIRST = (RunRow.is_dirty, RunRow.pair_id.is_not(None), *NEWEST_FIRST)
"""Which run speaks for others: one of a clean work tree before a dirty one, and one by itself before a side of a pair,
which measures fewer cases; then the newest."""


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
    """Everything that some runs found, the newest first, in one statement.

    Args:
        session: Of the store.
        condition: On runs, commits and environments that leaves few runs.
    """
    documents = [
        document_of(_ceilings(), RunRow, name="ceilings"),
        document_of(_static_facts(), RunRow, name="static_facts"),
        *documents_of_cases(),
    ]
    query = _runs().add_columns(*documents).options(undefer(RunRow.series_ids)).where(condition).order_by(*NEWEST_FIRST)
    return [
        RunDetail(
            summary=_summary(*run),
            ceilings=tuple(CeilingValue(**row) for row in ceilings or ()),
            cases=measured_cases(run[0].series_ids, cases),
            static_rows=tuple(_static_row(row) for row in static_facts or ()),
        )
        for run, ceilings, static_facts, cases in ((row[:5], row[5], row[6], row[7:]) for row in session.execute(query))
    ]


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
    )


def _ceilings() -> Select[str, str | None, str | None, float]:
    """Those that were measured: the datasheet's are no roof of what was measured beside them."""
    return (
        select(CeilingRow.resource, CeilingRow.level, CeilingRow.dtype, CeilingRow.per_s)
        .where(CeilingRow.run_id == RunRow.run_id, CeilingRow.source == "measured")
        .order_by(CeilingRow.position)
    )


def _static_facts() -> Select[Any]:
    table = StaticFactRow
    return (
        select(
            *(CaseRow.name.label("case_id"), table.implementation, table.function, table.target, table.outcome),
            *(table.message, table.configuration, table.registers, table.spilled_registers, table.local_bytes),
            *(table.shared_bytes, table.code_bytes, table.code_hash),
        )
        .join(CompilationRow, CompilationRow.static_fact_id == table.id)
        .join(CaseRow, CaseRow.id == table.case_id)
        .where(CompilationRow.measured_on == RunRow.measured_on, CompilationRow.run_number == RunRow.number)
        .order_by(CompilationRow.position)
    )


def _static_row(row: Mapping[str, Any]) -> StaticRow:
    return StaticRow(**{**row, "outcome": Outcome(row["outcome"])})

"""Requests to analyse a project, kept in the database until an analysis is done."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import Engine, func, or_, select, update
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.orm import Session

from roofwatch.db.projects import is_quarantine, record_name
from roofwatch.db.schema.regressions import AnalysisRequestRow
from roofwatch.db.schema.runs import ProjectRow, RunRow


@dataclass(frozen=True)
class RunState:
    """How far a stored run has come."""

    run_id: str
    project: str
    content_hash: str
    stored_at: datetime
    is_quarantined: bool
    is_judged: bool
    """An analysis of its project included this run."""


def request_analysis(engine: Engine, project: str) -> None:
    """Request an analysis of all that is stored now; does nothing if there is no such project."""
    with Session(engine) as session, session.begin():
        project_id = session.scalar(select(ProjectRow.id).where(ProjectRow.name == project))
        if project_id is None:
            return
        new = upsert(AnalysisRequestRow).values(project_id=project_id, requested_at=func.clock_timestamp())
        session.execute(
            new.on_conflict_do_update(
                index_elements=[AnalysisRequestRow.project_id], set_={"requested_at": func.clock_timestamp()}
            )
        )


def list_waiting(session: Session) -> list[tuple[str, datetime]]:
    """Projects that wait for an analysis and the time of the request, the oldest first."""
    row = AnalysisRequestRow
    query = (
        select(ProjectRow.name, row.requested_at)
        .join(row, row.project_id == ProjectRow.id)
        .where(or_(row.analysed_at.is_(None), row.analysed_at < row.requested_at))
        .order_by(row.requested_at)
    )
    return [(name, requested_at) for name, requested_at in session.execute(query)]


def finish_analysis(engine: Engine, project: str, requested_at: datetime) -> None:
    """Note an analysis that answers requests up to `requested_at`. Later requests stay open."""
    with Session(engine) as session, session.begin():
        project_id = select(ProjectRow.id).where(ProjectRow.name == project).scalar_subquery()
        done = update(AnalysisRequestRow).where(AnalysisRequestRow.project_id == project_id)
        session.execute(done.values(analysed_at=func.greatest(AnalysisRequestRow.analysed_at, requested_at)))


def read_run_state(session: Session, run_id: UUID) -> RunState | None:
    """How far a run has come; None if there is no such run."""
    request = AnalysisRequestRow
    query = (
        select(ProjectRow.name, RunRow.ingested_at, RunRow.content_hash, request.requested_at, request.analysed_at)
        .select_from(RunRow)
        .join(ProjectRow, ProjectRow.id == RunRow.project_id)
        .outerjoin(request, request.project_id == ProjectRow.id)
        .where(RunRow.run_id == run_id)
    )
    row = session.execute(query).one_or_none()
    if row is None:
        return None
    return RunState(
        run_id=str(run_id),
        project=record_name(row.name),
        content_hash=row.content_hash,
        stored_at=row.ingested_at,
        is_quarantined=is_quarantine(row.name),
        is_judged=row.analysed_at is not None and row.analysed_at >= max(row.requested_at, row.ingested_at),
    )

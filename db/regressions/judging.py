"""Which projects wait to be judged. The wish is in the database, so that it outlives the process that had it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import Engine, func, or_, select, update
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.orm import Session

from roofwatch.db.projects import is_quarantine, record_name
from roofwatch.db.schema.regressions import JudgingRow
from roofwatch.db.schema.runs import CommitRow, ProjectRow, RunRow


@dataclass(frozen=True)
class RunState:
    """How far a stored run has come."""

    run_id: str
    project: str
    content_hash: str
    stored_at: datetime
    is_quarantined: bool
    is_judged: bool
    """What was found in its project, this run included, can be read."""


def ask_for_judgement(engine: Engine, project: str) -> None:
    """Have a project judged after what is stored now; does nothing where there is no such project."""
    with Session(engine) as session, session.begin():
        project_id = session.scalar(select(ProjectRow.id).where(ProjectRow.name == project))
        if project_id is None:
            return
        asked_at = func.clock_timestamp()
        asking = upsert(JudgingRow).values(project_id=project_id, asked_at=asked_at)
        session.execute(
            asking.on_conflict_do_update(index_elements=[JudgingRow.project_id], set_={"asked_at": asked_at})
        )


def list_waiting(session: Session) -> list[tuple[str, datetime]]:
    """Projects that wait to be judged, with when that was asked for, longest ago first."""
    query = (
        select(ProjectRow.name, JudgingRow.asked_at)
        .join(JudgingRow, JudgingRow.project_id == ProjectRow.id)
        .where(or_(JudgingRow.judged_at.is_(None), JudgingRow.judged_at < JudgingRow.asked_at))
        .order_by(JudgingRow.asked_at)
    )
    return [(name, asked_at) for name, asked_at in session.execute(query)]


def note_judgement(engine: Engine, project: str, asked_at: datetime) -> None:
    """A judgement that began after `asked_at` is done. One that was asked for since then stays wanted."""
    with Session(engine) as session, session.begin():
        project_id = select(ProjectRow.id).where(ProjectRow.name == project).scalar_subquery()
        done = update(JudgingRow).where(JudgingRow.project_id == project_id)
        later = func.greatest(JudgingRow.judged_at, asked_at)
        session.execute(done.values(judged_at=later))


def read_run_state(session: Session, run_id: UUID) -> RunState | None:
    """How far a run has come; None where there is no such run."""
    query = (
        select(ProjectRow.name, RunRow.ingested_at, RunRow.content_hash, JudgingRow.asked_at, JudgingRow.judged_at)
        .select_from(RunRow)
        .join(CommitRow, CommitRow.id == RunRow.commit_id)
        .join(ProjectRow, ProjectRow.id == CommitRow.project_id)
        .outerjoin(JudgingRow, JudgingRow.project_id == ProjectRow.id)
        .where(RunRow.run_id == run_id)
    )
    row = session.execute(query).one_or_none()
    if row is None:
        return None
    is_judged = row.judged_at is not None and row.judged_at >= max(row.asked_at, row.ingested_at)
    return RunState(
        run_id=str(run_id),
        project=record_name(row.name),
        content_hash=row.content_hash,
        stored_at=row.ingested_at,
        is_quarantined=is_quarantine(row.name),
        is_judged=is_judged,
    )

"""Bisections: request, claim, store progress and result, read."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

from pydantic import TypeAdapter
from sqlalchemy import ColumnElement, Engine, and_, func, or_, select, text, update
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.orm import Session

from roofwatch.db.errors import StoreError
from roofwatch.db.leases import ClaimLostError, take_first
from roofwatch.db.schema.regressions import BisectionRow
from roofwatch.db.schema.runs import ProjectRow
from roofwatch.db.schema.subjects import RegressionId
from roofwatch.db.schema.table import to_value
from roofwatch.model.triage import (
    Answer,
    BisectionProgress,
    BisectionRange,
    BisectionResult,
    BisectionState,
)


@dataclass(frozen=True, kw_only=True)
class Bisection(BisectionRange):
    bisection_id: UUID
    state: BisectionState
    requested_by: str
    regression_id: UUID | None
    requested_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    note: str
    """Why it ended like this."""
    progress: BisectionProgress
    answer: Answer | None


_PROGRESS = TypeAdapter(BisectionProgress)
_ANSWER = TypeAdapter(Answer)
LEASE = timedelta(hours=2)
"""Time without progress after which another runner may take over; one step can take minutes."""

_IS_FREE = or_(
    BisectionRow.state == BisectionState.REQUESTED,
    and_(BisectionRow.state == BisectionState.RUNNING, BisectionRow.leased_until < func.now()),
)
_RANGE = ("case_id", "implementation", "runner_class", "good_sha", "bad_sha")


@dataclass(frozen=True)
class Claim:
    """The right to write to one bisection."""

    bisection_id: UUID
    claim_id: UUID


def request_bisection(
    session: Session,
    commit_range: BisectionRange,
    *,
    requested_by: str,
    regression_id: UUID | None = None,
) -> UUID:
    """Request a bisection in the caller's transaction; `roofwatch bisect --next` on a runner
    carries it out.

    Return its ID, or that of an unfinished identical request.
    """
    # nothing of the project may be stored yet
    session.execute(upsert(ProjectRow).values(name=commit_range.project).on_conflict_do_nothing())
    project_ids = select(ProjectRow.id).where(ProjectRow.name == commit_range.project)
    row = {
        **{name: getattr(commit_range, name) for name in _RANGE},
        "bisection_id": uuid4(),
        "project_id": session.scalars(project_ids).one(),
        "state": BisectionState.REQUESTED,
        "requested_by": requested_by,
        "regression_id": regression_id,
    }
    insert = upsert(BisectionRow).values(row)
    # updating nothing returns the identical row
    unchanged = insert.on_conflict_do_update(
        index_elements=["project_id", *_RANGE],
        index_where=text("state IN ('requested', 'running')"),
        set_={"state": BisectionRow.state},
    )
    return session.scalars(unchanged.returning(BisectionRow.bisection_id)).one()


def begin_bisection(
    engine: Engine,
    commit_range: BisectionRange,
    claim_id: UUID,
    *,
    requested_by: str,
    regression_id: UUID | None = None,
) -> Claim:
    """Start a bisection, take over an identical request, or continue the runner's own bisection.

    Raises:
        StoreError: another runner works on it.
    """
    with Session(engine) as session, session.begin():
        bisection_id = request_bisection(
            session,
            commit_range,
            requested_by=requested_by,
            regression_id=regression_id,
        )
        is_same = BisectionRow.bisection_id == bisection_id
        # a runner that was restarted still has the claim
        is_ours = BisectionRow.claim_id == claim_id
        claim = _take(session, and_(is_same, or_(_IS_FREE, is_ours)), claim_id)
    if claim is None:
        raise StoreError(
            f"bisection {bisection_id}: another runner works on it; wait until it ends, or "
            f"{LEASE} after its last step"
        )
    return claim


def claim_bisection(
    engine: Engine,
    project: str,
    runner_class: str,
    claim_id: UUID,
) -> Claim | None:
    """Claim the oldest request for this runner class or any; also one whose runner is gone.

    Concurrent runners get different requests; None if there is none left.
    """
    with Session(engine) as session, session.begin():
        is_of_project = BisectionRow.project_id.in_(
            select(ProjectRow.id).where(ProjectRow.name == project)
        )
        fits = or_(BisectionRow.runner_class.is_(None), BisectionRow.runner_class == runner_class)
        return _take(session, and_(is_of_project, fits, _IS_FREE), claim_id)


def update_bisection(engine: Engine, claim: Claim, result: BisectionResult) -> None:
    """Store a result: `running` renews the lease, `requested` lets another runner continue, other
    states end it.

    Raises:
        ClaimLostError: another runner has taken it over.
    """
    values: dict[str, Any] = {"state": result.state, "note": "; ".join(result.notes)}
    if result.state is BisectionState.RUNNING:
        # the clock of the database: those of runners may differ
        values["leased_until"] = func.now() + LEASE
    else:
        is_over = result.state is not BisectionState.REQUESTED
        values |= {
            "claim_id": None,
            "leased_until": None,
            "finished_at": func.now() if is_over else None,
        }
    # a result without steps keeps what an earlier runner has reported
    if result.progress.commits:
        values["progress"] = _PROGRESS.dump_python(result.progress, mode="json")
    if result.answer is not None:
        values["answer"] = _ANSWER.dump_python(result.answer, mode="json")
    is_ours = and_(
        BisectionRow.bisection_id == claim.bisection_id, BisectionRow.claim_id == claim.claim_id
    )
    with engine.begin() as connection:
        written = connection.execute(update(BisectionRow).where(is_ours).values(values))
        if written.rowcount == 0:
            raise ClaimLostError(
                f"bisection {claim.bisection_id}: another runner has taken it over"
            )


def read_bisection(session: Session, bisection_id: UUID) -> Bisection | None:
    return _read(session, BisectionRow.bisection_id == bisection_id)


def read_newest_bisection(session: Session, regression_id: RegressionId) -> Bisection | None:
    """The latest bisection that was requested for a regression."""
    return _read(session, BisectionRow.regression_id == regression_id)


def _read(session: Session, condition: ColumnElement[bool]) -> Bisection | None:
    query = (
        select(BisectionRow, ProjectRow.name)
        .join(ProjectRow, ProjectRow.id == BisectionRow.project_id)
        .where(condition)
        .order_by(BisectionRow.requested_at.desc(), BisectionRow.bisection_id)
        .limit(1)
    )
    stored = session.execute(query).first()
    if stored is None:
        return None
    row, project = stored
    if row.progress is None:
        progress = BisectionProgress()
    else:
        progress = _PROGRESS.validate_python(row.progress)
    answer = None
    if row.answer is not None:
        answer = _ANSWER.validate_python(row.answer)
    return to_value(
        Bisection,
        row,
        project=project,
        progress=progress,
        answer=answer,
    )


def _take(session: Session, condition: ColumnElement[bool], claim_id: UUID) -> Claim | None:
    taken = take_first(
        session,
        BisectionRow.bisection_id,
        condition=condition,
        order=(BisectionRow.requested_at, BisectionRow.bisection_id),
        values={
            "state": BisectionState.RUNNING,
            "claim_id": claim_id,
            "leased_until": func.now() + LEASE,
            "started_at": func.coalesce(BisectionRow.started_at, func.now()),
        },
    )
    if taken is None:
        return None
    return Claim(taken, claim_id)

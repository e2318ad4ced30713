"""Bisections: asked for, claimed by exactly one runner, written down while they go on, and read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import ColumnElement, Engine, Select, and_, delete, func, insert, or_, select, update
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.orm import Session

from roofwatch.db.bisections.values import (
    Answer,
    Bisection,
    BisectionCommit,
    BisectionDetail,
    BisectionProgress,
    BisectionRange,
    BisectionState,
    BisectionStep,
    Standing,
)
from roofwatch.db.errors import StoreError
from roofwatch.db.queries.documents import document_of
from roofwatch.db.schema.bisections import BisectionCommitRow, BisectionRow, BisectionStepRow
from roofwatch.db.schema.runs import ProjectRow
from roofwatch.db.values import CommitRef

LEASE = timedelta(hours=2)
"""How long a runner may go without a sign of life before another takes its bisection: a step of a slow case on a GPU
takes minutes."""

_UNFINISHED = BisectionRow.state.in_([BisectionState.REQUESTED.value, BisectionState.RUNNING.value])


class ClaimLostError(StoreError):
    """Another runner has taken the bisection over."""


@dataclass(frozen=True)
class Claim:
    """The right to write to one bisection."""

    bisection_id: UUID
    claim_id: UUID


def request_bisection(
    session: Session, asked: BisectionRange, *, requested_by: str, regression_id: UUID | None = None
) -> UUID:
    """Ask for a bisection in the caller's transaction; `roofwatch bisect --next` on a runner does it.

    Args:
        session: In a transaction.
        asked: What to bisect.
        requested_by: Who asks, in words: a person, a rule, a workflow.
        regression_id: Of the regression that it is to explain.

    Returns:
        Its id; of the one that waits or runs already, where the same was asked for before.
    """
    row = _new_row(session, asked, requested_by) | {
        "state": BisectionState.REQUESTED.value,
        "regression_id": regression_id,
    }
    added: UUID | None = session.scalar(
        upsert(BisectionRow).values(row).on_conflict_do_nothing().returning(BisectionRow.bisection_id)
    )
    if added is not None:
        return added
    keys = ("project_id", "case_id", "implementation", "runner_class", "good_sha", "bad_sha")
    same = [getattr(BisectionRow, key).is_not_distinct_from(row[key]) for key in keys]
    there = session.scalar(select(BisectionRow.bisection_id).where(_UNFINISHED, *same))
    if there is None:  # it ended between the two statements
        return request_bisection(session, asked, requested_by=requested_by, regression_id=regression_id)
    return there


def begin_bisection(
    engine: Engine, asked: BisectionRange, *, requested_by: str, regression_id: UUID | None = None
) -> Claim:
    """Write down that a bisection begins which nobody had asked for; or take over the one that was asked for.

    Raises:
        StoreError: another runner is at the very same.
    """
    with Session(engine) as session, session.begin():
        bisection_id = request_bisection(session, asked, requested_by=requested_by, regression_id=regression_id)
        claim = _take(session, BisectionRow.bisection_id == bisection_id)
    if claim is None:
        raise StoreError(
            f"bisection {bisection_id}: another runner is at it; wait for it, or for {LEASE} without a sign of life"
        )
    return claim


def claim_bisection(engine: Engine, project: str, runner_class: str) -> Claim | None:
    """Take the oldest bisection of a project that waits for this runner class or any, or whose runner is gone.

    However many runners ask at once, each gets another one; None where there is none left.
    """
    with Session(engine) as session, session.begin():
        own = BisectionRow.project_id.in_(select(ProjectRow.id).where(ProjectRow.name == project))
        fits = or_(BisectionRow.runner_class.is_(None), BisectionRow.runner_class == runner_class)
        return _take(session, and_(own, fits))


def note_progress(engine: Engine, claim: Claim, progress: BisectionProgress) -> None:
    """Write down what is known so far, in the place of what was before; a sign of life too.

    Raises:
        ClaimLostError: another runner has taken it over.
    """
    with Session(engine) as session, session.begin():
        _update(session, claim, measurement_count=progress.measurement_count, leased_until=func.now() + LEASE)
        _replace(session, claim.bisection_id, progress)


def release_bisection(engine: Engine, claim: Claim) -> None:
    """Give it back: another runner may go on, or the same one later.

    Raises:
        ClaimLostError: another runner has taken it over.
    """
    with Session(engine) as session, session.begin():
        _update(session, claim, state=BisectionState.REQUESTED.value, claim_id=None, leased_until=None)


def finish_bisection(
    engine: Engine,
    claim: Claim,
    state: BisectionState,
    *,
    progress: BisectionProgress | None = None,
    answer: Answer | None = None,
    note: str = "",
) -> None:
    """Write down how it ended.

    Args:
        engine: Of the store.
        claim: On it.
        state: One that is over.
        progress: All that was measured.
        answer: With `found` and `narrowed`.
        note: What is to be known of how it ended.

    Raises:
        ClaimLostError: another runner has taken it over.
    """
    with Session(engine) as session, session.begin():
        ended: dict[str, Any] = {
            "state": state.value,
            "finished_at": func.now(),
            "claim_id": None,
            "leased_until": None,
            "note": note,
        }
        if progress is not None:
            ended["measurement_count"] = progress.measurement_count
        if answer is not None:
            low, high = answer.relative_interval
            ended |= {
                "first_sha": answer.first.sha,
                "last_sha": answer.last.sha,
                "confidence": answer.confidence,
                "relative_change": answer.relative_change,
                "change_low": low,
                "change_high": high,
            }
        _update(session, claim, **ended)
        if progress is not None:
            _replace(session, claim.bisection_id, progress)


def list_bisections(session: Session, project: str) -> list[Bisection]:
    """All of a project, the one that was asked for last first."""
    query = _bisections().where(ProjectRow.name == project)
    order = (BisectionRow.requested_at.desc(), BisectionRow.bisection_id)
    rows = session.execute(query.order_by(*order)).all()
    named = _named_commits(session, [row for row, _ in rows])
    return [_value(row, name, named) for row, name in rows]


def read_bisection(session: Session, bisection_id: UUID) -> BisectionDetail | None:
    """One with its commits and steps; None where there is no such bisection."""
    return _read_detail(session, BisectionRow.bisection_id == bisection_id)


def read_newest_bisection(session: Session, regression_id: UUID) -> BisectionDetail | None:
    """The one that was asked for last for a regression, with its commits and steps; None where there is none."""
    newest = (
        select(BisectionRow.bisection_id)
        .where(BisectionRow.regression_id == regression_id)
        .order_by(BisectionRow.requested_at.desc(), BisectionRow.bisection_id)
        .limit(1)
        .scalar_subquery()
    )
    return _read_detail(session, BisectionRow.bisection_id == newest)


def _read_detail(session: Session, condition: ColumnElement[bool]) -> BisectionDetail | None:
    """The one bisection for which the condition holds, in one statement: its commits are rows, its steps a document."""
    steps = document_of(
        select(BisectionStepRow.__table__)
        .where(BisectionStepRow.bisection_id == BisectionRow.bisection_id)
        .order_by(BisectionStepRow.position),
        BisectionRow,
        name="steps",
    )
    query = (
        select(BisectionRow, ProjectRow.name, BisectionCommitRow, steps)
        .join(ProjectRow, ProjectRow.id == BisectionRow.project_id)
        .outerjoin(BisectionCommitRow, BisectionCommitRow.bisection_id == BisectionRow.bisection_id)
        .where(condition)
        .order_by(BisectionCommitRow.position)
    )
    found = session.execute(query).all()
    if not found:
        return None
    row, project, _, documents = found[0]
    commits = [commit for _, _, commit, _ in found if commit is not None]
    return BisectionDetail(
        bisection=_value(row, project, {(row.bisection_id, one.sha): one.to_ref() for one in commits}),
        commits=tuple(
            BisectionCommit(
                commit=each.to_ref(),
                probability=each.probability,
                standing=Standing(each.standing),
                reason=each.reason,
                pair_count=each.pair_count,
                relative_change=each.relative_change,
            )
            for each in commits
        ),
        steps=tuple(
            BisectionStep(
                sha=step["sha"],
                pair_count=step["pair_count"],
                relative_change=step["relative_change"],
                probability=step["probability"],
                note=step["note"],
                finished_at=datetime.fromisoformat(step["finished_at"]),
            )
            for step in documents or ()
        ),
    )


def _new_row(session: Session, asked: BisectionRange, requested_by: str) -> dict[str, Any]:
    session.execute(upsert(ProjectRow).values(name=asked.project).on_conflict_do_nothing())
    return {
        "bisection_id": uuid4(),
        "project_id": session.scalars(select(ProjectRow.id).where(ProjectRow.name == asked.project)).one(),
        "case_id": asked.case_id,
        "implementation": asked.implementation,
        "runner_class": asked.runner_class,
        "good_sha": asked.good_sha,
        "bad_sha": asked.bad_sha,
        "requested_by": requested_by,
    }


def _take(session: Session, condition: Any) -> Claim | None:
    is_free = or_(
        BisectionRow.state == BisectionState.REQUESTED.value,
        and_(BisectionRow.state == BisectionState.RUNNING.value, BisectionRow.leased_until < func.now()),
    )
    oldest = (
        select(BisectionRow.bisection_id)
        .where(condition, is_free)
        .order_by(BisectionRow.requested_at, BisectionRow.bisection_id)
        .limit(1)
        .with_for_update(skip_locked=True)
    )
    bisection_id = session.scalar(oldest)
    if bisection_id is None:
        return None
    claim = Claim(bisection_id, uuid4())
    session.execute(
        update(BisectionRow)
        .where(BisectionRow.bisection_id == bisection_id)
        .values(
            state=BisectionState.RUNNING.value,
            claim_id=claim.claim_id,
            leased_until=func.now() + LEASE,
            started_at=func.coalesce(BisectionRow.started_at, func.now()),
        )
    )
    return claim


def _update(session: Session, claim: Claim, **values: Any) -> None:
    ours = and_(BisectionRow.bisection_id == claim.bisection_id, BisectionRow.claim_id == claim.claim_id)
    changed = session.execute(update(BisectionRow).where(ours).values(values).returning(BisectionRow.bisection_id))
    if not changed.all():
        raise ClaimLostError(f"bisection {claim.bisection_id}: another runner has taken it over")


def _replace(session: Session, bisection_id: UUID, progress: BisectionProgress) -> None:
    for table in (BisectionCommitRow, BisectionStepRow):
        session.execute(delete(table).where(table.bisection_id == bisection_id))
    commits = [
        {
            "bisection_id": bisection_id,
            "position": position,
            "sha": known.commit.sha,
            "first_parent_count": known.commit.first_parent_count,
            "author": known.commit.author,
            "subject": known.commit.subject,
            "committed_at": known.commit.committed_at,
            "probability": known.probability,
            "standing": known.standing.value,
            "reason": known.reason,
            "pair_count": known.pair_count,
            "relative_change": known.relative_change,
        }
        for position, known in enumerate(progress.commits)
    ]
    steps = [
        {
            "bisection_id": bisection_id,
            "position": position,
            "sha": step.sha,
            "pair_count": step.pair_count,
            "relative_change": step.relative_change,
            "probability": step.probability,
            "note": step.note,
            "finished_at": step.finished_at,
        }
        for position, step in enumerate(progress.steps)
    ]
    if commits:
        session.execute(insert(BisectionCommitRow), commits)
    if steps:
        session.execute(insert(BisectionStepRow), steps)


def _bisections() -> Select[BisectionRow, str]:
    return select(BisectionRow, ProjectRow.name).join(ProjectRow, ProjectRow.id == BisectionRow.project_id)


def _named_commits(session: Session, rows: Iterable[BisectionRow]) -> dict[tuple[UUID, str], CommitRef]:
    """The commits that answers name."""
    over = [row.bisection_id for row in rows if row.first_sha is not None]
    query = (
        select(BisectionCommitRow)
        .join(BisectionRow, BisectionRow.bisection_id == BisectionCommitRow.bisection_id)
        .where(
            BisectionRow.bisection_id.in_(over),
            BisectionCommitRow.sha.in_([BisectionRow.first_sha, BisectionRow.last_sha]),
        )
    )
    return {(row.bisection_id, row.sha): row.to_ref() for row in session.scalars(query)}


def _value(row: BisectionRow, project: str, named: dict[tuple[UUID, str], CommitRef]) -> Bisection:
    return Bisection(
        bisection_id=row.bisection_id,
        project=project,
        case_id=row.case_id,
        implementation=row.implementation,
        runner_class=row.runner_class,
        good_sha=row.good_sha,
        bad_sha=row.bad_sha,
        state=BisectionState(row.state),
        requested_by=row.requested_by,
        regression_id=row.regression_id,
        requested_at=row.requested_at,
        started_at=row.started_at,
        finished_at=row.finished_at,
        measurement_count=row.measurement_count,
        note=row.note,
        answer=_answer(row, named),
    )


def _answer(row: BisectionRow, named: dict[tuple[UUID, str], CommitRef]) -> Answer | None:
    if row.first_sha is None:
        return None
    assert row.last_sha is not None
    assert row.confidence is not None
    assert row.relative_change is not None
    assert row.change_low is not None
    assert row.change_high is not None
    return Answer(
        first=named[row.bisection_id, row.first_sha],
        last=named[row.bisection_id, row.last_sha],
        confidence=row.confidence,
        relative_change=row.relative_change,
        relative_interval=(row.change_low, row.change_high),
    )

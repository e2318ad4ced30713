"""Jobs of the queue as runners see them: take, report, finish."""

from collections.abc import Collection, Sequence
from uuid import UUID

from sqlalchemy import ColumnElement, Engine, and_, delete, func, insert, or_, select, update
from sqlalchemy.orm import Session

from roofwatch.db.access import add_entry
from roofwatch.db.agenda import answer_requests, lease_requests, release_requests
from roofwatch.db.leases import ClaimLostError, take_first
from roofwatch.db.queue import LEASE, MAX_ATTEMPTS, end_jobs, rank_of, usage
from roofwatch.db.schema.queue import QueuedContentRow, QueuedJobRow, QueuedLineRow
from roofwatch.db.schema.runs import ProjectRow
from roofwatch.model.queue import (
    MAX_JOB_S,
    MAX_LINE_CHARACTERS,
    MAX_LINES,
    WATCH,
    JobOutcome,
    RequestedPair,
    TakenJob,
    WatchReport,
)


def take_queued_job(
    engine: Engine,
    runner_class: str,
    projects: Collection[str] | None,
    *,
    claim_id: UUID,
    runner: str,
) -> TakenJob | None:
    """Lease the first free job of a runner class.

    The order is priority, then the person who used the fewest minutes in 24 hours, then age. A job
    that its runners lost too often ends as lost.

    Args:
        engine: Of the store.
        runner_class: Of the runner.
        projects: Whose jobs it may take; None for all.
        claim_id: New for each job.
        runner: Name of the machine.
    """
    row = QueuedJobRow
    used = usage()
    used_s = func.coalesce(
        select(used.c.used_s).where(used.c.requested_by == row.requested_by).scalar_subquery(), 0.0
    )
    is_free = or_(row.leased_until.is_(None), row.leased_until < func.now())
    # who has no minutes left waits until older jobs no longer count
    has_minutes = or_(row.device_minutes.is_(None), used_s < row.device_minutes * 60)
    condition = and_(
        row.runner_class == runner_class,
        row.outcome.is_(None),
        row.has_tree,
        is_free,
        has_minutes,
    )
    if projects is not None:
        named = select(ProjectRow.id).where(ProjectRow.name.in_(projects))
        condition = and_(condition, row.project_id.in_(named))
    with Session(engine) as session, session.begin():
        _end_lost(session, runner_class)
        job_id = take_first(
            session,
            row.job_id,
            condition=condition,
            order=(rank_of(row.priority), used_s, row.requested_at, row.job_id),
            values={
                "claim_id": claim_id,
                "leased_until": func.now() + LEASE,
                "started_at": func.now(),
                "attempt_count": row.attempt_count + 1,
                "runner": runner,
            },
        )
        if job_id is None:
            return None
        job, project = session.execute(
            select(row, ProjectRow.name).join(ProjectRow).where(row.job_id == job_id)
        ).one()
        limit_s = MAX_JOB_S
        if job.device_minutes is not None:
            spent_s = session.scalar(
                select(used.c.used_s).where(used.c.requested_by == job.requested_by)
            )
            limit_s = min(limit_s, job.device_minutes * 60 - float(spent_s or 0.0))
        return TakenJob(
            job_id=job_id,
            project=project,
            command=tuple(job.command),
            folder=job.folder,
            limit_s=limit_s,
            pairs=_requested_pairs(session, job),
        )


def _requested_pairs(session: Session, job: QueuedJobRow) -> tuple[RequestedPair, ...]:
    """Lease what people asked for to a watch, if its kind of runner is known to measure it."""
    row = QueuedJobRow
    if job.command[0] != WATCH:
        return ()
    measured_classes = session.scalars(
        select(row.measured_class)
        .where(row.runner_class == job.runner_class, row.measured_class.is_not(None))
        .distinct()
    )
    named = [name for name in measured_classes if name is not None]
    return lease_requests(session, job.project_id, named, job.job_id)


def list_waiting_projects(session: Session, runner_class: str) -> list[str]:
    """Projects with unfinished jobs of a runner class."""
    query = (
        select(ProjectRow.name)
        .join(QueuedJobRow)
        .where(QueuedJobRow.runner_class == runner_class, QueuedJobRow.outcome.is_(None))
        .distinct()
    )
    return list(session.scalars(query))


def _end_lost(session: Session, runner_class: str) -> None:
    row = QueuedJobRow
    is_lost = and_(
        row.runner_class == runner_class,
        row.outcome.is_(None),
        row.leased_until < func.now(),
    )
    end_jobs(session, and_(is_lost, row.is_cancelled), JobOutcome.CANCELLED)
    end_jobs(session, and_(is_lost, row.attempt_count >= MAX_ATTEMPTS), JobOutcome.LOST)


def _is_held(job_id: UUID, claim_id: UUID) -> ColumnElement[bool]:
    """Whether a job is unfinished, and leased to a runner."""
    row = QueuedJobRow
    return and_(row.job_id == job_id, row.claim_id == claim_id, row.outcome.is_(None))


def read_tree(session: Session, job_id: UUID, claim_id: UUID) -> bytes:
    """The tree of a job that the runner holds.

    Raises:
        ClaimLostError: it does not hold it.
    """
    row = QueuedJobRow
    query = (
        select(QueuedContentRow.content)
        .join(row, row.job_id == QueuedContentRow.job_id)
        .where(_is_held(job_id, claim_id))
    )
    content = session.scalar(query)
    if content is None:
        raise _lost(job_id)
    return content


def report_progress(engine: Engine, job_id: UUID, claim_id: UUID, lines: Sequence[str]) -> bool:
    """Renew the lease of a job, and store lines; return whether to cancel it.

    Raises:
        ClaimLostError: another runner has taken it over, or it has ended.
    """
    row = QueuedJobRow
    with Session(engine) as session, session.begin():
        renewed = session.execute(
            update(row)
            .where(_is_held(job_id, claim_id))
            .values(leased_until=func.now() + LEASE)
            .returning(row.line_count, row.is_cancelled)
        ).first()
        if renewed is None:
            raise _lost(job_id)
        first_number, is_cancelled = renewed
        # a program that prints for ever must not fill the database
        kept_lines = lines[: max(0, MAX_LINES - first_number)]
        if kept_lines:
            rows = [
                {"job_id": job_id, "number": number, "line": line[:MAX_LINE_CHARACTERS]}
                for number, line in enumerate(kept_lines, start=first_number)
            ]
            session.execute(insert(QueuedLineRow), rows)
            session.execute(
                update(row)
                .where(row.job_id == job_id)
                .values(line_count=first_number + len(kept_lines))
            )
        return bool(is_cancelled)


def finish_queued_job(
    engine: Engine,
    job_id: UUID,
    claim_id: UUID,
    *,
    exit_status: int,
    spent_s: float,
    content: bytes,
    actor: str,
    report: WatchReport | None = None,
) -> JobOutcome:
    """End a job with its result, in place of its tree; a job that was cancelled has none.

    What a watch measured of the pairs that people asked for is answered, and the rest is free.

    Raises:
        ClaimLostError: another runner has taken it over, or it has ended.
    """
    row = QueuedJobRow
    with Session(engine) as session, session.begin():
        held = select(row).where(_is_held(job_id, claim_id))
        job = session.scalar(held.with_for_update())
        if job is None:
            raise _lost(job_id)
        session.execute(delete(QueuedContentRow).where(QueuedContentRow.job_id == job_id))
        project = session.scalar(select(ProjectRow.name).where(ProjectRow.id == job.project_id))
        job.finished_at = session.scalars(select(func.now())).one()
        job.outcome = JobOutcome.CANCELLED
        if not job.is_cancelled:
            job.outcome = JobOutcome.DONE
            job.exit_status = exit_status
            # in place of the tree, which nobody needs any more
            session.add(QueuedContentRow(job_id=job_id, content=content))
            if report is not None:
                job.measured_class = report.runner_class
                answer_requests(session, job_id, report)
        release_requests(session, job_id)
        job.spent_s = spent_s
        job.claim_id = None
        job.leased_until = None
        add_entry(
            session,
            actor=actor,
            action=f"queue.{job.outcome}",
            project=project,
            subject=str(job_id),
            after=f"{spent_s:.0f} s on {job.runner}",
        )
        return job.outcome


def release_queued_job(engine: Engine, job_id: UUID, claim_id: UUID) -> None:
    """Give a job back that another runner shall take; it does not count as an attempt.

    Raises:
        ClaimLostError: another runner has taken it over, or it has ended.
    """
    row = QueuedJobRow
    released = (
        update(row)
        .where(_is_held(job_id, claim_id))
        .values(claim_id=None, leased_until=None, attempt_count=row.attempt_count - 1)
    )
    with engine.begin() as connection:
        if connection.execute(released).rowcount == 0:
            raise _lost(job_id)


def _lost(job_id: UUID) -> ClaimLostError:
    return ClaimLostError(f"job {job_id}: another runner has taken it over, or it has ended")

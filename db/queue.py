"""The queue of people's jobs: request, read, cancel. Runners take jobs in `db/queue_runners.py`."""

from collections.abc import Collection, Sequence
from datetime import timedelta
from uuid import UUID, uuid4

from sqlalchemy import (
    ColumnElement,
    Engine,
    Select,
    SQLColumnExpression,
    Subquery,
    and_,
    case,
    delete,
    extract,
    func,
    or_,
    select,
    update,
)
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.orm import Session

from roofwatch.db.access import add_entry
from roofwatch.db.agenda import release_requests
from roofwatch.db.errors import ConflictError, NotStoredError, StoreError
from roofwatch.db.schema.queue import QueuedContentRow, QueuedJobRow, QueuedLineRow
from roofwatch.db.schema.runs import ProjectRow
from roofwatch.db.schema.table import to_value
from roofwatch.model.queue import (
    JobOutcome,
    JobPriority,
    QueuedJob,
    QueueForecast,
    QueueRequest,
)

LEASE = timedelta(seconds=60)
"""Time without a report after which another runner may take a job."""
MAX_ATTEMPTS = 3
"""Runners that may lose a job before it counts as lost."""
MAX_OPEN_JOBS = 100
"""Unfinished jobs of one token."""
USAGE_WINDOW = timedelta(hours=24)
"""Time in which the device minutes of a token count."""
_RECENT_JOBS = 20
"""Newest jobs of a command from which the duration of the next is forecast."""
_LISTED = timedelta(days=7)
"""Age from which results are removed, and jobs are no longer listed."""
_KEPT = timedelta(days=90)
_SENDING = timedelta(hours=1)
"""Time after which a tree is no longer expected."""
_WHOLE_LINES_PER_ANSWER = 500


class QueueFullError(StoreError):
    """The token has too many jobs, or has used its device minutes."""


def request_queued_job(
    engine: Engine,
    project: str,
    request: QueueRequest,
    *,
    actor: str,
    device_minutes: float | None,
) -> UUID:
    """Store a job, which waits for its tree. Old results and jobs are removed.

    Args:
        engine: Of the store.
        project: Its name; a new one is made.
        request: What to do.
        actor: Authenticated name.
        device_minutes: Limit of the actor in 24 hours; None for none.

    Raises:
        QueueFullError: the actor has too many jobs, or no minutes left.
    """
    row = QueuedJobRow
    with Session(engine) as session, session.begin():
        _remove_old(session)
        is_own = row.requested_by == actor
        open_count = session.scalar(select(func.count()).where(is_own, row.outcome.is_(None)))
        if (open_count or 0) >= MAX_OPEN_JOBS:
            raise QueueFullError(
                f"{open_count} jobs of this token are not finished; wait, or cancel some: "
                "roofwatch queue cancel"
            )
        used_minutes = (_used_s(session, actor)) / 60
        if device_minutes is not None and used_minutes >= device_minutes:
            raise QueueFullError(
                f"this token has used {used_minutes:.0f} of its {device_minutes:.0f} device "
                "minutes in 24 hours; wait, or create a token with more"
            )
        session.execute(upsert(ProjectRow).values(name=project).on_conflict_do_nothing())
        project_row = session.scalars(select(ProjectRow.id).where(ProjectRow.name == project)).one()
        job = QueuedJobRow(
            job_id=uuid4(),
            project_id=project_row,
            runner_class=request.runner_class,
            command=list(request.command),
            folder=request.folder,
            priority=request.priority,
            requested_by=actor,
            device_minutes=device_minutes,
            has_tree=False,
            is_cancelled=False,
            attempt_count=0,
            line_count=0,
        )
        session.add(job)
        session.flush()
        add_entry(
            session,
            actor=actor,
            action="queue.request",
            project=project,
            subject=str(job.job_id),
            after=f"{request.command[0]} on {request.runner_class}",
        )
        return job.job_id


def store_tree(engine: Engine, job_id: UUID, content: bytes) -> None:
    """Store the tree of a job, which runners may take from then on.

    Raises:
        ConflictError: it has one, or the job has ended.
    """
    row = QueuedJobRow
    with Session(engine) as session, session.begin():
        updated = session.execute(
            update(row)
            .where(row.job_id == job_id, row.has_tree.is_(False), row.outcome.is_(None))
            .values(has_tree=True)
        )
        if updated.rowcount == 0:  # type: ignore[attr-defined]  # of an update
            raise ConflictError(f"job {job_id}: has a tree already, or has ended")
        session.add(QueuedContentRow(job_id=job_id, content=content))


def read_queued_job(session: Session, job_id: UUID) -> QueuedJob | None:
    query = _jobs().where(QueuedJobRow.job_id == job_id)
    row = session.execute(query).first()
    if row is None:
        return None
    return _to_job(row[0], row[1])


def list_queued_jobs(session: Session, projects: Collection[str] | None) -> list[QueuedJob]:
    """List the jobs of the last seven days, unfinished ones first in the order of requests, then
    the newest.
    """
    row = QueuedJobRow
    query = (
        _jobs()
        .where(or_(row.outcome.is_(None), row.finished_at > func.now() - _LISTED))
        .order_by(
            row.finished_at.desc().nulls_first(),
            row.requested_at,
            row.job_id,
        )
    )
    if projects is not None:
        query = query.where(ProjectRow.name.in_(projects))
    return [_to_job(job, project) for job, project in session.execute(query)]


def read_lines(session: Session, job_id: UUID, after: int) -> Sequence[str]:
    """Lines of progress from a number on, at most 500."""
    query = (
        select(QueuedLineRow.line)
        .where(QueuedLineRow.job_id == job_id, QueuedLineRow.number >= after)
        .order_by(QueuedLineRow.number)
        .limit(_WHOLE_LINES_PER_ANSWER)
    )
    return session.scalars(query).all()


def read_result(session: Session, job_id: UUID) -> bytes:
    """What a finished job returned.

    Raises:
        NotStoredError: the job is not done, or its result is no longer kept.
    """
    query = (
        select(QueuedContentRow.content)
        .join(QueuedJobRow, QueuedJobRow.job_id == QueuedContentRow.job_id)
        .where(QueuedJobRow.job_id == job_id, QueuedJobRow.outcome == JobOutcome.DONE)
    )
    content = session.scalar(query)
    if content is None:
        raise NotStoredError(
            f"job {job_id}: has no result; it is not done, or ended over {_LISTED.days} days ago"
        )
    return content


def cancel_queued_job(engine: Engine, job: QueuedJob, *, actor: str, reason: str = "") -> None:
    """Cancel a waiting job at once; the runner of a running one ends it. Does nothing to one that
    has ended.
    """
    row = QueuedJobRow
    is_open = and_(row.job_id == job.job_id, row.outcome.is_(None))
    with Session(engine) as session, session.begin():
        updated = session.execute(
            update(row).where(is_open, row.is_cancelled.is_(False)).values(is_cancelled=True)
        )
        if updated.rowcount == 0:  # type: ignore[attr-defined]  # of an update
            return
        add_entry(
            session,
            actor=actor,
            action="queue.cancel",
            project=job.project,
            subject=str(job.job_id),
            reason=reason or None,
        )
        end_jobs(session, and_(is_open, row.leased_until.is_(None)), JobOutcome.CANCELLED)


def forecast_job(session: Session, job: QueuedJob) -> QueueForecast:
    """Forecast how long a job takes, and what is before it."""
    row = QueuedJobRow
    ahead = (
        select(row.command, ProjectRow.name)
        .join(ProjectRow)
        .where(
            row.runner_class == job.runner_class,
            row.outcome.is_(None),
            row.job_id != job.job_id,
            or_(
                rank_of(row.priority) < _RANKS[job.priority],
                and_(row.priority == job.priority, row.requested_at < job.requested_at),
            ),
        )
    )
    expected: dict[tuple[str, str], float | None] = {}

    def expected_s(project: str, command: str) -> float | None:
        key = (project, command)
        if key not in expected:
            expected[key] = _median_s(session, project, job.runner_class, command)
        return expected[key]

    waits = [expected_s(project, command[0]) for command, project in session.execute(ahead)]
    known_s = [wait_s for wait_s in waits if wait_s is not None]
    return QueueForecast(
        expected_s=expected_s(job.project, job.command[0]),
        ahead_count=len(waits),
        ahead_s=sum(known_s) if len(known_s) == len(waits) else None,
    )


def _median_s(session: Session, project: str, runner_class: str, command: str) -> float | None:
    row = QueuedJobRow
    newest = (
        select(row.spent_s)
        .join(ProjectRow)
        .where(
            ProjectRow.name == project,
            row.runner_class == runner_class,
            row.command[1] == command,
            row.outcome == JobOutcome.DONE,
        )
        .order_by(row.finished_at.desc())
        .limit(_RECENT_JOBS)
        .subquery()
    )
    median = func.percentile_cont(0.5).within_group(newest.c.spent_s)
    return session.scalar(select(median))


# --- what the queue shares with runners

_RANKS = {priority: rank for rank, priority in enumerate(JobPriority)}


def rank_of(priority: SQLColumnExpression[JobPriority]) -> ColumnElement[int]:
    """Order of priorities: lower starts first."""
    return case(_RANKS, value=priority)


def usage() -> Subquery:
    """Seconds of devices that each person used in 24 hours; running jobs count so far."""
    row = QueuedJobRow
    running_s = extract("epoch", func.now() - row.started_at)
    # what a lost runner took is not the person's
    is_running = and_(row.outcome.is_(None), row.leased_until > func.now())
    spent_s = case((is_running, running_s), else_=func.coalesce(row.spent_s, 0.0))
    return (
        select(row.requested_by, func.sum(spent_s).label("used_s"))
        .where(row.started_at > func.now() - USAGE_WINDOW)
        .group_by(row.requested_by)
        .subquery()
    )


def end_jobs(session: Session, condition: ColumnElement[bool], outcome: JobOutcome) -> None:
    """End jobs without a result, with an audit entry for each."""
    row = QueuedJobRow
    ended = (
        update(row)
        .where(condition)
        .values(outcome=outcome, finished_at=func.now(), claim_id=None, leased_until=None)
        .returning(row.job_id, row.project_id, row.runner)
    )
    for job_id, project_row, runner in session.execute(ended).all():
        session.execute(delete(QueuedContentRow).where(QueuedContentRow.job_id == job_id))
        release_requests(session, job_id)
        project = session.scalar(select(ProjectRow.name).where(ProjectRow.id == project_row))
        add_entry(
            session,
            actor=f"runner {runner}" if runner else "queue",
            action=f"queue.{outcome}",
            project=project,
            subject=str(job_id),
        )


def _used_s(session: Session, actor: str) -> float:
    used = usage()
    return float(session.scalar(select(used.c.used_s).where(used.c.requested_by == actor)) or 0.0)


def _jobs() -> Select[QueuedJobRow, str]:
    return select(QueuedJobRow, ProjectRow.name).join(ProjectRow)


def _to_job(row: QueuedJobRow, project: str) -> QueuedJob:
    return to_value(QueuedJob, row, project=project, command=tuple(row.command))


def _remove_old(session: Session) -> None:
    row = QueuedJobRow
    # the client was killed before it sent the tree, or no runner of the class ever came
    lacks_tree = and_(row.has_tree.is_(False), row.requested_at < func.now() - _SENDING)
    waits_long = row.requested_at < func.now() - _LISTED
    is_waiting = and_(row.outcome.is_(None), row.leased_until.is_(None))
    end_jobs(session, and_(is_waiting, or_(lacks_tree, waits_long)), JobOutcome.CANCELLED)
    aged = select(row.job_id).where(row.finished_at < func.now() - _LISTED)
    session.execute(delete(QueuedContentRow).where(QueuedContentRow.job_id.in_(aged)))
    session.execute(delete(row).where(row.finished_at < func.now() - _KEPT))

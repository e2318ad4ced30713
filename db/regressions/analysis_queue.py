"""The queue of analyses. Each project has one place; workers take the oldest request first."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import ColumnElement, Engine, and_, func, or_, select, text, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from roofwatch.db.engine.session import NO_TIMEOUTS
from roofwatch.db.schema.analysis import AnalysisJobRow
from roofwatch.db.schema.runs import ProjectRow

_FIRST_PAUSE_S = 5
# doubled up to here: what always fails is tried once an hour
_LONGEST_PAUSE_S = 3_600


@dataclass(frozen=True)
class Job:
    project_id: int
    project: str
    requested_at: datetime


@dataclass(frozen=True)
class QueueState:
    waiting_count: int
    oldest_wait_s: float
    """Age of the oldest request; 0 if none waits."""
    failing_count: int
    """Projects whose last analysis failed."""
    last_duration_s: float
    """Longest of the last analyses of all projects."""


@contextmanager
def claim_job(engine: Engine) -> Iterator[Job | None]:
    """Lock the project that waits longest, unless another worker has it; None if none waits.

    The lock ends with the block, or with the process. A block without an error is a finished
    analysis. Its requests are answered; later ones stay. After an error the project waits before
    the next attempt, twice as long each time.
    """
    with engine.connect() as connection, connection.begin() as claim:
        # a row per project, so that a worker can skip those that others hold
        waiting = select(ProjectRow.id).where(_is_waiting())
        new_jobs = insert(AnalysisJobRow).from_select(["project_id"], waiting)
        connection.execute(new_jobs.on_conflict_do_nothing())
        claim.commit()
    with engine.connect() as connection, connection.begin():
        # this transaction is idle during the analysis
        connection.execute(NO_TIMEOUTS)
        # the project that waits longest, so that a busy one cannot hold back the others
        query = (
            select(ProjectRow.id, ProjectRow.name, ProjectRow.analysis_requested_at)
            .join(AnalysisJobRow, AnalysisJobRow.project_id == ProjectRow.id)
            .where(_is_waiting(), AnalysisJobRow.not_before <= func.now())
            .order_by(ProjectRow.analysis_requested_at)
            .limit(1)
            .with_for_update(of=AnalysisJobRow, skip_locked=True)
        )
        row = connection.execute(query).one_or_none()
        if row is None:
            yield None
            return
        project_id, project, requested_at = row
        assert requested_at is not None, "a project that waits"
        job = Job(project_id, project, requested_at)
        of_job = AnalysisJobRow.project_id == job.project_id
        started_at = connection.execute(select(func.clock_timestamp())).scalar_one()
        try:
            yield job
        except Exception as error:
            # a project that always fails must not keep a worker from the others
            failure_count = AnalysisJobRow.failure_count + 1
            pause_s = func.least(_FIRST_PAUSE_S * func.power(2, failure_count), _LONGEST_PAUSE_S)
            connection.execute(
                update(AnalysisJobRow)
                .where(of_job)
                .values(
                    failure_count=failure_count,
                    # the message may quote what a user sent
                    not_before=func.clock_timestamp() + pause_s * text("interval '1 second'"),
                    error=type(error).__name__,
                )
            )
            connection.commit()
            raise
        duration_s = func.extract("epoch", func.clock_timestamp() - started_at)
        connection.execute(
            update(AnalysisJobRow)
            .where(of_job)
            .values(
                failure_count=0,
                not_before=func.clock_timestamp(),
                finished_at=func.clock_timestamp(),
                duration_s=duration_s,
                error=None,
            )
        )
        # a request that came during the analysis stays
        analysed_at = func.greatest(ProjectRow.analysed_at, job.requested_at)
        connection.execute(
            update(ProjectRow)
            .where(ProjectRow.id == job.project_id)
            .values(analysed_at=analysed_at)
        )


def read_queue_state(session: Session) -> QueueState:
    waited_s = func.extract("epoch", func.now() - func.min(ProjectRow.analysis_requested_at))
    waiting = select(func.count(), func.coalesce(waited_s, 0)).where(_is_waiting())
    waiting_count, oldest_wait_s = session.execute(waiting).one()
    job = AnalysisJobRow
    jobs = select(
        func.count().filter(job.failure_count > 0), func.coalesce(func.max(job.duration_s), 0)
    )
    failing_count, last_duration_s = session.execute(jobs).one()
    return QueueState(
        waiting_count=waiting_count,
        oldest_wait_s=float(oldest_wait_s or 0),
        failing_count=failing_count,
        last_duration_s=float(last_duration_s or 0),
    )


def _is_waiting() -> ColumnElement[bool]:
    requested_at = ProjectRow.analysis_requested_at
    analysed_at = ProjectRow.analysed_at
    is_new = or_(analysed_at.is_(None), analysed_at < requested_at)
    return and_(requested_at.is_not(None), is_new)

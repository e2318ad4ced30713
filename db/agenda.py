"""Agendas of runners: store a plan, take a job that no other runner has, finish it, list them."""

from collections.abc import Collection, Sequence
from datetime import timedelta
from uuid import UUID

from sqlalchemy import Engine, and_, case, delete, func, or_, select, update
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.orm import Session

from roofwatch.db.errors import StoreError
from roofwatch.db.leases import take_first
from roofwatch.db.schema.agenda import AgendaJobRow
from roofwatch.db.schema.run_filter import project_id
from roofwatch.db.schema.runs import ProjectRow
from roofwatch.db.schema.subjects import ProjectName
from roofwatch.db.schema.table import to_value
from roofwatch.model.agenda import PlannedJob, StoredJob
from roofwatch.model.queue import MAX_REQUESTED_PAIRS, RequestedPair, WatchReport

LEASE = timedelta(hours=2)
"""Time after which another runner may take a job; one job takes minutes."""
_RECENT = timedelta(hours=1)
"""Another runner's plan may be older than the result of a job that was finished this recently."""
# what a reader of the dashboard may still ask about
_LISTED = timedelta(days=30)
_KEPT = timedelta(days=90)
_REQUESTED = -1
"""Position of a job that a person asked for: before all that runners plan, which keep it."""


def take_job(
    engine: Engine,
    project: str,
    runner_class: str,
    jobs: Sequence[PlannedJob],
    claim_id: UUID,
) -> str | None:
    """Replace the plan of a runner class, and lease its most valuable job.

    Args:
        engine: Of the store.
        project: Its name; a new one is made.
        runner_class: All of its runners share the agenda.
        jobs: The most valuable first.
        claim_id: Of the runner; its own unfinished job is leased to it again.

    Returns:
        The key of the job; None if other runners have taken all.
    """
    keys = [job.key for job in jobs]
    row = AgendaJobRow
    with Session(engine) as session, session.begin():
        session.execute(upsert(ProjectRow).values(name=project).on_conflict_do_nothing())
        project_row = session.scalars(select(ProjectRow.id).where(ProjectRow.name == project)).one()
        is_own = and_(row.project_id == project_row, row.runner_class == runner_class)
        is_open = row.finished_at.is_(None)
        is_leased = and_(row.leased_until.is_not(None), row.leased_until > func.now())
        # what a killed runner has leased and its next process does not plan was done
        is_abandoned = or_(~is_leased, row.claim_id == claim_id)
        is_planned = row.position > _REQUESTED
        session.execute(
            delete(row).where(is_own, is_open, is_planned, is_abandoned, row.key.not_in(keys))
        )
        session.execute(delete(row).where(is_own, row.finished_at < func.now() - _KEPT))
        for position, job in enumerate(jobs):
            _store(session, project_row, runner_class, position, job)
        done_by_others = select(row.key).where(
            is_own,
            row.finished_at > func.now() - _RECENT,
            row.claim_id.is_distinct_from(claim_id),
        )
        is_free = and_(
            is_own,
            is_open,
            row.key.in_(keys),
            or_(~is_leased, row.claim_id == claim_id),
            row.key.not_in(done_by_others),
        )
        taken_id = take_first(
            session,
            row.id,
            condition=is_free,
            order=(row.position, row.id),
            values={"claim_id": claim_id, "leased_until": func.now() + LEASE},
        )
        if taken_id is None:
            return None
        return session.scalars(select(row.key).where(row.id == taken_id)).one()


def _store(
    session: Session,
    project_row: int,
    runner_class: str,
    position: int,
    job: PlannedJob,
) -> None:
    insert = upsert(AgendaJobRow).values(
        project_id=project_row,
        runner_class=runner_class,
        key=job.key,
        kind=job.kind,
        base_sha=job.base_sha,
        head_sha=job.head_sha,
        position=position,
        reason=job.reason,
        expected_s=job.expected_s,
    )
    # a new plan does not put off what a person asked for
    stays_first = AgendaJobRow.position == _REQUESTED
    session.execute(
        insert.on_conflict_do_update(
            index_elements=["project_id", "runner_class", "key"],
            index_where=AgendaJobRow.finished_at.is_(None),
            set_={
                "position": case((stays_first, _REQUESTED), else_=insert.excluded.position),
                "reason": case((stays_first, AgendaJobRow.reason), else_=insert.excluded.reason),
                "expected_s": insert.excluded.expected_s,
            },
        )
    )


def request_job(session: Session, project: str, runner_class: str, job: PlannedJob) -> None:
    """Put a job before all that the runners of a class plan, in the caller's transaction.

    Raises:
        StoreError: there is no such project.
    """
    project_row = session.scalar(select(ProjectRow.id).where(ProjectRow.name == project))
    if project_row is None:
        raise StoreError(f"project {project!r} is not stored")
    _store(session, project_row, runner_class, _REQUESTED, job)


def finish_job(
    engine: Engine,
    project: str,
    runner_class: str,
    key: str,
    claim_id: UUID,
    spent_s: float,
    note: str | None = None,
) -> bool:
    """End the lease of a job; False if another runner has taken it over.

    Args:
        engine: Of the store.
        project: Of the job.
        runner_class: Of the job.
        key: Of the job.
        claim_id: Of the runner.
        spent_s: Wall time.
        note: Why nothing was measured.
    """
    row = AgendaJobRow
    project_row_id = select(ProjectRow.id).where(ProjectRow.name == project).scalar_subquery()
    finished = (
        update(row)
        .where(
            row.project_id == project_row_id,
            row.runner_class == runner_class,
            row.key == key,
            row.claim_id == claim_id,
            row.finished_at.is_(None),
        )
        .values(finished_at=func.now(), spent_s=spent_s, note=note)
    )
    with engine.begin() as connection:
        return connection.execute(finished).rowcount > 0


def lease_requests(
    session: Session,
    project_row: int,
    runner_classes: Collection[str],
    job_id: UUID,
) -> tuple[RequestedPair, ...]:
    """Lease the pairs that people asked for to a watch of the queue, in the caller's transaction.

    Args:
        session: In a transaction.
        project_row: Of the watch.
        runner_classes: Whose pairs its runner can measure.
        job_id: Of the watch, which holds the leases, so that its next runner gets them again.
    """
    row = AgendaJobRow
    is_leased = and_(row.leased_until.is_not(None), row.leased_until > func.now())
    free = (
        select(row.id)
        .where(
            row.project_id == project_row,
            row.runner_class.in_(runner_classes),
            row.position == _REQUESTED,
            row.base_sha.is_not(None),
            row.finished_at.is_(None),
            or_(~is_leased, row.claim_id == job_id),
        )
        .order_by(row.planned_at, row.id)
        .limit(MAX_REQUESTED_PAIRS)
        .with_for_update(skip_locked=True)
    )
    leased = (
        update(row)
        .where(row.id.in_(free))
        .values(claim_id=job_id, leased_until=func.now() + LEASE)
        .returning(row.id, row.base_sha, row.head_sha)
    )
    in_order = sorted(session.execute(leased).all())
    # two classes of one kind of runner may wait for the same pair
    pairs: dict[RequestedPair, None] = {}
    for _, base_sha, head_sha in in_order:
        if base_sha is not None:
            pairs[RequestedPair(base_sha=base_sha, head_sha=head_sha)] = None
    return tuple(pairs)


def answer_requests(session: Session, job_id: UUID, report: WatchReport) -> None:
    """Finish the pairs that a watch of the queue holds and has measured, or cannot measure."""
    row = AgendaJobRow
    for pair in report.pairs:
        session.execute(
            update(row)
            .where(
                row.claim_id == job_id,
                row.finished_at.is_(None),
                row.runner_class == report.runner_class,
                row.base_sha == pair.base_sha,
                row.head_sha == pair.head_sha,
            )
            .values(finished_at=func.now(), spent_s=pair.spent_s, note=pair.note)
        )


def release_requests(session: Session, job_id: UUID) -> None:
    """Give back the pairs that a watch of the queue holds and has not measured."""
    row = AgendaJobRow
    session.execute(
        update(row)
        .where(row.claim_id == job_id, row.finished_at.is_(None))
        .values(claim_id=None, leased_until=None)
    )


def list_jobs(session: Session, project: ProjectName) -> list[StoredJob]:
    """List the open jobs in their order, then those that were finished in the last 30 days, the
    newest first.
    """
    row = AgendaJobRow
    query = (
        select(row)
        .where(
            row.project_id == project_id(project),
            or_(row.finished_at.is_(None), row.finished_at > func.now() - _LISTED),
        )
        .order_by(
            row.finished_at.desc().nulls_first(),
            row.runner_class,
            row.position,
            row.id,
        )
    )
    return [to_value(StoredJob, job) for job in session.scalars(query)]

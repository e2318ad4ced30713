"""The tables of the queue: jobs of people, their contents and their lines of progress."""

from datetime import datetime
from uuid import UUID

from sqlalchemy import CheckConstraint, ForeignKey, Index, LargeBinary, func, text
from sqlalchemy.orm import Mapped, mapped_column

from roofwatch.db.schema.runs import ProjectRow
from roofwatch.db.schema.table import Base, not_negative
from roofwatch.model.queue import JobOutcome, JobPriority


class QueuedJobRow(Base):
    """A command for the runners of a class."""

    __tablename__ = "queued_job"
    __table_args__ = (
        CheckConstraint(
            "(claim_id IS NULL) = (leased_until IS NULL)", name="lease_has_a_holder_and_an_end"
        ),
        CheckConstraint("(outcome IS NULL) = (finished_at IS NULL)", name="ended_with_an_outcome"),
        CheckConstraint(
            "(outcome IS NOT DISTINCT FROM 'done') = (exit_status IS NOT NULL)",
            name="status_only_if_done",
        ),
        *not_negative("spent_s", "attempt_count", "line_count", "device_minutes"),
        # a runner looks for the first of these
        Index(
            "ix_queued_job_open",
            "runner_class",
            "requested_at",
            postgresql_where=text("outcome IS NULL"),
        ),
        Index(None, "requested_by", "started_at"),
        Index(None, "project_id", "requested_at"),
    )

    job_id: Mapped[UUID] = mapped_column(primary_key=True)
    project_id: Mapped[int] = mapped_column(ForeignKey(ProjectRow.id, ondelete="CASCADE"))
    runner_class: Mapped[str]
    command: Mapped[list[str]]
    folder: Mapped[str]
    priority: Mapped[JobPriority]
    requested_by: Mapped[str]
    requested_at: Mapped[datetime] = mapped_column(server_default=func.now())
    device_minutes: Mapped[float | None]
    has_tree: Mapped[bool]
    is_cancelled: Mapped[bool]
    attempt_count: Mapped[int]
    line_count: Mapped[int]
    runner: Mapped[str | None]
    claim_id: Mapped[UUID | None]
    leased_until: Mapped[datetime | None]
    started_at: Mapped[datetime | None]
    finished_at: Mapped[datetime | None]
    outcome: Mapped[JobOutcome | None]
    exit_status: Mapped[int | None]
    spent_s: Mapped[float | None]
    measured_class: Mapped[str | None]
    """The runner class in the records of a watch."""


class QueuedContentRow(Base):
    """The tree of a job until it ends, then its result."""

    __tablename__ = "queued_content"

    job_id: Mapped[UUID] = mapped_column(
        ForeignKey(QueuedJobRow.job_id, ondelete="CASCADE"), primary_key=True
    )
    content: Mapped[bytes] = mapped_column(LargeBinary)


class QueuedLineRow(Base):
    """A line of progress."""

    __tablename__ = "queued_line"

    job_id: Mapped[UUID] = mapped_column(
        ForeignKey(QueuedJobRow.job_id, ondelete="CASCADE"), primary_key=True
    )
    number: Mapped[int] = mapped_column(primary_key=True)
    line: Mapped[str]

"""The table of the agendas of runners: planned jobs, leases and what was done."""

from datetime import datetime
from uuid import UUID

from sqlalchemy import CheckConstraint, ForeignKey, Identity, Index, func, text
from sqlalchemy.orm import Mapped, mapped_column

from roofwatch.db.schema.runs import ProjectRow
from roofwatch.db.schema.table import Base, not_negative
from roofwatch.model.agenda import JobKind


class AgendaJobRow(Base):
    """A job of a runner class. A lease ends by itself, so a killed runner holds a job for a while
    only.
    """

    __tablename__ = "agenda_job"
    __table_args__ = (
        CheckConstraint(
            "(claim_id IS NULL) = (leased_until IS NULL)", name="lease_has_a_holder_and_an_end"
        ),
        *not_negative("expected_s", "spent_s"),
        # an unfinished job is listed once
        Index(
            "uq_agenda_job_open",
            "project_id",
            "runner_class",
            "key",
            unique=True,
            postgresql_where=text("finished_at IS NULL"),
        ),
        Index(None, "project_id", "finished_at"),
    )

    id: Mapped[int] = mapped_column(Identity(), primary_key=True)
    project_id: Mapped[int] = mapped_column(ForeignKey(ProjectRow.id, ondelete="CASCADE"))
    runner_class: Mapped[str]
    key: Mapped[str]
    kind: Mapped[JobKind]
    reason: Mapped[str]
    base_sha: Mapped[str | None]
    head_sha: Mapped[str]
    position: Mapped[int]
    expected_s: Mapped[float]
    spent_s: Mapped[float | None]
    planned_at: Mapped[datetime] = mapped_column(server_default=func.now())
    claim_id: Mapped[UUID | None]
    leased_until: Mapped[datetime | None]
    finished_at: Mapped[datetime | None]
    note: Mapped[str | None]

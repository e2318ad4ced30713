"""The tables of bisections. Their commits are written out: those in between may never have been measured, and so be in
no record.
"""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from sqlalchemy import CheckConstraint, ForeignKey, ForeignKeyConstraint, Index, func, text
from sqlalchemy.orm import Mapped, mapped_column

from roofwatch.db.bisections.values import BisectionState, Standing
from roofwatch.db.schema.runs import ProjectRow
from roofwatch.db.schema.table import Base, one_of
from roofwatch.db.values import CommitRef

_UNFINISHED = "state IN ('requested', 'running')"


class BisectionRow(Base):
    """Whoever holds `claim_id` may write to one that is running, until another claims it after `leased_until`."""

    __tablename__ = "bisection"
    __table_args__ = (
        one_of("state", BisectionState),
        CheckConstraint("(state = 'running') = (claim_id IS NOT NULL)", name="claimed_while_running"),
        CheckConstraint("(claim_id IS NULL) = (leased_until IS NULL)", name="claim_has_lease"),
        CheckConstraint("(state IN ('requested', 'running')) = (finished_at IS NULL)", name="finished_when_over"),
        CheckConstraint("(first_sha IS NULL) = (state NOT IN ('found', 'narrowed'))", name="answer_if_found"),
        CheckConstraint(
            "num_nulls(first_sha, last_sha, confidence, relative_change, change_low, change_high) IN (0, 6)",
            name="answer_whole",
        ),
        CheckConstraint("confidence BETWEEN 0 AND 1", name="confidence_is_a_probability"),
        CheckConstraint("measurement_count >= 0", name="measurement_count_not_negative"),
        # who asks twice for what is not over yet gets the same
        Index(
            "uq_bisection_unfinished",
            *("project_id", "case_id", "implementation", "runner_class", "good_sha", "bad_sha"),
            unique=True,
            postgresql_where=text(_UNFINISHED),
            postgresql_nulls_not_distinct=True,
        ),
        Index(None, "project_id", "requested_at"),
    )

    bisection_id: Mapped[UUID] = mapped_column(primary_key=True)
    project_id: Mapped[int] = mapped_column(ForeignKey(ProjectRow.id, ondelete="CASCADE"))
    case_id: Mapped[str]
    implementation: Mapped[str | None]
    runner_class: Mapped[str | None]
    good_sha: Mapped[str]
    bad_sha: Mapped[str]
    state: Mapped[str]
    requested_by: Mapped[str]
    # not a foreign key: a regression's row is made anew with each judgement
    regression_id: Mapped[UUID | None]
    requested_at: Mapped[datetime] = mapped_column(server_default=func.now())
    started_at: Mapped[datetime | None]
    finished_at: Mapped[datetime | None]
    claim_id: Mapped[UUID | None]
    leased_until: Mapped[datetime | None]
    measurement_count: Mapped[int] = mapped_column(server_default=text("0"))
    note: Mapped[str] = mapped_column(server_default=text("''"))
    first_sha: Mapped[str | None]
    last_sha: Mapped[str | None]
    confidence: Mapped[float | None]
    relative_change: Mapped[float | None]
    change_low: Mapped[float | None]
    change_high: Mapped[float | None]


class BisectionCommitRow(Base):
    __tablename__ = "bisection_commit"
    __table_args__ = (
        one_of("standing", Standing),
        CheckConstraint("probability BETWEEN 0 AND 1", name="probability"),
        CheckConstraint("pair_count >= 0", name="pair_count_not_negative"),
        ForeignKeyConstraint(["bisection_id"], [BisectionRow.bisection_id], ondelete="CASCADE"),
    )

    bisection_id: Mapped[UUID] = mapped_column(primary_key=True)
    position: Mapped[int] = mapped_column(primary_key=True)
    sha: Mapped[str]
    first_parent_count: Mapped[int]
    author: Mapped[str]
    subject: Mapped[str]
    committed_at: Mapped[datetime]
    probability: Mapped[float]
    standing: Mapped[str]
    reason: Mapped[str]
    pair_count: Mapped[int]
    relative_change: Mapped[float | None]

    def to_ref(self) -> CommitRef:
        return CommitRef(self.first_parent_count, self.sha, self.author, self.subject, self.committed_at)


class BisectionStepRow(Base):
    __tablename__ = "bisection_step"
    __table_args__ = (
        CheckConstraint("probability BETWEEN 0 AND 1", name="probability"),
        CheckConstraint("pair_count >= 0", name="pair_count_not_negative"),
        ForeignKeyConstraint(["bisection_id"], [BisectionRow.bisection_id], ondelete="CASCADE"),
    )

    bisection_id: Mapped[UUID] = mapped_column(primary_key=True)
    position: Mapped[int] = mapped_column(primary_key=True)
    sha: Mapped[str]
    pair_count: Mapped[int]
    relative_change: Mapped[float | None]
    probability: Mapped[float]
    note: Mapped[str]
    finished_at: Mapped[datetime]

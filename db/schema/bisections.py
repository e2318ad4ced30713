"""The table of bisections: the request, its claim, and progress and answer as JSON."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import CheckConstraint, ForeignKey, Index, func, text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Mapped, mapped_column

from roofwatch.db.schema.runs import ProjectRow
from roofwatch.db.schema.table import Base
from roofwatch.db.values import BisectionState

_UNFINISHED = "state IN ('requested', 'running')"


class BisectionRow(Base):
    """The runner with `claim_id` may write; after `leased_until` another may claim it."""

    __tablename__ = "bisection"
    __table_args__ = (
        CheckConstraint("(state = 'running') = (claim_id IS NOT NULL)", name="claimed_while_running"),
        CheckConstraint("(claim_id IS NULL) = (leased_until IS NULL)", name="claim_has_lease"),
        CheckConstraint("(state IN ('requested', 'running')) = (finished_at IS NULL)", name="finished_when_over"),
        CheckConstraint("(answer IS NULL) = (state NOT IN ('found', 'narrowed'))", name="answer_if_found"),
        # an identical request is answered with the unfinished one
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
    state: Mapped[BisectionState]
    requested_by: Mapped[str]
    # no foreign key: the rows of regressions are replaced by every analysis
    regression_id: Mapped[UUID | None]
    requested_at: Mapped[datetime] = mapped_column(server_default=func.now())
    started_at: Mapped[datetime | None]
    finished_at: Mapped[datetime | None]
    claim_id: Mapped[UUID | None]
    leased_until: Mapped[datetime | None]
    note: Mapped[str] = mapped_column(server_default=text("''"))
    progress: Mapped[dict[str, Any] | None] = mapped_column(JSONB(none_as_null=True))
    answer: Mapped[dict[str, Any] | None] = mapped_column(JSONB(none_as_null=True))

"""The tables of regressions, their triage, analyses, bisections and alerts. Channels are stored by
name only.
"""

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import (
    CheckConstraint,
    Enum,
    ForeignKey,
    Identity,
    Index,
    UniqueConstraint,
    func,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Mapped, mapped_column

from roofwatch.db.schema.runs import ProjectRow
from roofwatch.db.schema.table import Base, one_of
from roofwatch.model.acceptance import Grain
from roofwatch.model.alert import AlertEvent, AlertState, DeliveryState
from roofwatch.model.history import RegressionState
from roofwatch.model.triage import BisectionState, TriageState
from roofwatch.model.verdict import Verdict

_VERDICTS = (Verdict.REGRESSED, Verdict.IMPROVED, Verdict.UNCHANGED, Verdict.INCONCLUSIVE)
"""Of measured series; a prediction is never stored as a regression."""
# its own check, which leaves the predicted verdicts out
_VERDICT = Enum(
    Verdict,
    native_enum=False,
    create_constraint=False,
    values_callable=lambda kind: [member.value for member in kind],
)


class RegressionRow(Base):
    """A regression as one document. Every analysis replaces those of a project that it finds or
    never had an alert.
    """

    __tablename__ = "regression"
    __table_args__ = (one_of("verdict", _VERDICTS),)

    project_id: Mapped[int] = mapped_column(
        ForeignKey(ProjectRow.id, ondelete="CASCADE"), primary_key=True
    )
    sha: Mapped[str] = mapped_column(primary_key=True)
    kernel: Mapped[str] = mapped_column(primary_key=True)
    verdict: Mapped[Verdict] = mapped_column(_VERDICT, primary_key=True)
    regression_id: Mapped[UUID] = mapped_column(
        ForeignKey("triage.regression_id", ondelete="CASCADE")
    )
    state: Mapped[RegressionState]
    # commits whose runs retention keeps
    evidence_commit_ids: Mapped[list[int]]
    document: Mapped[dict[str, Any]]


class TriageRow(Base):
    """The decision about a regression that any analysis ever found.

    `sha`, `kernel`, `verdict` and `series` are those of the last analysis that found it.
    """

    __tablename__ = "triage"
    __table_args__ = (
        Index(None, "project_id"),
        CheckConstraint(
            "num_nulls(person, reason, changed_at) = 0 OR "
            "(state = 'new' AND num_nonnulls(person, reason, changed_at) = 0)",
            name="decided_whole",
        ),
        one_of("verdict", _VERDICTS),
    )

    regression_id: Mapped[UUID] = mapped_column(primary_key=True)
    project_id: Mapped[int] = mapped_column(ForeignKey(ProjectRow.id, ondelete="CASCADE"))
    sha: Mapped[str]
    kernel: Mapped[str]
    verdict: Mapped[Verdict] = mapped_column(_VERDICT)
    series: Mapped[list[str]]
    is_found: Mapped[bool]
    # the newest measured commit at the time of the decision
    newest_first_parent_count: Mapped[int]
    state: Mapped[TriageState]
    person: Mapped[str | None]
    reason: Mapped[str | None]
    changed_at: Mapped[datetime | None]
    assignee: Mapped[str | None]
    issue_url: Mapped[str | None]
    # hidden until then, or until this commit is measured
    snoozed_until: Mapped[datetime | None]
    snoozed_until_sha: Mapped[str | None]
    # pull requests, if the decision was made there
    accepted_in: Mapped[str | None]


class AcceptanceRow(Base):
    """What a comment on a pull request accepted. It stays when the comment is deleted."""

    __tablename__ = "acceptance"
    __table_args__ = (UniqueConstraint("project_id", "pull_request", "comment_id"),)

    id: Mapped[int] = mapped_column(Identity(), primary_key=True)
    project_id: Mapped[int] = mapped_column(ForeignKey(ProjectRow.id, ondelete="CASCADE"))
    # with the mark of the forge: #12 or !12
    pull_request: Mapped[str]
    comment_id: Mapped[int]
    head_sha: Mapped[str]
    person: Mapped[str]
    reason: Mapped[str]
    accepted_at: Mapped[datetime]
    # size up to which a finding is accepted, by its key
    most: Mapped[dict[str, Any]]
    grain: Mapped[Grain]
    wrong_results: Mapped[bool]


class BisectionRow(Base):
    """The runner with `claim_id` may write; after `leased_until` another may claim it."""

    __tablename__ = "bisection"
    __table_args__ = (
        CheckConstraint(
            "(state = 'running') = (claim_id IS NOT NULL)", name="claimed_while_running"
        ),
        CheckConstraint("(claim_id IS NULL) = (leased_until IS NULL)", name="claim_has_lease"),
        CheckConstraint(
            "(state IN ('requested', 'running')) = (finished_at IS NULL)", name="finished_when_over"
        ),
        CheckConstraint(
            "(answer IS NULL) = (state NOT IN ('found', 'narrowed'))", name="answer_if_found"
        ),
        # an identical request is answered with the unfinished one
        Index(
            "uq_bisection_unfinished",
            "project_id",
            "case_id",
            "implementation",
            "runner_class",
            "good_sha",
            "bad_sha",
            unique=True,
            postgresql_where=text("state IN ('requested', 'running')"),
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
    # no foreign key: analyses replace regressions
    regression_id: Mapped[UUID | None]
    requested_at: Mapped[datetime] = mapped_column(server_default=func.now())
    started_at: Mapped[datetime | None]
    finished_at: Mapped[datetime | None]
    claim_id: Mapped[UUID | None]
    leased_until: Mapped[datetime | None]
    note: Mapped[str] = mapped_column(server_default=text("''"))
    progress: Mapped[dict[str, Any] | None] = mapped_column(JSONB(none_as_null=True))
    answer: Mapped[dict[str, Any] | None] = mapped_column(JSONB(none_as_null=True))


class AlertRow(Base):
    """An alert as one document. There is one row per cause."""

    __tablename__ = "alert"
    __table_args__ = (Index(None, "project_id"),)

    id: Mapped[UUID] = mapped_column(primary_key=True)
    project_id: Mapped[int] = mapped_column(ForeignKey(ProjectRow.id, ondelete="CASCADE"))
    state: Mapped[AlertState]
    document: Mapped[dict[str, Any]]


class DeliveryRow(Base):
    """A message for one channel. While an attempt lasts, `next_attempt_at` is when another sender
    may try.
    """

    __tablename__ = "delivery"
    __table_args__ = (
        UniqueConstraint("key"),
        Index(None, "alert_id"),
        Index(None, "next_attempt_at", postgresql_where=text("state = 'waiting'")),
        CheckConstraint("(state = 'sent') = (sent_at IS NOT NULL)", name="sent_at_a_time"),
        CheckConstraint("attempt_count >= 0", name="attempt_count_not_negative"),
    )

    id: Mapped[int] = mapped_column(Identity(), primary_key=True)
    alert_id: Mapped[UUID] = mapped_column(ForeignKey(AlertRow.id, ondelete="CASCADE"))
    # as of the event
    alert: Mapped[dict[str, Any]]
    event: Mapped[AlertEvent]
    channel: Mapped[str]
    key: Mapped[UUID]
    state: Mapped[DeliveryState]
    is_uncertain: Mapped[bool]
    attempt_count: Mapped[int]
    next_attempt_at: Mapped[datetime]
    created_at: Mapped[datetime]
    sent_at: Mapped[datetime | None]
    error: Mapped[str | None]

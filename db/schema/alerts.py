"""The tables of alerts and of their deliveries. Channels are stored by name, never by address."""

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import CheckConstraint, ForeignKey, Identity, Index, UniqueConstraint, text
from sqlalchemy.orm import Mapped, mapped_column

from roofwatch.db.alerts.values import AlertEvent, AlertState, DeliveryState, Severity
from roofwatch.db.schema.runs import ProjectRow
from roofwatch.db.schema.table import Base


class AlertRow(Base):
    """One row per cause. Each time it fires is an episode."""

    __tablename__ = "alert"
    __table_args__ = (
        UniqueConstraint("project_id", "cause"),
        CheckConstraint("episode > 0", name="episode_positive"),
        CheckConstraint("(state = 'resolved') = (resolved_at IS NOT NULL)", name="resolved_at_a_time"),
        CheckConstraint(
            "num_nulls(acknowledged_at, acknowledged_by, acknowledged_reason) IN (0, 3)", name="acknowledged_whole"
        ),
        CheckConstraint("state <> 'acknowledged' OR acknowledged_at IS NOT NULL", name="acknowledged_at_a_time"),
    )

    id: Mapped[int] = mapped_column(Identity(), primary_key=True)
    project_id: Mapped[int] = mapped_column(ForeignKey(ProjectRow.id, ondelete="CASCADE"))
    cause: Mapped[str]
    rules: Mapped[list[str]]
    severity: Mapped[Severity]
    state: Mapped[AlertState]
    episode: Mapped[int]
    message: Mapped[dict[str, Any]]
    # no foreign key: analyses replace regressions
    regression_id: Mapped[UUID | None]
    fired_at: Mapped[datetime]
    told_at: Mapped[dict[str, Any]]
    escalated_to: Mapped[list[str]]
    acknowledged_at: Mapped[datetime | None]
    acknowledged_by: Mapped[str | None]
    acknowledged_reason: Mapped[str | None]
    resolved_at: Mapped[datetime | None]


class DeliveryRow(Base):
    """A message for one channel. All attempts share `key`; `attempt_id` is the last attempt."""

    __tablename__ = "delivery"
    __table_args__ = (
        UniqueConstraint("key"),
        Index(None, "alert_id"),
        Index(None, "next_attempt_at", postgresql_where=text("state IN ('waiting', 'sending')")),
        CheckConstraint("(state = 'sent') = (sent_at IS NOT NULL)", name="sent_at_a_time"),
        CheckConstraint("state <> 'sending' OR attempt_id IS NOT NULL", name="sending_is_an_attempt"),
        CheckConstraint("attempt_count >= 0", name="attempt_count_not_negative"),
    )

    id: Mapped[int] = mapped_column(Identity(), primary_key=True)
    alert_id: Mapped[int] = mapped_column(ForeignKey(AlertRow.id, ondelete="CASCADE"))
    episode: Mapped[int]
    event: Mapped[AlertEvent]
    channel: Mapped[str]
    key: Mapped[UUID]
    message: Mapped[dict[str, Any]]
    state: Mapped[DeliveryState]
    is_uncertain: Mapped[bool]
    attempt_count: Mapped[int]
    attempt_id: Mapped[UUID | None]
    next_attempt_at: Mapped[datetime]
    created_at: Mapped[datetime]
    sent_at: Mapped[datetime | None]
    error: Mapped[str | None]

"""The tables of alerts and of their deliveries. Channels are stored by name, never by address."""

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import CheckConstraint, ForeignKey, Identity, Index, UniqueConstraint, text
from sqlalchemy.orm import Mapped, mapped_column

from roofwatch.db.alerts.values import AlertEvent, AlertState, DeliveryState
from roofwatch.db.schema.runs import ProjectRow
from roofwatch.db.schema.table import Base


class AlertRow(Base):
    """An alert as one document. There is one row per cause."""

    __tablename__ = "alert"
    __table_args__ = (Index(None, "project_id"),)

    id: Mapped[UUID] = mapped_column(primary_key=True)
    project_id: Mapped[int] = mapped_column(ForeignKey(ProjectRow.id, ondelete="CASCADE"))
    state: Mapped[AlertState]
    document: Mapped[dict[str, Any]]


class DeliveryRow(Base):
    """A message for one channel. While an attempt lasts, `next_attempt_at` is when another sender may try."""

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

"""Values of alerts: what fires, what it says, and how far each message of it has come."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from uuid import UUID, uuid5

_NAMESPACE = UUID("c1e9d0a2-54c3-4f8b-9a55-0d6d3d6c7b11")


class Severity(StrEnum):
    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"


class AlertState(StrEnum):
    FIRING = "firing"
    ACKNOWLEDGED = "acknowledged"
    """Somebody has seen it: it is not escalated."""
    RESOLVED = "resolved"


class AlertEvent(StrEnum):
    """What a message tells of an alert."""

    FIRED = "fired"
    ESCALATED = "escalated"
    RESOLVED = "resolved"


class DeliveryState(StrEnum):
    WAITING = "waiting"
    SENDING = "sending"
    """Somebody is at it, or died at it: whether it arrived is not known."""
    SENT = "sent"
    FAILED = "failed"
    """Given up."""


@dataclass(frozen=True)
class Fact:
    """A line of a message."""

    name: str
    """Ours."""
    text: str
    """From records and repositories, so foreign."""


@dataclass(frozen=True)
class Link:
    name: str
    url: str


@dataclass(frozen=True)
class Message:
    """What is said of an alert. All of its texts may come from records: whoever writes them out makes them inert."""

    title: str
    """One line: what, and how much."""
    facts: tuple[Fact, ...] = ()
    owners: tuple[str, ...] = ()
    """`@name`, `@organisation/team` or an address."""
    links: tuple[Link, ...] = ()


@dataclass(frozen=True)
class AlertCondition:
    """What a rule has to tell now."""

    rule: str
    cause: str
    """Tells it from whatever else the rule tells; the same as long as it is the same thing."""
    severity: Severity
    message: Message
    regression_id: UUID | None = None
    is_acknowledged: bool = False
    """Somebody is at it already."""
    is_past: bool = False
    """It began too long ago to be news: what fires already goes on, but nothing begins."""


@dataclass(frozen=True)
class Alert:
    """A rule and a cause, with how it stands. One that fires again is the same, in its next episode."""

    project: str
    rule: str
    cause: str
    severity: Severity
    state: AlertState
    episode: int
    """From 1."""
    message: Message
    """As it was last seen firing."""
    fired_at: datetime
    """In this episode."""
    regression_id: UUID | None = None
    told_at: datetime | None = None
    """When somebody was last told that it fires, in whichever episode."""
    escalated_at: datetime | None = None
    """In this episode."""
    acknowledged_at: datetime | None = None
    acknowledged_by: str | None = None
    acknowledged_reason: str | None = None
    resolved_at: datetime | None = None

    @property
    def alert_id(self) -> UUID:
        """The same wherever the database is made again."""
        return uuid5(_NAMESPACE, "\n".join((self.project, self.rule, self.cause)))

    @property
    def is_told(self) -> bool:
        """Somebody was told in this episode."""
        return self.told_at is not None and self.told_at >= self.fired_at


@dataclass(frozen=True)
class Notification:
    """What a channel is to be told."""

    channel: str
    event: AlertEvent


@dataclass(frozen=True)
class AlertStep:
    """An alert as it stands from now on, and what is told of that."""

    alert: Alert
    notifications: tuple[Notification, ...] = ()


@dataclass(frozen=True)
class CaseError:
    """The error of one case and implementation in one run, timed there or not."""

    case_id: str
    kernel: str
    implementation: str
    rmse_ratio: float
    """Of its worst tensor."""


@dataclass(frozen=True)
class Delivery:
    """A message on its way through one channel."""

    delivery_id: int
    key: UUID
    """Of the message, the same in every attempt: by it a receiver knows one that it has."""
    channel: str
    event: AlertEvent
    episode: int
    alert: Alert
    message: Message
    """What is told, as it was when it was decided to."""
    state: DeliveryState
    attempt_count: int
    """Attempts that were begun."""
    attempt_id: UUID | None
    is_uncertain: bool
    """An earlier attempt may have arrived: its sender died, or its receiver did not answer."""
    created_at: datetime
    next_attempt_at: datetime
    sent_at: datetime | None
    error: str | None
    """Why the last attempt failed."""

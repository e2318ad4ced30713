"""Values of alerts: conditions that rules find, alerts with their state,
messages and deliveries.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from uuid import UUID, uuid4, uuid5

_NAMESPACE = UUID("c1e9d0a2-54c3-4f8b-9a55-0d6d3d6c7b11")


class Severity(StrEnum):
    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"

    @property
    def rank(self) -> int:
        """The more severe, the higher."""
        return list(Severity).index(self)


class AlertState(StrEnum):
    FIRING = "firing"
    ACKNOWLEDGED = "acknowledged"
    """Someone works on it: it is not escalated."""
    RESOLVED = "resolved"


class AlertEvent(StrEnum):
    FIRED = "fired"
    REMINDED = "reminded"
    """It still fires, or became more severe."""
    ESCALATED = "escalated"
    RESOLVED = "resolved"


class DeliveryState(StrEnum):
    WAITING = "waiting"
    SENT = "sent"
    FAILED = "failed"
    """Given up."""


@dataclass(frozen=True)
class Fact:
    """A line of a message."""

    name: str
    text: str
    """From records and repositories, so untrusted."""


@dataclass(frozen=True)
class Link:
    name: str
    url: str


@dataclass(frozen=True)
class ReportedValue:
    """A value of a case, and what it is compared with: the old value, or the limit of a rule."""

    kernel: str
    case_id: str
    implementation: str
    runner_class: str
    metric: str
    unit: str
    before: float | None
    after: float | None
    relative_change: float | None
    """(after − before) / before."""
    is_limit: bool = False
    """Whether `before` is the limit of a rule, and not a value that was measured."""


@dataclass(frozen=True)
class Message:
    """The text of an alert, and the same as data.

    All of it is untrusted; channels escape the text.
    """

    title: str
    facts: tuple[Fact, ...] = ()
    owners: tuple[str, ...] = ()
    """`@name`, `@organisation/team` or an address."""
    links: tuple[Link, ...] = ()
    kernels: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    """Names of the GPUs or CPUs."""
    base_sha: str | None = None
    """The last commit before the change."""
    head_sha: str | None = None
    """The first commit with it; the first one looked at if `base_sha` is unknown."""
    changes: tuple[ReportedValue, ...] = ()
    """The largest ones, the worst first."""
    is_test: bool = False


@dataclass(frozen=True)
class AlertCondition:
    """A condition that a rule finds true now."""

    rule: str
    cause: str
    """Identifies the condition in its project, whichever rule reports it."""
    severity: Severity
    message: Message
    regression_id: UUID | None = None
    is_acknowledged: bool = False
    is_past: bool = False
    """Too old for a new alert; an alert that fires already continues."""
    event: str = ""
    """What happened: alerts of one event share a message. The commit, if there is one."""


@dataclass(frozen=True)
class Alert:
    """A cause that rules report. Each time it fires is a new episode."""

    project: str
    cause: str
    rules: tuple[str, ...]
    """Names of the rules that report it, or reported it last."""
    severity: Severity
    state: AlertState
    episode: int
    """From 1."""
    message: Message
    """As of the last evaluation that found it firing."""
    fired_at: datetime
    """In this episode."""
    regression_id: UUID | None = None
    told_at: Mapping[str, datetime] = field(default_factory=dict)
    """By channel, the last message that it fires, in any episode."""
    escalated_to: tuple[str, ...] = ()
    """Channels, in this episode."""
    acknowledged_at: datetime | None = None
    acknowledged_by: str | None = None
    acknowledged_reason: str | None = None
    resolved_at: datetime | None = None
    event: str = ""
    """As of its last condition."""

    @property
    def alert_id(self) -> UUID:
        """Depends only on project and cause."""
        return uuid5(_NAMESPACE, "\n".join((self.project, self.cause)))

    def acknowledged(self, now: datetime, person: str, reason: str) -> "Alert":
        return replace(
            self,
            state=AlertState.ACKNOWLEDGED,
            acknowledged_at=now,
            acknowledged_by=person,
            acknowledged_reason=reason,
        )


@dataclass(frozen=True)
class Delivery:
    """A message for one channel, in the outbox."""

    alert: Alert
    """As of the event."""
    event: AlertEvent
    channel: str
    created_at: datetime
    next_attempt_at: datetime
    key: UUID = field(default_factory=uuid4)
    """The same in every attempt, for receivers to drop duplicates."""
    state: DeliveryState = DeliveryState.WAITING
    attempt_count: int = 0
    """Attempts begun."""
    is_uncertain: bool = False
    """An earlier attempt may have arrived: its sender died, or the receiver did not answer."""
    sent_at: datetime | None = None
    error: str | None = None
    """Error of the last attempt."""


@dataclass(frozen=True)
class AlertStep:
    """The new state of an alert, and the messages about it."""

    alert: Alert
    deliveries: tuple[Delivery, ...] = ()

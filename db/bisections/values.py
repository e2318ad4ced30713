"""Values of bisections: who asked for which, how far it is, and which commit it names."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from uuid import UUID

from roofwatch.db.values import CommitRef


class BisectionState(StrEnum):
    """How far a bisection is."""

    REQUESTED = "requested"
    """It waits for a runner."""
    RUNNING = "running"
    FOUND = "found"
    """One commit is named."""
    NARROWED = "narrowed"
    """It is one of several: what lies between them cannot be measured."""
    UNDECIDED = "undecided"
    """The time was spent before one was sure enough."""
    NO_CHANGE = "no_change"
    """The good end and the bad end do not differ."""
    FAILED = "failed"


class Standing(StrEnum):
    """What is known of one commit of the range."""

    OPEN = "open"
    """Nothing."""
    MEASURED = "measured"
    SAME = "same"
    """What the series is made from is as at the commit before: it cannot matter, or hardly."""
    SKIPPED = "skipped"
    """It cannot be measured."""


@dataclass(frozen=True)
class BisectionRange:
    """What to bisect."""

    project: str
    case_id: str
    implementation: str | None
    """None for the only one that the case has."""
    good_sha: str
    bad_sha: str
    runner_class: str | None = None
    """On which it shall be measured; None for any."""


@dataclass(frozen=True)
class BisectionCommit:
    """One commit of the range, the good end left out."""

    commit: CommitRef
    probability: float
    """That the change came with this commit."""
    standing: Standing = Standing.OPEN
    reason: str = ""
    """Why it was skipped, or cannot matter."""
    pair_count: int = 0
    """Blocks of it that were measured, each next to a block of the good end."""
    relative_change: float | None = None
    """Against the good end, by those; above 0 is slower."""


@dataclass(frozen=True)
class BisectionStep:
    """One commit measured against the good end."""

    sha: str
    pair_count: int
    """Taken in this step; 0 where the commit could not be measured."""
    relative_change: float | None
    """Of the step's pairs."""
    probability: float
    """That the change is at this commit or before, after the step."""
    note: str
    """Why it could not be measured."""
    finished_at: datetime


@dataclass(frozen=True)
class Answer:
    """What came of a bisection."""

    first: CommitRef
    last: CommitRef
    """The same as `first` where one commit is named."""
    confidence: float
    """Probability that the change came with one of these."""
    relative_change: float
    """(bad − good) / good; above 0 is slower."""
    relative_interval: tuple[float, float]
    """Of that, with 95 %."""


@dataclass(frozen=True)
class Bisection:
    """One bisection without its commits."""

    bisection_id: UUID
    project: str
    case_id: str
    implementation: str | None
    """None for the only one that the case has."""
    runner_class: str | None
    """On which it shall be measured, or was; None for any."""
    good_sha: str
    bad_sha: str
    state: BisectionState
    requested_by: str
    regression_id: UUID | None
    requested_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    measurement_count: int
    """Blocks that were measured so far, on both sides."""
    note: str
    """What is to be known of how it ended."""
    answer: Answer | None


@dataclass(frozen=True)
class BisectionDetail:
    bisection: Bisection
    commits: tuple[BisectionCommit, ...]
    """From the one after the good end to the bad end; empty before it was begun."""
    steps: tuple[BisectionStep, ...]
    """In the order taken."""


@dataclass(frozen=True)
class BisectionProgress:
    """What is known so far."""

    commits: tuple[BisectionCommit, ...]
    steps: tuple[BisectionStep, ...]
    measurement_count: int

"""Values of bisections: what is known of each commit, the steps and the answer."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from roofwatch.db.values import BisectionState, CommitRef


class CommitStatus(StrEnum):
    """What is known about one commit of the range."""

    OPEN = "open"
    MEASURED = "measured"
    SAME = "same"
    """Same sources or machine code as the commit before."""
    SKIPPED = "skipped"
    """Cannot be measured."""


@dataclass(frozen=True)
class BisectionCommit:
    """One commit of the range, the good end left out."""

    commit: CommitRef
    probability: float
    """Probability that the change is in this commit."""
    status: CommitStatus = CommitStatus.OPEN
    reason: str = ""
    """Why it was skipped or not measured."""
    pair_count: int = 0
    """Measured blocks, each next to a block of the good end."""
    relative_change: float | None = None
    """Against the good end; above 0 is slower."""
    log_ratios: tuple[float, ...] = ()
    """ln(commit / good) of each pair."""
    weight: float = 1.0


@dataclass(frozen=True)
class BisectionStep:
    """One commit measured against the good end."""

    sha: str
    pair_count: int
    """In this step; 0 if the commit could not be measured."""
    relative_change: float | None
    """Change over the step's pairs."""
    probability: float
    """Probability, after the step, that the change is in this commit or an earlier one."""
    note: str
    """Why it could not be measured."""
    finished_at: datetime


@dataclass(frozen=True)
class Answer:
    """The result of a bisection."""

    first: CommitRef
    last: CommitRef
    """The same as `first` where one commit is named."""
    confidence: float
    """Probability that the change is in one of these."""
    relative_change: float
    """(bad − good) / good; above 0 is slower."""
    relative_interval: tuple[float, float]
    """95 % confidence interval."""


@dataclass(frozen=True)
class BisectionProgress:
    """Everything known about a bisection: on disk, in the database and in the JSON output."""

    commits: tuple[BisectionCommit, ...] = ()
    """From the one after the good end to the bad end; empty before the start."""
    steps: tuple[BisectionStep, ...] = ()
    """In the order taken."""
    measurement_count: int = 0
    """Measured blocks, both sides."""
    is_weighed: bool = False
    """The ends are known to differ, and the commits have their prior weights."""


@dataclass(frozen=True)
class BisectionResult:
    """How far a bisection is, or how it ended."""

    state: BisectionState
    progress: BisectionProgress = BisectionProgress()
    """Without commits, what is stored stays."""
    answer: Answer | None = None
    """Of `found` and `narrowed`."""
    notes: tuple[str, ...] = ()
    """Why it ended like this."""

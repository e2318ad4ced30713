"""Values of what follows a regression: its triage, and the bisection of its commits."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from uuid import UUID

from roofwatch.model.history import CommitRef, Regression, RegressionState
from roofwatch.model.verdict import Verdict


class TriageState(StrEnum):
    """What people decided about a regression."""

    NEW = "new"
    """Not triaged, or found again."""
    ACKNOWLEDGED = "acknowledged"
    """Someone works on it."""
    EXPECTED = "expected"
    """Real and accepted."""
    FIXED = "fixed"
    INVALID = "invalid"
    """Not a regression."""


@dataclass(frozen=True)
class Triage:
    """The last decision about a regression."""

    regression_id: UUID
    """The same in every analysis that finds the regression."""
    state: TriageState = TriageState.NEW
    person: str | None = None
    reason: str | None = None
    changed_at: datetime | None = None
    assignee: str | None = None
    """Who works on it."""
    issue_url: str | None = None
    snoozed_until: datetime | None = None
    """Nobody is asked before this time."""
    snoozed_until_sha: str | None = None
    """Nobody is asked before this commit is measured."""
    accepted_in: str | None = None
    """Pull requests in which it was accepted before it was merged, such as `#12`."""

    @property
    def decided_by(self) -> str:
        """The state and who decided: `accepted by NAME in #12`, `fixed by NAME`."""
        if self.accepted_in is not None:
            return f"accepted by {self.person} in {self.accepted_in}"
        return f"{self.state} by {self.person}"


@dataclass(frozen=True)
class Snooze:
    """Until when a regression is hidden: a time, or the first run of a commit."""

    until: datetime | None = None
    until_sha: str | None = None

    @property
    def text(self) -> str | None:
        """The form of the audit trail; None for no snooze."""
        if self.until is not None:
            return self.until.isoformat()
        return self.until_sha

    @classmethod
    def parse(cls, text: str | None) -> "Snooze":
        if text is None:
            return cls()
        try:
            return cls(until=datetime.fromisoformat(text))
        except ValueError:
            return cls(until_sha=text)


_WAITING = {TriageState.NEW, TriageState.ACKNOWLEDGED}


@dataclass(frozen=True)
class TriagedRegression:
    """A regression with its triage."""

    regression_id: str
    """The same in every analysis."""
    regression: Regression
    triage: Triage
    is_snoozed: bool = False
    """Its snooze has not ended yet."""

    @property
    def is_open(self) -> bool:
        """Whether somebody still has to act on it."""
        return (
            self.regression.verdict is Verdict.REGRESSED
            and self.regression.state is RegressionState.OPEN
            and self.regression.recovered_at is None
            and self.triage.state in _WAITING
        )

    @property
    def settled_by(self) -> str:
        """Why it is no longer open."""
        if self.regression.state is RegressionState.DISMISSED:
            return "not confirmed when measured again"
        if self.regression.state is RegressionState.NO_LONGER_FOUND:
            return "no longer found"
        if self.triage.state not in _WAITING:
            if self.triage.accepted_in is not None:
                return self.triage.decided_by
            return str(self.triage.state)
        if self.regression.recovered_at is not None:
            return "recovered"
        return "open"


# --- bisections


class BisectionState(StrEnum):
    """How far a bisection is."""

    REQUESTED = "requested"
    """Waiting for a runner."""
    RUNNING = "running"
    FOUND = "found"
    """One commit was found."""
    NARROWED = "narrowed"
    """One of several commits; those in between cannot be measured."""
    UNDECIDED = "undecided"
    """The budget was spent first."""
    NO_CHANGE = "no_change"
    """The two ends do not differ."""
    FAILED = "failed"


@dataclass(frozen=True)
class BisectionRange:
    """What to bisect."""

    project: str
    case_id: str
    implementation: str | None
    """None if the case has only one."""
    good_sha: str
    bad_sha: str
    runner_class: str | None = None
    """Runner class to measure on; None for any."""


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
    relative_change: float | None = None
    """(bad − good) / good; above 0 is slower. None if compiling or checking shows the change."""
    relative_interval: tuple[float, float] | None = None
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

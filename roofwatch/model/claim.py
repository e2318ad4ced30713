"""What may be claimed about a case, base against head, and what a check demands."""

from dataclasses import dataclass
from enum import StrEnum

from roofwatch.model.verdict import Reason, Verdict


class ClaimKind(StrEnum):
    """How far the evidence about a case goes."""

    TIMED = "timed"
    """Both sides were timed, and the times decide."""
    TIMED_UNDECIDED = "timed_undecided"
    """Both sides were timed, and the times do not decide."""
    COMPILED_ONLY = "compiled_only"
    """Machine code of both sides is compared; the time was not measured."""
    CHECKED_ONLY = "checked_only"
    """Results of both sides are compared; neither time nor machine code."""
    NOT_MEASURED = "not_measured"
    """Nothing of the two sides can be compared."""


class CodeState(StrEnum):
    """Whether a case runs the same code on both sides."""

    SAME = "same"
    """The sources that the kernel may use are identical, and so is its machine code."""
    CHANGED = "changed"
    """The machine code, the launch configuration or the sources differ."""
    UNKNOWN = "unknown"
    """A record does not say which sources it used."""


@dataclass(frozen=True)
class Claim:
    """The answer of `roofwatch.ci.claims.decide` about one case and implementation."""

    kind: ClaimKind
    verdict: Verdict
    reason: Reason
    code: CodeState
    text: str
    """Plain words that every output shows; no text of a record."""

    @property
    def is_time_missing(self) -> bool:
        """Whether the time was not measured although it may have changed."""
        return self.reason is Reason.NOT_TIMED


class AcceptBy(StrEnum):
    """Who may accept what a report found."""

    REVIEWER = "reviewer"
    """Somebody with write access other than the author of the change."""
    ANYONE = "anyone"
    """Anyone with write access, the author too."""
    ADMIN = "admin"
    """Somebody who administers the repository."""


class RequiredEvidence(StrEnum):
    """Evidence that a check can require."""

    ACCURACY = "accuracy"
    """The head's results were checked."""
    CODE = "code"
    """It is known whether the code changed; compiled kernels were compiled on both sides."""
    TIME = "time"
    """The times decide, or the code is the same."""


@dataclass(frozen=True)
class CheckPolicy:
    """How a check judges missing evidence: `[check]` in `roofwatch.toml`."""

    untimed_passes: bool = False
    """A changed kernel without a time does not make the result undecided."""
    requires: tuple[RequiredEvidence, ...] = ()
    """Evidence whose absence fails."""
    predicted_fails: bool = False
    """A slowdown that the cycle model predicts counts as a regression."""


DEFAULT_POLICY = CheckPolicy()

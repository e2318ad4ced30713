"""What people accepted in pull requests, and which finding each bound is for."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from roofwatch.model.case_key import kernel_of

MAX_BOUNDS = 400
"""More do not fit into the hidden state of a comment, so findings are then bounded in groups."""


class Grain(StrEnum):
    """What shares one bound of an acceptance, the finest first."""

    FINDING = "finding"
    KERNEL = "kernel"
    """The findings of one kernel and implementation with one reason and measure."""
    MEASURE = "measure"
    """All findings with one reason and measure."""

    def key_of(self, name: tuple[str, ...]) -> str:
        """Hash what a finding shares a bound with.

        The name starts with case and implementation, and ends with reason and measure.
        """
        case_id, implementation, *_, reason, measure = name
        group = name
        if self is Grain.KERNEL:
            group = (kernel_of(case_id), implementation, reason, measure)
        elif self is Grain.MEASURE:
            group = (reason, measure)
        return hashlib.sha256("\0".join(group).encode()).hexdigest()[:8]


@dataclass(frozen=True)
class PullRequestAcceptance:
    """An acceptance as the service stores it: it outlives the comment that gave it."""

    pull_request: str
    """`#12` on GitHub, `!12` on GitLab."""
    comment_id: int
    head_sha: str
    """The commit whose report was accepted."""
    person: str
    reason: str
    accepted_at: datetime
    most: Mapping[str, float] = field(default_factory=dict)
    """Size up to which a finding is accepted, by `Grain.key_of`."""
    grain: Grain = Grain.FINDING
    wrong_results: bool = False
    """Whether wrong results are meant too."""

    def bound_of(self, name: tuple[str, ...]) -> float | None:
        """Return the size up to which a finding is accepted; None if it is not."""
        return self.most.get(self.grain.key_of(name))


@dataclass(frozen=True)
class AcceptedRegression:
    """Who accepted a regression of the main branch, in which pull requests, and why."""

    pull_requests: str
    """`#12`, or several separated by commas."""
    person: str
    reason: str

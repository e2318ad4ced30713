"""What one series of a history tells: a change point with its place, its certainty and what may have caused it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from enum import StrEnum

from roofwatch.ci.causes.runner_evidence import RunnerMove
from roofwatch.db.values import ChangePoint, CommitRef, Suspect, Verdict

ALL_KERNELS = "*"
"""Stands for the kernel of an environment event."""


class Status(StrEnum):
    CONFIRMED = "confirmed"
    """Deterministic, or seen again base against head."""
    UNCONFIRMED = "unconfirmed"
    REFUTED = "refuted"
    """Measured again base against head, and not there."""


@dataclass(frozen=True, slots=True)
class Window:
    """A range of places on the branch, both ends included; a place is a commit's `first_parent_count`."""

    first: int
    last: int

    @property
    def width(self) -> int:
        return self.last - self.first + 1

    def holds(self, place: int) -> bool:
        return self.first <= place <= self.last

    def touches(self, other: Window) -> bool:
        return self.first <= other.last and other.first <= self.last


@dataclass(frozen=True, slots=True)
class TrendFinding:
    """A change point with what is known about it."""

    change: ChangePoint
    status: Status
    suspects: tuple[Suspect, ...]
    """Possible causes, the likeliest first."""
    window: Window
    """Commits that may have done it: from the one after the last that surely has not."""
    reach: Window
    """The same, and one measured commit more on either side: where a window that errs may mean."""
    log_error: float = 0.0
    """Standard error of the logarithm of after / before; 0 for what is exact."""
    p_value: float | None = None
    """How often a series of noise alone shows a step of this size anywhere; None for what is no step of a time."""
    night: date | None = None
    """When the new level was first measured, in UTC."""
    runner: RunnerMove | None = None
    """What code of before the step showed that was measured again after it; None where none was."""

    @property
    def kernel(self) -> str:
        return self.change.series.kernel

    @property
    def is_time(self) -> bool:
        """Whether a time moved, as opposed to an outcome or a compiled fact."""
        return self.change.series.metric == "median_ns" and not is_outcome(self.change)

    @property
    def is_host_time(self) -> bool:
        """Whether the host's time of a launch moved, which no kernel on the device does."""
        return self.change.series.metric == "host_ns" and not is_outcome(self.change)

    @property
    def is_step(self) -> bool:
        """Whether a time moved at one commit, as opposed to little by little."""
        return self.is_time and not self.change.is_gradual

    @property
    def is_clock_move(self) -> bool:
        """Whether the clock moved and the cycles did not."""
        return self.is_time and self.change.verdict is Verdict.INCONCLUSIVE

    @property
    def way(self) -> Verdict:
        """Whether it got worse or better; a time is what it is, whatever moved it."""
        if not self.is_clock_move:
            return self.change.verdict
        return Verdict.REGRESSED if self.log_change > 0 else Verdict.IMPROVED

    @property
    def log_change(self) -> float:
        return log_change(self.change)


def window_of(change: ChangePoint) -> Window:
    """The window of a change that lies between two commits for certain."""
    last = change.commit.first_parent_count
    return Window(min(change.previous_commit.first_parent_count + 1, last), last)


def windows_between(commits: Sequence[CommitRef], first: int, last: int) -> tuple[Window, Window]:
    """Window and reach of a change that began at one of the measured commits `first` to `last`, by position."""

    def window(first: int, last: int) -> Window:
        end = commits[last].first_parent_count
        return Window(min(commits[first - 1].first_parent_count + 1, end), end)

    return window(first, last), window(max(1, first - 1), min(len(commits) - 1, last + 1))


def is_outcome(change: ChangePoint) -> bool:
    """Whether something began or ceased to work, so that a side has no value."""
    return change.before is None or change.after is None


def log_change(change: ChangePoint) -> float:
    """ln(after / before); infinite where there is no such ratio."""
    if not change.before or not change.after or change.before < 0 or change.after < 0:
        return math.inf
    return math.log(change.after / change.before)

"""One change found in a series, with the commits at which it may lie. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from enum import StrEnum

from roofwatch.db.values import ChangePoint, CommitRef, Suspect, Verdict

ALL_KERNELS = "*"
"""Stands for the kernel of an environment event."""


class Status(StrEnum):
    CONFIRMED = "confirmed"
    """Deterministic, or measured again in a pair."""
    UNCONFIRMED = "unconfirmed"
    REFUTED = "refuted"
    """Measured again in a pair, and not there."""


@dataclass(frozen=True, slots=True)
class Window:
    """A range of places on the branch, both ends included. A place is a commit's `first_parent_count`."""

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
    """A change point and its evidence."""

    change: ChangePoint
    status: Status
    suspects: tuple[Suspect, ...]
    """Possible causes, the likeliest first."""
    window: Window
    """Commits at which it may lie."""
    reach: Window
    """The window, and one measured commit more on either side, because a window may be wrong."""
    log_error: float = 0.0
    """Standard error of the log change; 0 for exact changes."""
    p_value: float | None = None
    """How often noise alone shows such a change anywhere in the series; None for other metrics than time."""
    measured_on: date | None = None
    """Date (UTC) of the first measurement of the new level."""
    runner_changed: bool | None = None
    """Whether old code, measured again, shows the change too; None if it was not measured again."""

    @classmethod
    def at_commit(cls, change: ChangePoint, status: Status, suspects: tuple[Suspect, ...]) -> TrendFinding:
        """A finding that is certain to lie between two neighbouring commits."""
        window, _ = windows_between([change.previous_commit, change.commit], 1, 1)
        return cls(change, status, suspects, window, reach=window)

    @property
    def kernel(self) -> str:
        return self.change.series.kernel

    @property
    def is_time(self) -> bool:
        """Whether a time changed, rather than an outcome or a compiled fact."""
        return self.change.series.metric == "median_ns" and not is_outcome(self.change)

    @property
    def is_step(self) -> bool:
        """Whether a time changed at one commit, rather than gradually."""
        return self.is_time and not self.change.is_gradual

    @property
    def is_clock_move(self) -> bool:
        """Whether the clock explains the change."""
        return self.is_time and self.change.verdict is Verdict.INCONCLUSIVE

    @property
    def direction(self) -> Verdict:
        """The verdict; for a change that the clock explains, the one of its times."""
        if not self.is_clock_move:
            return self.change.verdict
        return Verdict.REGRESSED if self.log_change > 0 else Verdict.IMPROVED

    @property
    def log_change(self) -> float:
        return log_change(self.change)


def windows_between(commits: Sequence[CommitRef], first: int, last: int) -> tuple[Window, Window]:
    """Window and reach of a change that began at one of the commits `first` to `last`, by position."""

    def window(first: int, last: int) -> Window:
        end = commits[last].first_parent_count
        return Window(min(commits[first - 1].first_parent_count + 1, end), end)

    return window(first, last), window(max(1, first - 1), min(len(commits) - 1, last + 1))


def is_outcome(change: ChangePoint) -> bool:
    """Whether something began or ceased to work: one side has no value."""
    return change.before is None or change.after is None


def log_change(change: ChangePoint) -> float:
    """ln(after / before); infinite if a side has no positive value."""
    if not change.before or not change.after or change.before < 0 or change.after < 0:
        return math.inf
    return math.log(change.after / change.before)

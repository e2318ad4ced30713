"""What one series of a history tells, and where on the branch such findings lie together. Pure.

Each series places a change of one cause a little differently, so a finding is a window of commits. The fewest commits
that reach every window are found by taking windows in the order of their ends (greedy stabbing of intervals).
"""

from __future__ import annotations

import math
import statistics
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from enum import StrEnum
from functools import cached_property
from itertools import pairwise

from roofwatch.ci.causes.runner_evidence import RunnerMove
from roofwatch.db.values import ChangePoint, CommitRef, SeriesKey, Suspect, Verdict

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
    """What code from before the step showed when measured again after it; None where none was."""

    @property
    def kernel(self) -> str:
        return self.change.series.kernel

    @property
    def is_time(self) -> bool:
        """Whether a time moved, as opposed to an outcome or a compiled fact."""
        return self.change.series.metric == "median_ns" and not is_outcome(self.change)

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

    @classmethod
    def at_commit(cls, change: ChangePoint, status: Status, suspects: tuple[Suspect, ...]) -> TrendFinding:
        """One that lies between two neighbouring commits for certain."""
        window, _ = windows_between([change.previous_commit, change.commit], 1, 1)
        return cls(change, status, suspects, window, reach=window)


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


# --- sites

_ALIKE = 1 / 3
"""Changes whose logarithms differ by less than this share of the larger one are of one scale: +8 % and +11 %."""
_ERRORS = 2.0
"""Standard errors that two scales may lie apart on top."""

_STRAY = 5
"""Measured commits that one series may be off from a change it should have shared: a few outliers beside a step draw it
that far, and of its own accord a series steps in so few of several hundred commits once in some thirty."""


@dataclass(frozen=True)
class Site:
    """Findings that can lie at one commit."""

    findings: tuple[TrendFinding, ...]

    @cached_property
    def core(self) -> Window:
        """Where most of them can lie, narrow windows counting more."""
        return _best_window(self.findings)

    @cached_property
    def reach(self) -> Window:
        """The core, and about one measured commit more on either side."""
        before = statistics.median_low(finding.window.first - finding.reach.first for finding in self.findings)
        after = statistics.median_low(finding.reach.last - finding.window.last for finding in self.findings)
        return Window(self.core.first - before, self.core.last + after)

    @cached_property
    def series(self) -> frozenset[SeriesKey]:
        return frozenset(finding.change.series for finding in self.findings)

    @cached_property
    def kernels(self) -> frozenset[str]:
        return frozenset(finding.kernel for finding in self.findings)

    @cached_property
    def scale(self) -> tuple[float, float] | None:
        """Median log change of the times, and its standard error; where no time moved, of the host's times, which a
        machine moves together too; None if neither did.
        """
        moved = [finding for finding in self.findings if not is_outcome(finding.change)]
        times = [finding for finding in moved if finding.change.series.metric == "median_ns"]
        times = times or [finding for finding in moved if finding.change.series.metric == "host_ns"]
        if not times:
            return None
        error = statistics.median(finding.log_error for finding in times) / math.sqrt(len(times))
        return statistics.median(finding.log_change for finding in times), error

    @cached_property
    def commit(self) -> CommitRef:
        """The commit that most of them can lie at, narrow windows counting more."""
        return commit_of(self.findings)

    def is_of_scale_of(self, other: Site) -> bool:
        """Whether times moved by about the same factor; so they do where none was measured."""
        if self.scale is None or other.scale is None:
            return True
        (here, error), (there, other_error) = self.scale, other.scale
        tolerated = _ALIKE * max(abs(here), abs(there)) + _ERRORS * math.hypot(error, other_error)
        return abs(here - there) <= tolerated

    def could_hold(self, stray: TrendFinding) -> bool:
        """Whether a finding that lies elsewhere may be of this site: its series has not moved here, and an outlier may
        have drawn its step away.
        """
        if stray.change.series in self.series or stray.status is Status.CONFIRMED:
            return False
        before = _STRAY * max(1, stray.window.first - stray.reach.first)
        after = _STRAY * max(1, stray.reach.last - stray.window.last)
        return Window(stray.window.first - before, stray.window.last + after).touches(self.core)

    def with_other(self, other: Site) -> Site:
        return Site((*self.findings, *other.findings))


def find_sites(findings: Iterable[TrendFinding]) -> list[Site]:
    """Split findings by where they lie, in the order of the branch.

    Neighbouring sites that err by one measured commit are put together, if no series is in both: one that stepped twice
    says that there are two.
    """
    ordered = sorted(findings, key=lambda finding: (finding.window.last, finding.window.first, finding.change.series))
    sites = [Site(tuple(members)) for members in _by_place(ordered)]
    joined: list[Site] = []
    for site in sorted(sites, key=lambda site: (site.core.last, site.core.first)):
        last = joined[-1] if joined else None
        if last is not None and last.reach.touches(site.reach) and last.series.isdisjoint(site.series):
            joined[-1] = last.with_other(site)
        else:
            joined.append(site)
    return joined


def commit_of(findings: Sequence[TrendFinding]) -> CommitRef:
    """The commit that most findings can lie at, narrow windows counting more."""
    best = _best_window(findings)
    own: dict[CommitRef, float] = defaultdict(float)
    for finding in findings:
        own[finding.change.commit] += 1 / finding.window.width
    inside = [commit for commit in own if best.holds(commit.first_parent_count)]
    return max(inside or own, key=lambda commit: (own[commit], commit))


def _best_window(findings: Sequence[TrendFinding]) -> Window:
    """The range of places that the weightiest windows share: each window weighs 1 / its width."""
    rises: dict[int, float] = defaultdict(float)
    for finding in findings:
        rises[finding.window.first] += 1 / finding.window.width
        rises[finding.window.last + 1] -= 1 / finding.window.width
    support, best, chosen = 0.0, 0.0, findings[0].window
    places = sorted(rises)
    for place, following in pairwise(places):
        support += rises[place]
        if support > best + 1e-9:
            best, chosen = support, Window(place, following - 1)
    return chosen


def _by_place(ordered: Sequence[TrendFinding]) -> list[list[TrendFinding]]:
    stabs: list[int] = []
    for finding in ordered:
        if not stabs or stabs[-1] < finding.window.first:
            stabs.append(finding.window.last)
    support = [0.0] * len(stabs)
    reached = [
        range(bisect_left(stabs, finding.window.first), bisect_right(stabs, finding.window.last)) for finding in ordered
    ]
    for finding, places in zip(ordered, reached, strict=True):
        for place in places:
            support[place] += 1 / finding.window.width
    members: dict[int, list[TrendFinding]] = defaultdict(list)
    for finding, places in zip(ordered, reached, strict=True):
        members[max(places, key=lambda place: support[place])].append(finding)
    return [members[place] for place in sorted(members)]

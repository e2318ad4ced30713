"""Findings: changes of one series each, and where on the branch several lie together. Pure.

Each series places a change of one cause a little differently, so a finding has a window of commits.
The fewest commits that reach every window are found by taking windows in the order of their ends
(greedy interval stabbing).
"""

import math
import statistics
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from functools import cached_property
from itertools import pairwise
from typing import ClassVar

from pydantic import ConfigDict

from roofwatch.model.history import ChangePoint, CommitRef, Outline, SeriesKey, Suspect
from roofwatch.model.metrics import TIME, Better
from roofwatch.model.verdict import Reason, Status, Verdict

ALL_KERNELS = "*"
"""Stands for the kernel of an environment event."""
_SAME_SIZE = 1 / 3
"""Log changes that differ by less than this share of the larger one are of one size: +8 % and +11
%.
"""
_ERRORS = 2.0
"""Standard errors that two sizes may differ by on top."""


@dataclass(frozen=True, slots=True)
class Window:
    """A range of places on the branch, both ends included. A place is a commit's
    `first_parent_count`.
    """

    first: int
    """First place at which the change may lie."""
    last: int
    """Last place at which it may lie."""

    @property
    def width(self) -> int:
        """Number of places at which the change may lie."""
        return self.last - self.first + 1

    def holds(self, commit_number: int) -> bool:
        """Whether a place is in the range."""
        return self.first <= commit_number <= self.last

    def touches(self, window: "Window") -> bool:
        """Whether two ranges have a place in common."""
        return self.first <= window.last and window.first <= self.last


@dataclass(frozen=True, slots=True)
class TrendFinding:
    """A change point and its evidence."""

    # infinite numbers, which JSON lacks, are stored as texts
    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(ser_json_inf_nan="strings")

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
    """How often noise alone shows such a change; 1 if it is new and not sure, None for other
    metrics than time.
    """
    measured_on: date | None = None
    """Date (UTC) of the first measurement of the new level."""
    runner_changed: bool | None = None
    """Whether old code, measured again, shows the change too; None if it was not measured again."""
    is_bridge: bool = False
    """One commit, measured with two drivers or toolchains, shows the change."""
    outline: Outline | None = None

    @classmethod
    def at_commit(
        cls,
        change: ChangePoint,
        status: Status,
        suspects: tuple[Suspect, ...],
    ) -> "TrendFinding":
        """A finding that is certain to lie between two neighbouring commits."""
        window, _ = windows_between(
            commits=[change.previous_commit, change.commit],
            first=1,
            last=1,
        )
        return cls(
            change,
            status,
            suspects,
            window,
            reach=window,
        )

    @property
    def kernel(self) -> str:
        return self.change.series.kernel

    @property
    def is_performance(self) -> bool:
        """Whether a time or a value of another tool changed, not an outcome or a compiled fact."""
        return self.change.series.is_performance and not is_outcome(self.change)

    @property
    def is_clock_move(self) -> bool:
        """Whether the clock explains the change."""
        return self.change.reason is Reason.CLOCK_CHANGED

    @property
    def direction(self) -> Verdict:
        """The verdict; for a change that the clock explains, the one of its times."""
        if not self.is_clock_move:
            return self.change.verdict
        return Verdict.of_change(is_worse=self.log_change > 0)

    @property
    def log_change(self) -> float:
        return log_change(self.change)

    @property
    def log_cost_change(self) -> float:
        """The log change, positive if the value got worse."""
        # of a rate, a lower value is worse
        if self.change.series.definition.better is Better.HIGHER:
            return -self.log_change
        return self.log_change


def windows_between(
    commits: Sequence[CommitRef],
    first: int,
    last: int,
) -> tuple[Window, Window]:
    """Window and reach of a change that began at one of the commits `first` to `last`,
    by position.
    """

    def window(first: int, last: int) -> Window:
        end = commits[last].first_parent_count
        # the change may lie at any commit after the last one with the old level
        begin = commits[first - 1].first_parent_count + 1
        return Window(min(begin, end), end)

    # the reach is one commit wider on each side, where the history has one
    wider_first = max(1, first - 1)
    wider_last = min(len(commits) - 1, last + 1)
    return window(first, last), window(wider_first, wider_last)


def is_time_step(change: ChangePoint) -> bool:
    """Whether a time changed at one commit, so that its two sides can be measured in a pair."""
    return change.series.metric == TIME.key and is_level_step(change)


def is_level_step(change: ChangePoint) -> bool:
    """Whether a time, or a value of another tool with a direction, changed at one commit."""
    # a drift has no commit at which it happened
    has_level = change.series.is_performance and not change.is_gradual
    return has_level and not is_outcome(change)


def is_outcome(change: ChangePoint) -> bool:
    """Whether something began or ceased to work: one side has no value."""
    return change.before is None or change.after is None


def log_change(change: ChangePoint) -> float:
    """ln(after / before); infinite if a side has no positive value."""
    if not change.before or not change.after or change.before < 0 or change.after < 0:
        return math.inf
    return math.log(change.after / change.before)


# --- several findings


def _is_host_time(finding: TrendFinding) -> bool:
    """Whether the time that the host takes for a call changed."""
    is_host_time = finding.change.series.metric == "host_ns"
    return is_host_time and not is_outcome(finding.change)


@dataclass(frozen=True)
class Site:
    """Findings that can lie at one commit."""

    findings: tuple[TrendFinding, ...]

    @cached_property
    def core(self) -> Window:
        """Where most of them can lie; narrow windows count more."""
        return _best_window(self.findings)

    @cached_property
    def reach(self) -> Window:
        """The core, and about one measured commit more on either side."""
        margins_before = [finding.window.first - finding.reach.first for finding in self.findings]
        margins_after = [finding.reach.last - finding.window.last for finding in self.findings]
        return Window(
            self.core.first - statistics.median_low(margins_before),
            self.core.last + statistics.median_low(margins_after),
        )

    @cached_property
    def series(self) -> frozenset[SeriesKey]:
        """Series that changed there."""
        return frozenset(finding.change.series for finding in self.findings)

    @cached_property
    def kernels(self) -> frozenset[str]:
        """Kernels of its findings."""
        return frozenset(finding.kernel for finding in self.findings)

    @cached_property
    def size(self) -> tuple[float, float] | None:
        """Median log change for the worse of the times and of other tools' values, or else of the
        host times, and its standard error; None without any.
        """
        sized = [finding for finding in self.findings if finding.is_performance]
        if not sized:
            sized = list(filter(_is_host_time, self.findings))
        if not sized:
            return None
        typical_change = statistics.median(finding.log_cost_change for finding in sized)
        typical_error = statistics.median(finding.log_error for finding in sized)
        error_of_median = typical_error / math.sqrt(len(sized))
        return typical_change, error_of_median

    @cached_property
    def commit(self) -> CommitRef:
        return commit_of(self.findings)

    def has_size_of(self, site: "Site") -> bool:
        """Whether the times of both changed by about the same factor, or no times were measured."""
        if self.size is None or site.size is None:
            return True
        size, error = self.size
        other_size, other_error = site.size
        systematic = _SAME_SIZE * max(abs(size), abs(other_size))
        by_chance = _ERRORS * math.hypot(error, other_error)
        return abs(size - other_size) <= systematic + by_chance

    def joined(self, site: "Site") -> "Site":
        """The findings of both sites as one."""
        return Site((*self.findings, *site.findings))


def find_sites(findings: Iterable[TrendFinding]) -> list[Site]:
    """Split findings by where they lie, in the order of the branch.

    Neighbouring sites that touch within their reach are joined if they share no series: a series
    that stepped twice shows that there are two.
    """
    ordered = sorted(findings, key=_end_and_series)
    sites = [Site(tuple(members)) for members in _by_place(ordered)]
    joined: list[Site] = []
    for site in sorted(sites, key=_end_of_core):
        # they share no series and touch, so they may be one change
        if joined and _is_one_place(joined[-1], site):
            joined[-1] = joined[-1].joined(site)
        else:
            joined.append(site)
    return joined


def _end_and_series(finding: TrendFinding) -> tuple[int, int, SeriesKey]:
    return (
        finding.window.last,
        finding.window.first,
        finding.change.series,
    )


def _end_of_core(site: Site) -> tuple[int, int]:
    return site.core.last, site.core.first


def _is_one_place(site: Site, following: Site) -> bool:
    """Whether two neighbouring sites may be one."""
    if not site.reach.touches(following.reach):
        return False
    return site.series.isdisjoint(following.series)


def commit_of(findings: Sequence[TrendFinding]) -> CommitRef:
    """The commit at which most findings can lie; narrow windows count more."""
    best = _best_window(findings)
    weights: dict[CommitRef, float] = defaultdict(float)
    for finding in findings:
        weights[finding.change.commit] += 1 / finding.window.width
    inside = [commit for commit in weights if best.holds(commit.first_parent_count)]
    # of equally likely commits, the newest
    return max(inside or weights, key=lambda commit: (weights[commit], commit))


def _best_window(findings: Sequence[TrendFinding]) -> Window:
    """The range of places with the largest total weight of windows: each weighs 1 / its width."""
    # how much the total weight rises at each place, from the first to the last
    rises: dict[int, float] = defaultdict(float)
    for finding in findings:
        weight = 1 / finding.window.width
        rises[finding.window.first] += weight
        rises[finding.window.last + 1] -= weight
    total_weight = 0.0
    best_weight = 0.0
    best_window = findings[0].window
    for first, next_first in pairwise(sorted(rises)):
        total_weight += rises[first]
        # sums of fractions are equal up to rounding
        if total_weight > best_weight + 1e-9:
            best_weight = total_weight
            best_window = Window(first, next_first - 1)
    return best_window


def _by_place(ordered: Sequence[TrendFinding]) -> list[list[TrendFinding]]:
    """Give each finding to the place, among as few as meet all windows, with most support."""
    places: list[int] = []
    # a window that no place so far meets needs one of its own
    for finding in ordered:
        if not places or places[-1] < finding.window.first:
            places.append(finding.window.last)
    reached = [_positions_in(places, finding.window) for finding in ordered]
    support = [0.0] * len(places)
    for finding, positions in zip(ordered, reached, strict=True):
        for position in positions:
            # a narrow window says more about the place than a wide one
            support[position] += 1 / finding.window.width
    members: dict[int, list[TrendFinding]] = defaultdict(list)
    for finding, positions in zip(ordered, reached, strict=True):
        best_supported = max(positions, key=support.__getitem__)
        members[best_supported].append(finding)
    return [members[position] for position in sorted(members)]


def _positions_in(places: Sequence[int], window: Window) -> range:
    """Positions of the places that lie in a window."""
    first = bisect_left(places, window.first)
    end = bisect_right(places, window.last)
    return range(first, end)

"""Where on the branch findings lie together. Pure.

Each series places a change of one cause a little differently, so a finding is a window of commits. The fewest commits
that reach every window are found by taking windows in the order of their ends (greedy interval stabbing).
"""

from __future__ import annotations

import math
import statistics
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from roofwatch.ci.history.finding import Status, TrendFinding, Window, is_outcome
from roofwatch.db.values import CommitRef, SeriesKey

_SAME_SIZE = 1 / 3
"""Log changes that differ by less than this share of the larger one are of one size: +8 % and +11 %."""
_ERRORS = 2.0
"""Standard errors that two sizes may differ by on top."""
_MAX_DISTANCE = 5
"""Measured commits that outliers may move a step of one series away from the change it shares."""


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
    def size(self) -> tuple[float, float] | None:
        """Median log change of the times, or else of the host times, and its standard error; None without either."""
        for metric in ("median_ns", "host_ns"):
            own = [one for one in self.findings if one.change.series.metric == metric and not is_outcome(one.change)]
            if own:
                error = statistics.median(finding.log_error for finding in own) / math.sqrt(len(own))
                return statistics.median(finding.log_change for finding in own), error
        return None

    @cached_property
    def commit(self) -> CommitRef:
        return commit_of(self.findings)

    def has_size_of(self, other: Site) -> bool:
        """Whether the times of both changed by about the same factor, or no times were measured."""
        if self.size is None or other.size is None:
            return True
        (own, error), (theirs, their_error) = self.size, other.size
        tolerated = _SAME_SIZE * max(abs(own), abs(theirs)) + _ERRORS * math.hypot(error, their_error)
        return abs(own - theirs) <= tolerated

    def could_hold(self, other: TrendFinding) -> bool:
        """Whether a finding elsewhere may belong to this site: its series did not change here, and outliers may have
        moved its step away.
        """
        if other.change.series in self.series or other.status is Status.CONFIRMED:
            return False
        before = _MAX_DISTANCE * max(1, other.window.first - other.reach.first)
        after = _MAX_DISTANCE * max(1, other.reach.last - other.window.last)
        return Window(other.window.first - before, other.window.last + after).touches(self.core)

    def joined(self, other: Site) -> Site:
        return Site((*self.findings, *other.findings))


def find_sites(findings: Iterable[TrendFinding]) -> list[Site]:
    """Split findings by where they lie, in the order of the branch.

    Neighbouring sites that touch within their reach are joined if they share no series: a series that stepped twice
    shows that there are two.
    """
    ordered = sorted(findings, key=lambda finding: (finding.window.last, finding.window.first, finding.change.series))
    sites = [Site(tuple(members)) for members in _by_place(ordered)]
    joined: list[Site] = []
    for site in sorted(sites, key=lambda site: (site.core.last, site.core.first)):
        if joined and joined[-1].reach.touches(site.reach) and joined[-1].series.isdisjoint(site.series):
            joined[-1] = joined[-1].joined(site)
        else:
            joined.append(site)
    return joined


def commit_of(findings: Sequence[TrendFinding]) -> CommitRef:
    """The commit at which most findings can lie; narrow windows count more."""
    best = _best_window(findings)
    weights: dict[CommitRef, float] = defaultdict(float)
    for finding in findings:
        weights[finding.change.commit] += 1 / finding.window.width
    inside = [commit for commit in weights if best.holds(commit.first_parent_count)]
    return max(inside or weights, key=lambda commit: (weights[commit], commit))


def _best_window(findings: Sequence[TrendFinding]) -> Window:
    """The range of places with the largest total weight of windows: each weighs 1 / its width."""
    rises: dict[int, float] = defaultdict(float)
    for finding in findings:
        rises[finding.window.first] += 1 / finding.window.width
        rises[finding.window.last + 1] -= 1 / finding.window.width
    support, best, chosen = 0.0, 0.0, findings[0].window
    for place, following in pairwise(sorted(rises)):
        support += rises[place]
        if support > best + 1e-9:
            best, chosen = support, Window(place, following - 1)
    return chosen


def _by_place(ordered: Sequence[TrendFinding]) -> list[list[TrendFinding]]:
    stabs: list[int] = []
    for finding in ordered:
        if not stabs or stabs[-1] < finding.window.first:
            stabs.append(finding.window.last)
    reached = [
        range(bisect_left(stabs, finding.window.first), bisect_right(stabs, finding.window.last)) for finding in ordered
    ]
    support = [0.0] * len(stabs)
    for finding, places in zip(ordered, reached, strict=True):
        for place in places:
            support[place] += 1 / finding.window.width
    members: dict[int, list[TrendFinding]] = defaultdict(list)
    for finding, places in zip(ordered, reached, strict=True):
        members[max(places, key=lambda place: support[place])].append(finding)
    return [members[place] for place in sorted(members)]

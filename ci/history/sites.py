"""Where on the branch findings lie: each series places a change point of one cause a little otherwise. Pure.

A change point is a window of commits. Windows of one cause share a commit; the fewest commits that reach every window
are found by taking windows in the order of their ends (the greedy stabbing of intervals, which is optimal). A window
that reaches several of these goes where the narrower windows are. Sorting is the only cost that is more than linear.
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

from roofwatch.ci.history.trend_finding import Status, TrendFinding, Window
from roofwatch.db.values import CommitRef, SeriesKey

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
        """Median log change of the times, and its standard error; where no time moved, of the host's times of launches,
        which a machine moves together too; None if neither did.
        """
        times = [finding for finding in self.findings if finding.is_time]
        times = times or [finding for finding in self.findings if finding.is_host_time]
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

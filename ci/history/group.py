"""Many findings to few regressions: what a person is told once for each cause. Pure.

1. Moves of the whole suite are events of the environment (`roofwatch.ci.causes.events`).
2. The rest of each kernel and direction is split by where it lies (`roofwatch.ci.history.sites`): each series places a
change
   point of one cause a little otherwise, so windows are compared, not commits.
3. Sites of several kernels become one regression where a common cause is likelier than a coincidence: a place that is
   narrow for how often anything happens, and times that moved by one factor; or one and the same change of the
   environment on record.

Everything is sorted once and swept once, so the cost is that of sorting the findings.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Sequence

from roofwatch.ci.causes.events import OF_THE_ENVIRONMENT, take_events
from roofwatch.ci.causes.suspects import cause_of, combine
from roofwatch.ci.history.family import Population
from roofwatch.ci.history.regression import place_of, regression_of, told, worst_first
from roofwatch.ci.history.sites import Site, find_sites
from roofwatch.ci.history.trend_finding import ALL_KERNELS, Status, TrendFinding
from roofwatch.ci.thresholds import Thresholds
from roofwatch.db.values import Cause, Regression, SeriesKey, Verdict

__all__ = ["ALL_KERNELS", "group_findings", "kernel_of"]

_COINCIDENCE = 0.2
"""Unrelated sites expected where two meet, above which a common scale is no longer enough to join them."""

_FAMILY_FROM = 5
"""Series from which on a family is one, and what it has in common no accident."""
_FAMILY_SHARE = 0.75
"""Share of a family that has moved when one that has not is missed."""


def kernel_of(series: SeriesKey) -> str:
    """The kernel is the first part of a case id."""
    return series.kernel


def group_findings(
    findings: Sequence[TrendFinding],
    *,
    time_series: Iterable[SeriesKey],
    thresholds: Thresholds,
) -> list[Regression]:
    """Put findings of one cause together: one regression each, worst first.

    Args:
        findings: From all series.
        time_series: Every series of times that was judged, moved or not, each once.
        thresholds: When a common move counts as the environment's.
    """
    grouped = group_with_findings(findings, population=Population(time_series), thresholds=thresholds)
    return [regression for regression, _ in grouped]


def group_with_findings(
    findings: Sequence[TrendFinding],
    *,
    population: Population,
    thresholds: Thresholds,
) -> list[tuple[Regression, tuple[TrendFinding, ...]]]:
    """The same, each with the findings that it tells."""
    events = take_events(findings, population=population, thresholds=thresholds)
    sites: dict[tuple[str, Verdict, bool, str], list[TrendFinding]] = defaultdict(list)
    for finding in events.rest:
        change = finding.change
        sites[change.series.project, change.verdict, change.is_gradual, finding.kernel].append(finding)
    by_kind: dict[tuple[str, Verdict, bool], list[Site]] = defaultdict(list)
    for (project, verdict, is_gradual, _), of_kernel in sites.items():
        by_kind[project, verdict, is_gradual].extend(find_sites(of_kernel))
    joined = [site for of_kind in by_kind.values() for site in _take_strays(_join_kernels(of_kind), population)]
    grouped = [(regression_of(site.findings, population), tuple(told(site.findings))) for site in _one_each(joined)]
    return sorted([*events.told, *grouped], key=lambda pair: worst_first(pair[0]))


def _join_kernels(sites: Sequence[Site]) -> list[Site]:
    """Sites of several kernels that share a cause, joined."""
    ordered = sorted(sites, key=lambda site: (site.core.first, site.core.last, sorted(site.kernels)))
    places_per_commit = _places_per_commit(ordered)
    joined: list[Site] = []
    near: list[int] = []  # positions in `joined` of those that a later site can still meet
    for site in ordered:
        near = [position for position in near if joined[position].reach.last >= site.reach.first]
        partner = next(
            (position for position in near if _is_one_cause(joined[position], site, places_per_commit)), None
        )
        if partner is None:
            near.append(len(joined))
            joined.append(site)
        else:
            joined[partner] = joined[partner].with_other(site)
    return joined


def _take_strays(sites: Sequence[Site], population: Population) -> list[Site]:
    """Give a change that stands alone to a family beside it, of which it is the one that did not move."""
    families = {
        position: family
        for position, site in enumerate(sites)
        if len(site.series) >= _FAMILY_FROM
        and len(site.series) >= _FAMILY_SHARE * (family := population.alike(site.series)).count
    }
    places = sorted(families, key=lambda position: sites[position].core.first)
    starts = [sites[position].core.first for position in places]
    taken: dict[int, Site] = {position: sites[position] for position in families}
    rest = []
    for position, site in enumerate(sites):
        if position in families:
            continue
        home = None
        if len(site.findings) == 1:
            finding = site.findings[0]
            near = bisect_left(starts, finding.window.last)
            home = next(
                (
                    place
                    for place in places[max(0, near - 2) : near + 2]
                    if families[place].holds(finding.change.series) and taken[place].could_hold(finding)
                ),
                None,
            )
        if home is None:
            rest.append(site)
        else:
            taken[home] = taken[home].with_other(site)
    return [*taken.values(), *rest]


def _is_one_cause(one: Site, other: Site, places_per_commit: float) -> bool:
    if not one.series.isdisjoint(other.series) or not one.reach.touches(other.reach):
        return False
    # what was seen again base against head is sure of its own kernel, and says nothing of others that were not
    if _certainty(one) != _certainty(other):
        return False
    recorded = _recorded(one)
    if recorded is not None and recorded is _recorded(other):
        return True
    if one.scale is None or other.scale is None or not one.is_of_scale_of(other):
        return False
    meeting = max(one.core.last, other.core.last) - min(one.core.first, other.core.first) + 1
    return meeting * places_per_commit <= _COINCIDENCE or meeting == 1


def _places_per_commit(ordered: Sequence[Site]) -> float:
    """How often anything happens: places that do not touch, over the commits they are spread over."""
    count, last = 0, -math.inf
    for site in ordered:
        if site.reach.first > last:
            count += 1
        last = max(last, site.reach.last)
    return count / (last - ordered[0].core.first + 1) if ordered else 0.0


def _certainty(site: Site) -> Status:
    statuses = {finding.status for finding in site.findings}
    return next(status for status in Status if status in statuses)


def _recorded(site: Site) -> Cause | None:
    """The change of the environment that is on record as the likeliest cause."""
    cause = cause_of(combine([finding.suspects for finding in told(site.findings)]))
    return cause if cause in OF_THE_ENVIRONMENT else None


def _one_each(sites: Sequence[Site]) -> list[Site]:
    """Join those that would be told under one key: a commit, a kernel and a direction are one regression."""
    by_key: dict[tuple[object, ...], Site] = {}
    for site in sites:
        standing = told(site.findings)
        change = standing[0].change
        kernels = frozenset(finding.kernel for finding in standing)
        key = (change.series.project, change.verdict, kernels, place_of(standing))
        by_key[key] = by_key[key].with_other(site) if key in by_key else site
    joined = list(by_key.values())
    return joined if len(joined) == len(sites) else _one_each(joined)

"""Many findings to few regressions: one for each cause. Pure.

1. Changes of the whole suite are events of the environment: it is the machine and not its kernels.
2. The rest of each kernel and direction is split by where it lies (`roofwatch.ci.history.finding.find_sites`).
3. Sites of several kernels become one regression where a common cause is likelier than a coincidence: a place that is
   narrow for how often anything happens, and times that changed by one factor; or the same recorded change of the
   environment.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from roofwatch.ci.causes.runner_evidence import RunnerMove
from roofwatch.ci.causes.suspects import Odds, cause_of, combine, weigh
from roofwatch.ci.history.finding import ALL_KERNELS, Site, Status, TrendFinding, find_sites
from roofwatch.ci.history.regression import Population, place_of, regression_of, scale_of, standing, worst_first
from roofwatch.ci.thresholds import Thresholds
from roofwatch.db.values import Cause, Regression, RegressionState, Suspect, Verdict

_OF_THE_ENVIRONMENT = frozenset({Cause.DRIVER, Cause.TOOLCHAIN, Cause.CLOCK, Cause.RUNNER, Cause.HARNESS})
"""Causes that touch all series of a machine at once."""
_COMMON_MOVE_ODDS = 9.0
"""Of the machine, beside what is not known, when half of its series change at once and no record says why."""
_COINCIDENCE = 0.2
"""Unrelated sites expected where two meet, above which a common scale is no longer enough to join them."""
_FAMILY_FROM = 5
"""Series from which on a family is one, and what it has in common no accident."""
_FAMILY_SHARE = 0.75
"""Share of a family that has changed when one that has not is missed."""

Grouped = tuple[Regression, tuple[TrendFinding, ...]]


def group_findings(
    findings: Sequence[TrendFinding], *, population: Population, thresholds: Thresholds
) -> list[Grouped]:
    """Put findings of one cause together: one regression each with its findings, worst first.

    Args:
        findings: From all series.
        population: Every series of times that was judged, changed or not.
        thresholds: When a common change counts as the environment's.
    """
    events, rest = _take_events(findings, population, thresholds)
    by_kernel: dict[tuple[str, Verdict, bool, str], list[TrendFinding]] = defaultdict(list)
    for finding in rest:
        change = finding.change
        by_kernel[change.series.project, change.verdict, change.is_gradual, finding.kernel].append(finding)
    by_kind: dict[tuple[str, Verdict, bool], list[Site]] = defaultdict(list)
    for (project, verdict, is_gradual, _), of_kernel in by_kernel.items():
        by_kind[project, verdict, is_gradual].extend(find_sites(of_kernel))
    joined = [site for of_kind in by_kind.values() for site in _take_strays(_join_kernels(of_kind), population)]
    grouped = [(regression_of(site.findings, population), tuple(standing(site.findings))) for site in _one_each(joined)]
    return sorted([*events, *grouped], key=lambda pair: worst_first(pair[0]))


# --- sites of one cause


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
    cause = cause_of(combine([finding.suspects for finding in standing(site.findings)]))
    return cause if cause in _OF_THE_ENVIRONMENT else None


def _take_strays(sites: Sequence[Site], population: Population) -> list[Site]:
    """Give a change that stands alone to a family beside it, of which it is the one that did not change."""
    families = {
        position: family
        for position, site in enumerate(sites)
        if len(site.series) >= _FAMILY_FROM
        and len(site.series) >= _FAMILY_SHARE * (family := population.alike(site.series)).count
    }
    places = sorted(families, key=lambda position: sites[position].core.first)
    starts = [sites[position].core.first for position in places]
    taken = {position: sites[position] for position in families}
    rest = []
    for position, site in enumerate(sites):
        if position in families:
            continue
        home = None
        if len(site.findings) == 1:
            finding = site.findings[0]
            near = bisect_left(starts, finding.window.last)
            for place in places[max(0, near - 2) : near + 2]:
                if families[place].holds(finding.change.series) and taken[place].could_hold(finding):
                    home = place
                    break
        if home is None:
            rest.append(site)
        else:
            taken[home] = taken[home].with_other(site)
    return [*taken.values(), *rest]


def _one_each(sites: Sequence[Site]) -> list[Site]:
    """Join those that would be reported under one key: a commit, a kernel and a direction are one regression."""
    by_key: dict[tuple[object, ...], Site] = {}
    for site in sites:
        own = standing(site.findings)
        change = own[0].change
        key = (change.series.project, change.verdict, frozenset(finding.kernel for finding in own), place_of(own))
        by_key[key] = by_key[key].with_other(site) if key in by_key else site
    joined = list(by_key.values())
    return joined if len(joined) == len(sites) else _one_each(joined)


# --- events of the environment


@dataclass(frozen=True)
class _CommonChange:
    """One runner class's series that changed together."""

    runner_class: str
    judged_count: int
    site: Site


def _take_events(
    findings: Sequence[TrendFinding], population: Population, thresholds: Thresholds
) -> tuple[list[Grouped], list[TrendFinding]]:
    """The events of the environment, and the findings that are left to explain.

    An event is a common change of at least half of a runner class's time series, over several kernels, none of which a
    paired measurement has confirmed, and whose old code does not show that the machine stayed as it was. Changes of
    several runner classes in one place are one event.
    """
    open_steps: dict[tuple[str, str, Verdict], list[TrendFinding]] = defaultdict(list)
    confirmed: dict[tuple[str, str, Verdict], list[TrendFinding]] = defaultdict(list)
    for finding in findings:
        if finding.is_step:
            series = finding.change.series
            if finding.status is Status.CONFIRMED:
                confirmed[series.project, series.runner_class, finding.change.verdict].append(finding)
            else:
                open_steps[series.project, series.runner_class, finding.way].append(finding)
    common: dict[tuple[str, Verdict], list[_CommonChange]] = defaultdict(list)
    taken: set[int] = set()
    for (project, runner_class, verdict), changed in open_steps.items():
        count = population.count_on(project, runner_class)
        for site in find_sites(changed):
            if _is_common(site, count, confirmed[project, runner_class, verdict], thresholds):
                whole = _with_strays(site, changed, taken)
                taken.update(map(id, whole.findings))
                common[project, verdict].append(_CommonChange(runner_class, count, whole))
    events = [_event(together, population) for of_project in common.values() for together in _in_one_place(of_project)]
    return events, [finding for finding in findings if id(finding) not in taken]


def _is_common(site: Site, judged_count: int, confirmed: Iterable[TrendFinding], thresholds: Thresholds) -> bool:
    again = Counter(finding.runner for finding in site.findings)
    return (
        len(site.series) >= thresholds.environment_min_series
        and len(site.series) >= thresholds.environment_share * judged_count
        and len(site.kernels) >= thresholds.environment_min_kernels
        # a pair that shows the change cancels the machine out: then the commit did it
        and not any(finding.window.touches(site.core) for finding in confirmed)
        and again[RunnerMove.STAYED] <= again[RunnerMove.MOVED]
    )


def _with_strays(site: Site, changed: Iterable[TrendFinding], taken: set[int]) -> Site:
    """The site with what an outlier beside it has drawn away: a series that did not change with the others, and did so
    within a few measured commits, the same way and by the same scale.
    """
    seen = {*map(id, site.findings), *taken}
    others = [
        finding
        for finding in changed
        if id(finding) not in seen and site.could_hold(finding) and Site((finding,)).is_of_scale_of(site)
    ]
    return Site((*site.findings, *others))


def _in_one_place(changes: Iterable[_CommonChange]) -> list[list[_CommonChange]]:
    groups: list[list[_CommonChange]] = []
    for change in sorted(changes, key=lambda change: (change.site.core.last, change.runner_class)):
        last = groups[-1][0].site if groups else None
        if last is not None and (last.core.touches(change.site.core) or last.commit == change.site.commit):
            groups[-1].append(change)
        else:
            groups.append([change])
    return groups


def _event(changes: Sequence[_CommonChange], population: Population) -> Grouped:
    findings = tuple(finding for change in changes for finding in change.site.findings)
    base = regression_of(findings, population)
    verdict = findings[0].way
    where = " and ".join(
        f"{len(change.site.series)} of {change.judged_count} time series on {change.runner_class}"
        for change in sorted(changes, key=lambda change: change.runner_class)
    )
    together = f"{where} got {'slower' if verdict is Verdict.REGRESSED else 'faster'} together"
    suspects = _suspects(findings, together)
    # one that was measured again and is not there speaks for all of them
    is_refuted = any(finding.status is Status.REFUTED for finding in findings)
    event = replace(
        base,
        kernel=ALL_KERNELS,
        verdict=verdict,
        # the event accuses the machine: so no series of it is left without a verdict
        change_points=tuple(replace(change, verdict=verdict) for change in base.change_points),
        cause=cause_of(suspects),
        suspects=suspects,
        summary=(
            f"{together}, typically by {scale_of([finding.log_change for finding in findings])}: "
            "the machine rather than one kernel"
        ),
        state=RegressionState.DISMISSED if is_refuted else base.state,
    )
    return event, findings


def _suspects(findings: Sequence[TrendFinding], together: str) -> tuple[Suspect, ...]:
    """What was recorded of the environment; where nothing was, the runner."""
    combined = {suspect.cause: suspect for suspect in combine([finding.suspects for finding in findings])}
    recorded = [suspect for cause, suspect in combined.items() if cause in _OF_THE_ENVIRONMENT]
    heaviest = max((suspect.weight for suspect in recorded), default=1.0)
    odds: Mapping[Cause, Odds] = {
        suspect.cause: Odds(_COMMON_MOVE_ODDS * suspect.weight / heaviest, suspect.sentence) for suspect in recorded
    } or {Cause.RUNNER: Odds(_COMMON_MOVE_ODDS, f"{together}, which no one kernel's code does")}
    if Cause.CODE in combined:
        # one commit can touch all kernels, but seldom does
        odds = {**odds, Cause.CODE: Odds(combined[Cause.CODE].weight, combined[Cause.CODE].sentence)}
    return weigh(odds)

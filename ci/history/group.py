"""Group findings into regressions: one for each cause. Pure.

1. A change of half of the series of a runner class is an event of the environment.
2. The rest of each kernel and direction is split by where it lies (`roofwatch.ci.history.finding`).
3. Sites of several kernels are joined if a common cause is likelier than a coincidence: a narrow
  place and times that
   changed by one factor, or the same recorded change of the environment.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from roofwatch.ci.causes.odds import Odds, cause_of, combine, weigh
from roofwatch.ci.history.finding import (
    ALL_KERNELS,
    Site,
    TrendFinding,
    find_sites,
    is_level_step,
)
from roofwatch.ci.history.regression import (
    Population,
    not_refuted,
    place_of,
    regression_of,
    size_of,
    worst_first,
)
from roofwatch.model.grouping import group_by
from roofwatch.model.history import Cause, Regression, RegressionState, Suspect
from roofwatch.model.metrics import TIME
from roofwatch.model.verdict import THRESHOLDS, Status, Verdict

_ENVIRONMENT = frozenset(
    {
        Cause.DRIVER,
        Cause.TOOLCHAIN,
        Cause.CLOCK,
        Cause.RUNNER,
        Cause.HARNESS,
    }
)
"""Causes that affect all series of a machine at once."""
_COMMON_MOVE_ODDS = 9.0
"""Odds of the machine if half of its series change at once and no record says why."""
_MAX_COINCIDENCE = 0.2
"""Unrelated sites expected where two meet, above which a common size is not enough to join them."""

_Kind = tuple[str, Verdict, bool, bool]
"""Project, verdict, and whether it is a drift, and of the machine: findings that are never one
regression if these differ.
"""
Grouped = tuple[Regression, tuple[TrendFinding, ...]]


def group_findings(findings: Sequence[TrendFinding], *, population: Population) -> list[Grouped]:
    """Group findings by cause: one regression each with its findings, worst first.

    Args:
        findings: From all series.
        population: Every judged series of times, changed or not.
    """
    events, rest = _take_events(findings, population)
    joined: list[Site] = []
    # findings of another kind never have the same cause
    for same_kind in group_by(rest, _kind_of_finding).values():
        sites: list[Site] = []
        for kernel_findings in group_by(same_kind, lambda finding: finding.kernel).values():
            sites.extend(find_sites(kernel_findings))
        joined.extend(_join_kernels(sites))
    grouped = [_grouped(site, population) for site in _join_keys(joined)]
    regressions = [*events, *grouped]
    return sorted(regressions, key=lambda pair: worst_first(pair[0]))


def _kind_of_finding(finding: TrendFinding) -> _Kind:
    change = finding.change
    return (
        change.series.project,
        change.verdict,
        change.is_gradual,
        _is_machine([finding]),
    )


def _grouped(site: Site, population: Population) -> Grouped:
    """One site as a regression; one of the machine names its cause."""
    findings = tuple(not_refuted(site.findings))
    regression = regression_of(site.findings, population)
    if _is_machine(findings):
        # the same kernels may have changed at this commit for another cause
        kernel_and_cause = f"{regression.kernel} ({regression.cause})"
        regression = replace(regression, kernel=kernel_and_cause)
    return regression, findings


# --- sites of one cause


def _join_kernels(sites: Sequence[Site]) -> list[Site]:
    """Join sites of several kernels that share a cause."""
    ordered = sorted(sites, key=_place_and_kernels)
    places_per_commit = _places_per_commit(ordered)
    joined: list[Site] = []
    # positions in `joined` that a later site can still meet
    near: list[int] = []
    for site in ordered:
        # sites come in order, so what ends before this one is out of reach of the next too
        near = [position for position in near if joined[position].reach.last >= site.reach.first]
        for position in near:
            if _is_one_cause(joined[position], site, places_per_commit):
                joined[position] = joined[position].joined(site)
                break
        else:
            near.append(len(joined))
            joined.append(site)
    return joined


def _place_and_kernels(site: Site) -> tuple[float, float, list[str]]:
    return (
        site.core.first,
        site.core.last,
        sorted(site.kernels),
    )


def _is_one_cause(
    site: Site,
    other_site: Site,
    places_per_commit: float,
) -> bool:
    """Whether a common cause of two sites is likelier than a coincidence.

    Args:
        site: Of some kernels.
        other_site: Of others.
        places_per_commit: How many unrelated changes a commit of this history has.
    """
    # one series cannot change twice for one cause
    if not site.series.isdisjoint(other_site.series):
        return False
    if not site.reach.touches(other_site.reach):
        return False
    # a pair that confirms one kernel says nothing about others
    if _best_status(site) != _best_status(other_site):
        return False
    recorded_cause = _recorded_cause(site)
    if recorded_cause is not None and recorded_cause is _recorded_cause(other_site):
        return True
    if site.size is None or other_site.size is None:
        return False
    if not site.has_size_of(other_site):
        return False
    first = min(site.core.first, other_site.core.first)
    last = max(site.core.last, other_site.core.last)
    commit_count = last - first + 1
    # in one and the same commit, a common size is enough
    if commit_count == 1:
        return True
    coincidences = commit_count * places_per_commit
    return coincidences <= _MAX_COINCIDENCE


def _places_per_commit(ordered: Sequence[Site]) -> float:
    """Rate of changes: places that do not touch, over the commits they are spread over.

    Args:
        ordered: Sites by their first commit.
    """
    # without any change there is no rate
    if not ordered:
        return 0.0
    place_count = 0
    last = -math.inf
    for site in ordered:
        if site.reach.first > last:
            place_count += 1
        last = max(last, site.reach.last)
    commit_count = last - ordered[0].core.first + 1
    return place_count / commit_count


def _best_status(site: Site) -> Status:
    """The strongest evidence that any finding has."""
    statuses = {finding.status for finding in site.findings}
    return next(status for status in Status if status in statuses)


def _recorded_cause(site: Site) -> Cause | None:
    """The change of the environment that is the likeliest cause; None if it is another one."""
    standing = not_refuted(site.findings)
    cause = cause_of(combine([finding.suspects for finding in standing]))
    if cause not in _ENVIRONMENT:
        return None
    return cause


def _join_keys(sites: Sequence[Site]) -> list[Site]:
    """Join sites with one key: a commit, a kernel and a direction are one regression.

    Files of other tools have a name for each benchmark, and no machine code that tells one cause
    from another: all that they show at one commit is one regression.
    """
    by_key: dict[tuple[object, ...], Site] = {}
    for site in sites:
        key = _key_of_regression(site)
        same_regression = by_key.get(key)
        # the key was seen before: the findings are those of one regression
        if same_regression is not None:
            site = same_regression.joined(site)
        by_key[key] = site
    joined = list(by_key.values())
    # joined sites may share a key with others now
    if len(joined) == len(sites):
        return joined
    return _join_keys(joined)


def _key_of_regression(site: Site) -> tuple[object, ...]:
    """What two regressions never have in common."""
    findings = not_refuted(site.findings)
    change = findings[0].change
    return (
        change.series.project,
        change.verdict,
        _kernels_of_key(findings),
        place_of(findings),
        _is_machine(findings),
    )


def _is_machine(findings: Sequence[TrendFinding]) -> bool:
    """Whether values of another tool changed with the machine."""
    if not findings[0].change.series.is_imported:
        return False
    suspects = combine([finding.suspects for finding in findings])
    return cause_of(suspects) in _ENVIRONMENT


def _kernels_of_key(findings: Sequence[TrendFinding]) -> frozenset[str]:
    """Kernels that tell two regressions apart; none for values of other tools."""
    # another tool's names say nothing about kernels
    series = [finding.change.series for finding in findings]
    if all(key.is_imported for key in series):
        return frozenset()
    return frozenset(key.kernel for key in series)


# --- events of the environment


@dataclass(frozen=True)
class _CommonChange:
    """Series of one runner class that changed together."""

    project: str
    runner_class: str
    direction: Verdict
    """Regressed if the series became slower."""
    judged_count: int
    """Series of the runner class, changed or not."""
    site: Site
    """Where they changed, with the findings."""


def _take_events(
    findings: Sequence[TrendFinding],
    population: Population,
) -> tuple[list[Grouped], list[TrendFinding]]:
    """Find the events of the environment, and return the other findings too.

    An event is a common change of at least half of a runner class's time series over several
    kernels. No paired measurement has confirmed it, and old code does not show that the machine
    stayed the same. Changes of several runner classes in one place are one event.
    """
    common = list(_common_changes(findings, population))
    taken_ids: set[int] = set()
    for change in common:
        taken_ids.update(map(id, change.site.findings))
    events: list[Grouped] = []
    by_direction = group_by(common, lambda change: (change.project, change.direction))
    for changes in by_direction.values():
        simultaneous = _in_one_place(changes)
        events.extend(_event(group, population) for group in simultaneous)
    rest = [finding for finding in findings if id(finding) not in taken_ids]
    return events, rest


def _common_changes(
    findings: Iterable[TrendFinding],
    population: Population,
) -> Iterator[_CommonChange]:
    """The changes of so many series of one machine that the commit is not to blame."""
    # a drift has no place that several series could share
    level_steps = [finding for finding in findings if is_level_step(finding.change)]
    by_machine = group_by(level_steps, _machine_and_direction)
    for (project, runner_class, direction), steps in by_machine.items():
        judged_count = population.count_on(project, runner_class)
        confirmed = [finding for finding in steps if finding.status is Status.CONFIRMED]
        unconfirmed = [finding for finding in steps if finding.status is not Status.CONFIRMED]
        for site in find_sites(unconfirmed):
            if _is_common(site, judged_count, confirmed):
                yield _CommonChange(
                    project=project,
                    runner_class=runner_class,
                    direction=direction,
                    judged_count=judged_count,
                    site=site,
                )


def _machine_and_direction(finding: TrendFinding) -> tuple[str, str, Verdict]:
    """What findings of one event have in common."""
    series = finding.change.series
    return series.project, series.runner_class, finding.direction


def _is_common(
    site: Site,
    judged_count: int,
    confirmed: Iterable[TrendFinding],
) -> bool:
    """Whether so many series of a runner class changed together that the machine is the cause.

    Args:
        site: What changed, unconfirmed.
        judged_count: Time series of the runner class, changed or not.
        confirmed: Steps of the runner class in the same direction that a pair confirmed.
    """
    series_count = len(site.series)
    min_count = max(
        THRESHOLDS.environment_min_series,
        THRESHOLDS.environment_share * judged_count,
    )
    kernel_count = len(site.kernels)
    # one kernel alone is the commit's doing, however many cases it has
    if series_count < min_count or kernel_count < THRESHOLDS.environment_min_kernels:
        return False
    # both sides of a pair run on one machine, so a confirmed change is the commit's
    if any(finding.window.touches(site.core) for finding in confirmed):
        return False
    # old code, measured again, says whether the machine changed
    answers = [finding.runner_changed for finding in site.findings]
    return answers.count(False) <= answers.count(True)


def _in_one_place(changes: Iterable[_CommonChange]) -> list[list[_CommonChange]]:
    """Group the changes of several runner classes that lie at one commit."""
    groups: list[list[_CommonChange]] = []
    for change in sorted(changes, key=_end_and_runner):
        if groups and _is_same_place(groups[-1][0].site, change.site):
            groups[-1].append(change)
        else:
            groups.append([change])
    return groups


def _end_and_runner(change: _CommonChange) -> tuple[float, str]:
    return change.site.core.last, change.runner_class


def _is_same_place(site: Site, other_site: Site) -> bool:
    """Whether two common changes may be one event."""
    is_near = site.core.touches(other_site.core)
    return is_near or site.commit == other_site.commit


def _event(changes: Sequence[_CommonChange], population: Population) -> Grouped:
    """Report changes of several kernels in one place as one event of the machine."""
    all_findings = (change.site.findings for change in changes)
    findings = tuple(chain.from_iterable(all_findings))
    regression = regression_of(findings, population)
    verdict = findings[0].direction
    together = _together_in_words(changes, verdict)
    suspects = _event_suspects(findings, together)
    size = size_of([finding.log_cost_change for finding in findings])
    # the clock explains single times, and not why all changed at once
    change_points = [
        replace(
            change,
            verdict=verdict,
            reason=None,
        )
        for change in regression.change_points
    ]
    state = regression.state
    # one refuted finding speaks for all
    if any(finding.status is Status.REFUTED for finding in findings):
        state = RegressionState.DISMISSED
    event = replace(
        regression,
        kernel=ALL_KERNELS,
        verdict=verdict,
        change_points=tuple(change_points),
        cause=cause_of(suspects),
        suspects=suspects,
        summary=f"{together}, typically by {size}: the machine rather than one kernel",
        is_confirmed=regression.is_confirmed or _is_bridged(findings),
        state=state,
    )
    return event, findings


def _together_in_words(changes: Iterable[_CommonChange], verdict: Verdict) -> str:
    """`12 of 20 time series on H200 and 8 of 9 time series on B200 got slower together`."""
    by_runner = sorted(changes, key=lambda change: change.runner_class)
    subject = " and ".join(map(_in_words, by_runner))
    direction = "faster"
    if verdict is Verdict.REGRESSED:
        direction = "slower"
    return f"{subject} got {direction} together"


def _in_words(change: _CommonChange) -> str:
    changed_count = len(change.site.series)
    count = f"{changed_count} of {change.judged_count}"
    kind = _kind_of(change.site)
    return f"{count} {kind} on {change.runner_class}"


def _is_bridged(findings: Sequence[TrendFinding]) -> bool:
    """Whether one commit, measured before and after, shows most of the changes."""
    bridge_count = sum(finding.is_bridge for finding in findings)
    return 2 * bridge_count > len(findings)


def _kind_of(site: Site) -> str:
    metrics = {finding.change.series.metric for finding in site.findings}
    # rates and values of other tools are no times
    if metrics == {TIME.key}:
        return "time series"
    return "series"


def _event_suspects(findings: Sequence[TrendFinding], together: str) -> tuple[Suspect, ...]:
    """The recorded changes of the environment; the runner if there are none."""
    suspects = combine([finding.suspects for finding in findings])
    recorded = [suspect for suspect in suspects if suspect.cause in _ENVIRONMENT]
    highest_weight = max((suspect.weight for suspect in recorded), default=1.0)
    odds: dict[Cause, Odds] = {}
    for suspect in recorded:
        # the likeliest of them has the odds of the machine, the others less
        relative_weight = suspect.weight / highest_weight
        against_unknown = _COMMON_MOVE_ODDS * relative_weight
        odds[suspect.cause] = Odds(against_unknown, suspect.sentence)
    # nothing was recorded that could have changed the machine
    if not odds:
        sentence = f"{together}, which no change of one kernel explains"
        odds[Cause.RUNNER] = Odds(_COMMON_MOVE_ODDS, sentence)
    for suspect in suspects:
        # one commit can affect all kernels, but rarely does
        if suspect.cause is Cause.CODE:
            odds[Cause.CODE] = Odds(suspect.weight, suspect.sentence)
    return weigh(odds)

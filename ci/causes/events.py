"""Events of the environment: when the suite moves together, it is the machine and not its kernels. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from roofwatch.ci.causes.runner_evidence import RunnerMove
from roofwatch.ci.causes.suspects import Odds, cause_of, combine, weigh
from roofwatch.ci.history.family import Population, scale_of
from roofwatch.ci.history.regression import regression_of
from roofwatch.ci.history.sites import Site, find_sites
from roofwatch.ci.history.trend_finding import ALL_KERNELS, Status, TrendFinding
from roofwatch.ci.thresholds import Thresholds
from roofwatch.db.values import Cause, Regression, RegressionState, Suspect, Verdict

OF_THE_ENVIRONMENT = frozenset({Cause.DRIVER, Cause.TOOLCHAIN, Cause.CLOCK, Cause.RUNNER, Cause.HARNESS})
"""Causes that touch all series of a machine at once."""
_COMMON_MOVE_ODDS = 9.0
"""Of the machine, beside what is not known, when half of its series move at once and no record says why."""


@dataclass(frozen=True)
class Events:
    """What the environment did, and the findings that are left to explain."""

    told: list[tuple[Regression, tuple[TrendFinding, ...]]]
    """Each with its findings."""
    rest: list[TrendFinding]


@dataclass(frozen=True)
class _Move:
    """One runner class's series that moved together."""

    runner_class: str
    judged_count: int
    site: Site


def take_events(
    findings: Sequence[TrendFinding],
    *,
    population: Population,
    thresholds: Thresholds,
) -> Events:
    """Tell the events of the environment, and take their findings out.

    An event is a common move of at least half of a runner class's time series, over several kernels, none of which a
    paired measurement has confirmed, and whose old code does not show that the machine stayed as it was. Moves of
    several runner classes in one place are one event.
    """
    by_class: dict[tuple[str, str, Verdict], list[TrendFinding]] = defaultdict(list)
    for finding in findings:
        if finding.is_step and finding.status is not Status.CONFIRMED:
            change = finding.change
            by_class[change.series.project, change.series.runner_class, finding.way].append(finding)
    confirmed = _confirmed(findings)
    moves: dict[tuple[str, Verdict], list[_Move]] = defaultdict(list)
    taken: set[int] = set()
    for (project, runner_class, verdict), moved in by_class.items():
        count = population.count_on(project, runner_class)
        for site in find_sites(moved):
            if _is_common(site, count, confirmed[project, runner_class, verdict], thresholds):
                whole = _with_all_that_reach(site, moved, taken)
                taken.update(map(id, whole.findings))
                moves[project, verdict].append(_Move(runner_class, count, whole))
    told = [_event(together, population) for of_project in moves.values() for together in _in_one_place(of_project)]
    return Events(told, [finding for finding in findings if id(finding) not in taken])


def _confirmed(findings: Iterable[TrendFinding]) -> dict[tuple[str, str, Verdict], list[TrendFinding]]:
    found: dict[tuple[str, str, Verdict], list[TrendFinding]] = defaultdict(list)
    for finding in findings:
        if finding.is_step and finding.status is Status.CONFIRMED:
            change = finding.change
            found[change.series.project, change.series.runner_class, change.verdict].append(finding)
    return found


def _is_common(site: Site, judged_count: int, confirmed: Iterable[TrendFinding], thresholds: Thresholds) -> bool:
    return (
        len(site.series) >= thresholds.environment_min_series
        and len(site.series) >= thresholds.environment_share * judged_count
        and len(site.kernels) >= thresholds.environment_min_kernels
        # a pair that shows the move cancels the machine out: then the commit did it
        and not any(finding.window.touches(site.core) for finding in confirmed)
        and not _has_stayed(site)
    )


def _has_stayed(site: Site) -> bool:
    """Whether old code that was measured again on the machine was as before, more often than not."""
    said = Counter(finding.runner for finding in site.findings)
    return said[RunnerMove.STAYED] > said[RunnerMove.MOVED]


def _with_all_that_reach(site: Site, moved: Iterable[TrendFinding], taken: set[int]) -> Site:
    """The site with what an outlier beside it has moved away: a series that did not move with the others, and did so
    within a few measured commits, the same way and by the same scale.
    """
    mine = set(map(id, site.findings))
    others = [
        finding
        for finding in moved
        if id(finding) not in mine
        and id(finding) not in taken
        and site.could_hold(finding)
        and Site((finding,)).is_of_scale_of(site)
    ]
    return Site((*site.findings, *others))


def _in_one_place(moves: Iterable[_Move]) -> list[list[_Move]]:
    groups: list[list[_Move]] = []
    for move in sorted(moves, key=lambda move: (move.site.core.last, move.runner_class)):
        last = groups[-1][0].site if groups else None
        if last is not None and (last.core.touches(move.site.core) or last.commit == move.site.commit):
            groups[-1].append(move)
        else:
            groups.append([move])
    return groups


def _event(moves: Sequence[_Move], population: Population) -> tuple[Regression, tuple[TrendFinding, ...]]:
    findings = tuple(finding for move in moves for finding in move.site.findings)
    base = regression_of(findings, population)
    verdict = findings[0].way
    way = "slower" if verdict is Verdict.REGRESSED else "faster"
    where = " and ".join(
        f"{len(move.site.series)} of {move.judged_count} time series on {move.runner_class}"
        for move in sorted(moves, key=lambda move: move.runner_class)
    )
    scale = scale_of([finding.log_change for finding in findings])
    suspects = _suspects(findings, where, way)
    # one that was looked at again and is not there speaks for all of them
    is_refuted = any(finding.status is Status.REFUTED for finding in findings)
    event = replace(
        base,
        kernel=ALL_KERNELS,
        verdict=verdict,
        # the event is what is told, and it accuses the machine: so no series of it is left without a verdict
        change_points=tuple(replace(change, verdict=verdict) for change in base.change_points),
        cause=cause_of(suspects),
        suspects=suspects,
        summary=f"{where} got {way} together, typically by {scale}: the machine rather than one kernel",
        state=RegressionState.DISMISSED if is_refuted else base.state,
    )
    return event, findings


def _suspects(findings: Sequence[TrendFinding], where: str, way: str) -> tuple[Suspect, ...]:
    """What was recorded of the environment; where nothing was, the runner."""
    combined = {suspect.cause: suspect for suspect in combine([finding.suspects for finding in findings])}
    recorded = {cause: suspect for cause, suspect in combined.items() if cause in OF_THE_ENVIRONMENT}
    odds: Mapping[Cause, Odds] = {
        cause: Odds(_COMMON_MOVE_ODDS * suspect.weight / max(one.weight for one in recorded.values()), suspect.sentence)
        for cause, suspect in recorded.items()
    }
    sentence = f"{where} got {way} together, which no one kernel's code does"
    if not recorded:
        odds = {Cause.RUNNER: Odds(_COMMON_MOVE_ODDS, sentence)}
    if Cause.CODE in combined:
        # one commit can touch all kernels, but seldom does
        odds = {**odds, Cause.CODE: Odds(combined[Cause.CODE].weight, combined[Cause.CODE].sentence)}
    return weigh(odds)

"""Many findings to few regressions: what a person is told once per commit, kernel and direction. Pure."""

from __future__ import annotations

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from ci.thresholds import Thresholds
from collector.metrics import Layer
from db.values import Cause, ChangePoint, CommitRef, Regression, RegressionState, SeriesKey, Verdict

ALL_KERNELS = "*"
"""Stands for the kernel of an environment event."""


class Status(StrEnum):
    CONFIRMED = "confirmed"
    """Deterministic, or seen again base against head."""
    UNCONFIRMED = "unconfirmed"
    REFUTED = "refuted"
    """Measured again base against head, and not there."""


@dataclass(frozen=True)
class Finding:
    """A change point with what is known about it."""

    change: ChangePoint
    cause: Cause
    status: Status

    @property
    def kernel(self) -> str:
        return kernel_of(self.change.series)

    @property
    def is_time(self) -> bool:
        """Whether a time moved, as opposed to an outcome or a compiled fact."""
        return self.change.series.metric == "median_ns" and not _is_outcome(self.change)


def kernel_of(series: SeriesKey) -> str:
    """The kernel is the first part of a case id."""
    return series.case_id.split("/", 1)[0]


def group_findings(
    findings: Sequence[Finding],
    *,
    time_series: Collection[SeriesKey],
    thresholds: Thresholds,
) -> list[Regression]:
    """Put findings together: one regression per project, commit, kernel and verdict, worst first.

    Where at least half of a runner class's time series, over several kernels, moves the same way at one commit and no
    paired measurement has confirmed any of them, the machine is the likelier cause: one regression of kernel `*`.

    Args:
        findings: From all series.
        time_series: Every series of times that was judged, moved or not.
        thresholds: When a common move counts as the environment's.
    """
    events, rest = _environment_events(findings, time_series, thresholds)
    groups: dict[tuple[str, CommitRef, str, Verdict], list[Finding]] = defaultdict(list)
    for finding in rest:
        change = finding.change
        groups[change.series.project, change.commit, finding.kernel, change.verdict].append(finding)
    return sorted([*events, *map(_regression, groups.values())], key=_worst_first)


def _environment_events(
    findings: Sequence[Finding], time_series: Collection[SeriesKey], thresholds: Thresholds
) -> tuple[list[Regression], list[Finding]]:
    """Events of the environment, and the findings that belong to none."""
    judged = Counter((series.project, series.runner_class) for series in time_series)
    together: dict[tuple[str, CommitRef, Verdict], dict[str, list[Finding]]] = defaultdict(lambda: defaultdict(list))
    for finding in findings:
        if finding.is_time:
            change = finding.change
            moved = together[change.series.project, change.commit, change.verdict]
            moved[change.series.runner_class].append(finding)
    events: list[Regression] = []
    taken: set[ChangePoint] = set()
    for (project, _, _), by_runner_class in together.items():
        members = {
            runner_class: moved
            for runner_class, moved in by_runner_class.items()
            if _is_environment(moved, judged[project, runner_class], thresholds)
        }
        if members:
            events.append(_environment_event(members, judged))
            taken.update(finding.change for moved in members.values() for finding in moved)
    return events, [finding for finding in findings if finding.change not in taken]


def _is_environment(moved: Sequence[Finding], judged_count: int, thresholds: Thresholds) -> bool:
    return (
        len(moved) >= thresholds.environment_min_series
        and len(moved) >= thresholds.environment_share * judged_count
        and len({finding.kernel for finding in moved}) >= thresholds.environment_min_kernels
        # a pair that shows the move cancels the machine out: then the commit did it
        and not any(finding.status is Status.CONFIRMED for finding in moved)
    )


def _environment_event(members: Mapping[str, Sequence[Finding]], judged: Mapping[tuple[str, str], int]) -> Regression:
    findings = [finding for moved in members.values() for finding in moved]
    changes = _largest_first(finding.change for finding in findings)
    lead = changes[0]
    project = lead.series.project
    way = "slower" if lead.verdict is Verdict.REGRESSED else "faster"
    typical = statistics.median(abs(_log_change(change)) for change in changes)
    where = " and ".join(
        f"{len(moved)} of {judged[project, runner_class]} time series on {runner_class}"
        for runner_class, moved in sorted(members.items())
    )
    return Regression(
        project=project,
        commit=lead.commit,
        kernel=ALL_KERNELS,
        verdict=lead.verdict,
        cause=Cause.RUNNER,
        summary=(
            f"{where} got {way} together, typically by a factor of {math.exp(typical):.2f}: "
            "the machine rather than one kernel"
        ),
        change_points=changes,
        state=(
            RegressionState.DISMISSED
            if any(finding.status is Status.REFUTED for finding in findings)
            else RegressionState.OPEN
        ),
    )


def _regression(findings: list[Finding]) -> Regression:
    standing = [finding for finding in findings if finding.status is not Status.REFUTED]
    told = standing or findings
    changes = _largest_first(finding.change for finding in told)
    lead = changes[0]
    causes = {finding.cause for finding in told}
    return Regression(
        project=lead.series.project,
        commit=lead.commit,
        kernel=kernel_of(lead.series),
        verdict=lead.verdict,
        cause=next((cause for cause in Cause if cause in causes), Cause.UNKNOWN),
        summary=_summary(changes),
        change_points=changes,
        state=RegressionState.OPEN if standing else RegressionState.DISMISSED,
        is_confirmed=any(finding.status is Status.CONFIRMED for finding in told),
    )


def _summary(changes: Sequence[ChangePoint]) -> str:
    """What moved most of each kind, with how many series moved with it."""
    kinds: dict[str, list[ChangePoint]] = defaultdict(list)
    for change in changes:
        kinds["outcome" if _is_outcome(change) else change.series.metric].append(change)
    parts = []
    for kind, group in kinds.items():
        # a check that failed counts for all of its tensors: for a person it is one thing
        others = len({change.series.label if kind != "outcome" else _subject(change) for change in group}) - 1
        also = f", and {others} more {'cases' if kind == 'outcome' else 'series'}" if others else ""
        parts.append(f"{_headline(group[0])}{also}")
    return f"{kernel_of(changes[0].series)}: {'; '.join(parts)}"


def _headline(change: ChangePoint) -> str:
    series = change.series
    if _is_outcome(change):
        return f"{change.evidence} in {_subject(change)}"
    metric = series.definition
    assert change.before is not None
    assert change.after is not None
    values = f"{metric.format(change.before)} to {metric.format(change.after)}"
    relative = change.relative_change
    percent = "" if relative is None else f" ({relative:+.1%})"
    return f"{metric.title} {values}{percent} in {series.label}"


def _subject(change: ChangePoint) -> str:
    """Case and implementation, and for compiled code its function and target; not which tensor."""
    return replace(change.series, tensor="").label


def _is_outcome(change: ChangePoint) -> bool:
    return change.before is None or change.after is None


def _log_change(change: ChangePoint) -> float:
    if not change.before or not change.after or change.before < 0 or change.after < 0:
        return math.inf
    return math.log(change.after / change.before)


_KIND_ORDER = {Layer.ACCURACY: 0, Layer.MEASURED: 1, Layer.STATIC: 2}


def _weight(change: ChangePoint) -> tuple[int, float]:
    """Outcomes before times before compiled facts, then by size; smaller sorts first."""
    if _is_outcome(change):
        return -1, 0.0
    return _KIND_ORDER[change.series.definition.layer], -abs(_log_change(change))


def _largest_first(changes: Iterable[ChangePoint]) -> tuple[ChangePoint, ...]:
    return tuple(sorted(changes, key=lambda change: (_weight(change), change.series)))


def _worst_first(regression: Regression) -> tuple[bool, bool, bool, tuple[int, float], CommitRef, str]:
    return (
        regression.state is not RegressionState.OPEN,
        regression.verdict is not Verdict.REGRESSED,
        not regression.is_confirmed,
        _weight(regression.change_points[0]),
        regression.commit,
        regression.kernel,
    )

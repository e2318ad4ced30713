"""Findings of one cause to what a person is told: one regression, with its family and its suspects. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace

from roofwatch.ci.causes.suspects import cause_of, combine
from roofwatch.ci.history.family import Population, kernels_in_words, scale_of
from roofwatch.ci.history.secondary_change import BESIDE_TIME
from roofwatch.ci.history.sites import commit_of
from roofwatch.ci.history.trend_finding import Status, TrendFinding, is_outcome, log_change
from roofwatch.ci.reason import Reason
from roofwatch.collector.record.metrics import Layer
from roofwatch.db.values import ChangePoint, CommitRef, Regression, RegressionState, SeriesKey, Verdict

_KIND_ORDER = {Layer.ACCURACY: 0, Layer.MEASURED: 1, Layer.STATIC: 2}
_BESIDE_TIME = 3
_CLOCK_MOVED = f"; {Reason.CLOCK_MOVED}: the clock moved, the cycles did not"
_FAMILY_FROM = 3
"""So many times that moved are a family worth a name; two are named one by one."""


def told(findings: Iterable[TrendFinding]) -> list[TrendFinding]:
    """Those that stand; all of them if none does, since what was refuted is told too."""
    all_of_them = list(findings)
    return [finding for finding in all_of_them if finding.status is not Status.REFUTED] or all_of_them


def regression_of(findings: Sequence[TrendFinding], population: Population) -> Regression:
    """Tell findings of one cause as one regression."""
    standing = told(findings)
    is_refuted = all(finding.status is Status.REFUTED for finding in standing)
    confirmed = [finding for finding in standing if finding.status is Status.CONFIRMED]
    changes = _largest_first(finding.change for finding in standing)
    lead = changes[0]
    times = [finding for finding in standing if finding.is_time]
    scale = scale_of([finding.log_change for finding in times])
    family = population.family([finding.change.series for finding in times])
    suspects = combine([finding.suspects for finding in confirmed or standing])
    kernel = kernels_in_words(finding.kernel for finding in standing)
    in_common = f"; typically {scale} on {family}" if scale is not None and len(times) >= _FAMILY_FROM else ""
    return Regression(
        project=lead.series.project,
        commit=place_of(standing),
        kernel=kernel,
        verdict=lead.verdict,
        cause=cause_of(suspects),
        summary=f"{kernel}: {_summary(changes)}{in_common}{_CLOCK_MOVED if standing[0].is_clock_move else ''}",
        change_points=changes,
        state=RegressionState.DISMISSED if is_refuted else RegressionState.OPEN,
        is_confirmed=bool(confirmed),
        suspects=suspects,
        family=family,
        typical_change=None if scale is None else scale.typical_change,
        change_spread=None if scale is None else scale.spread,
    )


def place_of(findings: Sequence[TrendFinding]) -> CommitRef:
    """Where all of them can lie; what is confirmed knows better than what is not."""
    confirmed = [finding for finding in findings if finding.status is Status.CONFIRMED]
    return commit_of(confirmed or findings)


def _summary(changes: Sequence[ChangePoint]) -> str:
    """What moved most of each kind, with how many series moved with it."""
    kinds: dict[str, list[ChangePoint]] = defaultdict(list)
    for change in changes:
        kinds["outcome" if is_outcome(change) else change.series.metric].append(change)
    parts = []
    for kind, group in kinds.items():
        # a check that failed counts for all of its tensors: for a person it is one thing
        others = len({_full_label(change.series) if kind != "outcome" else _subject(change) for change in group}) - 1
        also = f", and {others} more {'cases' if kind == 'outcome' else 'series'}" if others else ""
        parts.append(f"{_headline(group[0])}{also}")
    return "; ".join(parts)


def _headline(change: ChangePoint) -> str:
    series = change.series
    if is_outcome(change):
        return f"{change.evidence} in {_subject(change)}"
    metric = series.definition
    assert change.before is not None
    assert change.after is not None
    values = f"{metric.format(change.before)} to {metric.format(change.after)}"
    relative = change.relative_change
    percent = "" if relative is None else f" ({relative:+.1%})"
    return f"{metric.title} {values}{percent} in {series.label}"


def _full_label(series: SeriesKey) -> str:
    return f"{series.label} {series.runner_class}"


def _subject(change: ChangePoint) -> str:
    """Case and implementation, and for compiled code its function and target; not which tensor."""
    return replace(change.series, tensor="").label


def _weight(change: ChangePoint) -> tuple[int, float]:
    """Outcomes before times before compiled facts before what is measured beside times, then by size; smaller sorts
    first.
    """
    if is_outcome(change):
        return -1, 0.0
    if change.series.metric in BESIDE_TIME:
        return _BESIDE_TIME, -abs(log_change(change))
    return _KIND_ORDER[change.series.definition.layer], -abs(log_change(change))


def _largest_first(changes: Iterable[ChangePoint]) -> tuple[ChangePoint, ...]:
    return tuple(sorted(changes, key=lambda change: (_weight(change), change.series, change.commit)))


def worst_first(regression: Regression) -> tuple[bool, bool, bool, tuple[int, float], CommitRef, str]:
    """Sort key: what stands, what got worse, what is sure and what is large come first."""
    return (
        regression.state is not RegressionState.OPEN,
        regression.verdict is not Verdict.REGRESSED,
        not regression.is_confirmed,
        _weight(regression.change_points[0]),
        regression.commit,
        regression.kernel,
    )

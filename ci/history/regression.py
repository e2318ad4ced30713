"""Findings of one cause as one regression, the family of series that changed, and whether it has
recovered. Pure.
"""

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from roofwatch.ci.causes.explain import cause_of, combine
from roofwatch.ci.history.finding import (
    Status,
    TrendFinding,
    commit_of,
    is_outcome,
    log_change,
)
from roofwatch.ci.history.steps import SECONDARY_METRICS, threshold_of
from roofwatch.model.history import ChangePoint, CommitRef, Regression, RegressionState, SeriesKey
from roofwatch.model.metrics import Layer
from roofwatch.model.verdict import Reason, Verdict

_LAYER_ORDER = {
    Layer.ACCURACY: 0,
    Layer.MEASURED: 1,
    Layer.IMPORTED: 1,
    Layer.STATIC: 2,
    Layer.OPERATORS: 2,
}
_SECONDARY = 3
_CLOCK_CHANGED = f"; {Reason.CLOCK_CHANGED}: the clock changed, the cycles did not"
COST_SHIFT_NOTE = f"; {Reason.COST_SHIFT}: the time of the step did not change"
_CASE_PARTS = 4
"""Kernel, shape, dtype, direction; other case ids have the kernel alone."""
_MAX_NAMED_KERNELS = 3
_MIN_FAMILY = 3
"""Fewer times are named one by one."""
_RECOVERED_SHARE = 0.8
"""Share of a regression's change points that must be undone; the steps of some series are missed.
"""


# --- families of series


class Population:
    """Counts of all judged series of times, changed or not, by their traits."""

    def __init__(self, series: Iterable[SeriesKey] = ()) -> None:
        self._by_kernel: dict[tuple[str, str], Counter[frozenset[tuple[str, str]]]] = defaultdict(
            Counter
        )
        self._by_class: Counter[tuple[str, str]] = Counter()
        self.keys: list[SeriesKey] = []
        for key in series:
            self.add(key)

    def add(self, key: SeriesKey) -> None:
        self._by_kernel[key.project, key.kernel][frozenset(_traits(key).items())] += 1
        self._by_class[key.project, key.runner_class] += 1
        self.keys.append(key)

    def merge(self, other: "Population") -> None:
        for kernel, kinds in other._by_kernel.items():
            self._by_kernel[kernel].update(kinds)
        self._by_class.update(other._by_class)
        self.keys += other.keys

    def count_on(self, project: str, runner_class: str) -> int:
        return self._by_class[project, runner_class]

    def describe_family(self, changed: Collection[SeriesKey]) -> str:
        """Describe the smallest family with these series: those of their kernels that share what
        they all share.

        Returns:
            For example `all 12 bfloat16 triton series of attention` or `3 of 4 fwd series of
            softmax`; empty if nothing changed.
        """
        keys = set(changed)
        if not keys:
            return ""
        kernels = {(key.project, key.kernel) for key in keys}
        kinds = [
            (dict(traits), count)
            for kernel in kernels
            for traits, count in self._by_kernel[kernel].items()
        ]
        shared = dict(set.intersection(*(set(_traits(key).items()) for key in keys)))
        traits = {
            name: value
            for name, value in shared.items()
            if any(kind.get(name) != value for kind, _ in kinds)
        }
        total = sum(count for kind, count in kinds if traits.items() <= kind.items())
        adjectives = [
            traits[name] for name in ("dtype", "direction", "implementation") if name in traits
        ]
        where = f" on {traits['runner class']}" if "runner class" in traits else ""
        every = "the only" if len(keys) == 1 else f"all {len(keys)}"
        count = every if total <= len(keys) else f"{len(keys)} of {total}"
        names = sorted({key.kernel for key in keys})
        listed = ", ".join(names) if len(names) <= _MAX_NAMED_KERNELS else f"{len(names)} kernels"
        return " ".join([count, *adjectives, "series of", listed]) + where


def _traits(key: SeriesKey) -> dict[str, str]:
    traits = {"implementation": key.implementation, "runner class": key.runner_class}
    parts = key.case_id.split("/")
    if len(parts) == _CASE_PARTS:
        traits |= {"dtype": parts[2], "direction": parts[3]}
    return traits


# --- regressions


def not_refuted(findings: Iterable[TrendFinding]) -> list[TrendFinding]:
    """Drop refuted findings, unless all are: a refuted regression is reported too."""
    everything = list(findings)
    return [finding for finding in everything if finding.status is not Status.REFUTED] or everything


def regression_of(findings: Sequence[TrendFinding], population: Population) -> Regression:
    """Report findings of one cause as one regression."""
    own = not_refuted(findings)
    confirmed = [finding for finding in own if finding.status is Status.CONFIRMED]
    commit = place_of(own)
    ordered = sorted(own, key=lambda finding: _evidence_rank(finding.change, commit))
    changes = tuple(finding.change for finding in ordered)
    times = [finding for finding in own if finding.is_performance]
    size = size_of(_comparable_changes(times))
    family = population.describe_family([finding.change.series for finding in times])
    suspects = combine([finding.suspects for finding in confirmed or own])
    kernel = _join_names(sorted({finding.kernel for finding in own}))
    in_common = (
        f"; typically {size} on {family}" if size is not None and len(times) >= _MIN_FAMILY else ""
    )
    is_refuted = all(finding.status is Status.REFUTED for finding in own)
    note = _CLOCK_CHANGED if own[0].is_clock_move else ""
    if own[0].change.series.is_share_of_step and own[0].change.verdict is Verdict.INCONCLUSIVE:
        note = COST_SHIFT_NOTE
    return Regression(
        project=changes[0].series.project,
        commit=commit,
        kernel=kernel,
        verdict=changes[0].verdict,
        cause=cause_of(suspects),
        summary=f"{kernel}: {_summary(changes)}{in_common}{note}",
        change_points=changes,
        state=RegressionState.DISMISSED if is_refuted else RegressionState.OPEN,
        is_confirmed=bool(confirmed),
        suspects=suspects,
        family=family,
        typical_change=None if size is None else size.typical_change,
        change_spread=None if size is None else size.spread,
        outline=ordered[0].outline,
    )


def place_of(findings: Sequence[TrendFinding]) -> CommitRef:
    """The commit at which all of them can lie; confirmed findings decide if there are any."""
    return commit_of(
        [finding for finding in findings if finding.status is Status.CONFIRMED] or findings
    )


def worst_first(
    regression: Regression,
) -> tuple[bool, bool, bool, tuple[int, float], CommitRef, str]:
    """Sort key: open, regressed, confirmed and large regressions come first."""
    return (
        regression.state is not RegressionState.OPEN,
        regression.verdict is not Verdict.REGRESSED,
        not regression.is_confirmed,
        min(map(_rank, regression.change_points)),
        regression.commit,
        regression.kernel,
    )


def _evidence_rank(change: ChangePoint, commit: CommitRef) -> tuple[Any, ...]:
    """Sort key of the best evidence. The largest change does not come first, for it is often on the
    noisiest runner.

    Within a layer, changes at the regression's own commit come first, then those of a device that
    was not slowed down, those whose machine code is known, and those of the most standard errors.
    """
    layer, size = _rank(change)
    return (
        layer,
        change.commit != commit,
        bool(change.degraded_by),
        not change.has_code,
        -math.inf if change.standard_errors is None else -change.standard_errors,
        size,
        change.series,
        change.commit,
    )


def _rank(change: ChangePoint) -> tuple[int, float]:
    """Outcomes before errors, times, compiled facts and secondary metrics, then by size."""
    if is_outcome(change):
        return -1, 0.0
    series = change.series
    is_derived = series.is_share_of_step or series.is_ratio_to_reference
    is_secondary = series.metric in SECONDARY_METRICS or is_derived
    layer = _SECONDARY if is_secondary else _LAYER_ORDER[change.series.definition.layer]
    return layer, -abs(log_change(change))


def _summary(changes: Sequence[ChangePoint]) -> str:
    """The best evidence of each metric, with the number of series that changed with it."""
    by_metric: dict[str, list[ChangePoint]] = defaultdict(list)
    for change in changes:
        # another tool's file has several statistics of one metric, which change together
        is_imported = change.series.is_imported and not change.series.is_ratio_to_reference
        metric = "imported" if is_imported else change.series.metric
        by_metric["outcome" if is_outcome(change) else metric].append(change)
    parts = []
    for name, group in by_metric.items():
        # a failed check counts once for all of its tensors
        labels = {
            _subject(change)
            if name == "outcome"
            else f"{change.series.label} {change.series.runner_class}"
            for change in group
        }
        others = len(labels) - 1
        also = f", and {others} more {'cases' if name == 'outcome' else 'series'}" if others else ""
        parts.append(f"{_headline(group[0])}{also}")
    return "; ".join(parts)


def _headline(change: ChangePoint) -> str:
    if change.before is None or change.after is None:
        return f"{change.evidence} in {_subject(change)}"
    metric, relative = change.series.definition, change.relative_change
    percent = "" if relative is None else f" ({relative:+.1%})"
    sides = f"{metric.format(change.before)} to {metric.format(change.after)}"
    return f"{metric.title} {sides}{percent} in {change.series.label}"


def _subject(change: ChangePoint) -> str:
    """The label without the tensor."""
    return replace(change.series, tensor="").label


def _join_names(kernels: Sequence[str]) -> str:
    if len(kernels) <= _MAX_NAMED_KERNELS:
        return " + ".join(kernels)
    return (
        f"{' + '.join(kernels[: _MAX_NAMED_KERNELS - 1])} + "
        f"{len(kernels) - _MAX_NAMED_KERNELS + 1} more"
    )


@dataclass(frozen=True)
class Size:
    """By how much times changed together."""

    typical_change: float
    """Median relative change."""
    spread: float | None
    """Half the interquartile range; None below three changes."""

    def __str__(self) -> str:
        around = "" if self.spread is None else f" ± {self.spread:.1%}"
        return f"{self.typical_change:+.1%}{around}"


def _comparable_changes(findings: Sequence[TrendFinding]) -> list[float]:
    """Log changes; of times and rates together, for the worse."""
    if len({finding.change.series.definition.better for finding in findings}) > 1:
        return [finding.log_cost_change for finding in findings]
    return [finding.log_change for finding in findings]


def size_of(log_changes: Sequence[float]) -> Size | None:
    """Summarise changes; None if there are none."""
    if not log_changes:
        return None
    typical = math.expm1(statistics.median(log_changes))
    if len(log_changes) < 3:
        return Size(typical, None)
    low, _, high = statistics.quantiles(map(math.expm1, log_changes), n=4, method="inclusive")
    return Size(typical, (high - low) / 2)


# --- recovery


def note_recoveries(regressions: Sequence[Regression]) -> list[Regression]:
    """Set `recovered_at` of each regression that improvements of the same series undid.

    Args:
        regressions: All of a project, improvements too.
    """
    improved: dict[SeriesKey, list[ChangePoint]] = defaultdict(list)
    for regression in regressions:
        if regression.state is RegressionState.OPEN:
            for point in regression.change_points:
                if point.verdict is Verdict.IMPROVED:
                    improved[point.series].append(point)

    def recovery(regression: Regression) -> CommitRef | None:
        worse = [point for point in regression.change_points if point.verdict is Verdict.REGRESSED]
        undone = []
        for point in worse:
            tolerance = threshold_of(point.series.metric)
            later = [
                other.commit
                for other in improved.get(point.series, ())
                if other.commit > point.commit and _is_back(point, other, tolerance)
            ]
            undone += [min(later)] if later else []
        return (
            max(undone)
            if worse and len(undone) >= math.ceil(_RECOVERED_SHARE * len(worse))
            else None
        )

    return [
        replace(one, recovered_at=recovery(one)) if one.verdict is Verdict.REGRESSED else one
        for one in regressions
    ]


def _is_back(point: ChangePoint, improvement: ChangePoint, tolerance: float) -> bool:
    if point.before is None or point.after is None:
        return improvement.before is None
    if improvement.after is None:
        return False
    limit = (
        point.before * (1 + tolerance)
        if point.after > point.before
        else point.before * (1 - tolerance)
    )
    return not point.series.definition.is_worse(base=limit, head=improvement.after)

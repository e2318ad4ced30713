"""Findings of one cause as one regression, the family of series that changed, and whether it has
recovered. Pure.
"""

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from roofwatch.ci.causes.odds import cause_of, combine
from roofwatch.ci.history.finding import (
    TrendFinding,
    commit_of,
    is_outcome,
    log_change,
)
from roofwatch.ci.history.steps import SECONDARY_METRICS, threshold_of
from roofwatch.model.grouping import group_by
from roofwatch.model.history import ChangePoint, CommitRef, Regression, RegressionState, SeriesKey
from roofwatch.model.metrics import Layer
from roofwatch.model.verdict import Reason, Status, Verdict

_LAYER_ORDER = {
    Layer.ACCURACY: 0,
    Layer.MEASURED: 1,
    Layer.IMPORTED: 1,
    Layer.STATIC: 2,
    Layer.OPERATORS: 2,
}
_SECONDARY = 3
_NOTES = {
    Reason.CLOCK_CHANGED: "the clock changed, the cycles did not",
    Reason.COST_SHIFT: "the time of the step did not change",
}
"""What a summary says of changes that decide nothing."""
_OUTCOME = "outcome"
_CASE_PARTS = 4
"""Kernel, shape, dtype, direction; other case ids have the kernel alone."""
_MAX_NAMED_KERNELS = 3
_MIN_FAMILY = 3
"""Fewer times are named one by one."""
_MIN_FOR_SPREAD = 3
"""Fewer changes have no quartiles."""
_RECOVERED_SHARE = 0.8
"""Share of a regression's change points that must be undone; the steps of some series are missed.
"""


# --- families of series

_Traits = frozenset[tuple[str, str]]
"""Names and values."""


class Population:
    """Counts of all judged series of times, changed or not, by their traits."""

    def __init__(self, series: Iterable[SeriesKey] = ()) -> None:
        # by project and kernel
        self._trait_counts: dict[tuple[str, str], Counter[_Traits]] = defaultdict(Counter)
        # by project and runner class
        self._series_counts: Counter[tuple[str, str]] = Counter()
        self.keys: list[SeriesKey] = []
        for key in series:
            self.add(key)

    def add(self, key: SeriesKey) -> None:
        """Count a judged series of a time."""
        of_kernel = self._trait_counts[key.project, key.kernel]
        of_kernel[_traits(key)] += 1
        self._series_counts[key.project, key.runner_class] += 1
        self.keys.append(key)

    def merge(self, population: "Population") -> None:
        """Add the counts of another part of the series."""
        for kernel, trait_counts in population._trait_counts.items():
            self._trait_counts[kernel].update(trait_counts)
        self._series_counts.update(population._series_counts)
        self.keys += population.keys

    def count_on(self, project: str, runner_class: str) -> int:
        """Number of judged series of a runner class."""
        return self._series_counts[project, runner_class]

    def describe_family(self, changed: Collection[SeriesKey]) -> str:
        """Describe the smallest family with these series: those of their kernels that share what
        they all share.

        Returns:
            For example `all 12 bfloat16 triton series of attention` or `3 of 4 fwd series of
            softmax`; empty if nothing changed.
        """
        keys = set(changed)
        # a failure alone changes no series of times
        if not keys:
            return ""
        trait_counts: Counter[_Traits] = Counter()
        for project_and_kernel in {(key.project, key.kernel) for key in keys}:
            trait_counts.update(self._trait_counts[project_and_kernel])
        family = frozenset.intersection(*map(_traits, keys))
        # a trait that every series of the kernels has tells nothing
        if trait_counts:
            family -= frozenset.intersection(*trait_counts)
        else:
            family = frozenset()
        of_family = [count for traits, count in trait_counts.items() if family <= traits]
        family_count = sum(of_family)
        return _family_in_words(dict(family), keys, family_count)


def _family_in_words(
    family: Mapping[str, str],
    keys: Collection[SeriesKey],
    family_count: int,
) -> str:
    """Write a family and how many of it changed.

    Args:
        family: Names and values of the traits that it shares.
        keys: Series that changed.
        family_count: Series of the family, changed or not.
    """
    words = [_share_in_words(len(keys), family_count)]
    adjectives = ("dtype", "direction", "implementation")
    shared = [name for name in adjectives if name in family]
    words.extend(family[name] for name in shared)
    words.append("series of")
    kernels = sorted({key.kernel for key in keys})
    # a long list hides what they share
    if len(kernels) > _MAX_NAMED_KERNELS:
        words.append(f"{len(kernels)} kernels")
    else:
        words.append(", ".join(kernels))
    if "runner class" in family:
        words.append(f"on {family['runner class']}")
    return " ".join(words)


def _share_in_words(changed_count: int, family_count: int) -> str:
    """`3 of 4`, `all 12` or `the only`."""
    if changed_count < family_count:
        return f"{changed_count} of {family_count}"
    if changed_count == 1:
        return "the only"
    return f"all {changed_count}"


def _traits(key: SeriesKey) -> _Traits:
    """What series may have in common besides their kernel."""
    traits = {"implementation": key.implementation, "runner class": key.runner_class}
    parts = key.case_id.split("/")
    # case ids of other tools have no fixed parts
    if len(parts) == _CASE_PARTS:
        _, _, traits["dtype"], traits["direction"] = parts
    return frozenset(traits.items())


# --- regressions


def not_refuted(findings: Iterable[TrendFinding]) -> list[TrendFinding]:
    """Drop refuted findings, unless all are: a refuted regression is reported too."""
    all_findings = list(findings)
    standing = [finding for finding in all_findings if finding.status is not Status.REFUTED]
    return standing or all_findings


def regression_of(findings: Sequence[TrendFinding], population: Population) -> Regression:
    """Report findings of one cause as one regression.

    Args:
        findings: At least one; refuted ones do not count unless all are.
        population: Every judged series of times, for the family of those that changed.
    """
    reported = not_refuted(findings)
    commit = place_of(reported)
    ordered = sorted(reported, key=lambda finding: _evidence_rank(finding.change, commit))
    changes = tuple(finding.change for finding in ordered)
    times = [finding for finding in reported if finding.is_performance]
    size = size_of(_comparable_changes(times))
    changed_series = [finding.change.series for finding in times]
    family = population.describe_family(changed_series)
    # a pair knows the cause better than single runs do
    confirmed = [finding for finding in reported if finding.status is Status.CONFIRMED]
    witnesses = confirmed or reported
    suspects = combine([finding.suspects for finding in witnesses])
    is_refuted = all(finding.status is Status.REFUTED for finding in reported)
    kernel = _join_names(sorted({finding.kernel for finding in reported}))
    summary = f"{kernel}: {_summary(changes)}"
    # few series have no typical size
    if size is not None and len(times) >= _MIN_FAMILY:
        summary += f"; typically {size} on {family}"
    # what the reader should know before acting, such as a move of the clock
    reason = reported[0].change.reason
    if reason in _NOTES:
        summary += f"; {_NOTES[reason]}"
    state = RegressionState.OPEN
    if is_refuted:
        state = RegressionState.DISMISSED
    typical_change = None
    change_spread = None
    if size is not None:
        typical_change = size.typical_change
        change_spread = size.spread
    return Regression(
        project=changes[0].series.project,
        commit=commit,
        kernel=kernel,
        verdict=changes[0].verdict,
        cause=cause_of(suspects),
        summary=summary,
        change_points=changes,
        state=state,
        is_confirmed=bool(confirmed),
        suspects=suspects,
        family=family,
        typical_change=typical_change,
        change_spread=change_spread,
        outline=ordered[0].outline,
    )


def place_of(findings: Sequence[TrendFinding]) -> CommitRef:
    """The commit at which all of them can lie; confirmed findings decide if there are any."""
    confirmed = [finding for finding in findings if finding.status is Status.CONFIRMED]
    return commit_of(confirmed or findings)


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
    # an exact change is the most certain
    standard_errors = math.inf
    if change.standard_errors is not None:
        standard_errors = change.standard_errors
    return (
        layer,
        change.commit != commit,
        bool(change.degraded_by),
        not change.has_code,
        -standard_errors,
        size,
        change.series,
        change.commit,
    )


def _rank(change: ChangePoint) -> tuple[int, float]:
    """Outcomes before errors, times, compiled facts and secondary metrics, then by size."""
    # a failure is worse than any time
    if is_outcome(change):
        return -1, 0.0
    series = change.series
    is_derived = series.is_share_of_step or series.is_ratio_to_reference
    is_secondary = series.metric in SECONDARY_METRICS or is_derived
    layer = _SECONDARY
    if not is_secondary:
        layer = _LAYER_ORDER[change.series.definition.layer]
    return layer, -abs(log_change(change))


def _summary(changes: Sequence[ChangePoint]) -> str:
    """The best evidence of each metric, with the number of series that changed with it."""
    parts: list[str] = []
    for name, metric_changes in group_by(changes, _metric_in_summary).items():
        # the best evidence comes first
        part = _headline(metric_changes[0])
        labels = {_label(change) for change in metric_changes}
        more_count = len(labels) - 1
        if more_count:
            noun = "cases" if name == _OUTCOME else "series"
            part += f", and {more_count} more {noun}"
        parts.append(part)
    return "; ".join(parts)


def _metric_in_summary(change: ChangePoint) -> str:
    """Name under which changes are summed up."""
    if is_outcome(change):
        return _OUTCOME
    # another tool's file has several statistics of one metric, which change together
    if change.series.is_imported and not change.series.is_ratio_to_reference:
        return "imported"
    return change.series.metric


def _label(change: ChangePoint) -> str:
    # a failed check counts once for all of its tensors
    if is_outcome(change):
        return _subject(change)
    return f"{change.series.label} {change.series.runner_class}"


def _headline(change: ChangePoint) -> str:
    """A change in words: both levels, or what happened if a side has none."""
    if change.before is None or change.after is None:
        return f"{change.evidence} in {_subject(change)}"
    metric = change.series.definition
    before = metric.format(change.before)
    after = metric.format(change.after)
    levels = f"{before} to {after}"
    # an old level of 0 has no relative change
    if change.relative_change is not None:
        levels += f" ({change.relative_change:+.1%})"
    return f"{metric.title} {levels} in {change.series.label}"


def _subject(change: ChangePoint) -> str:
    """The label without the tensor."""
    return replace(change.series, tensor="").label


def _join_names(kernels: Sequence[str]) -> str:
    """Join names of kernels; of many, the first and how many more."""
    if len(kernels) <= _MAX_NAMED_KERNELS:
        return " + ".join(kernels)
    named = kernels[: _MAX_NAMED_KERNELS - 1]
    more_count = len(kernels) - len(named)
    return f"{' + '.join(named)} + {more_count} more"


@dataclass(frozen=True)
class Size:
    """By how much times changed together."""

    typical_change: float
    """Median relative change."""
    spread: float | None
    """Half the interquartile range; None below three changes."""

    def __str__(self) -> str:
        around = ""
        if self.spread is not None:
            around = f" ± {self.spread:.1%}"
        return f"{self.typical_change:+.1%}{around}"


def _comparable_changes(findings: Sequence[TrendFinding]) -> list[float]:
    """Log changes; of times and rates together, for the worse."""
    directions = {finding.change.series.definition.better for finding in findings}
    # a time that grows and a rate that falls are one and the same change
    if len(directions) > 1:
        return [finding.log_cost_change for finding in findings]
    return [finding.log_change for finding in findings]


def size_of(log_changes: Sequence[float]) -> Size | None:
    """Summarise changes; None if there are none."""
    if not log_changes:
        return None
    typical_change = math.expm1(statistics.median(log_changes))
    # two changes have a difference and no spread
    if len(log_changes) < _MIN_FOR_SPREAD:
        return Size(typical_change, None)
    relative_changes = [math.expm1(log_change) for log_change in log_changes]
    lower_quartile, _, upper_quartile = statistics.quantiles(
        relative_changes,
        n=4,
        method="inclusive",
    )
    return Size(typical_change, spread=(upper_quartile - lower_quartile) / 2)


# --- recovery


def note_recoveries(regressions: Sequence[Regression]) -> list[Regression]:
    """Set `recovered_at` of each regression that improvements of the same series undid.

    Args:
        regressions: All of a project, improvements too.
    """
    improvements = _improvements(regressions)
    noted: list[Regression] = []
    for regression in regressions:
        if regression.verdict is Verdict.REGRESSED:
            recovered_at = _recovery(regression, improvements)
            regression = replace(regression, recovered_at=recovered_at)
        noted.append(regression)
    return noted


_Improvements = Mapping[SeriesKey, Sequence[ChangePoint]]


def _improvements(regressions: Iterable[Regression]) -> _Improvements:
    points: list[ChangePoint] = []
    for regression in regressions:
        if regression.state is RegressionState.OPEN:
            points.extend(regression.change_points)
    improved = [point for point in points if point.verdict is Verdict.IMPROVED]
    return group_by(improved, lambda point: point.series)


def _recovery(regression: Regression, improvements: _Improvements) -> CommitRef | None:
    """The commit at which enough of its series were back; None if they are not."""
    points = regression.change_points
    # what improved at the same commit needs no recovery
    regressed = [point for point in points if point.verdict is Verdict.REGRESSED]
    undone_at: list[CommitRef] = []
    for point in regressed:
        undoing = [
            improvement.commit
            for improvement in improvements.get(point.series, ())
            if improvement.commit > point.commit and _is_back(point, improvement)
        ]
        if undoing:
            undone_at.append(min(undoing))
    if not undone_at:
        return None
    # most of what was lost is back
    min_count = math.ceil(_RECOVERED_SHARE * len(regressed))
    if len(undone_at) < min_count:
        return None
    return max(undone_at)


def _is_back(point: ChangePoint, improvement: ChangePoint) -> bool:
    """Whether an improvement leads back to the level before a regression."""
    # a failure has no level: it ends with a result
    if point.before is None or point.after is None:
        return improvement.before is None
    if improvement.after is None:
        return False
    tolerance = threshold_of(point.series.metric)
    if point.after > point.before:
        limit = point.before * (1 + tolerance)
    else:
        limit = point.before * (1 - tolerance)
    definition = point.series.definition
    return not definition.is_worse(base=limit, head=improvement.after)

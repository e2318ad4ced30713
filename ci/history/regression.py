"""Findings of one cause to what a person is told: one regression, its family, and whether it has recovered. Pure."""

from __future__ import annotations

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from roofwatch.ci.causes.suspects import cause_of, combine
from roofwatch.ci.history.finding import Status, TrendFinding, commit_of, is_outcome, log_change
from roofwatch.ci.history.value_steps import SECONDARY_METRICS, threshold_of
from roofwatch.ci.reason import Reason
from roofwatch.ci.thresholds import Thresholds
from roofwatch.collector.record.metrics import Layer
from roofwatch.db.values import ChangePoint, CommitRef, Regression, RegressionState, SeriesKey, Verdict

_KIND_ORDER = {Layer.ACCURACY: 0, Layer.MEASURED: 1, Layer.STATIC: 2}
_SECONDARY = 3
_CLOCK_MOVED = f"; {Reason.CLOCK_MOVED}: the clock moved, the cycles did not"
_FAMILY_FROM = 3
"""So many times that changed are a family worth a name; two are named one by one."""
_CASE_PARTS = 4
"""Kernel, shape, dtype, direction: other case ids say the kernel alone."""
_NAMED_KERNELS = 3
_MOST = 0.8
"""Share of a regression's change points that must be undone: of hundreds of series some step unseen."""


def standing(findings: Iterable[TrendFinding]) -> list[TrendFinding]:
    """Those that are not refuted; all of them if all are, since what was refuted is reported too."""
    everything = list(findings)
    return [finding for finding in everything if finding.status is not Status.REFUTED] or everything


def regression_of(findings: Sequence[TrendFinding], population: Population) -> Regression:
    """Report findings of one cause as one regression."""
    told = standing(findings)
    is_refuted = all(finding.status is Status.REFUTED for finding in told)
    confirmed = [finding for finding in told if finding.status is Status.CONFIRMED]
    changes = tuple(
        sorted((finding.change for finding in told), key=lambda change: (_weight(change), change.series, change.commit))
    )
    times = [finding for finding in told if finding.is_time]
    scale = scale_of([finding.log_change for finding in times])
    family = population.family([finding.change.series for finding in times])
    suspects = combine([finding.suspects for finding in confirmed or told])
    kernel = _join_names(sorted({finding.kernel for finding in told}))
    in_common = f"; typically {scale} on {family}" if scale is not None and len(times) >= _FAMILY_FROM else ""
    return Regression(
        project=changes[0].series.project,
        commit=place_of(told),
        kernel=kernel,
        verdict=changes[0].verdict,
        cause=cause_of(suspects),
        summary=f"{kernel}: {_summary(changes)}{in_common}{_CLOCK_MOVED if told[0].is_clock_move else ''}",
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


def _weight(change: ChangePoint) -> tuple[int, float]:
    """Outcomes before errors, times, compiled facts and what is measured beside times, then by size; smaller sorts
    first.
    """
    if is_outcome(change):
        return -1, 0.0
    is_secondary = change.series.metric in SECONDARY_METRICS
    kind = _SECONDARY if is_secondary else _KIND_ORDER[change.series.definition.layer]
    return kind, -abs(log_change(change))


def _summary(changes: Sequence[ChangePoint]) -> str:
    """What changed most of each kind, with how many series changed with it."""
    kinds: dict[str, list[ChangePoint]] = defaultdict(list)
    for change in changes:
        kinds["outcome" if is_outcome(change) else change.series.metric].append(change)
    parts = []
    for kind, group in kinds.items():
        # a check that failed counts for all of its tensors: for a person it is one thing
        labels = {
            _subject(change) if kind == "outcome" else f"{change.series.label} {change.series.runner_class}"
            for change in group
        }
        others = len(labels) - 1
        also = f", and {others} more {'cases' if kind == 'outcome' else 'series'}" if others else ""
        parts.append(f"{_headline(group[0])}{also}")
    return "; ".join(parts)


def _headline(change: ChangePoint) -> str:
    if change.before is None or change.after is None:
        return f"{change.evidence} in {_subject(change)}"
    metric, relative = change.series.definition, change.relative_change
    percent = "" if relative is None else f" ({relative:+.1%})"
    return (
        f"{metric.title} {metric.format(change.before)} to {metric.format(change.after)}{percent} "
        f"in {change.series.label}"
    )


def _subject(change: ChangePoint) -> str:
    """Case and implementation, and for compiled code its function and target; not which tensor."""
    return replace(change.series, tensor="").label


def _join_names(kernels: Sequence[str]) -> str:
    """One name, or several: `rms_norm + softmax`."""
    if len(kernels) <= _NAMED_KERNELS:
        return " + ".join(kernels)
    return f"{' + '.join(kernels[: _NAMED_KERNELS - 1])} + {len(kernels) - _NAMED_KERNELS + 1} more"


# --- families


@dataclass(frozen=True)
class Scale:
    """By how much times changed together."""

    typical_change: float
    """Median relative change."""
    spread: float | None
    """Half the distance between the quartiles; None below three changes."""

    def __str__(self) -> str:
        around = "" if self.spread is None else f" ± {self.spread:.1%}"
        return f"{self.typical_change:+.1%}{around}"


def scale_of(log_changes: Sequence[float]) -> Scale | None:
    """What changes have in common; None where there are none."""
    if not log_changes:
        return None
    typical = math.expm1(statistics.median(log_changes))
    if len(log_changes) < 3:
        return Scale(typical, None)
    low, _, high = statistics.quantiles(map(math.expm1, log_changes), n=4, method="inclusive")
    return Scale(typical, (high - low) / 2)


@dataclass(frozen=True)
class Family:
    """Series of times that share something, and their kernels."""

    count: int
    """Of those that were judged."""
    kernels: frozenset[tuple[str, str]]
    """Project and kernel."""
    telling: Mapping[str, str]
    """What they share and others of their kernels do not, by name."""

    def holds(self, series: SeriesKey) -> bool:
        """Whether a series that was judged is of it."""
        return (
            series.metric == "median_ns"
            and (series.project, series.kernel) in self.kernels
            and self.telling.items() <= _traits(series).items()
        )


class Population:
    """All series of times that were judged, changed or not: how many there are of each kind."""

    def __init__(self, series: Iterable[SeriesKey] = ()) -> None:
        """Count some series, each of which comes once."""
        self._by_kernel: dict[tuple[str, str], Counter[frozenset[tuple[str, str]]]] = defaultdict(Counter)
        self._by_class: Counter[tuple[str, str]] = Counter()
        for key in series:
            self.add(key)

    def add(self, key: SeriesKey) -> None:
        """Count one more."""
        self._by_kernel[key.project, key.kernel][frozenset(_traits(key).items())] += 1
        self._by_class[key.project, key.runner_class] += 1

    def merge(self, other: Population) -> None:
        """Count all that another one counted."""
        for kernel, kinds in other._by_kernel.items():
            self._by_kernel[kernel].update(kinds)
        self._by_class.update(other._by_class)

    def count_on(self, project: str, runner_class: str) -> int:
        """Series of one project and runner class."""
        return self._by_class[project, runner_class]

    def alike(self, changed: Collection[SeriesKey]) -> Family:
        """The smallest family that holds these series: all of their kernels that share what they all share."""
        kernels = frozenset((key.project, key.kernel) for key in changed)
        kinds = [(dict(traits), n) for kernel in kernels for traits, n in self._by_kernel.get(kernel, {}).items()]
        own = [_traits(key) for key in changed]
        shared = {name: value for name, value in own[0].items() if all(one.get(name) == value for one in own)}
        telling = {
            name: value for name, value in shared.items() if any(traits.get(name) != value for traits, _ in kinds)
        }
        return Family(
            count=sum(count for traits, count in kinds if telling.items() <= traits.items()),
            kernels=kernels,
            telling=telling,
        )

    def family(self, changed: Collection[SeriesKey]) -> str:
        """Name that family, by what its series share and others of their kernels do not.

        Returns:
            For example `all 12 bfloat16 triton series of attention` or `3 of 4 fwd series of softmax`; empty if nothing
            changed.
        """
        keys = set(changed)
        if not keys:
            return ""
        family = self.alike(keys)
        telling = family.telling
        adjectives = [telling[name] for name in ("dtype", "direction", "implementation") if name in telling]
        where = f" on {telling['runner class']}" if "runner class" in telling else ""
        every = "the only" if len(keys) == 1 else f"all {len(keys)}"
        count = every if family.count <= len(keys) else f"{len(keys)} of {family.count}"
        kernels = sorted({key.kernel for key in keys})
        names = ", ".join(kernels) if len(kernels) <= _NAMED_KERNELS else f"{len(kernels)} kernels"
        return " ".join([count, *adjectives, "series of", names]) + where


def _traits(key: SeriesKey) -> dict[str, str]:
    traits = {"implementation": key.implementation, "runner class": key.runner_class}
    parts = key.case_id.split("/")
    if len(parts) == _CASE_PARTS:
        traits |= {"dtype": parts[2], "direction": parts[3]}
    return traits


# --- recovery


def note_recoveries(regressions: Sequence[Regression], thresholds: Thresholds) -> list[Regression]:
    """Say of each regression by which commit it was undone, if improvements of the same series brought it back.

    Args:
        regressions: All of a project, improvements too.
        thresholds: A level that is worse by less than is worth reporting is the old one.
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
            tolerance = threshold_of(point.series.metric, thresholds)
            later = [
                other.commit
                for other in improved.get(point.series, ())
                if other.commit > point.commit and _is_back(point, other, tolerance)
            ]
            undone += [min(later)] if later else []
        return max(undone) if worse and len(undone) >= math.ceil(_MOST * len(worse)) else None

    return [
        replace(regression, recovered_at=recovery(regression))
        if regression.verdict is Verdict.REGRESSED
        else regression
        for regression in regressions
    ]


def _is_back(point: ChangePoint, improvement: ChangePoint, tolerance: float) -> bool:
    if point.before is None or point.after is None:
        # it had ceased to work, and does again
        return improvement.before is None
    if improvement.after is None:
        return False
    limit = point.before * (1 + tolerance) if point.after > point.before else point.before * (1 - tolerance)
    return not point.series.definition.is_worse(base=limit, head=improvement.after)

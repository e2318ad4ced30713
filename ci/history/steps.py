"""One series by commit, and its steps and drifts as numbers. Pure.

Times are sampled. Errors, memory and host time are one number a run, and memory and errors are
exact: if nothing changed, the number does not change at all.
"""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from roofwatch.ci.ab.changes import MIN_BLOCK_BYTES, error_floor
from roofwatch.ci.changepoint.detect import SeriesNoise, Step, find_change_points, noise_floor
from roofwatch.ci.changepoint.drift import Drift, find_drift
from roofwatch.ci.changepoint.noise import median
from roofwatch.ci.changepoint.segmentation import MIN_SEGMENT
from roofwatch.model.grouping import group_by
from roofwatch.model.history import CommitRef, Outline, Series, SeriesKey, SeriesPoint
from roofwatch.model.metrics import RATIO_TO_REFERENCE, Better, Layer
from roofwatch.model.verdict import THRESHOLDS

TIME = "median_ns"
ERROR = "rmse_ratio"
"""The error that is judged. The largest error of an element rests on one element, and is too noisy.
"""
SECONDARY_METRICS = ("host_ns", "peak_allocated_bytes")
"""Measured with each time, for each timer and cache state."""
JUDGED_FACTS = (
    "registers",
    "spilled_registers",
    "spill_store_count",
    "spill_load_count",
    "local_bytes",
    "shared_bytes",
    "theoretical_occupancy",
)
"""Facts of compiled code that are judged. The first stands for all of code that did not compile."""
_THRESHOLDS = {
    RATIO_TO_REFERENCE: THRESHOLDS.trend_relative_change,
    "host_ns": THRESHOLDS.host_relative_change,
    "peak_allocated_bytes": THRESHOLDS.memory_relative_change,
    ERROR: THRESHOLDS.error_relative_change,
}
VALUE_METRICS = frozenset(_THRESHOLDS)
_SMALLEST_VALUES = {"host_ns": 10.0, "peak_allocated_bytes": float(MIN_BLOCK_BYTES)}
"""Smaller values count as this. The smallest host time is below the resolution of the clock."""
QUARTILES_TO_ERROR = 1.2533 / 1.349
"""Standard error of a median, in interquartile ranges over √n: 1.2533 σ, and an interquartile range
of 1.349 σ.
"""
_MIN_FOR_NOISE = 20
"""Commits from which the noise of a series is known well enough."""
# drifts are given as change per week
_WEEK_DAYS = 7.0
# as many as a sparkline has room for
_OUTLINE_VALUES = 60
_PARTS = 5
"""No drift is searched unless two fifths of the series differ by half of the smallest drift, which
is quick to see.
"""

Values = Sequence[float] | NDArray[np.float64]


# --- one series by commit


@dataclass(frozen=True)
class Timeline:
    """The points of one series that have a value, for one timer and cache state."""

    key: SeriesKey
    points: Mapping[CommitRef, Sequence[SeriesPoint]]
    """Commits in the order of the branch."""

    @cached_property
    def commits(self) -> list[CommitRef]:
        return list(self.points)

    @cached_property
    def values(self) -> list[float]:
        """The median of each commit's runs with the software that first measured it."""
        return [_median_of_first_software(runs) for runs in self.points.values()]

    @cached_property
    def dates(self) -> list[date]:
        """Date (UTC) of the first measurement of each commit."""
        return [_first_date(runs) for runs in self.points.values()]

    @cached_property
    def relative_errors(self) -> list[float]:
        """Standard error of each commit's time as a fraction of it; NaN where a run lacks
        quartiles.
        """
        return [_relative_error(runs) for runs in self.points.values()]

    def runs(self, first: int, end: int) -> list[SeriesPoint]:
        """The runs of the commits at positions `first` to `end`, the end left out."""
        runs: list[SeriesPoint] = []
        for commit in self.commits[max(first, 0) : end]:
            runs += self.points[commit]
        return runs

    def outline(self, index: int) -> Outline:
        """Summarise the values up to the newest, with about as many before the change at `index` as
        after it.
        """
        values = self.values
        end = len(values)
        count_before = max(_OUTLINE_VALUES // 2, end - index)
        first = max(0, index - count_before)
        width = math.ceil((end - first) / _OUTLINE_VALUES)
        # stretches meet at the change, so none mixes both levels
        before: list[float] = []
        for stop in range(index, first, -width):
            stretch = values[max(first, stop - width) : stop]
            before.insert(0, statistics.median(stretch))
        after: list[float] = []
        for start in range(index, end, width):
            stretch = values[start : start + width]
            after.append(statistics.median(stretch))
        return Outline((*before, *after), changed_at=len(before))

    def since(self, first: int) -> "Timeline":
        return replace(
            self,
            points={commit: self.points[commit] for commit in self.commits[first:]},
        )


def _median_of_first_software(runs: Sequence[SeriesPoint]) -> float:
    return statistics.median(run.value for run in first_software(runs) if run.value is not None)


def _first_date(runs: Iterable[SeriesPoint]) -> date:
    return min(run.measured_at for run in runs).astimezone(UTC).date()


def _relative_error(runs: Iterable[SeriesPoint]) -> float:
    """Standard error of the mean of some runs, as a fraction; NaN if a run lacks quartiles."""
    squared_errors: list[float] = []
    for run in runs:
        if run.value is None or run.low is None or run.high is None or not run.block_count:
            return math.nan
        quartile_range = run.high - run.low
        deviation = QUARTILES_TO_ERROR * quartile_range / run.value
        # samples of a block are not independent, so blocks are counted
        squared_errors.append(deviation**2 / run.block_count)
    return math.sqrt(sum(squared_errors)) / len(squared_errors)


def first_software(runs: Sequence[SeriesPoint]) -> list[SeriesPoint]:
    """The runs of a commit with the driver and toolchain that first measured it.

    Later runs with others are no values of the commit: they show what the software changed.
    """
    first = min(runs, key=lambda run: run.measured_at)
    if first.setting is None:
        return list(runs)
    software = first.setting.software
    # a run without a setting may have had any software
    return [run for run in runs if run.setting is None or run.setting.software == software]


def timelines(series: Series) -> list[Timeline]:
    """Split a series by timer and cache state; the one with the newest value comes first."""
    newest_first = [point for point in reversed(series.points) if point.value is not None]
    by_timing = group_by(newest_first, lambda point: point.timing)
    return [
        Timeline(series.key, points_by_commit(reversed(points))) for points in by_timing.values()
    ]


def points_by_commit(points: Iterable[SeriesPoint]) -> dict[CommitRef, list[SeriesPoint]]:
    """Group points by commit, in the order of the branch."""
    grouped = group_by(points, lambda point: point.commit)
    return dict(sorted(grouped.items()))


def series_noise(series: Series) -> SeriesNoise | None:
    """Measure the noise of times, or of another tool's values, by the newest timer and cache state.

    Returns:
        None for other metrics, for fewer than 20 commits, and for values of 0 or less.
    """
    lines = timelines(series)
    if not series.key.is_performance or not lines:
        return None
    values = lines[0].values
    # a value of 0 has no logarithm
    if len(values) < _MIN_FOR_NOISE or min(values) <= 0:
        return None
    return noise_floor(values, min_relative_change=THRESHOLDS.trend_relative_change)


def is_judged_import(key: SeriesKey) -> bool:
    """Whether a series is of an imported metric, and its file's format says which direction is
    better.
    """
    definition = key.definition
    if definition.layer is not Layer.IMPORTED:
        return False
    return definition.better is not Better.UNKNOWN


def threshold_of(metric: str) -> float:
    """Smallest relative change of a metric that is worth reporting in a history."""
    return _THRESHOLDS.get(metric, THRESHOLDS.trend_relative_change)


# --- times


def find_time_steps(values: Values, errors: Values) -> list[Step]:
    """Find the steps of a time.

    Args:
        values: Medians, one a commit.
        errors: Their standard errors as a fraction; NaN where they are not known.
    """
    return find_change_points(
        values,
        min_relative_change=THRESHOLDS.trend_relative_change,
        relative_errors=errors,
    )


def find_slow_drift(values: Values, days: Sequence[date] | NDArray[np.datetime64]) -> Drift | None:
    """Find a drift of a time, ongoing or ended. Its rate is per week, or per commit if all are of
    one week.

    Args:
        values: Medians, one a commit, above 0.
        days: When each was first measured.
    """
    if len(values) < 2 * _PARTS:
        return None
    min_relative_change = THRESHOLDS.drift_relative_change
    parts = np.array_split(np.asarray(values), _PARTS)
    levels = [median(part) for part in parts]
    lowest = min(levels)
    # the search is slow, and most series do not drift
    if lowest <= 0 or max(levels) / lowest <= 1 + min_relative_change / 2:
        return None
    return find_drift(values, weeks_since(days), min_relative_change=min_relative_change)


def weeks_since(days: Sequence[date] | NDArray[np.datetime64]) -> NDArray[np.float64] | None:
    """Weeks since the first day; None if they do not span one."""
    numbers = np.asarray(days, dtype="datetime64[D]").astype(np.float64)
    days_since_first = numbers - numbers[0]
    if days_since_first[-1] < _WEEK_DAYS:
        return None
    weeks: NDArray[np.float64] = days_since_first / _WEEK_DAYS
    return weeks


# --- errors, memory, host times and imported values


def find_value_steps(key: SeriesKey, values: Values) -> list[Step]:
    """Find the steps of values that may be 0; `before` and `after` of a step are the values as
    measured.

    An error of exactly 0 has no logarithm, so it counts as half of the smallest other one.

    Args:
        key: Of the series; its metric is one of `VALUE_METRICS`, or imported.
        values: One a commit. Series with negative values have no steps.
    """
    raw = np.asarray(values, dtype=np.float64)
    positive = raw[raw > 0]
    if not len(positive) or raw.min() < 0:
        return []
    smallest = _SMALLEST_VALUES.get(key.metric)
    if smallest is None:
        # half of the smallest value stands for 0, which has no logarithm
        floor = float(positive.min()) / 2
        floored = np.where(raw > 0, raw, floor)
    else:
        floored = np.maximum(raw, smallest)
    min_change = threshold_of(key.metric)
    # most series of counts never change, which is quick to see
    if float(floored.max()) < float(floored.min()) * (1 + min_change):
        return []
    steps = _steps_to_newest(floored, min_change)
    measured: list[Step] = []
    for step in steps:
        old_values = raw[step.start : step.index]
        before = float(np.median(old_values))
        new_values = raw[step.index : step.end]
        after = float(np.median(new_values))
        measured.append(
            replace(
                step,
                before=before,
                after=after,
            )
        )
    if key.metric != ERROR:
        return measured
    # an exact result, such as a copy, lost something however small its error is now
    floor = error_floor(key.case_id)
    relevant: list[Step] = []
    for step in measured:
        was_exact = not step.before
        if was_exact or max(step.before, step.after) > floor:
            relevant.append(step)
    return relevant


def _steps_to_newest(values: NDArray[np.float64], min_relative_change: float) -> list[Step]:
    """Find the steps of values above 0, up to one that the newest values alone show."""
    steps = find_change_points(values, min_relative_change=min_relative_change)
    if steps:
        newest_level_start = steps[-1].index
    else:
        newest_level_start = 0
    newest = _newest_exact_step(values, newest_level_start, min_relative_change)
    if newest is None:
        return steps
    # the level that the detector saw last ends at the newest step
    if steps:
        steps[-1] = replace(steps[-1], count_after=newest.count_before)
    return [*steps, newest]


def _newest_exact_step(
    values: NDArray[np.float64],
    begins: int,
    min_relative_change: float,
) -> Step | None:
    """The step from a level of one number to a new number that all newest values share.

    The detector waits at the end of a long series, because a busy machine makes spells. Counted and
    computed values have none, so the shortest level is enough.

    Args:
        values: One a commit, above 0.
        begins: Where the newest level of the detector begins.
        min_relative_change: Smallest step to report.
    """
    newest = float(values[-1])
    others = np.flatnonzero(values != newest)
    # the first of the newest values that are all equal
    index = 0
    if len(others):
        index = int(others[-1]) + 1
    old_level = values[begins:index]
    count = len(values) - index
    if min(count, len(old_level)) < MIN_SEGMENT:
        return None
    old = float(old_level[0])
    # an exact level holds one number only, and the newest number is new
    if np.any(old_level != old) or np.any(values[:index] == newest):
        return None
    if abs(math.log(newest / old)) < math.log1p(min_relative_change):
        return None
    return Step(
        index=index,
        before=old,
        after=newest,
        count_before=len(old_level),
        count_after=count,
        standard_errors=math.inf,
        candidates=(index,),
    )

"""What pairs of records say to a bisection, and what to bisect for a regression. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from roofwatch.ci.ab.clock import block_pairs
from roofwatch.ci.ab.compare import MIN_BLOCKS, Comparison, compare
from roofwatch.collector.record.machine import Outcome
from roofwatch.collector.record.measurement import Measurement
from roofwatch.collector.record.record import RunRecord
from roofwatch.collector.record.results import Accuracy
from roofwatch.db.values import BisectionRange, ChangePoint, Regression, Series


@dataclass(frozen=True)
class Reading:
    """One commit against the good end."""

    log_ratios: tuple[float, ...]
    """ln(commit / good) of the block medians, of each pair that counts."""
    block_count: int
    """Taken on each side; those that were taken while the device was held back or shared give no ratio."""
    trouble: str = ""
    """Why the commit cannot be measured; empty where it can."""


def read_pair(good: RunRecord, commit: RunRecord, case_id: str, implementation: str) -> Reading:
    """Read one series of two records that were measured as a pair, the good end first."""
    there, here = _measured(good, case_id, implementation), _measured(commit, case_id, implementation)
    trouble = _trouble(commit, case_id, implementation) or _differing(there, here)
    if trouble or there is None or here is None:
        return Reading((), 0, trouble or f"{case_id} {implementation} is not there")
    pairs = block_pairs(there, here)
    log_ratios = tuple(
        float(np.median(np.log(block.samples_ns)) - np.median(np.log(base.samples_ns)))
        for base, block in zip(pairs.base, pairs.head, strict=True)
    )
    return Reading(log_ratios, len(here.blocks))


def _measured(record: RunRecord, case_id: str, implementation: str) -> Measurement | None:
    keyed = {(each.case_id, each.implementation): each for each in record.measurements}
    return keyed.get((case_id, implementation))


def _trouble(record: RunRecord, case_id: str, implementation: str) -> str:
    results: list[Accuracy | Measurement] = [*record.accuracies, *record.measurements]
    of_series = [each for each in results if (each.case_id, each.implementation) == (case_id, implementation)]
    failed = next((each for each in of_series if each.outcome is not Outcome.OK), None)
    return "" if failed is None else f"{failed.outcome}: {failed.message or 'no reason is known'}"


def _differing(there: Measurement | None, here: Measurement | None) -> str:
    """Why two times that are both there do not compare."""
    if there is None or here is None:
        return ""
    if (there.timer, there.cache) != (here.timer, here.cache):
        return f"timed by {here.timer} with a {here.cache} cache, the good end by {there.timer} with {there.cache}"
    if there.is_hidden_by_host or here.is_hidden_by_host:
        return f"{here.timer} times hold what the device waits for its host: --timer cupti counts the device alone"
    return ""


_BETWEEN_ERROR_RATE = 0.001
"""Of one commit's interval: of dozens that are on one of two levels, rarely one is told to be between."""


@dataclass(frozen=True)
class Level:
    """A commit that is on neither of two levels."""

    position: int
    relative_change: float
    """Against the good end."""


def compare_pairs(log_ratios: Sequence[float], *, threshold: float, error_rate: float | None = None) -> Comparison:
    """What pairs say of a change, as `roofwatch.ci.ab.compare` does; of the good end the time counts as 1 ns.

    Args:
        log_ratios: ln(commit / good) of each pair.
        threshold: Smaller changes are no change, as a fraction.
        error_rate: How often the interval may miss the truth; that of the look at so many pairs if left out.
    """
    ones = [[1.0]] * len(log_ratios)
    return compare(ones, [[math.exp(each)] for each in log_ratios], threshold=threshold, error_rate=error_rate)


def step_size(log_ratios: Sequence[Sequence[float]], last: int) -> Comparison:
    """The change against the good end, from the pairs of all commits that have it.

    Args:
        log_ratios: Of each commit.
        last: From this commit on all have it.
    """
    after = [each for pairs in log_ratios[last:] for each in pairs]
    return compare_pairs(after, threshold=1e-9, error_rate=0.05)


def between_levels(log_ratios: Sequence[Sequence[float]], step: float) -> list[Level]:
    """Commits that are clearly neither where the good end is nor one step away: there is more than one change.

    Args:
        log_ratios: Of each commit.
        step: Logarithm of the change.
    """
    found = []
    for position, pairs in enumerate(log_ratios):
        if len(pairs) < MIN_BLOCKS:
            continue
        seen = compare_pairs(pairs, threshold=1e-9, error_rate=_BETWEEN_ERROR_RATE)
        low, high = seen.log_interval
        if not (low <= 0 <= high or low <= step <= high):
            found.append(Level(position, seen.relative_change))
    return found


TIME_METRIC = "median_ns"
_POINTS_AROUND = 2
"""The step may as well lie a commit or two beside where a history places it: so many measured commits more on either
side cost the search one measurement."""


def series_to_bisect(regression: Regression) -> ChangePoint | None:
    """The change point to go by: of the steps of times the largest. None where no time moved in a step: what else
    moved is exact, or is no commit's doing.
    """
    steps = [
        point
        for point in regression.change_points
        if point.series.metric == TIME_METRIC and not point.is_gradual and point.relative_change is not None
    ]
    return max(steps, key=lambda point: abs(point.relative_change or 0.0), default=None)


def range_of(regression: Regression, series: Series | None = None) -> BisectionRange | None:
    """What to ask for; None where there is nothing to bisect.

    Args:
        regression: What was found.
        series: That of its `series_to_bisect`, for ends a little apart from where the step was seen; its ends are the
            commits around the step if left out.
    """
    point = series_to_bisect(regression)
    if point is None:
        return None
    good, bad = point.previous_commit, point.commit
    if series is not None:
        measured = sorted({each.commit for each in series.points if each.value is not None})
        before = [commit for commit in measured if commit < good]
        after = [commit for commit in measured if commit > bad]
        good = before[-_POINTS_AROUND:][0] if before else good
        bad = after[:_POINTS_AROUND][-1] if after else bad
    return BisectionRange(
        project=regression.project,
        case_id=point.series.case_id,
        implementation=point.series.implementation,
        good_sha=good.sha,
        bad_sha=bad.sha,
        runner_class=point.series.runner_class,
    )

"""Paired measurements of a commit, and the range to bisect for a regression. Pure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from roofwatch.ci.ab.clock import block_pairs
from roofwatch.ci.ab.comparable import SideResults, refuse_host_bound, refuse_timing
from roofwatch.ci.ab.compare import MIN_BLOCKS, Comparison, compare
from roofwatch.ci.history.finding import is_time_step
from roofwatch.model.history import ChangePoint, Regression, Series
from roofwatch.model.machine import Outcome
from roofwatch.model.measurement import Measurement
from roofwatch.model.record import RunRecord
from roofwatch.model.results import Accuracy
from roofwatch.model.triage import BisectionRange

_EXTRA_POINTS = 2
"""History analysis can place a step a commit or two off: the range includes two more measured
commits on each side.
"""
_BETWEEN_ERROR_RATE = 0.001
"""Error rate of one commit's interval, low enough for ranges of dozens of commits."""


@dataclass(frozen=True)
class PairResult:
    """One commit measured against the good end."""

    log_ratios: tuple[float, ...] = ()
    """ln(commit / good) of the block medians of each usable pair."""
    block_count: int = 0
    """Measured on each side; blocks on a throttled or shared device give no ratio."""
    error: str = ""
    """Why the commit cannot be measured."""


def read_pair(good: RunRecord, commit: RunRecord, case_id: str, implementation: str) -> PairResult:
    """Read one series of two records that were measured as a pair."""
    key = case_id, implementation
    every: list[Accuracy | Measurement] = [*commit.accuracies, *commit.measurements]
    results = [one for one in every if (one.case_id, one.implementation) == key]
    failed = next((one for one in results if one.outcome is not Outcome.OK), None)
    if failed is not None:
        return PairResult(error=f"{failed.outcome}: {failed.message or 'unknown reason'}")
    base, head = (SideResults(record).measurements.get(key) for record in (good, commit))
    if base is None or head is None:
        return PairResult(error=f"{case_id} {implementation} was not measured")
    refusal = refuse_timing(base, head) or refuse_host_bound(base, head)
    if refusal is not None:
        return PairResult(error=str(refusal))
    pairs = block_pairs(base, head)
    log_ratios = tuple(
        float(np.median(np.log(commit_block.samples_ns)) - np.median(np.log(good_block.samples_ns)))
        for good_block, commit_block in zip(pairs.base, pairs.head, strict=True)
    )
    return PairResult(log_ratios, len(head.blocks))


def compare_pairs(
    log_ratios: Sequence[float], *, threshold: float, error_rate: float | None = None
) -> Comparison:
    """Compare a commit with the good end, whose time counts as 1 ns.

    Args:
        log_ratios: ln(commit / good) of each pair.
        threshold: Smaller changes count as none, as a fraction.
        error_rate: Of the interval; default that of the interim analysis at this number of pairs.
    """
    good = [[1.0]] * len(log_ratios)
    return compare(
        good, [[math.exp(one)] for one in log_ratios], threshold=threshold, error_rate=error_rate
    )


def step_size(log_ratios: Sequence[Sequence[float]], first: int) -> Comparison:
    """Measure the change from the pairs of all commits from `first` on."""
    return compare_pairs(
        [one for pairs in log_ratios[first:] for one in pairs], threshold=1e-9, error_rate=0.05
    )


def between_levels(log_ratios: Sequence[Sequence[float]], log_step: float) -> list[int]:
    """Return the commits that are clearly at neither level:
    more than one commit changed the time.
    """
    found = []
    for position, pairs in enumerate(log_ratios):
        if len(pairs) >= MIN_BLOCKS:
            low, high = compare_pairs(
                pairs, threshold=1e-9, error_rate=_BETWEEN_ERROR_RATE
            ).log_interval
            if not (low <= 0 <= high or low <= log_step <= high):
                found.append(position)
    return found


def series_to_bisect(regression: Regression) -> ChangePoint | None:
    """Return the largest step of a time; None if no time changed in a step."""
    steps = filter(is_time_step, regression.change_points)
    return max(steps, key=lambda point: abs(point.relative_change or 0.0), default=None)


def range_of(project: str, point: ChangePoint, series: Sequence[Series]) -> BisectionRange:
    """Return the range to bisect for a step of a time, with more measured commits on each side.

    Args:
        project: The name.
        point: As `series_to_bisect` returns it.
        series: Its series, if stored.
    """
    measured = sorted(
        {one.commit for each in series for one in each.points if one.value is not None}
    )
    good = [
        *[commit for commit in measured if commit < point.previous_commit],
        point.previous_commit,
    ]
    bad = [point.commit, *(commit for commit in measured if commit > point.commit)]
    return BisectionRange(
        project=project,
        case_id=point.series.case_id,
        implementation=point.series.implementation,
        good_sha=good[-_EXTRA_POINTS - 1 :][0].sha,
        bad_sha=bad[: _EXTRA_POINTS + 1][-1].sha,
        runner_class=point.series.runner_class,
    )

"""Paired measurements of a commit, and the range to bisect for a regression. Pure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from roofwatch.ci.ab.clock import block_pairs
from roofwatch.ci.ab.comparable import refuse_host_bound, refuse_timing
from roofwatch.ci.ab.compare import MIN_BLOCKS, PairedEstimate, compare
from roofwatch.ci.history.finding import is_time_step
from roofwatch.ci.judge.pairing import Pairing
from roofwatch.model.history import ChangePoint, CommitRef, Regression, Series
from roofwatch.model.machine import Outcome
from roofwatch.model.record import RunRecord
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


def read_pair(
    good: RunRecord,
    commit: RunRecord,
    case_id: str,
    implementation: str,
) -> PairResult:
    """Read one series of two records that were measured as a pair."""
    pairing = Pairing(good, commit)
    good_results, results = pairing.of((case_id, implementation))
    # an accuracy that is wrong makes the time worthless
    for result in (results.accuracy, results.measurement):
        if result is not None and result.outcome is not Outcome.OK:
            return PairResult(error=f"{result.outcome}: {result.message or 'unknown reason'}")
    base = good_results.measurement
    head = results.measurement
    if base is None or head is None:
        return PairResult(error=f"{case_id} {implementation} was not measured")
    refusal = refuse_timing(base, head) or refuse_host_bound(base, head)
    if refusal is not None:
        return PairResult(error=str(refusal))
    pairs = block_pairs(base, head)
    log_ratios: list[float] = []
    # the median of the logarithms, so that one slow sample moves nothing
    for good_block, commit_block in zip(pairs.base, pairs.head, strict=True):
        good_level = np.median(np.log(good_block.samples_ns))
        commit_level = np.median(np.log(commit_block.samples_ns))
        log_ratios.append(float(commit_level - good_level))
    return PairResult(tuple(log_ratios), len(head.blocks))


def compare_pairs(
    log_ratios: Sequence[float],
    *,
    threshold: float,
    error_rate: float | None = None,
) -> PairedEstimate:
    """Compare a commit with the good end, whose time counts as 1 ns.

    Args:
        log_ratios: ln(commit / good) of each pair.
        threshold: Smaller changes count as none, as a fraction.
        error_rate: Of the interval; default that of the interim analysis at this number of pairs.
    """
    # one sample a block: the samples behind a ratio are summed up already
    good_blocks = [[1.0]] * len(log_ratios)
    commit_blocks = [[math.exp(log_ratio)] for log_ratio in log_ratios]
    return compare(
        good_blocks,
        commit_blocks,
        threshold=threshold,
        error_rate=error_rate,
    )


def step_size(log_ratios: Sequence[Sequence[float]], first: int) -> PairedEstimate:
    """Measure the change from the pairs of all commits from `first` on."""
    all_pairs = [log_ratio for pairs in log_ratios[first:] for log_ratio in pairs]
    return compare_pairs(all_pairs, threshold=1e-9, error_rate=0.05)


def between_levels(log_ratios: Sequence[Sequence[float]], log_step: float) -> list[int]:
    """Return the commits that are clearly at neither level:
    more than one commit changed the time.
    """
    positions: list[int] = []
    for position, pairs in enumerate(log_ratios):
        if len(pairs) < MIN_BLOCKS:
            continue  # no interval
        comparison = compare_pairs(
            pairs,
            threshold=1e-9,
            error_rate=_BETWEEN_ERROR_RATE,
        )
        low, high = comparison.log_interval
        may_be_old = low <= 0 <= high
        may_be_new = low <= log_step <= high
        if not may_be_old and not may_be_new:
            positions.append(position)
    return positions


def series_to_bisect(regression: Regression) -> ChangePoint | None:
    """Return the largest step of a time; None if no time changed in a step."""
    steps = filter(is_time_step, regression.change_points)
    return max(
        steps,
        key=lambda point: abs(point.relative_change or 0.0),
        default=None,
    )


def range_of(
    project: str,
    point: ChangePoint,
    series: Sequence[Series],
) -> BisectionRange:
    """Return the range to bisect for a step of a time, with more measured commits on each side.

    Args:
        project: The name.
        point: As `series_to_bisect` returns it.
        series: Its series, if stored.
    """
    measured: set[CommitRef] = set()
    for stored in series:
        measured.update(run.commit for run in stored.points if run.value is not None)
    earlier = sorted(commit for commit in measured if commit < point.previous_commit)
    later = sorted(commit for commit in measured if commit > point.commit)
    known_good = [*earlier, point.previous_commit]
    good_commits = known_good[-_EXTRA_POINTS - 1 :]
    bad_commits = [point.commit, *later][: _EXTRA_POINTS + 1]
    return BisectionRange(
        project=project,
        case_id=point.series.case_id,
        implementation=point.series.implementation,
        good_sha=good_commits[0].sha,
        bad_sha=bad_commits[-1].sha,
        runner_class=point.series.runner_class,
    )

"""Compare two lists of single timings without blocks.

Interleaved timings are compared in pairs. The level around each pair, which the two sides share, is
subtracted, and each timing gets a bounded score. The interval holds the log ratios at which the
mean difference of scores fits no difference (aligned ranks of Hodges and Lehmann 1962, with
M-estimator scores instead of ranks).

If one side was timed after the other, drift and change look the same. Two intervals must then
agree: one without drift, widened by autocorrelation, and one next to a straight line through time.
"""

import math
from collections.abc import Callable, Sequence
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from roofwatch.ci.ab.compare import ERROR_RATE, PairedEstimate, critical, judge_interval
from roofwatch.ci.changepoint.noise import MAD_TO_DEVIATION
from roofwatch.ci.changepoint.student import two_sided_p
from roofwatch.model.verdict import Reason, Verdict

MIN_TIMINGS = 8
"""Fewer on a side decide nothing."""
_NEIGHBOURS = 3
"""Pairs on either side from which a pair's level is taken: the median of 14 timings tolerates 6
outliers.
"""
_DRIFT_ERROR_RATE = 0.10
"""Two-sided error rate of the interval next to a line: a drift is taken for a slowdown in 5 % of
cases at most.
"""
_PROOF_Z = 1.645
"""Autocorrelation is believed if it is significant at 5 %."""
_MAX_CORRELATION = 0.95
_BISECTIONS = 30
_BIWEIGHT = 4.685
"""Tukey's biweight: 95 % as efficient as the mean in normal noise (Beaton and Tukey 1974)."""

Floats = NDArray[np.float64]
_T = Callable[[float], float]
"""Student's t of the log ratio less a shift; it falls as the shift grows."""


class Order(StrEnum):
    """How the timings of the two sides were taken."""

    INTERLEAVED = "interleaved"
    """One of each in turn, the base's first."""
    BLOCKED = "blocked"
    """All of the base's, then all of the head's."""


def compare_timings(
    base_ns: Sequence[float] | Floats,
    head_ns: Sequence[float] | Floats,
    *,
    order: Order = Order.INTERLEAVED,
    threshold: float = 0.03,
    error_rate: float = ERROR_RATE,
) -> PairedEstimate:
    """Judge single timings. For timings of several process starts, give each start as a block to
    `compare`.

    Args:
        base_ns: In the order taken, shape [timings].
        head_ns: Likewise. Interleaved timings without a partner are ignored.
        order: How they were taken.
        threshold: Practical threshold as a fraction.
        error_rate: How often the interval may miss the truth.

    Returns:
        As of `compare`; `block_count` is the number of timings on the shorter side. A change that a
        drift may explain is `inconclusive`, `not_paired`.

    """
    base, head = np.log(base_ns), np.log(head_ns)
    count, edge = min(len(base), len(head)), math.log1p(threshold)
    tests: list[tuple[_T, int, float]] = []
    if count >= MIN_TIMINGS and order is Order.INTERLEAVED:
        pairs = np.stack([base[:count], head[:count]], axis=1)
        tests = [(lambda shift: _paired_t(pairs, shift), count - 1, error_rate)]
    elif count >= MIN_TIMINGS:
        tests = [
            (lambda shift: _welch_t(base, head, shift), count - 1, error_rate),
            (
                lambda shift: _t_next_to_line(base, head, shift),
                count - 2,
                max(error_rate, _DRIFT_ERROR_RATE),
            ),
        ]
    reach = float(max(base.max(), head.max()) - min(base.min(), head.min())) + edge
    intervals = [_interval(*test, reach) for test in tests] or [(-math.inf, math.inf)]
    interval = min(low for low, _ in intervals), max(high for _, high in intervals)
    verdict, reason = judge_interval(interval, edge)
    if not tests:
        reason = Reason.TOO_FEW_BLOCKS
    elif verdict is Verdict.INCONCLUSIVE and judge_interval(intervals[0], edge)[0] is not verdict:
        reason = Reason.NOT_PAIRED
    centre = sum(intervals[0]) / 2 if tests else float(np.median(head) - np.median(base))
    return PairedEstimate(
        verdict=verdict,
        reason=reason,
        base_ns=float(np.median(base_ns)),
        head_ns=float(np.median(head_ns)),
        log_ratio=centre,
        log_interval=interval,
        block_count=count,
        threshold=threshold,
        p_value=max((_p_beyond(*test, centre, edge) for test in tests), default=1.0),
    )


def _interval(t_of: _T, degrees: int, error_rate: float, reach: float) -> tuple[float, float]:
    limit = critical(degrees, error_rate)
    low = _last(lambda shift: t_of(shift) > limit, reach)
    return low, -_last(lambda shift: t_of(-shift) < -limit, reach)


def _p_beyond(t_of: _T, degrees: int, error_rate: float, centre: float, edge: float) -> float:
    if abs(centre) <= edge:
        return 1.0
    return min(
        1.0, two_sided_p(t_of(math.copysign(edge, centre)), degrees) * ERROR_RATE / error_rate
    )


def _last(holds: Callable[[float], bool], reach: float) -> float:
    """The largest number between -reach and reach up to which a condition holds, by bisection."""
    low, high = -reach, reach
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        if holds(middle):
            low = middle
        else:
            high = middle
    return (low + high) / 2


# --- interleaved


def _paired_t(pairs: Floats, shift: float) -> float:
    """Student's t of the differences within pairs, shape [pairs, 2]. Half the shift goes to each
    side, which keeps the sides symmetrical.
    """
    shifted = pairs + np.array([shift / 2, -shift / 2])
    # the median of each pair and its neighbours; at the ends, of the nearest whole window
    width = min(len(pairs), 2 * _NEIGHBOURS + 1)
    medians = np.median(
        np.lib.stride_tricks.sliding_window_view(shifted, width, axis=0), axis=(1, 2)
    )
    levels = medians[np.clip(np.arange(len(pairs)) - width // 2, 0, len(medians) - 1)]
    scores = _scores(shifted - levels[:, None])
    differences = scores[:, 1] - scores[:, 0]
    return _t(float(np.mean(differences)), float(np.var(differences, ddof=1)) / len(differences))


# --- one side after the other


def _welch_t(base: Floats, head: Floats, shift: float) -> float:
    """Welch's t of the scores, for noise that differs between the sides, with autocorrelation."""
    sides = _side_scores(base, head, shift)
    variance = sum(float(np.var(side, ddof=1)) / len(side) for side in sides)
    inflation = _inflation([side - np.mean(side) for side in sides])
    return _t(float(np.mean(sides[1]) - np.mean(sides[0])), variance * inflation)


def _t_next_to_line(base: Floats, head: Floats, shift: float) -> float:
    """Student's t of the step in a least-squares fit with one slope through both sides.

    The error allows for noise that differs between the sides (White 1980, with one variance a
    side).
    """
    sides = _side_scores(base, head, shift)
    lengths = [len(side) for side in sides]
    is_head = np.repeat([0.0, 1.0], lengths)
    time = np.linspace(-1.0, 1.0, len(is_head))
    design = np.stack([np.ones_like(time), is_head, time], axis=1)
    inverse = np.linalg.inv(design.T @ design)
    scores = np.concatenate(sides)
    fit = inverse @ design.T @ scores
    residuals = np.split(scores - design @ fit, [lengths[0]])
    # the slope is shared, so each side pays for half of it
    variances = [float(part @ part) / (len(part) - 1.5) for part in residuals]
    weights = np.repeat(variances, lengths)
    covariance = inverse @ (design.T * weights) @ design @ inverse
    return _t(float(fit[1]), float(covariance[1, 1]) * _inflation(residuals))


def _side_scores(base: Floats, head: Floats, shift: float) -> list[Floats]:
    return np.split(_scores(np.concatenate([base + shift / 2, head - shift / 2])), [len(base)])


def _inflation(residuals: Sequence[Floats]) -> float:
    """Factor on the variance of a mean from autocorrelation r: (1 + r) / (1 - r), as in an AR(1)
    process; 1 unless the residuals prove it.

    Short series underestimate r by (1 + 3 r) / n (Marriott and Pope 1954).
    """
    squares = sum(float(part @ part) for part in residuals)
    if squares == 0:
        return 1.0
    estimate = sum(float(part[1:] @ part[:-1]) for part in residuals) / squares
    count = sum(len(part) for part in residuals)
    correlation = estimate + (1 + 3 * estimate) * len(residuals) / count
    if correlation * math.sqrt(count) < _PROOF_Z:
        return 1.0
    correlation = min(correlation, _MAX_CORRELATION)
    return (1 + correlation) / (1 - correlation)


def _t(difference: float, variance: float) -> float:
    if difference == 0:
        return 0.0
    return difference / math.sqrt(variance) if variance > 0 else math.copysign(math.inf, difference)


def _scores(values: Floats) -> Floats:
    """Tukey's biweight of the distances from the median, in units of their spread."""
    centred = values - np.median(values)
    spread = MAD_TO_DEVIATION * float(np.median(np.abs(centred))) or float(np.mean(np.abs(centred)))
    if spread == 0:
        return np.zeros_like(centred)
    z = centred / spread
    return np.where(np.abs(z) < _BIWEIGHT, z * (1 - (z / _BIWEIGHT) ** 2) ** 2, 0.0)

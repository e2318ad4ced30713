"""Two lists of single timings to a verdict: what is left to judge where no blocks were kept. Pure.

Timings that took turns are judged in pairs. Around each pair the level of its neighbours is taken away, which the two
sides share, and every timing gets a score that bounds what an outlier can say; the interval holds the log ratios at
which the mean difference of scores within pairs fits no difference. Swapping the two timings of a pair leaves levels
and scores as they are, so if nothing changed each difference is as likely to have the other sign, whatever the noise
(after the aligned ranks of Hodges and Lehmann, 1962, with the scores of M-estimators in place of ranks).

Where all of one side came before all of the other, a drift of the machine and a change of the code look alike to a
mean. So two intervals have to agree there: one that allows no drift, its error grown by how timings hang together, and
one beside a straight line through time, whose slope the sides themselves give.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache

import numpy as np
from numpy.typing import NDArray

from roofwatch.ci.ab.compare import ERROR_RATE, Comparison, critical, judge_interval, read_samples
from roofwatch.ci.changepoint.chance import two_sided_p
from roofwatch.ci.reason import Reason
from roofwatch.db.values import Verdict

MIN_TIMINGS = 8
"""Fewer on a side decide nothing."""

_NEIGHBOURS = 3
"""Pairs on either side of one that its level is taken from: the median of 14 timings bears 6 spoilt ones, and follows
what lasts longer than they do."""
_DRIFT_ERROR_RATE = 0.10
"""Of the interval beside a line, 5 % to either side: a drift that makes one side look slower is taken for a change so
often, and no oftener, however steep it is."""
_PROOF_Z = 1.645
"""Neighbouring timings are taken to hang together where their correlation shows it at 5 %."""
_MAX_CORRELATION = 0.95
_BISECTIONS = 30
_MAD_TO_DEVIATION = 1.4826
_HUBER = 1.345
"""95 % as efficient as the mean in normal noise (Huber 1964, Holland and Welsch 1977)."""
_BIWEIGHTS = (4.685, 3.44)
"""95 % and 85 % as efficient in normal noise (Beaton and Tukey 1974, Holland and Welsch 1977): the second for noise
with many outliers, of which it ignores all."""
_LEAST_SLOPE = 1e-3

Floats = NDArray[np.float64]


class Order(StrEnum):
    """How the timings of the two sides were taken."""

    INTERLEAVED = "interleaved"
    """One of each in turn, the base's first."""
    BLOCKED = "blocked"
    """All of the base's, then all of the head's."""


@dataclass(frozen=True)
class _Line:
    """One way to hold the sides against each other."""

    t: Callable[[float], float]
    """Student's t of the log ratio less so much; falls as that grows. Remembered: all searches begin at one place, and
    the two for the centre end at one.
    """
    degrees: int
    error_rate: float

    def interval(self, reach: float) -> tuple[float, float]:
        """Of the log ratio; symmetrical in the sides."""
        limit = critical(self.degrees, self.error_rate)
        return (
            _last(lambda shift: self.t(shift) > limit, reach),
            -_last(lambda shift: self.t(-shift) < -limit, reach),
        )

    def centre(self, reach: float) -> float:
        above = _last(lambda shift: self.t(shift) > 0, reach)
        below = -_last(lambda shift: self.t(-shift) < 0, reach)
        return (above + below) / 2


def compare_timings(
    base_ns: Sequence[float] | Floats,
    head_ns: Sequence[float] | Floats,
    *,
    order: Order = Order.INTERLEAVED,
    threshold: float = 0.03,
    error_rate: float = ERROR_RATE,
) -> Comparison:
    """Judge single timings.

    Timings of a few process starts are as many witnesses as starts: give each start as a block to `compare`.

    Args:
        base_ns: In the order taken, shape [timings].
        head_ns: Likewise; of an interleaved order, what has no partner counts for nothing.
        order: How they were taken.
        threshold: Practical threshold as a fraction.
        error_rate: How often the interval may miss the truth, looked at once.

    Returns:
        As of `compare`; `block_count` is the number of timings on the shorter side, and `more_blocks` None. What a
        drift may explain is `inconclusive`, `not_paired`.

    Raises:
        ValueError: a timing that is not a finite number above 0, or a side without any.
    """
    base, head = np.log(read_samples("base", base_ns)), np.log(read_samples("head", head_ns))
    count, edge = min(len(base), len(head)), math.log1p(threshold)
    lines = _lines(base, head, order, error_rate) if count >= MIN_TIMINGS else []
    reach = float(max(base.max(), head.max()) - min(base.min(), head.min())) + edge
    intervals = [line.interval(reach) for line in lines] or [(-math.inf, math.inf)]
    interval = min(low for low, _ in intervals), max(high for _, high in intervals)
    verdict, reason = judge_interval(interval, edge)
    if not lines:
        reason = Reason.TOO_FEW_BLOCKS
    elif verdict is Verdict.INCONCLUSIVE and judge_interval(intervals[0], edge)[0] is not verdict:
        reason = Reason.NOT_PAIRED
    centre = lines[0].centre(reach) if lines else float(np.median(head) - np.median(base))
    return Comparison(
        verdict=verdict,
        reason=reason,
        base_ns=float(np.median(base_ns)),
        head_ns=float(np.median(head_ns)),
        log_ratio=centre,
        log_interval=interval,
        block_count=count,
        threshold=threshold,
        p_value=max((_p_beyond(line, centre, edge) for line in lines), default=1.0),
    )


def _lines(base: Floats, head: Floats, order: Order, error_rate: float) -> list[_Line]:
    count = min(len(base), len(head))
    if order is Order.INTERLEAVED:
        pairs = np.stack([base[:count], head[:count]], axis=1)
        return [_Line(cache(lambda shift: _paired_t(pairs, shift)), count - 1, error_rate)]
    return [
        _Line(cache(lambda shift: _t_without_drift(base, head, shift)), count - 1, error_rate),
        _Line(cache(lambda shift: _t_beside_a_line(base, head, shift)), count - 2, max(error_rate, _DRIFT_ERROR_RATE)),
    ]


def _p_beyond(line: _Line, centre: float, edge: float) -> float:
    if abs(centre) <= edge:
        return 1.0
    p_value = two_sided_p(line.t(math.copysign(edge, centre)), line.degrees)
    return min(1.0, p_value * ERROR_RATE / line.error_rate)


def _last(holds: Callable[[float], bool], reach: float) -> float:
    """The largest number between −reach and reach up to which something holds, by bisection."""
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
    """Shape of `pairs`: [pairs, 2]. Half the shift goes to each side, so that the sides are alike to the last bit."""
    shifted = pairs + np.array([shift / 2, -shift / 2])
    scores = _adaptive_scores(shifted - _levels(shifted)[:, None])
    differences = scores[:, 1] - scores[:, 0]
    return _t(float(np.mean(differences)), float(np.var(differences, ddof=1)) / len(differences))


def _levels(pairs: Floats) -> Floats:
    """The median of each pair and its neighbours; at the ends, of the nearest whole window."""
    width = min(len(pairs), 2 * _NEIGHBOURS + 1)
    windows = np.lib.stride_tricks.sliding_window_view(pairs, width, axis=0)  # [positions, 2, width]
    medians = np.median(windows, axis=(1, 2))
    return medians[np.clip(np.arange(len(pairs)) - width // 2, 0, len(medians) - 1)]


# --- one side after the other


def _t_without_drift(base: Floats, head: Floats, shift: float) -> float:
    """Welch's t of the scores, for noise that differs between the sides, grown by how they hang together."""
    base_scores, head_scores = _side_scores(base, head, shift)
    parts = [scores - np.mean(scores) for scores in (base_scores, head_scores)]
    variance = sum(float(np.var(scores, ddof=1)) / len(scores) for scores in (base_scores, head_scores))
    return _t(float(np.mean(head_scores) - np.mean(base_scores)), variance * _growth(parts))


def _t_beside_a_line(base: Floats, head: Floats, shift: float) -> float:
    """Of the step between the sides in a least-squares fit with one slope through both.

    The error allows for noise that differs between the sides (White 1980, with one variance a side).
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
    return _t(float(fit[1]), float(covariance[1, 1]) * _growth(residuals))


def _side_scores(base: Floats, head: Floats, shift: float) -> tuple[Floats, Floats]:
    scores = _adaptive_scores(np.concatenate([base + shift / 2, head - shift / 2]))
    return scores[: len(base)], scores[len(base) :]


def _growth(residuals: Sequence[Floats]) -> float:
    """How much larger the variance of a mean is than of independent timings: (1 + r) / (1 − r) for neighbours that
    correlate by r, as in a first-order autoregression; 1 unless the residuals prove it.

    The correlation is estimated too low in a short series, by (1 + 3 r) / n (Marriott and Pope 1954).
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


# --- scores


def _adaptive_scores(values: Floats) -> Floats:
    """Scores in the values' shape, in units of their spread: about linear near their median and bounded away from it.

    Of three score functions the one counts under which the values' centre has the least estimated asymptotic variance,
    as Jaeckel chooses how much to trim (Some flexible estimates of location, 1971).
    """
    centred = values - np.median(values)
    spread = _MAD_TO_DEVIATION * float(np.median(np.abs(centred))) or float(np.mean(np.abs(centred)))
    if spread == 0:
        return np.zeros_like(centred)
    z = centred / spread
    candidates = [_huber(z), *(_biweight(z, reach) for reach in _BIWEIGHTS)]
    return min(candidates, key=lambda candidate: candidate[1])[0]


def _huber(z: Floats) -> tuple[Floats, float]:
    return _with_variance(np.clip(z, -_HUBER, _HUBER), np.where(np.abs(z) < _HUBER, 1.0, 0.0))


def _biweight(z: Floats, reach: float) -> tuple[Floats, float]:
    squared = (z / reach) ** 2
    is_near = squared < 1
    return _with_variance(
        np.where(is_near, z * (1 - squared) ** 2, 0.0), np.where(is_near, (1 - squared) * (1 - 5 * squared), 0.0)
    )


def _with_variance(scores: Floats, slopes: Floats) -> tuple[Floats, float]:
    """Scores, and the asymptotic variance of the centre they define: E[score²] / E[slope]²."""
    slope = max(float(np.mean(slopes)), _LEAST_SLOPE)
    return scores, float(np.mean(scores**2)) / slope**2

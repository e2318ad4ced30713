"""The levels of one series and its noise, learnt together. Pure.

Cut the series under the noise as far as it is known, learn the noise from what is left over, and again, until the cut
stays. What turns out to be a burst is taken out on the way. A series that drifts is cut with a straight line taken
off, if that explains it better by likelihood than steps do: a ramp is not a staircase.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from roofwatch.ci.changepoint.noise import (
    LEVEL_FOR_SURE,
    MIN_FOR_SHAPE,
    OUTLIER,
    Flags,
    Noise,
    Values,
    deviation_of_differences,
    estimate_noise,
    median,
    prior_noise,
    stickiness_of_differences,
    tick_of,
)
from roofwatch.ci.changepoint.segmentation import Segmentation, Segmenter
from roofwatch.ci.changepoint.slope import slope_beside_steps

_PENALTY = 8.0
"""Of a step, beside 2 ln(n): noise that was learnt from the same values, and the choice among shapes of it."""
_CAUTION = 1.5
"""Factor on the penalty of the first cut, which knows only the width of the noise: what it misses, the next one finds;
what it wrongly takes for a level would be learnt as one."""
_MAX_ROUNDS = 5
_BURST_COST = 8.0
"""Of each burst, and of each value in one: what an outlier costs, so that taking values out is no way to explain
them."""
_MAX_SLOPES = 3
"""Tries at the slope: each that fits better needs fewer steps, which leaves more of the slope to see."""
_SLOPE_ROUNDS = 2
_WORTH_A_TRY = 0.5
"""Share of the penalty from which on a slope is tried: it has to earn the whole of it under the noise that is learnt
with it, which is narrower than the one that is known before."""


@dataclass(frozen=True)
class Fit:
    """Levels, drift and noise of a series."""

    starts: list[int]
    levels: list[float]
    """At the middle of the series, where the drift counts for nothing."""
    slope: float
    """Per value, on the scale of the values; 0 unless the series drifts."""
    noise: Noise
    masked: Flags
    """Values that belong to bursts."""
    places: NDArray[np.intp]
    """Where a level was allowed to begin."""
    score: float
    """−2 ln likelihood and penalties: the lower, the better explained."""

    def fitted(self) -> Values:
        """What the fit says of each value."""
        count = len(self.masked)
        return np.repeat(self.levels, np.diff([0, *self.starts, count])) + self.slope * _times(count)


def penalty(count: int) -> float:
    """Cost of one more step in a series of so many values, in units of −2 ln likelihood."""
    return _PENALTY + 2 * math.log(count)


def fit_levels(
    values: Values, *, floor: float, min_segment: int, widths: Values | None = None, caution: float = 1.0
) -> Fit:
    """Learn levels and noise of a series.

    Args:
        values: Finite, at least two shortest segments, on the scale they are judged on.
        floor: Smallest noise believed.
        min_segment: Values in the shortest level.
        widths: How much wider each value spreads than the narrowest, as a factor; None: all alike.
        caution: Factor on the penalty of a step.
    """
    step_cost = caution * penalty(len(values))
    flat, segmenter = _learn(values, 0.0, floor, min_segment, widths, step_cost)
    if len(values) < MIN_FOR_SHAPE:
        return flat
    slope = _likely_slope(segmenter, flat, step_cost)
    best = flat
    for _ in range(_MAX_SLOPES if slope else 0):
        sloped, _ = _learn(values, slope, floor, min_segment, widths, step_cost, cautions=(_CAUTION,))
        # a line is judged as a step is
        if sloped.score + step_cost * sloped.noise.inflation < flat.score and sloped.score < best.score:
            best = sloped
        refined = _slope_within(values, sloped)
        if abs(refined - slope) * len(values) < sloped.noise.deviation / 2:
            break
        slope = refined
    return best


def _likely_slope(segmenter: Segmenter, flat: Fit, step_cost: float) -> float:
    """The slope beside steps, if it may be worth its penalty; else 0."""
    slope = slope_beside_steps(segmenter.winsorised, segmenter.places, step_cost * segmenter.deviation**2)
    autocorrelation = flat.noise.autocorrelation
    earned = slope.standard_errors**2 * (1 - autocorrelation) / (1 + autocorrelation)
    return slope.per_value if earned > _WORTH_A_TRY * step_cost else 0.0


def _learn(
    values: Values,
    slope: float,
    floor: float,
    min_segment: int,
    widths: Values | None,
    step_cost: float,
    cautions: Sequence[float] = (1.0, _CAUTION),
) -> tuple[Fit, Segmenter]:
    """The best of what a bold and a cautious first cut lead to."""
    level_values = values - slope * _times(len(values)) if slope else values
    deviation = max(deviation_of_differences(level_values), floor)
    is_sticky = (stickiness := stickiness_of_differences(level_values)) > 0
    segmenter = Segmenter(level_values, widths, deviation, min_segment)
    rough = prior_noise(deviation, stickiness)
    firsts: list[Segmentation] = []
    for caution in cautions if len(values) >= MIN_FOR_SHAPE else (1.0,):
        first = segmenter.cut(rough, step_cost * caution)
        if all(first.starts != other.starts for other in firsts):
            firsts.append(first)
        if not first.starts:
            break
    tick = tick_of(level_values) if not slope else 0.0
    fits = [_refine(segmenter, first, slope, is_sticky, floor, tick, min_segment, step_cost) for first in firsts]
    return min(fits, key=lambda fit: fit.score), segmenter


def _refine(
    segmenter: Segmenter,
    cut: Segmentation,
    slope: float,
    is_sticky: bool,
    floor: float,
    tick: float,
    min_segment: int,
    step_cost: float,
) -> Fit:
    """Learn the noise from the cut and cut anew, until the cut stays."""
    count = len(segmenter.values)
    masked = np.zeros(count, dtype=bool)
    inflation = 1.0
    learnt_from: Segmentation | None = None
    for turn in range(_MAX_ROUNDS):
        # the same levels leave the same residuals
        if learnt_from is None or (cut.starts, cut.levels) != (learnt_from.starts, learnt_from.levels):
            residuals = segmenter.values - cut.fitted(count)
            if segmenter.widths is not None:
                residuals = residuals / segmenter.widths
            noise = estimate_noise(residuals, cut.starts, masked, is_sticky=is_sticky, floor=floor, tick=tick)
        learnt_from = cut
        # a step that was missed looks like dependence: only what every cut but the first one shows is believed
        inflation = noise.inflation if turn <= 1 else min(inflation, noise.inflation)
        cut = segmenter.cut(noise, step_cost * (inflation if turn else 1.0), masked)
        is_settled = cut.starts == learnt_from.starts
        if not turn and not (is_settled and (not cut.starts or noise.inflation == 1.0)):
            continue
        cut, has_burst = _take_out_bursts(segmenter, cut, noise, step_cost * inflation, masked, min_segment)
        if has_burst:
            learnt_from = None
        elif is_settled or turn > 1:
            break
    return Fit(cut.starts, cut.levels, slope, noise, masked, segmenter.places, cut.cost + _scale_cost(noise, masked))


def _take_out_bursts(
    segmenter: Segmenter, cut: Segmentation, noise: Noise, step_cost: float, masked: Flags, min_segment: int
) -> tuple[Segmentation, bool]:
    has_burst = False
    while burst := find_burst(segmenter.values, cut.starts, cut.levels, noise.deviation, masked, min_segment):
        masked[burst[0] : burst[1]] = True
        cut = segmenter.cut(noise, step_cost, masked)
        has_burst = True
    return cut, has_burst


def _scale_cost(noise: Noise, masked: Flags) -> float:
    """What makes the costs of two fits comparable: the width of their noise, and the values they took out."""
    width = 2 * math.log(noise.deviation) * len(masked)
    taken = int(np.count_nonzero(masked))
    return width + _BURST_COST * (taken + Bursts.of(masked).count) if taken else width


def _times(count: int) -> Values:
    return np.arange(count, dtype=np.float64) - (count - 1) / 2


def _slope_within(values: Values, fit: Fit) -> float:
    """Common slope of all segments by least squares on winsorised residuals."""
    times = _times(len(values))
    edges = [0, *fit.starts, len(values)]
    limit = OUTLIER * fit.noise.deviation
    slope = fit.slope
    for _ in range(_SLOPE_ROUNDS):
        shared, power = 0.0, 0.0
        for start, end in pairwise(edges):
            own = ~fit.masked[start:end]
            time = times[start:end][own]
            if len(time) < 2:
                continue
            rest = values[start:end][own] - slope * time
            rest = np.minimum(np.maximum(rest - median(rest), -limit), limit)
            time = time - (time[0] + time[-1]) / 2
            shared += float(time @ rest)
            power += float(time @ time)
        if power > 0:
            slope += shared / power
    return slope


# --- bursts: spells that noise itself makes, a throttled clock or a busy neighbour

# A level lasts; a burst ends. How long bursts of a series last is learnt from those it shows: lengths of a memoryless
# state are geometric, so after m values on average the chance of at least L is (1 − 1/m)^(L − 1). docs/analysis.md
# derives how long a level must last.

_ALPHA = 0.01
"""Share of series in which a burst may pass for a level that comes and goes."""
_EDGE_ALPHA = 0.4
"""The same for the ends, times the number of values: a long series can wait for more of them, a short one cannot."""
_MAX_EDGE_ALPHA = 0.05
_PRIOR_MEAN = 4.0
"""Values in a burst before one was seen."""
_PRIOR_COUNT = 0.5
_PRIOR_VALUES = 200.0
"""Before a series is seen: half a burst in 200 values."""
_SEPARATE = 5.0
"""Standard deviations between two levels from which on a value tells which of them it belongs to."""

_LONG = 3 * LEVEL_FOR_SURE
"""Values in a segment that is a level at first sight."""


@dataclass(frozen=True)
class Bursts:
    """How often a series bursts, and for how long."""

    count: int
    total_length: int

    @classmethod
    def of(cls, is_outlier: Flags) -> Bursts:
        """Runs of at least two outliers: a single one is only an outlier."""
        flags = np.zeros(len(is_outlier) + 2, dtype=np.bool_)
        flags[1:-1] = is_outlier
        turns = np.flatnonzero(flags[1:] != flags[:-1])  # where a run begins, and where it has ended
        lengths = turns[1::2] - turns[::2]
        lengths = lengths[lengths >= 2]
        return cls(len(lengths), int(lengths.sum()))

    def longest_inside(self, count: int) -> float:
        """Length that a spell inside `count` values must reach to be a level."""
        expected = self.count + _PRIOR_COUNT * count / (count + _PRIOR_VALUES)
        return 1 + self._decay * math.log(max(expected / _ALPHA, 1.0))

    def longest_at_edge(self, count: int) -> float:
        """Length that a spell which reaches the end of `count` values must have to be a level."""
        rate = (self.count + _PRIOR_COUNT) / (count + _PRIOR_VALUES)
        alpha = min(_EDGE_ALPHA / count, _MAX_EDGE_ALPHA)
        return 1 + self._decay * math.log(max(rate * self._mean / alpha, 1.0))

    def longest_at_rate(self, count: int, per_value: float) -> float:
        """Length that bursts begin to exceed at most so often per value, where `count` values showed these."""
        rate = (self.count + _PRIOR_COUNT) / (count + _PRIOR_VALUES)
        return 1 + self._decay * math.log(max(rate / per_value, 1.0))

    @property
    def _mean(self) -> float:
        return (self.total_length + _PRIOR_MEAN) / (self.count + 1)

    @property
    def _decay(self) -> float:
        """Values after which a burst lives on with probability 1/e."""
        return -1 / math.log(1 - 1 / max(self._mean, 1.2))


def find_burst(
    values: Values, starts: list[int], levels: list[float], deviation: float, masked: Flags, min_segment: int
) -> tuple[int, int] | None:
    """The shortest segment that is too short to be a level, as positions from and to; None if all are levels."""
    if len(levels) < 2:
        return None
    edges = [0, *starts, len(values)]
    if min(end - start for start, end in pairwise(edges)) > _LONG:
        return None
    fitted = np.repeat(levels, np.diff(edges))
    is_outlier = (np.abs(values - fitted) > OUTLIER * deviation) | masked
    found: tuple[int, int] | None = None
    for index, (start, end) in enumerate(pairwise(edges)):
        if end - start > _LONG or (found is not None and end - start >= found[1] - found[0]):
            continue
        neighbours = [levels[i] for i in (index - 1, index + 1) if 0 <= i < len(levels)]
        own = values[start:end][~masked[start:end]]
        length = len(own)
        for other in neighbours:
            if abs(other - levels[index]) > _SEPARATE * deviation:
                length = min(length, _longest_away(own, other, deviation))
        if length >= LEVEL_FOR_SURE:
            continue
        elsewhere = is_outlier.copy()
        elsewhere[start:end] = masked[start:end]
        bursts = Bursts.of(elsewhere)
        comes_and_goes = len(neighbours) == 2 and (levels[index] - neighbours[0]) * (levels[index] - neighbours[1]) > 0
        needed = bursts.longest_inside(len(values)) if comes_and_goes else bursts.longest_at_edge(len(values))
        if length < min(max(needed, min_segment), LEVEL_FOR_SURE):
            found = start, end
    return found


def _longest_away(values: Values, level: float, deviation: float) -> int:
    """Values in the longest run that stays off a level: a spell that keeps returning to it never left. One value there
    is an outlier, two in succession are a return.
    """
    there = np.abs(values - level) < _SEPARATE / 2 * deviation
    returns = np.flatnonzero(there[1:] & there[:-1])
    if len(returns) == 0:
        return len(values)
    gaps = np.diff(np.concatenate([[-1], returns + 1, [len(values)]])) - 1
    return int(gaps.max())

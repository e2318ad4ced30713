"""What the values of a series do while its level stays: how wide, how heavy-tailed, how sticky. Pure.

The noise is learnt from the series itself, as a table of what a value costs by its distance from the level: −2 ln of
its density. So every step of the method weighs evidence in one currency, and a kind of noise needs no name: an outlier
is cheap where outliers are common, a second clock state is cheap where the series keeps visiting it.

docs/explanation/verdicts.md argues the constants.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]
Flags = NDArray[np.bool_]

OUTLIER = 3.0
"""Standard deviations from which on a value counts as an outlier of its level."""
MAD_TO_DEVIATION = 1.4826
"""Standard deviation / median absolute deviation of a normal distribution."""
PER_DEVIATION = 8.0
"""Bins of the table of costs in one standard deviation: rounding to them costs a value less than 0.01."""
HALF = 96
"""Bins on either side: from 12 standard deviations on, all outliers cost the same."""

_NO_SCORE = 1e-9
"""The slope of a table of costs at a level itself: 0, but for how the numbers in it were rounded."""
LEVEL_FOR_SURE = 20
"""A level of so many values is believed whatever the noise does: without that, noise could hide any step."""

_BIN_COUNT = 2 * HALF + 1
_GRID = np.arange(-HALF, HALF + 1) / PER_DEVIATION
_KERNEL = np.exp(-0.5 * (np.arange(-12, 13) / PER_DEVIATION / 0.4) ** 2)
_KERNEL /= _KERNEL.sum() / PER_DEVIATION
"""Normal, 0.4 standard deviations wide: what Silverman's rule, 1.06 n^(-1/5), gives at some 150 values."""
_CORE = np.exp(-0.5 * _GRID**2) / math.sqrt(2 * math.pi)
_BROAD = 1.5 / (3.0 + np.abs(_GRID)) ** 2
"""Density of outliers of which nothing is known: half of them beyond 3 deviations, falling as their square."""
_TIE_BREAK = 0.01 * np.abs(_GRID)
"""So that an outlier, which costs the same at two levels, goes to the nearer one."""
_FAR = (np.abs(_GRID) > OUTLIER).astype(np.float64)
"""1 where a distance is that of an outlier, else 0."""
_RUNNING_MEAN = np.ones(3) / 3
_PRIOR_WORTH = 30.0
"""Values that the prior shape counts as: a series of fewer is judged by it more than by its own shape."""
_PRIOR_OUTLIER_SHARE = 0.05
_PRIOR_COSTS = -2 * np.log((1 - _PRIOR_OUTLIER_SHARE) * _CORE + _PRIOR_OUTLIER_SHARE * _BROAD)
_PRIOR_COSTS = np.minimum(_PRIOR_COSTS, _PRIOR_COSTS[HALF] + 10.0) + _TIE_BREAK
_PRIOR_COSTS.flags.writeable = False
MIN_FOR_AUTOCORRELATION = 60
MIN_FOR_SHAPE = 40
"""Fewer values have no shape of their own: a short level would be learnt as a heap of outliers."""
_STICKY_RATIO = 1.8
"""Variogram at lag 3 over lag 1, which is 1 + φ + φ² in an AR(1) series: above, φ exceeds 0.53 and is modelled."""
_MAX_AUTOCORRELATION = 0.95
LAGS = 5
"""Lags over which leftover dependence is added up."""


@dataclass(frozen=True)
class Noise:
    """How the values of a series lie around their level."""

    deviation: float
    """Standard deviation of a value around its level, outliers left aside."""
    costs: Values
    """−2 ln density by the distance in standard deviations, shape [2 · HALF + 1]."""
    autocorrelation: float = 0.0
    """φ of an AR(1) process; 0 unless the series shows more than half."""
    innovation: float = 0.0
    """Standard deviation of what a value adds to what its neighbour tells. Only with autocorrelation."""
    innovation_costs: Values | None = None
    stickiness: float = 0.0
    """What two outliers in succession cost less than two apart; 0 or below."""
    inflation: float = 1.0
    """How much more than independent values the evidence of a level varies, as a factor on its variance."""

    @property
    def mean_inflation(self) -> float:
        """Factor on the variance of a level's mean: what is modelled and what is left over."""
        return self.inflation * (1 + self.autocorrelation) / (1 - self.autocorrelation)


def bins_of(distances: Values) -> NDArray[np.intp]:
    """Rows of the table of costs for distances in standard deviations."""
    widths = distances * PER_DEVIATION
    # adding before truncating rounds to the nearest, and keeps what is far out inside the table
    widths += HALF + 0.5
    np.minimum(np.maximum(widths, 0.0, out=widths), _BIN_COUNT - 0.5, out=widths)
    return widths.astype(np.intp)


def median(values: Values) -> float:
    """As numpy's, at a fifth of its time: the detector takes many medians of few values."""
    half = len(values) // 2
    ordered = values.copy()
    # two places are found in half the time that numpy takes to find one
    ordered.partition((half - 1, half))
    above: float = ordered.item(half)
    return above if len(values) % 2 else (ordered.item(half - 1) + above) / 2


def tick_of(values: Values) -> float:
    """Gap between neighbouring distinct values where ties show that a coarse clock rounds them, and values that come
    and go that there is noise to be rounded; else 0.

    Of a series that stays at one exact value and then at another, the gap is a step. Since a level of `LEVEL_FOR_SURE`
    values is believed whatever the noise does, levels bring a series back to a value that it had at most once in so
    many.
    """
    ordered = np.sort(values)
    gaps = ordered[1:] - ordered[:-1]
    gaps = gaps[gaps > 0]
    if not 0 < len(gaps) <= len(values) / 4 - 1:
        return 0.0
    returns = np.count_nonzero(values[1:] != values[:-1]) - len(gaps)
    return median(gaps) if returns * LEVEL_FOR_SURE > len(values) else 0.0


def deviation_of_differences(values: Values) -> float:
    """Noise that neither steps nor outliers move: from the median absolute first difference, or from the median
    absolute deviation where that is less, as it is where values alternate.
    """
    from_differences = MAD_TO_DEVIATION * median(np.abs(values[1:] - values[:-1])) / math.sqrt(2)
    from_level = MAD_TO_DEVIATION * median(np.abs(values - median(values)))
    return min(from_differences, from_level)


def _deviation_of(residuals: Values, *, floor: float, tick: float) -> float:
    """Width of the noise that `estimate_noise` learns: all of it that takes no more than a median.

    Args:
        residuals: Distance of each value from its level, shape [values], at least one.
        floor: Smallest deviation believed.
        tick: Of a coarse clock, or 0.
    """
    sizes = np.abs(residuals)
    deviation = max(MAD_TO_DEVIATION * median(sizes), floor)
    if tick <= deviation / 2:
        return deviation
    # the median of a few ticks is a tick or nothing: the mean of the squares, and what rounding itself adds
    spread = math.sqrt(float((np.minimum(sizes, 3 * tick) ** 2).mean()))
    return max(spread, tick / math.sqrt(12), floor)


def stickiness_of_differences(values: Values, *, least: int = MIN_FOR_AUTOCORRELATION) -> float:
    """φ of an AR(1) series, from winsorised differences at lags 1 and 3, which steps and bursts hardly move; 0 where it
    does not exceed a half.

    Source of the idea: Chakar, Lebarbier, Lévy-Leduc and Robin (2017), who take medians at lags 1 and 2. Winsorised
    means vary half as much, and lag 3 tells an AR(1) process from bursts.
    """
    if len(values) < least:
        return 0.0
    first = np.abs(values[1:] - values[:-1])
    limit = 2.5 * MAD_TO_DEVIATION * median(first)
    if limit <= 0:
        return 0.0
    third = np.abs(values[3:] - values[:-3])
    ratio = float((np.minimum(third, limit) ** 2).mean() / (np.minimum(first, limit) ** 2).mean())
    if ratio < _STICKY_RATIO:
        return 0.0
    # winsorising hides a tenth of it
    return min((math.sqrt(4 * ratio - 3) - 1) / 2 + 0.1, 0.9)


def prior_noise(deviation: float, autocorrelation: float = 0.0) -> Noise:
    """Noise of which only the width is known: normal, one value in twenty an outlier."""
    if not autocorrelation:
        return Noise(deviation, _PRIOR_COSTS)
    whole = deviation / math.sqrt(1 - autocorrelation)
    innovation = whole * math.sqrt(1 - autocorrelation**2)
    return Noise(whole, _PRIOR_COSTS, autocorrelation, innovation, _PRIOR_COSTS)


def estimate_noise(
    residuals: Values, starts: list[int], masked: Flags, *, is_sticky: bool, floor: float, tick: float
) -> Noise:
    """Learn the noise from what a segmentation leaves over.

    Args:
        residuals: Distance of each value from its level.
        starts: First positions of all segments but the first: no pair reaches across them.
        masked: Values known to belong to no level.
        is_sticky: Whether to model an AR(1) process.
        floor: Smallest deviation believed.
        tick: Of a coarse clock, or 0.
    """
    has_masked = bool(masked.any())
    free = residuals[~masked] if has_masked else residuals
    if len(free) == 0:
        return prior_noise(floor)
    deviation = _deviation_of(free, floor=floor, tick=tick)
    if len(residuals) < MIN_FOR_SHAPE:
        return prior_noise(deviation)
    distances = residuals / deviation
    if has_masked:
        distances[masked] = 2 * HALF
    is_outlier = np.abs(distances) > OUTLIER
    bins = bins_of(distances)
    costs = _costs_of(bins, is_outlier)
    if not is_sticky:
        inflation = leftover_inflation(_scores(bins, costs))
        stickiness, alone = _stickiness(is_outlier)
        # one that stands alone has two neighbours which are none
        return Noise(deviation, costs + 2 * alone * _FAR, stickiness=stickiness, inflation=inflation)
    within = ~(is_outlier[1:] | is_outlier[:-1])
    within[np.asarray(starts, dtype=np.intp) - 1] = False
    ahead, behind = residuals[1:][within], residuals[:-1][within]
    power = float((ahead @ ahead + behind @ behind) / 2)
    measured = float(ahead @ behind) / power if power > 0 else 0.0
    # each fitted level takes a share of the correlation away: Marriott and Pope's bias, per segment
    phi = measured + (1 + 3 * measured) * (len(starts) + 1) / len(residuals)
    phi = min(max(phi, 0.0), _MAX_AUTOCORRELATION)
    steps = ahead - phi * behind
    innovation = max(MAD_TO_DEVIATION * median(np.abs(steps)), floor) if len(steps) else floor
    scaled = steps / innovation
    innovation_costs = _costs_of(bins_of(scaled), np.abs(scaled) > OUTLIER, without_itself=True)
    return Noise(deviation, costs, phi, innovation, innovation_costs)


def _costs_of(bins: NDArray[np.intp], is_outlier: Flags, *, without_itself: bool = False) -> Values:
    count = len(bins)
    seen = np.bincount(bins, minlength=_BIN_COUNT).astype(np.float64)
    seen[0] = seen[-1] = 0.0  # the ends hold all that lies beyond
    density = np.convolve(seen, _KERNEL, mode="same")
    if without_itself:
        density = np.maximum(density - _KERNEL.max(), 0.0)
    outlier_share = (int(np.count_nonzero(is_outlier)) + 1) / (count + 10)
    prior = (1 - outlier_share) * _CORE + outlier_share * _BROAD
    costs: Values = -2 * np.log((density + _PRIOR_WORTH * prior) / (count + _PRIOR_WORTH))
    costs[0] = costs[-1] = max(costs[0], costs[-1])
    return costs + _TIE_BREAK


def _stickiness(is_outlier: Flags) -> tuple[float, float]:
    """What two outliers in succession cost beyond two alone, and what an outlier costs beside a value that is none: −2
    ln of how much likelier each pair is than if they were independent, shrunk towards independence.
    """
    both = int(np.count_nonzero(is_outlier[1:] & is_outlier[:-1]))
    either = int(np.count_nonzero(is_outlier[1:]) + np.count_nonzero(is_outlier[:-1]))
    share = (int(np.count_nonzero(is_outlier)) + 1) / (len(is_outlier) + 10)
    follow = (2 * both + 4 * share) / (either + 4)
    follow = min(max(follow, share), 0.95)
    pair, alone = share * follow, share * (1 - follow)
    neither = 1 - pair - 2 * alone
    if neither <= 0.05:
        return 0.0, 0.0
    none_cost = -2 * math.log(neither / (1 - share) ** 2)
    alone_cost = -2 * math.log(alone / (share * (1 - share))) - none_cost
    pair_cost = -2 * math.log(pair / share**2) - none_cost
    return pair_cost - 2 * alone_cost, alone_cost


def _scores(bins: NDArray[np.intp], costs: Values) -> Values:
    """Slopes of the cost at each value, which are what moves the evidence for a level."""
    smooth = np.convolve(costs, _RUNNING_MEAN, mode="same")
    slopes = np.zeros_like(smooth)
    slopes[2:-2] = smooth[3:-1] - smooth[1:-3]
    scores: Values = slopes[bins]
    return scores


def leftover_inflation(scores: Values) -> float:
    """How much more a sum of scores varies than of independent ones, by their dependence at short lags."""
    power = float(scores @ scores)
    if power <= len(scores) * _NO_SCORE**2:
        return 1.0  # all values are their levels, and say nothing of each other
    dependence = sum(
        float(scores[lag:].dot(scores[:-lag])) / power * len(scores) / (len(scores) - lag)
        for lag in range(1, min(LAGS + 1, len(scores)))
    )
    return max(1.0, 1 + 2 * dependence)


# --- uncertain values


@dataclass(frozen=True)
class Certainty:
    """How certain most values of a series are: what the error of one exceeds that by, widens it."""

    typical_error: float
    """Standard error of most values, on the scale they are judged on."""
    noise: float
    """Standard deviation of such a value around its level."""

    @classmethod
    def of(cls, values: Values, errors: Values, *, floor: float) -> Certainty | None:
        """Learn it from some values; None where no error is known, or too few values are there to differ.

        Args:
            values: In time order, on the scale they are judged on, shape [values].
            errors: Standard error of each on that scale; NaN where it is not known, shape [values].
            floor: Smallest noise believed.
        """
        known = errors[np.isfinite(errors)]
        if not len(known) or len(values) < 2:
            return None
        noise = MAD_TO_DEVIATION * median(np.abs(np.diff(values))) / math.sqrt(2)
        return cls(median(known), max(noise, floor))

    def widths(self, errors: Values) -> Values | None:
        """How much wider each value spreads than one as certain as most, as a factor; None where none spreads wider.

        Args:
            errors: As for `of`; one that is not known is as certain as most.
        """
        beyond = np.where(np.isfinite(errors), np.maximum(errors**2 - self.typical_error**2, 0.0), 0.0)
        if not beyond.any():
            return None
        widths: Values = np.sqrt(1 + beyond / self.noise**2)
        return widths

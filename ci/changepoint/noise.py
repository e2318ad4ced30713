"""The noise of a series around its level: width, shape, dependence of neighbours. Pure.

The noise is learnt from the series as a table of costs: -2 ln of the density by distance from the
level. All steps of the method weigh evidence in this unit. docs/explanation/verdicts.md argues the
constants.
"""

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
MIN_FOR_AUTOCORRELATION = 60
MIN_FOR_SHAPE = 40
"""Fewer values have no shape of their own: a short level would be learnt as a heap of outliers."""
LAGS = 5
"""Lags over which the remaining dependence is summed."""

_PER_DEVIATION = 8.0
"""Bins of the table of costs in one standard deviation. Rounding to them costs a value less than
0.01.
"""
_HALF = 96
"""Bins on either side: from 12 standard deviations on, all outliers cost the same."""
_BIN_COUNT = 2 * _HALF + 1
_GRID = np.arange(-_HALF, _HALF + 1) / _PER_DEVIATION
_KERNEL_DEVIATION = 0.4
"""Silverman's rule, 1.06 n^(-1/5), at some 150 values."""
_KERNEL_OFFSETS = np.arange(-12, 13) / _PER_DEVIATION
"""Up to almost four widths of the kernel on either side."""
_KERNEL = np.exp(-0.5 * (_KERNEL_OFFSETS / _KERNEL_DEVIATION) ** 2)
"""Normal; as a density per standard deviation, its sum over the bins is that of one value."""
_KERNEL /= _KERNEL.sum() / _PER_DEVIATION
CORE = np.exp(-0.5 * _GRID**2) / math.sqrt(2 * math.pi)
BROAD = 1.5 / (3.0 + np.abs(_GRID)) ** 2
"""Prior density of outliers: half of them beyond 3 deviations, falling with the square of the
distance.
"""
_TIE_BREAK = 0.01 * np.abs(_GRID)
"""Puts an outlier that costs the same at two levels into the nearer one."""
_FAR = (np.abs(_GRID) > OUTLIER).astype(np.float64)
_PRIOR_WORTH = 30.0
"""Weight of the prior shape, in values."""
_PRIOR_OUTLIER_SHARE = 0.05
_PRIOR_COSTS = -2 * np.log((1 - _PRIOR_OUTLIER_SHARE) * CORE + _PRIOR_OUTLIER_SHARE * BROAD)
_PRIOR_COSTS = np.minimum(_PRIOR_COSTS, _PRIOR_COSTS[_HALF] + 10.0) + _TIE_BREAK
_PRIOR_COSTS.flags.writeable = False
_STICKY_RATIO = 1.8
"""Variogram at lag 3 over lag 1, which is 1 + φ + φ² in an AR(1) series. Above, φ exceeds 0.53 and
is modelled.
"""
_MAX_AUTOCORRELATION = 0.95
_HIDDEN_BY_WINSORISING = 0.1
"""By how much φ is underestimated from winsorised differences."""
_MAX_STICKINESS = 0.9
_MAX_FOLLOW = 0.95
"""How often an outlier may follow one."""
_MIN_NEITHER = 0.05
"""Share of neighbours that are no outliers, below which outliers are not told from the rest."""
_NO_SCORE = 1e-9
"""Scores below this are rounding."""


@dataclass(frozen=True)
class Noise:
    """Distribution of the values of a series around their level."""

    deviation: float
    """Standard deviation of a value around its level, without outliers."""
    costs: Values
    """-2 ln density by distance in standard deviations, shape [bins]."""
    autocorrelation: float = 0.0
    """φ of an AR(1) process; 0 unless the series shows more than a half."""
    innovation: float = 0.0
    """Standard deviation of the innovations of the AR(1) process."""
    innovation_costs: Values | None = None
    stickiness: float = 0.0
    """Cost of two outliers in succession, less the cost of two apart; 0 or below."""
    inflation: float = 1.0
    """Variance of the evidence for a level, relative to independent values."""

    @property
    def mean_inflation(self) -> float:
        """Factor on the variance of a level's mean, with autocorrelation."""
        # neighbours that depend on each other add this to the variance of a mean
        return self.inflation * (1 + self.autocorrelation) / (1 - self.autocorrelation)


def bins_of(distances: Values) -> NDArray[np.intp]:
    """Rows of the table of costs for distances in standard deviations."""
    # adding a half before truncating rounds to the nearest
    scaled = distances * _PER_DEVIATION + (_HALF + 0.5)
    return np.clip(
        scaled,
        0.0,
        _BIN_COUNT - 0.5,
        out=scaled,
    ).astype(np.intp)


def smoothed_counts(bins: NDArray[np.intp]) -> Values:
    """Kernel density estimate times the number of values, per standard deviation, shape [bins]."""
    seen = np.bincount(bins, minlength=_BIN_COUNT).astype(np.float64)
    seen[0] = seen[-1] = 0.0  # the ends hold all values beyond them
    return np.convolve(seen, _KERNEL, mode="same")


def median(values: Values) -> float:
    """The median of finite values; three times as fast as numpy's for a few hundred of them."""
    low = (len(values) - 1) // 2
    high = len(values) // 2
    ordered = np.partition(values, (low, high))
    if low == high:
        return float(ordered[low])
    return float(ordered[low] / 2 + ordered[high] / 2)


# --- width and dependence


def deviation_of_differences(values: Values) -> float:
    """Standard deviation from the median absolute first difference, which ignores steps and
    outliers.

    Values that alternate have a smaller median absolute deviation, which then counts.
    """
    differences = np.abs(values[1:] - values[:-1])
    from_differences = MAD_TO_DEVIATION * median(differences) / math.sqrt(2)
    distances = np.abs(values - median(values))
    from_level = MAD_TO_DEVIATION * median(distances)
    return min(from_differences, from_level)


def stickiness_of_differences(values: Values) -> float:
    """φ of an AR(1) series from winsorised differences at lags 1 and 3; 0 unless it exceeds a half.

    Source: after Chakar, Lebarbier, Lévy-Leduc and Robin (2017), who take medians at lags 1 and 2.
    Winsorised means vary half as much, and lag 3 tells an AR(1) process from bursts.
    """
    if len(values) < MIN_FOR_AUTOCORRELATION:
        return 0.0
    first = np.abs(values[1:] - values[:-1])
    limit = 2.5 * MAD_TO_DEVIATION * median(first)
    # most neighbours are equal: there is no noise to correlate
    if limit <= 0:
        return 0.0
    third = np.abs(values[3:] - values[:-3])
    first_variogram = (np.minimum(first, limit) ** 2).mean()
    third_variogram = (np.minimum(third, limit) ** 2).mean()
    ratio = float(third_variogram / first_variogram)
    if ratio < _STICKY_RATIO:
        return 0.0
    # the positive root of 1 + φ + φ² = ratio
    phi = (math.sqrt(4 * ratio - 3) - 1) / 2
    return min(phi + _HIDDEN_BY_WINSORISING, _MAX_STICKINESS)


def relative_widths(
    values: Values,
    errors: Values,
    *,
    floor: float,
) -> Values | None:
    """How much wider each value spreads than a typical one, as a factor; None if none does.

    Args:
        values: In time order, on the scale they are judged on, shape [values].
        errors: Standard error of each on that scale, NaN where it is not known.
        floor: Smallest noise believed.
    """
    is_known = np.isfinite(errors)
    if not is_known.any() or len(values) < 2:
        return None
    differences = np.abs(np.diff(values))
    # a difference has the noise of two values
    of_difference = MAD_TO_DEVIATION * median(differences)
    noise = max(of_difference / math.sqrt(2), floor)
    typical = median(errors[is_known])
    excess = np.where(
        is_known,
        np.maximum(errors**2 - typical**2, 0.0),
        0.0,
    )
    # without a wider value there is nothing to weigh
    if not excess.any():
        return None
    widths: Values = np.sqrt(1 + excess / noise**2)
    return widths


def difference_error(
    deviation: float,
    base_count: int,
    head_count: int,
) -> float:
    """Standard error of the difference between two means, from the deviation of one value."""
    variances = 1 / base_count + 1 / head_count
    return deviation * math.sqrt(variances)


def neighbour_correlation(
    ahead: Values,
    behind: Values,
    *,
    fitted_share: float,
) -> float:
    """Correlation of each value with the one before, without the bias of a fitted level.

    Each fitted parameter takes a share of the correlation away.

    Args:
        ahead: Residuals that have a neighbour before them, shape [pairs].
        behind: That neighbour of each, shape [pairs].
        fitted_share: Fitted parameters / values.

    Returns:
        The estimate, which may lie outside of -1 to 1; 0 plus the bias without any pairs.

    Source: Marriott and Pope, Bias in the Estimation of Autocorrelations, 1954.
    """
    # the mean of both, so a reversed series has the same value
    both_powers = ahead @ ahead + behind @ behind
    power = float(both_powers / 2)
    measured = 0.0
    if power > 0:
        measured = float(ahead @ behind) / power
    return measured + (1 + 3 * measured) * fitted_share


# --- the table of costs


def prior_noise(deviation: float, autocorrelation: float = 0.0) -> Noise:
    """Noise of known width only: normal, one value in twenty an outlier."""
    if not autocorrelation:
        return Noise(deviation, _PRIOR_COSTS)
    whole = deviation / math.sqrt(1 - autocorrelation)
    innovation = whole * math.sqrt(1 - autocorrelation**2)
    return Noise(
        deviation=whole,
        costs=_PRIOR_COSTS,
        autocorrelation=autocorrelation,
        innovation=innovation,
        innovation_costs=_PRIOR_COSTS,
    )


def estimate_noise(
    residuals: Values,
    starts: list[int],
    masked: Flags,
    *,
    is_sticky: bool,
    floor: float,
) -> Noise:
    """Learn the noise from the residuals of a segmentation.

    Args:
        residuals: Distance of each value from its level.
        starts: First positions of all segments but the first. No pair of neighbours reaches across
            them.
        masked: Values that belong to no level.
        is_sticky: Whether to model an AR(1) process.
        floor: Smallest deviation believed.
    """
    free = residuals[~masked]
    if len(free) == 0:
        return prior_noise(floor)
    spread = MAD_TO_DEVIATION * median(np.abs(free))
    deviation = max(spread, floor)
    if len(residuals) < MIN_FOR_SHAPE:
        return prior_noise(deviation)
    distances = residuals / deviation
    distances[masked] = 2 * _HALF
    is_outlier = np.abs(distances) > OUTLIER
    bins = bins_of(distances)
    costs = _costs_of(bins, is_outlier)
    if not is_sticky:
        inflation = leftover_inflation(_scores(bins, costs))
        stickiness, alone_cost = _stickiness(is_outlier)
        # an outlier that stands alone has two neighbours that are none
        return Noise(
            deviation=deviation,
            costs=costs + 2 * alone_cost * _FAR,
            stickiness=stickiness,
            inflation=inflation,
        )
    is_within_level = ~(is_outlier[1:] | is_outlier[:-1])
    is_within_level[np.asarray(starts, dtype=np.intp) - 1] = False
    ahead = residuals[1:][is_within_level]
    behind = residuals[:-1][is_within_level]
    level_count = len(starts) + 1
    phi = neighbour_correlation(ahead, behind, fitted_share=level_count / len(residuals))
    phi = min(max(phi, 0.0), _MAX_AUTOCORRELATION)
    innovations = ahead - phi * behind
    innovation = floor
    if len(innovations):
        spread = MAD_TO_DEVIATION * median(np.abs(innovations))
        innovation = max(spread, floor)
    scaled = innovations / innovation
    innovation_costs = _costs_of(
        bins=bins_of(scaled),
        is_outlier=np.abs(scaled) > OUTLIER,
        without_itself=True,
    )
    return Noise(
        deviation=deviation,
        costs=costs,
        autocorrelation=phi,
        innovation=innovation,
        innovation_costs=innovation_costs,
    )


def _costs_of(
    bins: NDArray[np.intp],
    is_outlier: Flags,
    *,
    without_itself: bool = False,
) -> Values:
    """Learn the table of costs from values, shrunk towards the prior shape.

    Args:
        bins: Of the values, shape [values].
        is_outlier: Shape [values].
        without_itself: Whether a value says nothing about its own cost, as where a level would
            otherwise be fitted to a single one.

    Returns:
        -2 ln density, shape [bins].
    """
    count = len(bins)
    density = smoothed_counts(bins)
    if without_itself:
        density = np.maximum(density - _KERNEL.max(), 0.0)
    outlier_share = _shrunk_share(is_outlier)
    prior = (1 - outlier_share) * CORE + outlier_share * BROAD
    weighted_density = density + _PRIOR_WORTH * prior
    density = weighted_density / (count + _PRIOR_WORTH)
    costs: Values = -2 * np.log(density)
    # the ends stand for all values beyond them, on either side
    tail_cost = max(costs[0], costs[-1])
    costs[0] = tail_cost
    costs[-1] = tail_cost
    return costs + _TIE_BREAK


def _shrunk_share(is_outlier: Flags) -> float:
    """Share of outliers, as if one of ten more values had been one."""
    # as if one of ten further values were an outlier: no share is ever 0
    outlier_count = int(np.count_nonzero(is_outlier)) + 1
    return outlier_count / (len(is_outlier) + 10)


def _stickiness(is_outlier: Flags) -> tuple[float, float]:
    """Extra cost of two outliers in succession over two alone, and of an outlier beside a value
    that is none.

    Each is -2 ln of how much likelier the pair is than if the two were independent, shrunk towards
    independence.
    """
    ahead = is_outlier[1:]
    behind = is_outlier[:-1]
    both_count = int(np.count_nonzero(ahead & behind))
    either_count = int(np.count_nonzero(ahead) + np.count_nonzero(behind))
    share = _shrunk_share(is_outlier)
    # how often an outlier follows one, as if four more neighbours had been independent
    follow = (2 * both_count + 4 * share) / (either_count + 4)
    follow = min(max(follow, share), _MAX_FOLLOW)
    # probabilities of the three kinds of neighbours
    pair = share * follow
    alone = share * (1 - follow)
    neither = 1 - pair - 2 * alone
    # almost all values are outliers: they have no level to stand apart from
    if neither <= _MIN_NEITHER:
        return 0.0, 0.0
    # each cost is relative to what two independent values would have
    none_cost = -2 * math.log(neither / (1 - share) ** 2)
    independent_alone = share * (1 - share)
    alone_cost = -2 * math.log(alone / independent_alone) - none_cost
    pair_cost = -2 * math.log(pair / share**2) - none_cost
    return pair_cost - 2 * alone_cost, alone_cost


def _scores(bins: NDArray[np.intp], costs: Values) -> Values:
    """Slope of the cost at each value: its influence on the level."""
    smooth = np.convolve(costs, np.ones(3) / 3, mode="same")
    slopes = np.zeros_like(smooth)
    slopes[2:-2] = smooth[3:-1] - smooth[1:-3]
    scores: Values = slopes[bins]
    return scores


def leftover_inflation(scores: Values) -> float:
    """Variance of a sum of scores relative to independent ones, from their dependence at short
    lags.
    """
    power = float(scores @ scores)
    # scores that are all rounding have no correlation
    if power <= len(scores) * _NO_SCORE**2:
        return 1.0
    count = len(scores)
    dependence = 0.0
    for lag in range(1, min(LAGS + 1, count)):
        later = scores[lag:]
        covariance = float(later.dot(scores[:-lag]))
        # fewer products are in the sum the longer the lag is
        correlation = covariance / power
        dependence += correlation * count / (count - lag)
    return max(1.0, 1 + 2 * dependence)

"""The line that new values of a series are held against: where its level stays, or drifts. Pure; online."""

from __future__ import annotations

import math

import numpy as np

from roofwatch.ci.changepoint.evidence import CAUTION
from roofwatch.ci.changepoint.noise import LAGS, MAD_TO_DEVIATION, OUTLIER, Noise, Values, median

MIN_FOR_SLOPE = 60
"""Values that a drift takes: in fewer, neighbours that depend on each other wander like one, and how much they do is
not known (`roofwatch.ci.changepoint.noise.MIN_FOR_AUTOCORRELATION`).
"""
_SLOPE_ERRORS = 3.0
"""Standard errors a drift must have to be believed, themselves at their upper end: chance shows it in fewer than one of
370 levels."""
_ROUNDS = 3
"""Of fitting a line, winsorising around it, and fitting again: outliers around a level are not those around a line."""


def fit_slope(settled: Values, floor: float) -> float:
    """The slope per value of a line through values whose outliers are winsorised.

    Args:
        settled: Values of one level, shape [values].
        floor: Smallest deviation believed.
    """
    times, power = _times(len(settled), len(settled))
    middle = median(settled)
    limit = OUTLIER * max(MAD_TO_DEVIATION * median(np.abs(settled - middle)), floor)
    slope = 0.0
    for _ in range(_ROUNDS):
        rest = np.minimum(np.maximum(settled - middle - slope * times, -limit), limit)
        slope += float(times @ rest) / power
    return slope


def may_drift(slope: float, residuals: Values, deviation: float) -> bool:
    """Whether so steep a slope is none by chance if no value says anything of the next one. `is_drifting` says no where
    this does, whatever is learnt of the noise: most levels need no more than this.

    Args:
        slope: As `fit_slope` gave it.
        residuals: What the line leaves over, shape [values].
        deviation: Of the noise.
    """
    return abs(slope) > _slope_by_chance(residuals, deviation, 1.0)


def is_drifting(slope: float, residuals: Values, noise: Noise) -> bool:
    """Whether so steep a slope is none by chance.

    Args:
        slope: As `fit_slope` gave it.
        residuals: What the line leaves over, shape [values].
        noise: Learnt from them. Neighbours depend on each other as it says, or as so few values cannot exclude: a
            wandering level leaves less dependence beside a line than it has.
    """
    inflation = noise.mean_inflation
    if not noise.autocorrelation:
        inflation = max(inflation, 1 + 2 * CAUTION * math.sqrt(LAGS / len(residuals)))
    return abs(slope) > _slope_by_chance(residuals, noise.deviation, inflation)


def _slope_by_chance(residuals: Values, deviation: float, inflation: float) -> float:
    """The steepest slope that chance shows, in noise whose levels vary so much more than of independent values."""
    count = len(residuals)
    _, power = _times(count, count)
    # of the values as they are: a clock with two states is wider than either
    rest = np.minimum(np.maximum(residuals, -OUTLIER * deviation), OUTLIER * deviation)
    return _SLOPE_ERRORS * math.sqrt(float(rest @ rest) / count * inflation / power)


def line_ahead(settled: Values, slope: float, count: int) -> Values:
    """The level at each of `count` positions, of which `settled` are the first."""
    times, _ = _times(len(settled), count)
    return median(settled) + slope * times


def residuals_of(settled: Values, slope: float = 0.0) -> Values:
    """Distances of values from their level."""
    if not len(settled):
        return settled
    times, _ = _times(len(settled), len(settled))
    rest = settled - slope * times
    return rest - median(rest)


def _times(known: int, count: int) -> tuple[Values, float]:
    """The time at each of `count` positions, counted from the middle of the first `known`, and the sum of squares of
    these.
    """
    times: Values = np.arange(count, dtype=np.float64) - (known - 1) / 2
    return times, known * (known**2 - 1) / 12

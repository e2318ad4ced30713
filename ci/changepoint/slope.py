"""How fast a series drifts beside whatever steps it takes. Pure.

A staircase explains a ramp nearly as well as a line does, so the slope within the levels of a cut says little of it.
Here the line comes first, and of the steps that the scan of the series offers one after another joins it while it
earns what a step costs: orthogonal matching pursuit (Pati, Rezaiifar and Krishnaprasad 1993), done on the normal
equations by sweeping (Beaton 1964), so that it costs the number of possible steps, not of values.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from roofwatch.ci.changepoint.noise import Values

_MAX_STEPS = 12
"""Beside a line; a series that takes more is told by the levels alone."""
_LEAST_LEFT = 1e-6
"""Share of a step that must be left beside line and earlier steps: less is rounding."""
_TIME = 1
"""Row of the time among the inner products, after the constant's."""


@dataclass(frozen=True)
class Slope:
    """Of a line beside steps."""

    per_value: float
    standard_errors: float
    """Of independent values: dependence is for the levels to judge."""


def slope_beside_steps(values: Values, places: NDArray[np.intp], least_gain: float) -> Slope:
    """The slope of a line fitted with those steps that the values ask for.

    Args:
        values: Outliers winsorised, shape [values].
        places: Where a level may begin, shape [places], in order.
        least_gain: Squares that a step must explain, in squared units of the values.
    """
    gram = _gram(values, places)
    _sweep(gram, 0)
    _sweep(gram, _TIME)
    steps = slice(_TIME + 1, -1)
    squares, left = np.diagonal(gram)[steps], gram[-1, steps]
    is_open = np.ones(len(places), dtype=bool)
    least_left = _LEAST_LEFT * squares
    explained = np.empty(len(places))
    for _ in range(min(_MAX_STEPS, len(places))):
        is_open &= squares > least_left
        explained[:] = 0.0
        np.divide(left * left, squares, out=explained, where=is_open)
        best = int(explained.argmax())
        if explained[best] < least_gain or not is_open[best]:
            break
        is_open[best] = False
        _sweep(gram, _TIME + 1 + best)
    return _slope_of(gram, len(values) - 2 - len(places) + int(np.count_nonzero(is_open)))


def _gram(values: Values, places: NDArray[np.intp]) -> Values:
    """Inner products of a constant, the time, a step at each place, and the values; square, in that order."""
    count, size = len(values), len(places) + 3
    centred = values - values.mean()
    times, power = _times(count)
    # of what follows each place: how many values, the sum of their times, and of themselves
    lengths = count - places
    time_sums = lengths * places / 2
    value_sums = np.cumsum(centred[::-1])[::-1][places]
    gram = np.empty((size, size))
    gram[0, :2], gram[0, 2:-1], gram[0, -1] = (count, 0.0), lengths, 0.0
    gram[1, :2], gram[1, 2:-1], gram[1, -1] = (0.0, power), time_sums, times @ centred
    gram[2:-1, 2:-1] = np.minimum.outer(lengths, lengths)
    gram[-1, :2], gram[-1, 2:-1], gram[-1, -1] = (0.0, gram[1, -1]), value_sums, centred @ centred
    gram[:, 0], gram[:, 1], gram[:, -1] = gram[0], gram[1], gram[-1]
    return gram


@lru_cache(maxsize=16)
def _times(count: int) -> tuple[Values, float]:
    """Positions around their middle, and the sum of their squares: the same for all series of one length."""
    times: Values = np.arange(count, dtype=np.float64) - (count - 1) / 2
    times.flags.writeable = False
    return times, float(times @ times)


def _sweep(gram: Values, column: int) -> None:
    """Fit one column more: what is left of the others, beside it, stays in their places, and the coefficient in its.

    After it, the last row holds the coefficients of what was fitted, and the diagonal the negative of their variances
    in noise of variance 1.
    """
    along = gram[column].copy()
    pivot = along[column]
    share = along / pivot
    gram -= along[:, None] * share
    gram[column] = gram[:, column] = share
    gram[column, column] = -1 / pivot


def _slope_of(gram: Values, freedom: int) -> Slope:
    slope = float(gram[_TIME, -1])
    error = math.sqrt(max(float(gram[-1, -1]), 0.0) / max(freedom, 1) * -float(gram[_TIME, _TIME]))
    return Slope(slope, slope / error if error > 0 else 0.0)

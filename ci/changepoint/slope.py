"""How fast a series drifts next to the steps it takes. Pure.

A staircase explains a ramp nearly as well as a line does, so slopes within levels say little. A line is fitted first,
and steps join it one after another while each earns its cost: orthogonal matching pursuit (Pati, Rezaiifar and
Krishnaprasad 1993).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from roofwatch.ci.changepoint.noise import OUTLIER, Values, median

_MAX_STEPS = 12
_ROUNDING = 1e-6
"""A smaller share of a step that is left next to the line and earlier steps is rounding."""
_ROUNDS = 2
_TIME = 1
"""Column of the time in the design, after the constant."""


@dataclass(frozen=True)
class Slope:
    """Slope of a line next to steps."""

    per_value: float
    standard_errors: float
    """Under independent values."""


def centred_times(count: int) -> Values:
    """Positions of the values, counted from the middle of the series."""
    return np.arange(count, dtype=np.float64) - (count - 1) / 2


def slope_with_steps(values: Values, places: NDArray[np.intp], min_gain: float) -> Slope:
    """Fit a line with the steps that the values ask for.

    Args:
        values: Winsorised, shape [values].
        places: Where a level may begin, in order, shape [places].
        min_gain: Sum of squares that a step must explain.
    """
    count = len(values)
    time = centred_times(count)
    steps = (np.arange(count) >= places[:, None]).astype(np.float64)  # [places, values]
    # the part of each step, and of the values, that is orthogonal to what was fitted
    direction: Values = time / math.sqrt(float(time @ time))
    open_steps = _without(direction, steps - steps.mean(axis=1, keepdims=True))
    rest = _without(direction, values - values.mean())
    smallest = _ROUNDING * (open_steps**2).sum(axis=1)
    chosen: list[int] = []
    while len(chosen) < min(_MAX_STEPS, len(places)):
        squares = (open_steps**2).sum(axis=1)
        explained = np.where(squares > smallest, (open_steps @ rest) ** 2 / np.maximum(squares, 1e-300), 0.0)
        best = int(explained.argmax())
        if explained[best] < min_gain or squares[best] <= smallest[best]:
            break
        chosen.append(best)
        direction = open_steps[best] / math.sqrt(squares[best])
        open_steps, rest = _without(direction, open_steps), _without(direction, rest)
    design = np.stack([np.ones(count), time, *steps[chosen]], axis=1)
    inverse = np.linalg.inv(design.T @ design)
    slope = float((inverse @ (design.T @ (values - values.mean())))[_TIME])
    freedom = max(count - 2 - len(chosen), 1)
    error = math.sqrt(float(rest @ rest) / freedom * float(inverse[_TIME, _TIME]))
    return Slope(slope, slope / error if error > 0 else 0.0)


def _without(direction: Values, vectors: Values) -> Values:
    """Remove the component along a unit vector; shape [..., values]."""
    left: Values = vectors - (vectors @ direction)[..., None] * direction
    return left


def fit_slope(values: Values, deviation: float) -> float:
    """Fit the slope of one level by least squares on winsorised residuals.

    Args:
        values: Of the level, shape [values].
        deviation: Of their noise.
    """
    times, slope = centred_times(len(values)), 0.0
    for _ in range(_ROUNDS):
        rest = values - slope * times
        rest = np.clip(rest - median(rest), -OUTLIER * deviation, OUTLIER * deviation)
        slope += float(times @ rest) / float(times @ times)
    return slope

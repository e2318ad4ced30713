"""How fast a series drifts beside whatever steps it takes. Pure.

A staircase explains a ramp nearly as well as a line does, so the slope within the levels of a cut says little of it.
Here the line comes first, and of the steps that the scan of the series offers one after another joins it while it
earns what a step costs: orthogonal matching pursuit (Pati, Rezaiifar and Krishnaprasad 1993).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from roofwatch.ci.changepoint.noise import Values

_MAX_STEPS = 12
"""Beside a line; a series that takes more is told by the levels alone."""
_LEAST_LEFT = 1e-6
"""Share of a step that must be left beside line and earlier steps: less is rounding."""

_TIME = 1
"""Column of the time in the design, after the constant's."""


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
    count = len(values)
    time: Values = np.arange(count, dtype=np.float64) - (count - 1) / 2
    steps = (np.arange(count) >= places[:, None]).astype(np.float64)  # [places, values]
    # what is left of each step, and of the values, beside what was fitted
    direction: Values = time / math.sqrt(float(time @ time))
    open_steps = _without(direction, steps - steps.mean(axis=1, keepdims=True))
    rest = _without(direction, values - values.mean())
    least_left = _LEAST_LEFT * (open_steps**2).sum(axis=1)
    chosen: list[int] = []
    while len(chosen) < min(_MAX_STEPS, len(places)):
        squares = (open_steps**2).sum(axis=1)
        explained = np.where(squares > least_left, (open_steps @ rest) ** 2 / np.maximum(squares, 1e-300), 0.0)
        best = int(explained.argmax())
        if explained[best] < least_gain or squares[best] <= least_left[best]:
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
    """Vectors less what lies along a direction of length 1, shape [..., values]."""
    left: Values = vectors - (vectors @ direction)[..., None] * direction
    return left

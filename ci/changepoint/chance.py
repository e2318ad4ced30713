"""How often noise alone shows a step, or a drift, as large as one that was found. Pure.

Student's t of the difference of two levels, in noise whose values depend on their neighbours. Dependence ρ widens the
error of a level as if there were (1 − ρ) / (1 + ρ) times as many values, and makes the width of the noise as uncertain
as if there were (1 − ρ²) / (1 + ρ²) times as many (Bartlett 1935 and 1946, of an AR(1) process). ρ is taken two
standard errors above what the series shows, because a step that was fitted to a wandering series hides its wandering;
and all positions of the series are counted (Bonferroni), because the largest step of all was picked. The slope of a
drift varies by the same factor, since it too is a matter of many values together. docs/explanation/error-rates.md
has the simulated rates.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from roofwatch.ci.changepoint.detect import Step
from roofwatch.ci.changepoint.drift import Drift
from roofwatch.ci.changepoint.noise import MAD_TO_DEVIATION, OUTLIER, median

_CAUTION = 2.0
"""Standard errors that the dependence of neighbours is taken above what it measures: as it is in 39 of 40 series."""
_MAX_CORRELATION = 0.9
_SHARED_MEDIANS = 2
"""Levels that a step fits, which its noise has fewer degrees of freedom by."""
_RAMP_PARAMETERS = 2
"""The same of a ramp: its level and its slope."""


def chances_of_steps(values: Sequence[float] | NDArray[np.float64], steps: Sequence[Step]) -> list[float]:
    """How likely each step is in a series without any.

    Args:
        values: All of the series, above 0, without gaps.
        steps: As `roofwatch.ci.changepoint.detect.find_change_points` gives them for these values.

    Returns:
        A p-value of each, valid wherever in the series it was found.
    """
    if not steps:
        return []
    logs = np.log(np.asarray(values, dtype=np.float64))
    edges = [0, *(step.index for step in steps), len(logs)]
    residuals = np.concatenate([logs[start:end] - np.median(logs[start:end]) for start, end in pairwise(edges)])
    width = MAD_TO_DEVIATION * median(np.abs(residuals))
    correlation = _neighbours(residuals, edges, width, len(edges) - 1)
    return [
        _chance(step, residuals[start:end], boundary - start, width, correlation, len(logs))
        for step, start, boundary, end in zip(steps, edges, edges[1:], edges[2:], strict=False)
    ]


def chance_of_drift(
    values: Sequence[float] | NDArray[np.float64], times: Sequence[float] | NDArray[np.float64], drift: Drift
) -> float:
    """How likely a drift is in a series without any.

    Args:
        values: All of the series, above 0, without gaps.
        times: When each was measured, as `roofwatch.ci.changepoint.drift.find_drift` was told.
        drift: As it was found in these values.

    Returns:
        A p-value, valid wherever in the series it was found.
    """
    logs, when = np.log(np.asarray(values, dtype=np.float64)), np.asarray(times, dtype=np.float64)
    count = len(logs)
    end = count - 1 if drift.end is None else drift.end
    bent = np.clip(when - when[drift.start], 0.0, when[end] - when[drift.start])
    slope = math.log1p(drift.rate)
    residuals = logs - slope * bent
    residuals -= median(residuals)
    width = MAD_TO_DEVIATION * median(np.abs(residuals))
    correlation = _neighbours(residuals, [0, count], width, _RAMP_PARAMETERS)
    degrees = int(count * (1 - correlation**2) / (1 + correlation**2)) - _RAMP_PARAMETERS
    power = float(((bent - bent.mean()) ** 2).sum())
    if degrees < 1 or power <= 0:
        return 1.0
    inflation = (1 + correlation) / (1 - correlation)
    error = width * math.sqrt(count / (count - _RAMP_PARAMETERS) * inflation / power)
    ramp_count = count if drift.end is None else count * (count - 1) // 2
    return min(1.0, ramp_count * two_sided_p(abs(slope) / error if error > 0 else math.inf, degrees))


def _chance(
    step: Step,
    residuals: NDArray[np.float64],
    count_before: int,
    width: float,
    correlation: float,
    position_count: int,
) -> float:
    count = len(residuals)
    inflation = (1 + correlation) / (1 - correlation)
    degrees = int(count * (1 - correlation**2) / (1 + correlation**2)) - _SHARED_MEDIANS
    if degrees < 1:
        return 1.0
    correction = math.sqrt(count / (count - _SHARED_MEDIANS))
    deviation = max(MAD_TO_DEVIATION * median(np.abs(residuals)), width) * correction
    error = deviation * math.sqrt((1 / count_before + 1 / (count - count_before)) * inflation)
    size = abs(math.log(step.after / step.before))
    # the detector knows more of some kinds of noise; what it finds less sure is
    errors = min(size / error if error > 0 else math.inf, step.standard_errors)
    return min(1.0, position_count * two_sided_p(errors, degrees))


def _neighbours(residuals: NDArray[np.float64], edges: Sequence[int], width: float, fitted_count: int) -> float:
    """Upper bound of the correlation of neighbouring values, outliers winsorised."""
    within = np.ones(len(residuals) - 1, dtype=bool)
    within[np.asarray(edges[1:-1], dtype=np.intp) - 1] = False
    limit = OUTLIER * width
    held = np.minimum(np.maximum(residuals, -limit), limit)
    ahead, behind = held[1:][within], held[:-1][within]
    power = float(ahead @ ahead + behind @ behind) / 2
    measured = float(ahead @ behind) / power if power > 0 else 0.0
    count = len(residuals)
    # each fitted level takes a share of the correlation away: Marriott and Pope's bias, per level; a slope as well
    unbiased = measured + (1 + 3 * measured) * fitted_count / count
    return min(max(unbiased + _CAUTION / math.sqrt(count), 0.0), _MAX_CORRELATION)


# --- Student's t distribution for whole degrees of freedom


def two_sided_p(t: float, degrees: int) -> float:
    """Probability that |T| exceeds |t|.

    Source: the finite series of Abramowitz and Stegun, Handbook of Mathematical Functions, 26.7.3 and 26.7.4; what
    is below about 1e-16 comes out as 0.
    """
    if degrees < 1:
        raise ValueError(f"degrees={degrees}: Student's t needs at least 1 degree of freedom")
    if math.isinf(t):
        return 0.0
    angle = math.atan(abs(t) / math.sqrt(degrees))
    cosine_squared = math.cos(angle) ** 2
    is_odd = degrees % 2 == 1
    term = math.cos(angle) if is_odd else 1.0
    total = 0.0 if degrees == 1 else term
    for k in range(3 if is_odd else 2, degrees, 2):
        term *= cosine_squared * (k - 1) / k
        total += term
    inside = 2 / math.pi * (angle + math.sin(angle) * total) if is_odd else math.sin(angle) * total
    return min(max(1 - inside, 0.0), 1.0)


def critical_t(degrees: int, confidence: float) -> float:
    """The t that |T| stays below with probability `confidence`, by bisection."""
    low, high = 0.0, 1.0
    while two_sided_p(high, degrees) > 1 - confidence:
        high *= 2
    for _ in range(100):
        middle = (low + high) / 2
        if two_sided_p(middle, degrees) > 1 - confidence:
            low = middle
        else:
            high = middle
    return high

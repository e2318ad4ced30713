"""What no single step shows: a slow drift, and a level that never quite came back. Pure.

A drift is a level that stands until some value and rises or falls by a constant factor per value from there on. It is
told if it explains the series better than no change and better than steps, by the same penalised likelihood that steps
are told
by (`ci.series.levels`); what autocorrelated noise wanders by itself is allowed for.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ci.detect import ChangePoint
from ci.series.levels import fit_levels, penalty
from ci.series.noise import OUTLIER, Values, deviation_of_differences, estimate_noise, stickiness_of_differences
from ci.series.segmentation import winsorised

_MIN_VALUES = 20
_SHORTEST = 10
"""Values over which a drift must go on: less is a step."""
_STARTS = 60
"""Starts that are tried, evenly spaced."""
_MARGIN = 6.0
"""By how much a drift must explain the series better than steps do: odds of 20 to 1."""


@dataclass(frozen=True)
class Drift:
    """A series that moved little by little."""

    start: int
    """Position of the last value of the level that it left."""
    rate: float
    """Relative change per value, or per unit of `times`; above 0 it rises."""
    relative_change: float
    """From the start to the newest value."""
    likelihood_ratio: float
    """Twice the log likelihood ratio to the best explanation without drift, beyond what the choice of a start costs."""


@dataclass(frozen=True)
class Ratchet:
    """A regression whose fix did not bring the level back."""

    worse_at: int
    """Position of the first value of the worse level."""
    better_at: int
    """Position of the first value after the fix."""
    before: float
    after: float
    kept_share: float
    """Part of the regression that is still there, of its logarithm: 0.4 of a factor f are f^0.4."""


def find_drift(
    values: Sequence[float] | Values,
    times: Sequence[float] | Values | None = None,
    *,
    min_relative_change: float = 0.02,
) -> Drift | None:
    """Find a drift that lasts until the newest value.

    Args:
        values: In time order, above 0; what is not is a gap.
        times: When each was measured, in any unit, rising; the rate is per this unit. Left out: by position.
        min_relative_change: Drifts that have moved less than this are not told.

    Returns:
        The drift, or None if no change or steps explain the series as well, or if it has fewer than 20 values.

    Raises:
        ValueError: There are more or fewer times than values.
    """
    given = np.asarray(values, dtype=np.float64).ravel()
    when = np.arange(len(given), dtype=np.float64) if times is None else np.asarray(times, dtype=np.float64).ravel()
    if len(when) != len(given):
        raise ValueError(f"{len(when)} times of {len(given)} values: give one of each")
    positions = np.flatnonzero(np.isfinite(given) & (given > 0) & np.isfinite(when))
    if len(positions) < _MIN_VALUES:
        return None
    logs, when = np.log(given[positions]), when[positions]
    floor = math.log1p(min_relative_change) / 6
    deviation = max(deviation_of_differences(logs), floor)
    start, level, slope = _best_ramp(logs, when, deviation)
    ramp = level + slope * np.maximum(when - when[start], 0.0)
    total = math.expm1(slope * (when[-1] - when[start]))
    if abs(math.log1p(total)) < math.log1p(min_relative_change):
        return None
    nothing = np.zeros(len(logs), dtype=bool)
    residuals = logs - ramp
    is_sticky = stickiness_of_differences(residuals) > 0
    noise = estimate_noise(residuals, [], nothing, is_sticky=is_sticky, floor=floor, tick=0.0)
    steps = fit_levels(logs, floor=floor, min_segment=3)
    stepped = np.repeat(steps.levels, np.diff([0, *steps.starts, len(logs)]))
    # a bend pays for its place and its rate what a step pays for its place and its size
    price = penalty(len(logs))
    ramp_cost = _cost(residuals, noise.deviation) + price * noise.mean_inflation
    flat_cost = _cost(logs - np.median(logs), noise.deviation)
    step_cost = _cost(logs - stepped, noise.deviation) + len(steps.starts) * price * noise.mean_inflation
    ratio = min(flat_cost, step_cost - _MARGIN) - ramp_cost
    if ratio <= 0:
        return None
    return Drift(int(positions[start]), math.expm1(slope), total, ratio)


def find_ratchets(
    steps: Sequence[ChangePoint], *, min_relative_change: float = 0.03, larger_is_worse: bool = True
) -> list[Ratchet]:
    """Name each regression that was fixed in part: the level stayed worse than it had been before, to the end.

    Args:
        steps: Of one series in order, as `ci.detect.find_change_points` returns them.
        min_relative_change: What is left of a regression counts from here on.
        larger_is_worse: Which way is better, from the table of metrics.
    """
    sign = 1.0 if larger_is_worse else -1.0
    found: list[Ratchet] = []
    for place, worse in enumerate(steps):
        if worse.before <= 0 or worse.after <= 0 or sign * (worse.after - worse.before) <= 0:
            continue
        fix = next((step for step in steps[place + 1 :] if sign * (step.after - step.before) < 0), None)
        if fix is None or fix.after <= 0:
            continue
        later = [step.after for step in steps[steps.index(fix) :]]
        best = min(later) if larger_is_worse else max(later)
        left = sign * math.log(best / worse.before) if best > 0 else 0.0
        lost = sign * math.log(worse.after / worse.before)
        if math.log1p(min_relative_change) <= left < lost:
            found.append(Ratchet(worse.index, fix.index, worse.before, fix.after, left / lost))
    return found


def _best_ramp(logs: Values, when: Values, deviation: float) -> tuple[int, float, float]:
    """Start, level and slope of the line with one bend that fits best, outliers winsorised at the line itself."""
    count = len(logs)
    starts = np.unique(np.linspace(0, count - 1 - _SHORTEST, _STARTS).astype(int))
    bent = np.maximum(when - when[starts][:, None], 0.0)  # [starts, values]
    # from a first look that no outlier pulls away
    pulled = np.broadcast_to(winsorised(logs, deviation), bent.shape)
    limit = OUTLIER * deviation
    for _ in range(3):
        centred = bent - bent.mean(axis=1, keepdims=True)
        power = np.maximum((centred**2).sum(axis=1), 1e-300)
        slopes = (centred * pulled).sum(axis=1) / power
        levels = pulled.mean(axis=1) - slopes * bent.mean(axis=1)
        lines = levels[:, None] + slopes[:, None] * bent
        rest = np.minimum(np.maximum(logs - lines, -limit), limit)
        pulled = lines + rest
    best = int((rest**2).sum(axis=1).argmin())
    return int(starts[best]), float(levels[best]), float(slopes[best])


def _cost(residuals: Values, deviation: float) -> float:
    return float(np.minimum((residuals / deviation) ** 2, OUTLIER**2).sum())

"""What no single step shows: a slow drift, and a level that never quite came back. Pure.

A drift is a level that stands until some value and rises or falls by a constant factor per value from there on, to the
end or until another value, from which on it stands again. It must explain the series better than no change and better
than steps, by the same penalised likelihood as in `roofwatch.ci.changepoint.levels`; what autocorrelated noise wanders
by itself is allowed for.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from roofwatch.ci.changepoint.detect import Step
from roofwatch.ci.changepoint.levels import fit_levels, penalty
from roofwatch.ci.changepoint.noise import (
    OUTLIER,
    Noise,
    Values,
    deviation_of_differences,
    estimate_noise,
    stickiness_of_differences,
)
from roofwatch.ci.changepoint.segmentation import winsorised

Places = NDArray[np.intp]

_MIN_VALUES = 20
_SHORTEST = 10
"""Values over which a drift must go on: less is a step."""
_STARTS = 60
"""Starts that are tried of a drift that goes on, evenly spaced."""
_PLACES = 30
"""Places that are tried as the start or the end of one that ended, evenly spaced; then all that are nearer to the best
two than their neighbours, half as far apart each time."""
_WORTH_A_TRY = 0.5
"""Share of the penalty from which on an end is looked for: one that ended shows as a slower one that goes on."""
_ROUNDS = 3
"""Of fitting, winsorising at the fit, and fitting again: from where no outlier pulls to where the values are."""
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
    """From the start to the end, or to the newest value."""
    end: int | None
    """Position of the first value of the level that it ended at; None where it goes on."""
    likelihood_ratio: float
    """Twice the log likelihood ratio to the best explanation without drift, beyond what the choice of a start costs,
    what neighbours that depend on each other say again taken off."""


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
    """Find a drift that lasts until the newest value, or that has ended since.

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
    ramp = _best_ramp(logs, when, _ongoing(len(logs)), deviation)
    if not _is_relevant(ramp, min_relative_change):
        return None
    noise, flat = _noise_of(ramp, floor), logs - _levelled(logs, [], deviation)
    # a bend pays for its place and its rate what a step pays for its place and its size, another bend for its place
    price, places = penalty(len(logs)), 1.0
    if _saved(flat, ramp.residuals, noise) > _WORTH_A_TRY * price:
        ended = _best_ended(logs, when, deviation)
        beside = _noise_of(ended, floor)
        is_better = _saved(ramp.residuals, ended.residuals, beside) > price / 2 * beside.mean_inflation
        if is_better and _is_relevant(ended, min_relative_change):
            ramp, noise, places = ended, beside, 1.5
    flat_cost = _cost(flat, noise.deviation)
    ramp_cost = _cost(ramp.residuals, noise.deviation) + places * price * noise.mean_inflation
    if flat_cost <= ramp_cost:
        return None
    starts = fit_levels(logs, floor=floor, min_segment=3).starts
    stepped = logs - _levelled(logs, starts, deviation)
    step_cost = _cost(stepped, noise.deviation) + len(starts) * price * noise.mean_inflation
    # neighbours that depend on each other say the same again and again: what they say counts once
    ratio = min(flat_cost - ramp_cost, step_cost - ramp_cost - _MARGIN * noise.mean_inflation) / noise.mean_inflation
    if ratio <= 0:
        return None
    return Drift(
        start=int(positions[ramp.start]),
        rate=math.expm1(ramp.slope),
        relative_change=ramp.relative_change,
        end=int(positions[ramp.end]) if ramp.end < len(logs) - 1 else None,
        likelihood_ratio=ratio,
    )


def find_ratchets(
    steps: Sequence[Step], *, min_relative_change: float = 0.03, larger_is_worse: bool = True
) -> list[Ratchet]:
    """Name each regression that was fixed in part: the level stayed worse than it had been before, to the end.

    Args:
        steps: Of one series in order, as `roofwatch.ci.changepoint.detect.find_change_points` returns them.
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


@dataclass(frozen=True)
class _Ramp:
    """A level that stands, moves along a line from one value to another, and stands again."""

    start: int
    end: int
    slope: float
    relative_change: float
    residuals: Values


def _is_relevant(ramp: _Ramp, min_relative_change: float) -> bool:
    return abs(math.log1p(ramp.relative_change)) >= math.log1p(min_relative_change)


def _noise_of(ramp: _Ramp, floor: float) -> Noise:
    nothing = np.zeros(len(ramp.residuals), dtype=bool)
    is_sticky = stickiness_of_differences(ramp.residuals) > 0
    return estimate_noise(ramp.residuals.copy(), [], nothing, is_sticky=is_sticky, floor=floor, tick=0.0)


def _ongoing(count: int) -> Places:
    """Starts and ends of ramps to the newest value, shape [ramps, 2]."""
    starts = np.unique(np.linspace(0, count - 1 - _SHORTEST, _STARTS).astype(int))
    return np.stack([starts, np.full(len(starts), count - 1)], axis=1)


def _best_ended(logs: Values, when: Values, deviation: float) -> _Ramp:
    """The ramp between any two places that fits best."""
    apart = (len(logs) - 1) / (_PLACES - 1)
    tried = np.linspace(0, len(logs) - 1, _PLACES)
    best = _best_ramp(logs, when, _pairs(tried, tried), deviation)
    while apart > 1:
        apart /= 2
        around = apart * np.arange(-1, 2)
        near = [np.clip(np.rint(place + around), 0, len(logs) - 1) for place in (best.start, best.end)]
        best = _best_ramp(logs, when, _pairs(*near), deviation)
    return best


def _pairs(starts: Values, ends: Values) -> Places:
    """Starts and ends that are far enough apart, shape [ramps, 2]."""
    first, last = np.meshgrid(starts.astype(int), ends.astype(int))
    is_long = last - first >= _SHORTEST
    return np.stack([first[is_long], last[is_long]], axis=1)


def _best_ramp(logs: Values, when: Values, places: Places, deviation: float) -> _Ramp:
    """The ramp that fits best of those between some places, outliers winsorised at the ramp itself."""
    since, until = when[places[:, 0]][:, None], when[places[:, 1]][:, None]
    bent = np.minimum(np.maximum(when - since, 0.0), until - since)  # [ramps, values]
    # from a first look that no outlier pulls away
    pulled = np.broadcast_to(winsorised(logs, deviation), bent.shape)
    limit = OUTLIER * deviation
    centred = bent - bent.mean(axis=1, keepdims=True)
    power = np.maximum((centred**2).sum(axis=1), 1e-300)
    for _ in range(_ROUNDS):
        slopes = (centred * pulled).sum(axis=1) / power
        levels = pulled.mean(axis=1) - slopes * bent.mean(axis=1)
        lines = levels[:, None] + slopes[:, None] * bent
        rest = np.minimum(np.maximum(logs - lines, -limit), limit)
        pulled = lines + rest
    best = int((rest**2).sum(axis=1).argmin())
    start, end = places[best].tolist()
    slope = float(slopes[best])
    return _Ramp(start, end, slope, math.expm1(slope * (when[end] - when[start])), logs - lines[best])


def _levelled(logs: Values, starts: Sequence[int], deviation: float) -> Values:
    """The levels of a series at each of its values, by the estimator that ramps are fitted by: what its noise does to
    one explanation, a skew or outliers to one side, it then does to all.

    Args:
        logs: The values.
        starts: First positions of all levels but the first.
        deviation: Of their noise.
    """
    edges = np.array([0, *starts], dtype=np.intp)
    counts = np.diff([*edges, len(logs)])
    limit = OUTLIER * deviation
    pulled = levels = winsorised(logs, deviation)
    for _ in range(_ROUNDS):
        levels = np.repeat(np.add.reduceat(pulled, edges) / counts, counts)
        pulled = levels + np.minimum(np.maximum(logs - levels, -limit), limit)
    return levels


def _saved(first: Values, second: Values, noise: Noise) -> float:
    """By how much the second residuals are likelier than the first, in units of −2 ln likelihood."""
    return _cost(first, noise.deviation) - _cost(second, noise.deviation)


def _cost(residuals: Values, deviation: float) -> float:
    return float(np.minimum((residuals / deviation) ** 2, OUTLIER**2).sum())

"""What a series has shown before its newest values: how its level drifts, and its noise. Pure; online.

Nothing of it is in a state: it is learnt from the values that a state holds when it is asked for. That is seldom, as
most new values lie so near to their level that the noise does not matter (`roofwatch.ci.changepoint.online`), and most
levels stand so
plainly still that the width of their noise says so.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from roofwatch.ci.changepoint.noise import (
    LAGS,
    MAD_TO_DEVIATION,
    MIN_FOR_SHAPE,
    OUTLIER,
    Certainty,
    Noise,
    Values,
    bins_of,
    deviation_of,
    estimate_noise,
    known_errors,
    leftover_inflation,
    median,
    stickiness_of_differences,
    tick_of,
)

_FOLLOWED = 16
"""Levels that are remembered as they were learnt, for who follows a series value by value."""
_MIN_FOR_AUTOCORRELATION = 30
"""Half of what the offline method asks for: here the residuals hold no step that could pass for autocorrelation."""


class Held(NamedTuple):
    """What the noise is learnt from: values of a level, the present one or the one before, and what is remembered of
    others.
    """

    values: tuple[float, ...]
    """On the scale they are judged on."""
    errors: tuple[float, ...]
    """Standard error of each on that scale; 0 where it is not known, none if none is."""
    residuals: tuple[float, ...]
    """Distances of values of other levels from these."""
    floor: float
    """Smallest noise believed."""
    is_before: bool
    """Whether the values are those of the level before the present one."""


@dataclass(frozen=True)
class Level:
    """What the values of a level say by themselves."""

    certainty: Certainty | None
    slope: float
    """Per value; 0 unless the level drifts."""
    residuals: Values
    """Distances of the values from it, as those of values as certain as most."""


@lru_cache(maxsize=_FOLLOWED)
def level_of(held: Held) -> Level:
    """What is told without learning the noise, unless the level may drift."""
    values, errors = np.array(held.values), known_errors(held.errors)
    certainty = None if errors is None else Certainty.of(values, errors, floor=held.floor)
    widths = None if certainty is None or errors is None else certainty.widths(errors)
    slope = _slope(held.residuals, values, held.floor, widths)
    return Level(certainty, slope, _narrowed(residuals_of(values, slope), widths))


@dataclass(frozen=True)
class Learnt:
    """What a series has shown before its newest values."""

    residuals: Values
    noise: Noise
    certainty: Certainty | None


@lru_cache(maxsize=_FOLLOWED)
def learnt_from(held: Held) -> Learnt:
    """The noise, from the distances of all that is remembered, in time order."""
    level = level_of(held)
    others = np.array(held.residuals)
    known = np.concatenate([level.residuals, others] if held.is_before else [others, level.residuals])
    return Learnt(known, _learn(known, held.floor), level.certainty)


def rest_of(others: tuple[float, ...], settled: Values, floor: float, widths: Values | None) -> list[float]:
    """Distances of values from their level, or from the line that it drifts along, as those of certain ones; arguments
    as for `_slope`.
    """
    slope = _slope(others, settled, floor, widths)
    distances: list[float] = _narrowed(residuals_of(settled, slope), widths).tolist()
    return distances


def _slope(others: tuple[float, ...], settled: Values, floor: float, widths: Values | None) -> float:
    """How a level drifts, per value; 0 unless it must.

    Args:
        others: Distances that are remembered of other levels.
        settled: Values of the level, shape [values].
        floor: Smallest noise believed.
        widths: How much wider each value spreads than most, as a factor; None: all alike.
    """
    if len(settled) < MIN_FOR_SLOPE:
        return 0.0
    slope = fit_slope(settled, floor)
    left = residuals_of(settled, slope)
    known = np.concatenate([np.array(others), _narrowed(left, widths)])
    # the width of the noise is quickly told, and says of most levels that they do not
    if not may_drift(slope, left, deviation_of(known, floor=floor, tick=tick_of(known))):
        return 0.0
    return slope if is_drifting(slope, left, _learn(known, floor)) else 0.0


def _narrowed(distances: Values, widths: Values | None) -> Values:
    """Distances as those of values as certain as most."""
    return distances if widths is None else distances / widths


def _learn(known: Values, floor: float) -> Noise:
    stickiness = stickiness_of_differences(known, least=_MIN_FOR_AUTOCORRELATION)
    nothing = np.zeros(len(known), dtype=bool)
    noise = estimate_noise(known, [], nothing, is_sticky=stickiness > 0, floor=floor, tick=tick_of(known))
    if len(known) < MIN_FOR_SHAPE:
        # no shape of their own, but a dependence
        return replace(noise, inflation=leftover_inflation(np.clip(known / noise.deviation, -OUTLIER, OUTLIER)))
    if not noise.autocorrelation:
        return noise
    # the upper end of what so many values allow: too little of it raises false alarms, too much only waits
    error = math.sqrt((1 - noise.autocorrelation**2) / len(known))
    return replace(noise, autocorrelation=min(noise.autocorrelation + error, 0.95))


CAUTION = 1.645
"""Standard errors that the dependence of neighbours is taken above nothing, until the series shows that there is more:
the upper end of what 95 of 100 independent series show."""
_CANDIDATES = 12
"""Newest values that are tried as the new level."""


def most_inflation(noise: Noise, count: int, window: int) -> Values:
    """How much more the evidence of 1, 2, ... values may vary than independent ones would: as learnt from `count`, or
    as so many cannot exclude.

    A sum of n values varies 1 + 2 Σ (1 − k / n) ρₖ times as much, and each ρₖ is known to 1 / √count (Bartlett 1946).
    """
    lengths = np.arange(1, window + 1)
    squares = (lengths - 1) * (2 * lengths - 1) / (6 * lengths)  # Σ (1 − k / n)²
    unknown: Values = 1 + 2 * CAUTION * np.sqrt(squares / count)
    return np.maximum(unknown, noise.inflation)


def gains_of_a_new_level(tail: Values, level: Values, noise: Noise, widths: Values | None = None) -> Values:
    """By how much the newest 1, 2, ... values are better explained by the best new level than by the present one.

    Args:
        tail: The newest values, shape [values].
        level: The present level at each of them, shape [values].
        noise: ChangeContext either.
        widths: How much wider each value spreads than most, as a factor; None: all alike.
    """
    spread = np.full(len(tail), noise.deviation) if widths is None else noise.deviation * widths
    old = _costs((tail - level) / spread, noise)
    candidates = tail[-_CANDIDATES:]
    # a new level is where some of its values are
    offsets = (tail[:, None] - candidates) / spread[:, None]
    new = _costs(offsets, noise)
    first = noise.costs[bins_of(offsets)]
    ahead_old = np.cumsum(old[::-1])
    ahead_new = np.cumsum(new[::-1], axis=0)
    # the first value of a level owes nothing to the one before it
    ahead_new += (first - new)[::-1]
    gains: Values = ahead_old - ahead_new.min(axis=1)
    return gains


def _costs(distances: Values, noise: Noise) -> Values:
    """Of each value given the one before it, along the first axis."""
    costs = noise.costs[bins_of(distances)]
    if noise.autocorrelation:
        assert noise.innovation_costs is not None
        wider = noise.deviation / noise.innovation
        told = np.minimum(np.maximum(distances[:-1], -OUTLIER), OUTLIER) * noise.autocorrelation
        costs[1:] = noise.innovation_costs[bins_of((distances[1:] - told) * wider)] - 2 * math.log(wider)
    elif noise.stickiness < 0:
        is_outlier = np.abs(distances) > OUTLIER
        costs[1:] += noise.stickiness * (is_outlier[1:] & is_outlier[:-1])
    return costs


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

"""What a series has shown before its newest values, and what these say for a new level against it. Pure; online.

The baseline is learnt from the values that a state holds (`roofwatch.ci.changepoint.online`), not stored.
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
    MIN_FOR_AUTOCORRELATION,
    MIN_FOR_SHAPE,
    OUTLIER,
    Certainty,
    Noise,
    Values,
    bins_of,
    estimate_noise,
    leftover_inflation,
    median,
    stickiness_of_differences,
    tick_of,
)

CAUTION = 1.645
"""Standard errors that the dependence of neighbours is taken above nothing, until the series shows that there is more:
the upper end of what 95 of 100 independent series show."""
_FOLLOWED = 16
"""Baselines that are remembered, for who follows a series value by value."""
_MIN_FOR_SLOPE = MIN_FOR_AUTOCORRELATION
"""Values that a drift takes: in fewer, neighbours that depend on each other wander like one."""
_SLOPE_ERRORS = 3.0
"""Standard errors a drift must have to be believed, themselves at their upper end: chance shows it in fewer than one of
370 levels."""
_ROUNDS = 3
"""Of fitting a line, winsorising around it, and fitting again: outliers around a level are not those around a line."""
_CANDIDATES = 12
"""Newest values that are tried as the new level."""


class Held(NamedTuple):
    """Values of a level, the present one or the one before, and what is remembered of others."""

    values: tuple[float, ...]
    """On the scale they are judged on."""
    errors: tuple[float, ...]
    """Standard error of each on that scale; 0 where it is not known."""
    residuals: tuple[float, ...]
    """Distances of values of other levels from these."""
    floor: float
    """Smallest noise believed."""
    is_before: bool
    """Whether the values are those of the level before the present one."""


@dataclass(frozen=True)
class Baseline:
    slope: float
    """Of the level, per value; 0 unless it drifts."""
    residuals: Values
    """Distances of all that is remembered from its level, in time order, as those of values as certain as most."""
    noise: Noise
    certainty: Certainty | None


@lru_cache(maxsize=_FOLLOWED)
def learn_baseline(held: Held) -> Baseline:
    """Learn the level's drift and the noise."""
    values, errors, others = np.array(held.values), known_errors(held.errors), np.array(held.residuals)
    certainty = Certainty.of(values, errors, floor=held.floor)
    widths = None if certainty is None else certainty.widths(errors)
    slope, residuals = level_residuals(held.residuals, values, held.floor, widths)
    known = np.concatenate([residuals, others] if held.is_before else [others, residuals])
    return Baseline(slope, known, _learn_noise(known, held.floor), certainty)


def known_errors(errors: tuple[float, ...]) -> Values:
    """As an array, NaN where one is not known."""
    known = np.array(errors)
    known[known == 0] = np.nan
    return known


def level_residuals(
    others: tuple[float, ...], settled: Values, floor: float, widths: Values | None
) -> tuple[float, Values]:
    """How a level drifts per value, 0 unless it must, and the distances of its values from it or its line, as those of
    values as certain as most.

    Args:
        others: Distances that are remembered of other levels.
        settled: Values of the level, shape [values].
        floor: Smallest noise believed.
        widths: How much wider each value spreads than most, as a factor; None: all alike.
    """
    divisors = 1.0 if widths is None else widths
    if len(settled) >= _MIN_FOR_SLOPE:
        slope = _fit_slope(settled, floor)
        left = _residuals_of(settled, slope)
        if _is_drifting(slope, left, _learn_noise(np.concatenate([np.array(others), left / divisors]), floor)):
            return slope, left / divisors
    return 0.0, _residuals_of(settled, 0.0) / divisors


def level_ahead(settled: Values, slope: float, count: int) -> Values:
    """The level at each of `count` positions, of which `settled` are the first."""
    return median(settled) + slope * _times(len(settled), count)


def _learn_noise(known: Values, floor: float) -> Noise:
    # half of what the offline method asks for: here the residuals hold no step that could pass for autocorrelation
    stickiness = stickiness_of_differences(known, least=MIN_FOR_AUTOCORRELATION // 2)
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


# --- the line of a level


def _fit_slope(settled: Values, floor: float) -> float:
    """The slope per value of a line through values whose outliers are winsorised."""
    times, power = _times(len(settled), len(settled)), _power(len(settled))
    middle = median(settled)
    limit = OUTLIER * max(MAD_TO_DEVIATION * median(np.abs(settled - middle)), floor)
    slope = 0.0
    for _ in range(_ROUNDS):
        rest = np.clip(settled - middle - slope * times, -limit, limit)
        slope += float(times @ rest) / power
    return slope


def _is_drifting(slope: float, residuals: Values, noise: Noise) -> bool:
    """Whether so steep a slope is none by chance.

    Args:
        slope: Of a line.
        residuals: What the line leaves over, shape [values].
        noise: Learnt from them. Neighbours depend on each other as it says, or as so few values cannot exclude: a
            wandering level leaves less dependence beside a line than it has.
    """
    count, inflation = len(residuals), noise.mean_inflation
    if not noise.autocorrelation:
        inflation = max(inflation, 1 + 2 * CAUTION * math.sqrt(LAGS / count))
    # of the values as they are: a clock with two states is wider than either
    rest = np.clip(residuals, -OUTLIER * noise.deviation, OUTLIER * noise.deviation)
    return abs(slope) > _SLOPE_ERRORS * math.sqrt(float(rest @ rest) / count * inflation / _power(count))


def _residuals_of(settled: Values, slope: float) -> Values:
    if not len(settled):
        return settled
    rest = settled - slope * _times(len(settled), len(settled))
    return rest - median(rest)


def _times(known: int, count: int) -> Values:
    """The time at each of `count` positions, counted from the middle of the first `known`."""
    times: Values = np.arange(count, dtype=np.float64) - (known - 1) / 2
    return times


def _power(count: int) -> float:
    """Sum of squares of so many times."""
    return count * (count**2 - 1) / 12


# --- the evidence of the newest values


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
        noise: Around either.
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
        told = np.clip(distances[:-1], -OUTLIER, OUTLIER) * noise.autocorrelation
        costs[1:] = noise.innovation_costs[bins_of((distances[1:] - told) * wider)] - 2 * math.log(wider)
    elif noise.stickiness < 0:
        is_outlier = np.abs(distances) > OUTLIER
        costs[1:] += noise.stickiness * (is_outlier[1:] & is_outlier[:-1])
    return costs

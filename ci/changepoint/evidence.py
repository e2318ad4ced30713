"""What the newest values of a series say for a new level against the one it had, and how far to believe it. Pure."""

from __future__ import annotations

import math

import numpy as np

from roofwatch.ci.changepoint.noise import OUTLIER, Noise, Values, bins_of

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
        told = np.minimum(np.maximum(distances[:-1], -OUTLIER), OUTLIER) * noise.autocorrelation
        costs[1:] = noise.innovation_costs[bins_of((distances[1:] - told) * wider)] - 2 * math.log(wider)
    elif noise.stickiness < 0:
        is_outlier = np.abs(distances) > OUTLIER
        costs[1:] += noise.stickiness * (is_outlier[1:] & is_outlier[:-1])
    return costs

"""Series with planted steps in nine kinds of noise, for the table of detectors when no other data is available.

Each kind has a robust width of about 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]
Generator = np.random.Generator

COARSE = "coarse clock"
TICK = 2.0
"""Of the coarse clock, in widths of the noise."""
_NOISE_WIDTHS = (0.002, 0.005, 0.01, 0.02, 0.05)
STEPS = (0.01, 0.02, 0.05, 0.10, 0.20)
_SHORTEST_LEVEL = 25


@dataclass(frozen=True)
class PlantedSeries:
    """A series and where its level truly steps."""

    kind: str
    values: Values
    steps: tuple[int, ...]


def _normal(count: int, rng: Generator) -> Values:
    return rng.standard_normal(count)


def _skewed(count: int, rng: Generator) -> Values:
    return np.asarray((np.exp(0.9 * rng.standard_normal(count)) - 1) / 0.83)


def _two_states(count: int, rng: Generator) -> Values:
    """A clock that drops for 5 values on average and stays up for 25."""
    is_low = False
    states = np.empty(count)
    for index in range(count):
        if rng.random() < (0.2 if is_low else 0.04):
            is_low = not is_low
        states[index] = is_low
    return 0.4 * rng.standard_normal(count) + 2.5 * states


def _autocorrelated(count: int, rng: Generator) -> Values:
    values = rng.standard_normal(count)
    for index in range(1, count):
        values[index] = 0.8 * values[index - 1] + 0.6 * values[index]
    return values


def _bursts(count: int, rng: Generator) -> Values:
    values = 0.8 * rng.standard_normal(count)
    for begins in np.flatnonzero(rng.random(count) < 0.02):
        ends = min(begins + int(rng.integers(2, 7)), count)
        values[begins:ends] += rng.uniform(3, 10)
    return values


def _changing_width(count: int, rng: Generator) -> Values:
    widths = np.repeat(rng.choice([0.4, 1.0, 2.5], count // 40 + 1), 40)[:count]
    return np.asarray(rng.standard_normal(count) * widths)


def _outliers(count: int, rng: Generator) -> Values:
    values = rng.standard_normal(count)
    values[rng.random(count) < 0.04] += rng.uniform(6, 20)
    return values


def _ramp(count: int, rng: Generator) -> Values:
    return np.asarray(rng.standard_normal(count) + rng.choice([-1.0, 1.0]) * np.linspace(-2, 2, count))


def _coarse(count: int, rng: Generator) -> Values:
    return ticked(rng.standard_normal(count))


NOISES: dict[str, Callable[[int, Generator], Values]] = {
    "normal": _normal,
    "skewed": _skewed,
    "two states": _two_states,
    "autocorrelated": _autocorrelated,
    "bursts": _bursts,
    "changing width": _changing_width,
    "outliers": _outliers,
    "ramp": _ramp,
    COARSE: _coarse,
}


def ticked(values: Values, phase: float = 0.0) -> Values:
    """As a coarse clock reads them, in widths of the noise."""
    return np.asarray(TICK * np.round((values + phase) / TICK) - phase)


def on_levels(kind: str, levels: Values, rng: Generator) -> Values:
    """Noise of a kind around levels, all in widths of it; a coarse clock reads both together."""
    if kind == COARSE:
        return ticked(levels + rng.standard_normal(len(levels)))
    return levels + NOISES[kind](len(levels), rng)


def planted_series(seed: int) -> Iterator[PlantedSeries]:
    """Of each kind and width of noise, one series for each size of step, and two without any."""
    rng = np.random.default_rng(seed)
    for kind in NOISES:
        for width in _NOISE_WIDTHS:
            for step in (*STEPS, 0.0, 0.0):
                count = int(rng.integers(110, 280))
                places = places_of_steps(count, int(rng.integers(1, 3)), rng) if step else ()
                levels = np.zeros(count)
                for place in places:
                    levels[place:] += math.log1p(step) / width * rng.choice([-1.0, 1.0])
                yield PlantedSeries(kind, 1_000.0 * np.exp(width * on_levels(kind, levels, rng)), places)


def places_of_steps(count: int, number: int, rng: Generator) -> tuple[int, ...]:
    """Of so many steps in so many values, apart from each other and from the ends."""
    while True:
        places = sorted(int(place) for place in rng.integers(_SHORTEST_LEVEL, count - _SHORTEST_LEVEL, number))
        if all(later - earlier >= _SHORTEST_LEVEL for earlier, later in pairwise(places)):
            return tuple(places)

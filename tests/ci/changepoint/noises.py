"""Nine kinds of noise, each with a robust width of about 1."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]
Generator = np.random.Generator


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
    return np.asarray(
        rng.standard_normal(count) + rng.choice([-1.0, 1.0]) * np.linspace(-2, 2, count)
    )


def _coarse(count: int, rng: Generator) -> Values:
    return np.asarray(2.0 * np.round(rng.standard_normal(count) / 2.0))


NOISES: dict[str, Callable[[int, Generator], Values]] = {
    "normal": _normal,
    "skewed": _skewed,
    "two states": _two_states,
    "autocorrelated": _autocorrelated,
    "bursts": _bursts,
    "changing width": _changing_width,
    "outliers": _outliers,
    "ramp": _ramp,
    "coarse clock": _coarse,
}

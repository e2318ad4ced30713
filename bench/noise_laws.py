"""The exact laws of the noise in `bench.detector_series`: what an oracle knows that a detector has to learn.

Each law is a chain of hidden states, of which each gives a value its density; normal noise has one state, a clock two.
Everything is in widths of the noise.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bench.detector_series import COARSE, TICK

Floats = NDArray[np.float64]

AUTOCORRELATION = 0.8
"""Of the kind `autocorrelated`."""
_BURST_LENGTHS = range(2, 7)
_BURST_RATE = 0.02
_BURST_HEIGHTS = np.arange(3.25, 10.0, 0.5)
_BURST_WIDTH = 0.8
_WIDTHS = np.array([0.4, 1.0, 2.5])
_STRETCH = 40
_LEAST = 1e-300


@dataclass(frozen=True)
class Law:
    """A hidden Markov chain and what its states say of a value."""

    initial: Floats
    """Shape [states]."""
    transition: Callable[[int], Floats]
    """Into the value at a position, shape [states, states]."""
    density: Callable[[Floats, Floats], Floats]
    """Of values given the ones before them, both as distances from their level: shape [..., states]."""


def log_likelihood(law: Law, distances: Floats) -> Floats:
    """Of several series under one law.

    Args:
        law: Of their noise.
        distances: Of the values from their level, shape [series, values].

    Returns:
        Shape [series].
    """
    density = law.density(distances, _behind(distances))
    if len(law.initial) == 1:
        return np.asarray(np.log(np.maximum(density[..., 0], _LEAST)).sum(axis=1))
    state = np.broadcast_to(law.initial, (len(distances), len(law.initial)))
    total = np.zeros(len(distances))
    for position in range(distances.shape[1]):
        state = (state @ law.transition(position) if position else state) * density[:, position]
        seen = np.maximum(state.sum(axis=1), _LEAST)
        total += np.log(seen)
        state = state / seen[:, None]
    return total


def evidence_of_steps(law: Law, before: Floats, after: Floats, window: int) -> Floats:
    """How much likelier each value and those ahead of it are if the level had stepped than if it had not.

    Args:
        law: Of the noise.
        before: Distances from the level before the step, shape [values].
        after: Likewise from the levels that it may have stepped to, shape [levels, values].
        window: How many positions of the step to keep in mind.

    Returns:
        Log likelihood ratio of the values up to each position with a step to each level so many values ago, shape
        [values, levels, window]: the first of the window is the value itself.
    """
    stays = law.density(before, _behind(before))  # [values, states]
    gone = law.density(after, _behind(after))  # [levels, values, states]
    goes = law.density(after, np.broadcast_to(_behind(before), after.shape))
    ratios = np.empty((len(before), len(after), window))
    state, ratio = law.initial, np.full((len(after), window), -np.inf)
    branches = np.zeros((len(after), window, len(state)))
    for position in range(len(before)):
        transition = law.transition(position)
        expected = state @ transition if position else state
        seen = max(float(expected @ stays[position]), _LEAST)
        branches = branches @ transition * gone[:, None, position]
        branches = np.concatenate([(expected * goes[:, position])[:, None], branches[:, :-1]], axis=1)
        seen_by = np.maximum(branches.sum(axis=-1), _LEAST)
        ratio = np.concatenate([np.zeros((len(after), 1)), ratio[:, :-1]], axis=1) + np.log(seen_by) - math.log(seen)
        branches = branches / seen_by[..., None]
        state = expected * stays[position] / seen
        ratios[position] = ratio
    return ratios


def _behind(distances: Floats) -> Floats:
    """The value before each; 0 before the first."""
    return np.concatenate([np.zeros_like(distances[..., :1]), distances[..., :-1]], axis=-1)


def law_of(kind: str) -> Law:
    """The law of a kind of noise.

    Raises:
        KeyError: There is none of this kind.
    """
    return _LAWS[kind]()


def _normal_density(values: Floats, width: float | Floats = 1.0) -> Floats:
    density: Floats = np.exp(-0.5 * (values / width) ** 2) / (math.sqrt(2 * math.pi) * width)
    return density


def _normal_mass(values: Floats) -> Floats:
    """Probability of a standard normal value below."""
    return np.asarray(np.vectorize(math.erfc)(-values / math.sqrt(2)) / 2)


def _alone(density: Callable[[Floats], Floats]) -> Law:
    """Independent values."""
    return Law(np.ones(1), lambda _: np.ones((1, 1)), lambda values, _: density(values)[..., None])


def _skewed_density(values: Floats) -> Floats:
    inside = np.maximum(1 + 0.83 * values, 1e-12)
    return np.where(inside > 1e-12, _normal_density(np.log(inside) / 0.9) * 0.83 / (0.9 * inside), 0.0)


def _outlier_density(values: Floats) -> Floats:
    """One in 25 lies between 6 and 20 widths higher."""
    spread = (_normal_mass(values - 6) - _normal_mass(values - 20)) / 14
    return 0.96 * _normal_density(values) + 0.04 * spread


def _autocorrelated() -> Law:
    innovation = math.sqrt(1 - AUTOCORRELATION**2)
    return Law(
        np.ones(1),
        lambda _: np.ones((1, 1)),
        lambda values, before: _normal_density(values - AUTOCORRELATION * before, innovation)[..., None],
    )


def _two_states() -> Law:
    transition = np.array([[0.96, 0.04], [0.2, 0.8]])
    levels = np.array([0.0, 2.5])
    return Law(transition[0], lambda _: transition, lambda values, _: _normal_density(values[..., None] - levels, 0.4))


def _changing_width() -> Law:
    stays, drawn = np.eye(len(_WIDTHS)), np.full((len(_WIDTHS), len(_WIDTHS)), 1 / len(_WIDTHS))
    return Law(
        np.full(len(_WIDTHS), 1 / len(_WIDTHS)),
        lambda position: drawn if position % _STRETCH == 0 else stays,
        lambda values, _: _normal_density(values[..., None], _WIDTHS),
    )


def _bursts() -> Law:
    """Values left of a burst and its height are the state; bursts on top of bursts are left out."""
    longest, heights = _BURST_LENGTHS[-1], len(_BURST_HEIGHTS)
    size = 1 + longest * heights
    begins = np.zeros(size)
    begins[0] = 1 - _BURST_RATE
    transition = np.zeros((size, size))
    for left in range(1, longest + 1):
        for height in range(heights):
            state = 1 + (left - 1) * heights + height
            if left in _BURST_LENGTHS:
                begins[state] = _BURST_RATE / len(_BURST_LENGTHS) / heights
            if left > 1:
                transition[state, state - heights] = 1.0
    transition[: 1 + heights] = begins
    shifts = np.concatenate([[0.0], np.tile(_BURST_HEIGHTS, longest)])
    return Law(
        begins, lambda _: transition, lambda values, _: _normal_density(values[..., None] - shifts, _BURST_WIDTH)
    )


_LAWS: dict[str, Callable[[], Law]] = {
    "normal": lambda: _alone(_normal_density),
    "skewed": lambda: _alone(_skewed_density),
    "two states": _two_states,
    "autocorrelated": _autocorrelated,
    "bursts": _bursts,
    "changing width": _changing_width,
    "outliers": lambda: _alone(_outlier_density),
    "ramp": lambda: _alone(_normal_density),  # who knows the ramp takes it off
    COARSE: lambda: _alone(lambda values: _normal_mass(values + TICK / 2) - _normal_mass(values - TICK / 2)),
}

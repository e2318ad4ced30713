"""Cutting a series into levels, against a brute-force search, and slopes next to steps."""

from itertools import pairwise

import numpy as np
import pytest

from roofwatch.ci.changepoint.levels import slope_with_steps
from roofwatch.ci.changepoint.noise import (
    bins_of,
    prior_noise,
)
from roofwatch.ci.changepoint.segmentation import (
    Segmenter,
)

PENALTY = 12.0


def cost_of(values: np.ndarray, starts: list[int]) -> float:
    """Least cost at these boundaries, each level one of the values."""
    noise = prior_noise(1.0)
    total = PENALTY * len(starts)
    for start, end in pairwise([0, *starts, len(values)]):
        costs = noise.costs[bins_of(values[start:end, None] - values)]
        total += float(costs.sum(axis=0).min())
    return total


def least_cost(values: np.ndarray) -> float:
    """By trying every set of up to three boundaries."""
    places = range(3, len(values) - 2)
    sets = [[], *([a] for a in places), *([a, b] for a in places for b in places if b > a)]
    sets += [[a, b, c] for a in places for b in places for c in places if c > b > a]
    return min(cost_of(values, starts) for starts in sets)


def test_the_cut_costs_no_more_than_the_best_of_all() -> None:
    for seed in range(25):
        rng = np.random.default_rng(seed)
        values = rng.standard_normal(11) + np.repeat(rng.normal(0, 5, size=3), [4, 3, 4])

        cut = Segmenter(values, None, 1.0).cut(prior_noise(1.0), PENALTY, np.zeros(11, dtype=bool))

        assert cut.cost == pytest.approx(cost_of(values, cut.starts))
        assert cut.cost == pytest.approx(least_cost(values))


# --- slope


PLACES = np.arange(5, 196, 5)


def drifting(seed: int, *, slope: float = 0.0, steps: dict[int, float] | None = None) -> np.ndarray:
    values = np.random.default_rng(seed).standard_normal(200) + slope * np.arange(200)
    for place, size in (steps or {}).items():
        values[place:] += size
    return values


@pytest.mark.parametrize("steps", [{}, {40: 6.0}, {60: 5.0, 140: -5.0}, {60: 3.0, 140: 3.0}])
def test_a_slope_is_found_next_to_steps(steps: dict[int, float]) -> None:
    found = [
        slope_with_steps(drifting(seed, slope=0.02, steps=steps), PLACES, 20.0)
        for seed in range(40)
    ]

    assert np.median([one.per_value for one in found]) == pytest.approx(0.02, rel=0.15)


def test_a_staircase_has_no_slope() -> None:
    steps = {50: 5.0, 100: 5.0, 150: 5.0}
    found = [slope_with_steps(drifting(seed, steps=steps), PLACES, 20.0) for seed in range(40)]

    assert sum(abs(one.standard_errors) < 3 for one in found) >= 36

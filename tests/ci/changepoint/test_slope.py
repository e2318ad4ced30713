"""A line beside steps: found for what it is, by the cheapest way to the same answer as the dear one."""

from __future__ import annotations

import numpy as np
import pytest

from roofwatch.ci.changepoint.slope import slope_beside_steps

GAIN = 20.0
"""In squared widths of the noise, which is 1."""


def stepped(seed: int, *, slope: float = 0.0, steps: dict[int, float] | None = None, count: int = 200) -> np.ndarray:
    values = np.random.default_rng(seed).standard_normal(count) + slope * np.arange(count)
    for place, size in (steps or {}).items():
        values[place:] += size
    return values


PLACES = np.arange(5, 196, 5)


@pytest.mark.parametrize("steps", [{}, {40: 6.0}, {160: -4.0}, {60: 5.0, 140: -5.0}, {60: 3.0, 140: 3.0}])
@pytest.mark.parametrize("slope", [0.02, -0.02])
def test_a_slope_is_found_whatever_steps_are_beside_it(slope: float, steps: dict[int, float]) -> None:
    found = [slope_beside_steps(stepped(seed, slope=slope, steps=steps), PLACES, GAIN) for seed in range(40)]

    assert np.median([one.per_value for one in found]) == pytest.approx(slope, rel=0.15)
    # 80 % within a width of the noise from end to end
    assert np.mean([abs(one.per_value - slope) * 200 < 1.5 for one in found]) >= 0.8


def test_a_staircase_without_a_slope_is_none() -> None:
    found = [slope_beside_steps(stepped(seed, steps={50: 5.0, 100: 5.0, 150: 5.0}), PLACES, GAIN) for seed in range(40)]

    assert sum(abs(one.standard_errors) < 3 for one in found) >= 36


def test_sweeping_gives_what_least_squares_give() -> None:
    values = stepped(1, slope=0.02, steps={60: 8.0, 140: -8.0})

    found = slope_beside_steps(values, np.array([60, 140]), GAIN)

    times = np.arange(200)
    design = np.stack([np.ones(200), times, times >= 60, times >= 140], axis=1).astype(float)
    fit, rest, *_ = np.linalg.lstsq(design, values, rcond=None)
    error = np.sqrt(rest[0] / 196 * np.linalg.inv(design.T @ design)[1, 1])
    assert found.per_value == pytest.approx(fit[1])
    assert found.standard_errors == pytest.approx(fit[1] / error)


@pytest.mark.parametrize("values", [np.zeros(40), np.full(40, 1e300), np.arange(40.0)])
def test_what_leaves_nothing_to_chance_never_raises(values: np.ndarray) -> None:
    assert np.isfinite(slope_beside_steps(values, np.arange(3, 38), 1.0).per_value)

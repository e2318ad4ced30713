"""How often noise alone shows a step: no more often than the p-value says."""

import numpy as np
import pytest
from numpy.typing import NDArray

from ci.detect import ChangePoint, find_change_points
from ci.series.chance import chances_of_steps


def noise(rng: np.random.Generator, count: int, *, degrees: float, correlation: float) -> NDArray[np.float64]:
    """Times of 1 ms in noise of 3 %, Student's t of so many degrees."""
    steps = rng.standard_t(degrees, count)
    values = steps.copy()
    for place in range(1, count):
        values[place] = correlation * values[place - 1] + np.sqrt(1 - correlation**2) * steps[place]
    return 1e6 * np.exp(0.03 * values)


@pytest.mark.parametrize(("degrees", "correlation"), [(1e6, 0.0), (3, 0.0), (5, 0.3), (5, 0.5)])
def test_a_series_of_noise_has_a_small_p_value_no_more_often_than_it_says(degrees: float, correlation: float) -> None:
    rng = np.random.default_rng(1)
    trials, level = 400, 0.01
    smallest = []
    for _ in range(trials):
        values = noise(rng, 60, degrees=degrees, correlation=correlation)
        steps = find_change_points(values, min_relative_change=0.05)
        smallest.append(min(chances_of_steps(values, steps), default=1.0))

    # three standard errors above what is promised
    assert sum(p <= level for p in smallest) <= trials * level + 3 * np.sqrt(trials * level)


@pytest.mark.parametrize(("count", "factor"), [(16, 1.4), (60, 1.15), (300, 1.08)])
def test_a_real_step_is_hardly_ever_noise(count: int, factor: float) -> None:
    values = noise(np.random.default_rng(2), count, degrees=1e6, correlation=0.0) ** (1 / 2)
    values[count // 2 :] *= factor

    (chance,) = chances_of_steps(values, find_change_points(values, min_relative_change=0.05))

    assert chance < 1e-4


def test_scaling_all_values_changes_nothing() -> None:
    values = noise(np.random.default_rng(3), 60, degrees=5, correlation=0.0)
    values[30:] *= 1.3
    steps = find_change_points(values)

    assert chances_of_steps(7 * values, steps) == pytest.approx(chances_of_steps(values, steps))


def test_a_step_between_too_few_values_proves_nothing() -> None:
    step = ChangePoint(
        index=1, before=1.0, after=9.0, count_before=1, count_after=1, standard_errors=99.0, candidates=(1,)
    )

    assert chances_of_steps([1.0, 9.0], [step]) == [1.0]


def test_values_without_any_noise_leave_no_doubt_of_a_step() -> None:
    values = [1.0] * 30 + [2.0] * 30

    (chance,) = chances_of_steps(values, find_change_points(values))

    assert chance < 1e-6

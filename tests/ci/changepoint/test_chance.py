"""P-values of steps and drifts."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from roofwatch.ci.changepoint.chance import chance_of_drift, chances_of_steps
from roofwatch.ci.changepoint.detect import find_change_points
from roofwatch.ci.changepoint.drift import Drift, find_drift
from roofwatch.ci.changepoint.student import critical_t


def noise(
    rng: np.random.Generator, count: int, *, degrees: float, correlation: float
) -> NDArray[np.float64]:
    """Times of 1 ms in noise of 3 %, Student's t of so many degrees."""
    steps = rng.standard_t(degrees, count)
    values = steps.copy()
    for place in range(1, count):
        values[place] = correlation * values[place - 1] + np.sqrt(1 - correlation**2) * steps[place]
    return 1e6 * np.exp(0.03 * values)


@pytest.mark.parametrize(("degrees", "correlation"), [(1e6, 0.0), (3, 0.0), (5, 0.3), (5, 0.5)])
def test_a_series_of_noise_has_a_small_p_value_no_more_often_than_it_says(
    degrees: float, correlation: float
) -> None:
    rng = np.random.default_rng(1)
    trials, level = 400, 0.01
    smallest = []
    for _ in range(trials):
        values = noise(rng, 60, degrees=degrees, correlation=correlation)
        steps = find_change_points(values, min_relative_change=0.05)
        smallest.append(min(chances_of_steps(values, steps), default=1.0))

    # three standard errors above the promised rate
    assert sum(p <= level for p in smallest) <= trials * level + 3 * np.sqrt(trials * level)


@pytest.mark.parametrize(("count", "factor"), [(16, 1.4), (60, 1.15), (300, 1.08)])
def test_a_real_step_has_a_small_p_value(count: int, factor: float) -> None:
    values = noise(np.random.default_rng(2), count, degrees=1e6, correlation=0.0) ** (1 / 2)
    values[count // 2 :] *= factor

    (chance,) = chances_of_steps(values, find_change_points(values, min_relative_change=0.05))

    assert chance < 1e-4


# --- drifts


@pytest.mark.parametrize("correlation", [0.0, 0.5])
def test_a_drift_in_noise_has_a_small_p_value_no_more_often_than_it_says(
    correlation: float,
) -> None:
    """For the best-fitting ramp, whether or not it would be reported."""
    rng = np.random.default_rng(4)
    trials, level, count = 400, 0.01, 60
    positions = np.arange(count, dtype=np.float64)
    smallest = []
    for _ in range(trials):
        values = noise(rng, count, degrees=5, correlation=correlation)
        drifts = []
        for start in range(0, count - 10, 5):
            times = np.clip(positions - start, 0, None)
            rate = np.expm1(np.polyfit(times, np.log(values), 1)[0])
            drifts.append(
                Drift(
                    start, rate, np.expm1(np.log1p(rate) * times[-1]), None, likelihood_ratio=99.0
                )
            )
        smallest.append(min(chance_of_drift(values, positions, drift) for drift in drifts))

    assert sum(p <= level for p in smallest) <= trials * level + 3 * np.sqrt(trials * level)


def test_a_real_drift_has_a_small_p_value_in_any_unit_of_time() -> None:
    days = np.arange(126.0)
    values = noise(np.random.default_rng(5), 126, degrees=1e6, correlation=0.0) ** (1 / 3)
    values *= np.exp(0.005 * np.clip(days / 7 - 8, 0, None))
    by_week, by_day = find_drift(values, days / 7), find_drift(values, days)
    assert by_week is not None
    assert by_day is not None

    chance = chance_of_drift(values, days / 7, by_week)

    assert chance < 1e-4
    assert chance == pytest.approx(chance_of_drift(values, days, by_day), rel=1e-3)


@pytest.mark.parametrize(
    ("degrees", "expected"),
    [(1, 12.7062), (2, 4.3027), (5, 2.5706), (10, 2.2281), (30, 2.0423)],
)
def test_the_critical_values_are_those_of_the_printed_table(degrees: int, expected: float) -> None:
    assert critical_t(degrees, 0.95) == pytest.approx(expected, abs=5e-5)

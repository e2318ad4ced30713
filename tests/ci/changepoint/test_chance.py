"""How often noise alone shows a step: no more often than the p-value says."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from roofwatch.ci.changepoint.chance import chance_of_drift, chances_of_steps
from roofwatch.ci.changepoint.detect import ChangePoint, find_change_points
from roofwatch.ci.changepoint.drift import Drift, find_drift


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


# --- drifts


@pytest.mark.parametrize("correlation", [0.0, 0.5])
def test_a_drift_in_noise_has_a_small_p_value_no_more_often_than_it_says(correlation: float) -> None:
    """The ramp that fits best is asked about, whether or not it would be told."""
    rng = np.random.default_rng(4)
    trials, level, count = 400, 0.01, 60
    positions = np.arange(count, dtype=np.float64)
    smallest = []
    for _ in range(trials):
        values = noise(rng, count, degrees=5, correlation=correlation)
        drifts = []
        for start in range(0, count - 10, 5):
            bent = np.clip(positions - start, 0, None)
            rate = np.expm1(np.polyfit(bent, np.log(values), 1)[0])
            drifts.append(Drift(start, rate, np.expm1(np.log1p(rate) * bent[-1]), None, likelihood_ratio=99.0))
        smallest.append(min(chance_of_drift(values, positions, drift) for drift in drifts))

    assert sum(p <= level for p in smallest) <= trials * level + 3 * np.sqrt(trials * level)


def test_half_a_percent_a_week_is_hardly_ever_noise_whatever_the_unit_of_time() -> None:
    days = np.arange(126.0)
    values = noise(np.random.default_rng(5), 126, degrees=1e6, correlation=0.0) ** (1 / 3)
    values *= np.exp(0.005 * np.clip(days / 7 - 8, 0, None))
    by_week, by_day = find_drift(values, days / 7), find_drift(values, days)
    assert by_week is not None
    assert by_day is not None

    chance = chance_of_drift(values, days / 7, by_week)

    assert chance < 1e-4
    assert chance == pytest.approx(chance_of_drift(values, days, by_day), rel=1e-3)


def test_a_drift_of_values_without_any_noise_leaves_no_doubt_and_one_of_too_few_proves_nothing() -> None:
    drift = Drift(start=20, rate=0.01, relative_change=1.01**29 - 1, end=None, likelihood_ratio=99.0)
    exact = 1.01 ** np.clip(np.arange(50.0) - 20, 0, None)

    assert chance_of_drift(exact, np.arange(50.0), drift) < 1e-6
    assert chance_of_drift([1.0, 2.0], [0.0, 1.0], replace(drift, start=0)) == 1.0

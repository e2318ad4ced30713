"""The detector in each kind of noise, at the rates of docs/explanation/error-rates.md."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from roofwatch.ci.changepoint.detect import find_change_points, noise_floor
from tests.ci.changepoint.noises import NOISES

Values = NDArray[np.float64]

anything = st.lists(
    st.one_of(
        st.floats(),
        st.integers(-(10**6), 10**6),
        st.sampled_from([0.0, -0.0, 1.0, math.nan, math.inf]),
    ),
    max_size=60,
)


def noisy(
    seed: int,
    *,
    count: int = 40,
    noise: float = 0.02,
    steps: dict[int, float] | None = None,
    outlier_share: float = 0.0,
    kind: str = "normal",
) -> Values:
    """Times around 1,000 ns; `steps` says by which factor the level changes at an index."""
    rng = np.random.default_rng(seed)
    logs = noise * NOISES[kind](count, rng)
    logs[rng.random(count) < outlier_share] += math.log(1.5)
    for index, factor in (steps or {}).items():
        logs[index:] += math.log(factor)
    return np.asarray(1_000.0 * np.exp(logs))


def indices(values: Values | list[float]) -> list[int]:
    return [change.index for change in find_change_points(values)]


# --- what is planted is found


def test_a_step_has_both_levels_with_its_standard_errors() -> None:
    values = noisy(1, steps={15: 1.5}, count=30)

    (change,) = find_change_points(values)

    assert change.index == 15
    assert change.before == pytest.approx(np.median(values[:15]))
    assert change.after == pytest.approx(np.median(values[15:]))
    assert (change.count_before, change.count_after) == (15, 15)
    assert change.standard_errors > 20
    assert change.candidates == (15,)


@pytest.mark.parametrize("index", [3, 8, 13])
@pytest.mark.parametrize("factor", [1.4, 1 / 1.4])
@pytest.mark.parametrize(
    ("noise", "outlier_share", "expected_share"),
    [(0.03, 0.0, 0.98), (0.05, 0.0, 0.95), (0.03, 0.05, 0.85), (0.10, 0.0, 0.55)],
)
def test_a_big_step_in_a_short_history_is_found(
    index: int, factor: float, noise: float, outlier_share: float, expected_share: float
) -> None:
    seeds = range(200)
    found = 0
    for seed in seeds:
        values = noisy(
            seed, count=16, noise=noise, outlier_share=outlier_share, steps={index: factor}
        )
        found += any(abs(where - index) <= 1 for where in indices(values))

    assert found / len(seeds) >= expected_share


# --- what is quiet stays quiet


@pytest.mark.parametrize(
    ("kind", "outlier_share"), [("normal", 0.0), ("normal", 0.05), ("skewed", 0.0)]
)
@pytest.mark.parametrize(("count", "budget"), [(16, 0.035), (40, 0.03), (200, 0.02)])
def test_pure_noise_stays_within_its_false_alarm_budget(
    kind: str, outlier_share: float, count: int, budget: float
) -> None:
    seeds = range(300)
    alarms = sum(
        bool(indices(noisy(seed, count=count, noise=0.05, kind=kind, outlier_share=outlier_share)))
        for seed in seeds
    )

    assert alarms / len(seeds) <= budget


# --- properties


@given(values=anything)
def test_no_series_is_refused(values: list[float]) -> None:
    for change in find_change_points(values):
        assert 0 < change.index < len(values)
        assert math.isfinite(change.before)
        assert math.isfinite(change.after)
        assert change.index in change.candidates


def test_values_around_zero_are_judged_on_their_own_scale() -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(0, 1, size=40)
    assert indices(values) == []

    values[20:] += 10
    assert indices(values) == [20]


# --- how certain each value is


def test_a_value_that_is_known_to_be_uncertain_weighs_less() -> None:
    values = noisy(0, count=40, noise=0.01)
    values[30:34] *= 1.2
    errors = np.full(40, 0.002)

    assert indices(values[:34]) == [30]

    errors[30:34] = 0.3
    assert find_change_points(values[:34], relative_errors=errors[:34]) == []


# --- what a series can show


def test_a_step_as_large_as_the_minimum_detectable_change_is_found_in_nine_of_ten_series() -> None:
    smallest = noise_floor(noisy(7, count=60, noise=0.02), count=30, min_relative_change=0.001)
    found = 0
    for seed in range(100):
        series = noisy(
            seed, count=60, noise=0.02, steps={30: 1 + smallest.minimum_detectable_change}
        )
        found += bool(find_change_points(series, min_relative_change=0.001))

    assert found >= 86


# --- longer series, whose noise is learnt


SERIES = 24
COUNT = 180


def indices_of(values: np.ndarray) -> list[int]:
    return [change.index for change in find_change_points(values, min_relative_change=0.005)]


def series(kind: str, seed: int, *, factor: float = 1.0, at: int = 90) -> np.ndarray:
    logs = 0.01 * NOISES[kind](COUNT, np.random.default_rng(seed))
    logs[at:] += math.log(factor)
    return np.asarray(1_000 * np.exp(logs))


@pytest.mark.parametrize("kind", NOISES)
def test_noise_of_every_kind_stays_quiet(kind: str) -> None:
    alarms = sum(len(indices_of(series(kind, seed))) for seed in range(SERIES))

    assert 1000 * alarms / (SERIES * COUNT) <= 2.5


@pytest.mark.parametrize("kind", NOISES)
def test_a_step_of_six_noise_widths_is_found_in_every_kind(kind: str) -> None:
    found = [indices_of(series(kind, seed, factor=1.06)) for seed in range(SERIES)]

    assert sum(any(abs(place - 90) <= 5 for place in places) for places in found) >= 0.9 * SERIES


@pytest.mark.parametrize("length", [5, 8])
def test_a_burst_is_no_level(length: int) -> None:
    for seed in range(SERIES):
        values = series("normal", seed)
        values[100 : 100 + length] *= 1.3
        assert indices_of(values) == [], f"seed {seed}"


@pytest.mark.parametrize("after", [4, 6, 9, 11])
def test_a_step_between_two_exact_values_is_found_however_long_either_stays(after: int) -> None:
    values = np.repeat([100.0, 130.0], [86, after])

    assert indices_of(values) == [86]
    assert indices_of(values[::-1]) == [after]


def test_a_ramp_has_no_steps() -> None:
    ramps = [series("ramp", seed) for seed in range(SERIES)]
    assert sum(indices_of(values) == [] for values in ramps) >= 0.9 * SERIES


def test_a_ramp_hides_no_step() -> None:
    stepped = [series("ramp", seed, factor=1.1) for seed in range(SERIES)]
    assert (
        sum(len(found := indices_of(values)) == 1 and abs(found[0] - 90) <= 2 for values in stepped)
        >= 0.85 * SERIES
    )

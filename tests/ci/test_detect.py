import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from roofwatch.ci.changepoint.detect import ChangePoint, find_change_points, noise_floor

Values = NDArray[np.float64]

anything = st.lists(
    st.one_of(st.floats(), st.integers(-(10**6), 10**6), st.sampled_from([0.0, -0.0, 1.0, math.nan, math.inf])),
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
    logs = {
        "normal": lambda: rng.standard_normal(count),
        "heavy tails": lambda: rng.standard_t(3, count) / 1.2,
        "skewed": lambda: (np.exp(0.9 * rng.standard_normal(count)) - 1) / 0.83,
    }[kind]() * noise
    logs[rng.random(count) < outlier_share] += math.log(1.5)
    for index, factor in (steps or {}).items():
        logs[index:] += math.log(factor)
    return np.asarray(1_000.0 * np.exp(logs))


def indices(values: Values | list[float]) -> list[int]:
    return [change.index for change in find_change_points(values)]


# --- what is planted is found


@pytest.mark.parametrize("factor", [1.10, 1 / 1.10])
def test_a_ten_percent_step_in_two_percent_noise_is_found_where_it_is(factor: float) -> None:
    seeds = range(200)

    near = [seed for seed in seeds if [i for i in indices(noisy(seed, steps={20: factor})) if abs(i - 20) <= 1]]

    assert len(near) / len(seeds) >= 0.98


def test_a_step_tells_both_levels_and_how_sure_it_is() -> None:
    values = noisy(1, steps={15: 1.5}, count=30)

    (change,) = find_change_points(values)

    assert change.index == 15
    assert change.before == pytest.approx(np.median(values[:15]))
    assert change.after == pytest.approx(np.median(values[15:]))
    assert (change.count_before, change.count_after) == (15, 15)
    assert change.standard_errors > 20
    assert change.candidates == (15,)


def test_several_steps_are_told_in_order() -> None:
    assert indices(noisy(4, count=60, steps={15: 1.3, 30: 0.8, 45: 1.2})) == [15, 30, 45]


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
        values = noisy(seed, count=16, noise=noise, outlier_share=outlier_share, steps={index: factor})
        found += any(abs(where - index) <= 1 for where in indices(values))

    assert found / len(seeds) >= expected_share


def test_the_true_position_is_among_the_candidates() -> None:
    missed = 0
    for seed in range(200):
        found = find_change_points(noisy(seed, count=16, noise=0.05, steps={8: 1.4}))
        missed += not any(8 in change.candidates for change in found)

    assert missed <= 8


def test_a_step_of_an_equal_percentage_is_found_at_every_level() -> None:
    up = noisy(2, steps={20: 1.2})

    for level in (1e-9, 1.0, 1e9):
        assert indices(up * level) == [20]


# --- what is quiet stays quiet


@pytest.mark.parametrize(
    ("kind", "outlier_share"), [("normal", 0.0), ("normal", 0.05), ("heavy tails", 0.0), ("skewed", 0.0)]
)
@pytest.mark.parametrize(("count", "budget"), [(16, 0.035), (40, 0.03), (200, 0.02)])
def test_pure_noise_stays_within_its_false_alarm_budget(
    kind: str, outlier_share: float, count: int, budget: float
) -> None:
    seeds = range(300)
    alarms = sum(
        bool(indices(noisy(seed, count=count, noise=0.05, kind=kind, outlier_share=outlier_share))) for seed in seeds
    )

    assert alarms / len(seeds) <= budget


def test_noise_that_hangs_together_is_not_taken_for_steps_in_a_long_series() -> None:
    alarms = 0
    for seed in range(100):
        rng = np.random.default_rng(seed)
        logs = rng.standard_normal(200)
        for i in range(1, len(logs)):
            logs[i] += 0.5 * logs[i - 1]
        alarms += bool(indices(np.exp(0.02 * logs)))

    assert alarms <= 10


def test_a_step_below_the_practical_threshold_is_not_told() -> None:
    values = noisy(3, noise=0.0005, steps={20: 1.02})

    assert indices(values) == []
    assert [change.index for change in find_change_points(values, min_relative_change=0.01)] == [20]


@pytest.mark.parametrize("place", [0, 5, 12, 15])
@pytest.mark.parametrize("factor", [0.01, 0.7, 1.5, 100.0])
def test_a_single_outlier_in_a_quiet_series_is_no_step(place: int, factor: float) -> None:
    for seed in range(30):
        values = noisy(seed, count=16, noise=0.005)
        values[place] *= factor
        assert indices(values) == [], f"seed {seed}"


@given(
    seed=st.integers(0, 10_000),
    place=st.one_of(st.integers(0, 12), st.integers(17, 29)),
    factor=st.one_of(st.floats(0.01, 0.7), st.floats(1.5, 100)),
)
def test_a_single_outlier_moves_no_step(seed: int, place: int, factor: float) -> None:
    values = noisy(seed, count=30, noise=0.005, steps={15: 1.3})
    values[place] *= factor

    assert indices(values) == [15]


def test_in_wide_noise_too_an_outlier_hardly_ever_changes_what_is_found() -> None:
    changed = 0
    for seed in range(300):
        values = noisy(seed, count=16, noise=0.05)
        found = indices(values)
        values[seed % 16] *= 1.5
        changed += indices(values) != found

    assert changed <= 9


# --- properties


@given(values=anything)
def test_no_series_is_refused(values: list[float]) -> None:
    for change in find_change_points(values):
        assert 0 < change.index < len(values)
        assert math.isfinite(change.before)
        assert math.isfinite(change.after)
        assert change.index in change.candidates


@given(value=st.floats(allow_nan=False, allow_infinity=False), count=st.integers(0, 100))
def test_a_constant_series_has_no_step(value: float, count: int) -> None:
    assert find_change_points([value] * count) == []


@given(values=st.lists(st.floats(), max_size=5))
def test_fewer_than_two_shortest_levels_have_no_step(values: list[float]) -> None:
    assert find_change_points(values) == []


@given(gaps=st.sets(st.integers(0, 49), max_size=15), seed=st.integers(0, 20))
def test_gaps_keep_their_positions(gaps: set[int], seed: int) -> None:
    values = noisy(seed, count=50, noise=0.005, steps={25: 1.5})
    values[sorted(gaps)] = math.nan
    expected = next(i for i in range(25, 50) if i not in gaps)

    assert indices(values) == [expected]


@pytest.mark.parametrize("factor", [1e-6, 0.1, 3.0, 1e9])
def test_scaling_all_values_changes_nothing(factor: float) -> None:
    for seed in range(50):
        values = noisy(seed, steps={20: 1.08}, outlier_share=0.05)
        assert indices(values * factor) == indices(values)


def test_reversing_a_series_mirrors_its_steps() -> None:
    for seed in range(200):
        values = noisy(seed, count=30, noise=0.03, steps={12: 1.15, 21: 0.9}, outlier_share=0.05)
        assert_mirrored(find_change_points(values), find_change_points(values[::-1]), len(values))


@given(
    before=st.lists(st.integers(95, 110), min_size=3, max_size=15),
    after=st.lists(st.integers(105, 130), min_size=3, max_size=15),
)
def test_reversing_a_series_full_of_ties_mirrors_its_steps(before: list[int], after: list[int]) -> None:
    values = [*before, *after]

    assert_mirrored(find_change_points(values), find_change_points(values[::-1]), len(values))


def assert_mirrored(there: list[ChangePoint], back: list[ChangePoint], count: int) -> None:
    assert [count - change.index for change in reversed(back)] == [change.index for change in there]
    assert [change.before for change in reversed(back)] == [change.after for change in there]


def test_turning_rises_into_falls_moves_no_step() -> None:
    for seed in range(100):
        values = noisy(seed, count=30, noise=0.03, steps={12: 1.2, 21: 0.85})
        assert indices(1e6 / values) == indices(values)


@given(values=st.lists(st.sampled_from([0.0, 1.0]), min_size=6, max_size=30))
def test_zeros_and_ones_give_steps_only_between_unequal_levels(values: list[float]) -> None:
    for change in find_change_points(values):
        assert change.before != change.after


def test_values_at_and_below_zero_are_judged_on_their_own_scale() -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(0, 1, size=40)
    assert indices(values) == []

    values[20:] += 10
    assert indices(values) == [20]


def test_whole_numbers_that_never_move_but_once_are_two_levels() -> None:
    assert indices([32.0] * 6 + [40.0] * 6) == [6]
    assert indices([0.0] * 6 + [48.0] * 6) == [6]


# --- how certain each value is


def test_a_value_that_is_known_to_be_uncertain_weighs_less() -> None:
    values = noisy(0, count=40, noise=0.01)
    values[30:34] *= 1.2
    errors = np.full(40, 0.002)

    assert indices(values[:34]) == [30]

    errors[30:34] = 0.3
    assert find_change_points(values[:34], relative_errors=errors[:34]) == []


def test_equal_uncertainty_of_all_values_changes_nothing() -> None:
    for seed in range(30):
        values = noisy(seed, steps={20: 1.08})
        weighed = find_change_points(values, relative_errors=np.full(40, 0.01))
        assert [change.index for change in weighed] == indices(values)


def test_errors_that_nobody_knows_change_nothing() -> None:
    values = noisy(1, steps={20: 1.2})

    assert find_change_points(values, relative_errors=[math.nan] * 40) == find_change_points(values)


# --- what a series can show


@pytest.mark.parametrize("width", [0.01, 0.03])
def test_the_noise_floor_of_a_series_is_its_noise_whatever_steps_it_has(width: float) -> None:
    floor = noise_floor(noisy(5, count=200, noise=width, steps={80: 1.3}))

    assert floor.deviation == pytest.approx(width, rel=0.2)


def test_a_step_as_large_as_the_minimum_detectable_change_is_found_in_nine_of_ten_series() -> None:
    smallest = noise_floor(noisy(7, count=60, noise=0.02), count=30, min_relative_change=0.001)
    found = 0
    for seed in range(100):
        series = noisy(seed, count=60, noise=0.02, steps={30: 1 + smallest.minimum_detectable_change})
        found += bool(find_change_points(series, min_relative_change=0.001))

    assert found >= 86


def test_a_series_at_zero_has_no_relative_noise_floor() -> None:
    with pytest.raises(ValueError, match="2 or more above 0"):
        noise_floor([0.0, 1.0, 2.0])


# --- bad arguments


@pytest.mark.parametrize("change", [0.0, -0.1, math.nan])
def test_a_smallest_change_that_is_no_fraction_is_refused(change: float) -> None:
    with pytest.raises(ValueError, match="fraction above 0"):
        find_change_points([1.0] * 10, min_relative_change=change)


def test_levels_of_one_value_are_refused() -> None:
    with pytest.raises(ValueError, match="2 or more"):
        find_change_points([1.0] * 10, min_segment=1)


def test_errors_of_another_number_than_the_values_are_refused() -> None:
    with pytest.raises(ValueError, match="3 errors of 10 values"):
        find_change_points([1.0] * 10, relative_errors=[0.1] * 3)

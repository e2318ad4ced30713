"""What the detector does in each kind of noise, at the rates that docs/explanation/verdicts.md states."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.detector_series import NOISES
from roofwatch.ci.changepoint.detect import find_change_points

SERIES = 24
COUNT = 180


def indices(values: np.ndarray, smallest: float = 0.005) -> list[int]:
    return [change.index for change in find_change_points(values, min_relative_change=smallest)]


def series(kind: str, seed: int, *, width: float = 0.01, factor: float = 1.0, at: int = 90) -> np.ndarray:
    logs = width * NOISES[kind](COUNT, np.random.default_rng(seed))
    logs[at:] += math.log(factor)
    return np.asarray(1_000 * np.exp(logs))


@pytest.mark.parametrize("kind", NOISES)
def test_noise_of_every_kind_stays_quiet(kind: str) -> None:
    alarms = sum(len(indices(series(kind, seed))) for seed in range(SERIES))

    assert 1000 * alarms / (SERIES * COUNT) <= 2.5


@pytest.mark.parametrize("kind", NOISES)
def test_a_step_of_six_noise_widths_is_found_in_every_kind(kind: str) -> None:
    found = [indices(series(kind, seed, factor=1.06)) for seed in range(SERIES)]

    assert sum(any(abs(place - 90) <= 5 for place in places) for places in found) >= 0.9 * SERIES


@pytest.mark.parametrize("length", [5, 8])
def test_a_spell_that_ends_is_no_level_in_a_long_series(length: int) -> None:
    for seed in range(SERIES):
        values = series("normal", seed)
        values[100 : 100 + length] *= 1.3
        assert indices(values) == [], f"seed {seed}"


def test_a_level_that_lasts_is_told_though_it_ends() -> None:
    for seed in range(SERIES):
        values = series("normal", seed)
        values[100:125] *= 1.3
        assert indices(values) == [100, 125], f"seed {seed}"


@pytest.mark.parametrize("after", [4, 6, 9, 11])
def test_a_step_between_two_exact_values_is_found_however_long_either_stays(after: int) -> None:
    values = np.repeat([100.0, 130.0], [86, after])

    assert indices(values) == [86]
    assert indices(values[::-1]) == [after]


def test_what_lies_between_levels_of_one_exact_value_each_is_no_tick_of_a_clock() -> None:
    assert indices(np.repeat([100.0, 200.0, 400.0, 424.0], [8, 35, 30, 30])) == [8, 43, 73]


def test_a_ramp_is_no_staircase_and_hides_no_step() -> None:
    ramps = [series("ramp", seed) for seed in range(SERIES)]
    assert sum(indices(values) == [] for values in ramps) >= 0.9 * SERIES

    stepped = [series("ramp", seed, factor=1.1) for seed in range(SERIES)]
    assert sum(len(found := indices(values)) == 1 and abs(found[0] - 90) <= 2 for values in stepped) >= 0.85 * SERIES


# --- properties, on series long enough for the noise to be learnt


@given(seed=st.integers(0, 10_000), scale=st.integers(-40, 40), kind=st.sampled_from(sorted(NOISES)))
def test_scaling_all_values_changes_nothing(seed: int, scale: int, kind: str) -> None:
    values = series(kind, seed, factor=1.05)

    assert indices(values * 2.0**scale) == indices(values)


@pytest.mark.parametrize("kind", ["normal", "skewed", "autocorrelated"])
def test_reversing_a_series_mirrors_its_steps(kind: str) -> None:
    other = 0
    for seed in range(60):
        values = series(kind, seed, factor=1.1)
        other += [COUNT - place for place in reversed(indices(values[::-1]))] != indices(values)

    # where two explanations are as likely to the last digit, either may be told
    assert other <= 1


def test_an_outlier_moves_nothing() -> None:
    moved = 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        values = series("normal", seed, factor=1.1)
        before = indices(values)
        place = int(rng.integers(COUNT))
        values[place] *= rng.choice([0.01, 0.6, 1.5, 100.0])
        after = indices(values)
        # an outlier right at the step may belong to either level
        tolerated = [1 if abs(place - step) <= 2 else 0 for step in before]
        moved += len(after) != len(before) or any(
            abs(new - old) > most for new, old, most in zip(after, before, tolerated, strict=True)
        )

    assert moved <= 1


@given(
    value=st.floats(1e-6, 1e6),
    gaps=st.sets(st.integers(0, 79), max_size=40),
    count=st.integers(0, 80),
)
def test_a_constant_series_with_gaps_is_never_accused(value: float, gaps: set[int], count: int) -> None:
    values = np.full(80, value)
    values[sorted(gaps)] = math.nan

    assert indices(values[:count]) == []


@given(values=st.lists(st.integers(-3, 3), min_size=40, max_size=120))
def test_ties_zeros_and_negative_values_never_raise(values: list[int]) -> None:
    for place in indices(np.array(values, dtype=float)):
        assert 0 < place < len(values)

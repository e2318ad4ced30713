"""What becomes of results' errors over a history."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofwatch.ci.history.history import judge_history
from roofwatch.ci.history.value_steps import find_value_steps
from roofwatch.ci.thresholds import Thresholds
from roofwatch.db.values import Regression, Series, Verdict
from tests.builders import make_series_key
from tests.ci.values import make_series, make_static_series, only

LIMITS = Thresholds()
KEY = make_series_key("rmse_ratio")


def errors(*values: float) -> Series:
    return make_series(values, "rmse_ratio", tensor="out")


def noisy(level: float, count: int, seed: int = 0) -> list[float]:
    return [float(value) for value in level * np.exp(np.random.default_rng(seed).normal(0, 0.1, count))]


def told(series: Series) -> Regression:
    return only(judge_history([series]))


def test_a_result_that_became_less_accurate_is_a_regression_although_it_still_passes() -> None:
    found = told(errors(*[1e-7] * 8, *[4e-7] * 5))

    assert found.verdict is Verdict.REGRESSED
    assert found.change_points[0].commit.first_parent_count == 9
    assert "error (RMSE / RMS) 1.00e-07 to 4.00e-07 (+300.0%)" in found.summary
    assert found.is_confirmed
    assert found.is_alert


def test_a_result_that_became_more_accurate_is_an_improvement() -> None:
    assert told(errors(*[4e-7] * 8, *[1e-7] * 5)).verdict is Verdict.IMPROVED


def test_the_loss_of_exactness_is_told() -> None:
    found = told(errors(*[0.0] * 8, *[1e-9] * 5))

    assert found.verdict is Verdict.REGRESSED
    assert (found.change_points[0].before, found.change_points[0].after) == (0.0, 1e-9)


def test_errors_that_vary_from_run_to_run_make_a_suspicion_that_calls_nobody() -> None:
    found = told(errors(*noisy(1e-7, 20), *noisy(3e-7, 20, seed=1)))

    assert not found.is_confirmed
    assert not found.is_alert
    assert found.change_points[0].commit.first_parent_count == 21


@pytest.mark.parametrize(
    "values",
    [
        [1e-7] * 20,
        [0.0] * 20,
        [1e-7, 1.4e-7] * 10,
        [*[1e-7] * 10, *[1.4e-7] * 10],
        [*[1e-7] * 10, 1e-5, 1e-5, *[1e-7] * 10],
        [1e-7],
        [],
        [*[4e-8] * 10, *[9e-8] * 10],
    ],
    ids=[
        "equal",
        "exact",
        "two in turn",
        "by less than half",
        "two that differ",
        "one",
        "none",
        "within the spacing of float32",
    ],
)
def test_what_did_not_get_worse_by_half_for_three_commits_is_not_told(values: list[float]) -> None:
    assert judge_history([errors(*values)]) == []


@pytest.mark.parametrize("count", [3, 8, 86, 300])
@pytest.mark.parametrize("factor", [4.0, 0.25])
def test_an_error_that_is_three_times_another_number_is_told_however_long_one_stood(count: int, factor: float) -> None:
    values = np.repeat([1e-5, 1e-5 * factor], [count, 3])

    (step,) = find_value_steps(KEY, values, LIMITS)

    assert (step.index, step.count_before, step.count_after) == (count, count, 3)
    assert (step.before, step.after) == (1e-5, 1e-5 * factor)
    assert find_value_steps(KEY, values[:-1], LIMITS) == [], "two are too few"
    assert told(errors(*values)).is_confirmed


def test_a_second_move_between_numbers_ends_the_level_before_it() -> None:
    steps = find_value_steps(KEY, np.repeat([1e-7, 4e-7, 9e-7], [200, 30, 3]), LIMITS)

    assert [(step.index, step.count_before, step.count_after) for step in steps] == [(200, 200, 30), (230, 30, 3)]


@pytest.mark.parametrize(
    "values",
    [
        np.repeat([1e-7, 4e-7, 1e-7, 4e-7], [100, 2, 200, 3]),
        np.repeat([1e-7, 1.1e-7, 1e-7, 4e-7], [150, 1, 150, 3]),
        [*[1e-7] * 300, 4e-7, 4.1e-7, 4e-7],
        np.repeat([1e-7, 1.4e-7], [300, 3]),
    ],
    ids=["it was there before", "an old level of two numbers", "a new one of two", "by less than half"],
)
def test_what_varied_or_was_there_before_waits_as_noise_does(values: list[float]) -> None:
    assert find_value_steps(KEY, values, LIMITS) == []


@given(st.lists(st.sampled_from([0.0, 1e-7, 1.1e-7, 1e300, 1e-300]), max_size=40))
def test_no_history_of_errors_is_refused(values: list[float]) -> None:
    found = judge_history([errors(*values)])

    assert not found or len(set(values)) > 1


def test_pure_noise_is_told_in_fewer_than_one_series_in_fifty() -> None:
    rng = np.random.default_rng(0)
    histories = (1e-7 * np.exp(rng.normal(0, 0.3, 60)) for _ in range(150))

    assert sum(bool(find_value_steps(KEY, history, LIMITS)) for history in histories) <= 3


def test_a_result_that_is_accurate_again_has_recovered() -> None:
    worse, better = judge_history([errors(*[1e-7] * 8, *[4e-7] * 8, *[1.2e-7] * 8)])

    assert (worse.verdict, better.verdict) == (Verdict.REGRESSED, Verdict.IMPROVED)
    assert worse.recovered_at == better.commit


def test_machine_code_that_stayed_is_not_what_made_a_result_worse() -> None:
    accuracy = make_series([*[1e-7] * 8, *[4e-7] * 8], "rmse_ratio", tensor="out", implementation="triton")
    code = make_static_series("registers", [32.0] * 16, "a" * 16)

    found = only(judge_history([accuracy, code]))

    assert "code" not in {str(suspect.cause) for suspect in found.suspects}

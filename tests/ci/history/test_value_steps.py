"""What becomes of results' errors over a history."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from roofwatch.ci.history.history import judge_history, unconfirmed
from roofwatch.ci.history.steps import find_value_steps
from roofwatch.ci.thresholds import Thresholds
from roofwatch.db.values import Cause, Regression, RunSetting, Series, Verdict
from tests.builders import make_series_key
from tests.ci.values import SOFTMAX, make_series, make_static_series, only, stepped

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


def test_pure_noise_is_told_in_fewer_than_one_series_in_fifty() -> None:
    rng = np.random.default_rng(0)
    histories = (1e-7 * np.exp(rng.normal(0, 0.3, 60)) for _ in range(150))

    assert sum(bool(find_value_steps(KEY, history, LIMITS)) for history in histories) <= 3


def test_machine_code_that_stayed_is_not_what_made_a_result_worse() -> None:
    accuracy = make_series([*[1e-7] * 8, *[4e-7] * 8], "rmse_ratio", tensor="out", implementation="triton")
    code = make_static_series("registers", [32.0] * 16, "a" * 16)

    found = only(judge_history([accuracy, code]))

    assert "code" not in {str(suspect.cause) for suspect in found.suspects}


MIB = 2**20
LIMITS = Thresholds()
HOST, MEMORY = "host_ns", "peak_allocated_bytes"


def host_times(*, factor: float = 1.0, count: int = 40, at: int = 20, seed: int = 0) -> list[float]:
    return stepped(count=count, at=at, factor=factor, noise=0.04, seed=seed, level_ns=5_000.0)


def test_memory_that_a_launch_takes_more_of_is_sure_and_calls_somebody() -> None:
    found = only(judge_history([make_series([4 * MIB] * 8 + [6 * MIB] * 4, MEMORY)]))

    assert (found.verdict, found.is_confirmed, found.is_alert) == (Verdict.REGRESSED, True, True)
    assert found.commit.first_parent_count == 9
    assert "peak allocated memory 4 MiB to 6 MiB (+50.0%)" in found.summary
    assert found.cause is Cause.CODE


def test_memory_that_is_freed_again_is_an_improvement_and_undoes_the_regression() -> None:
    worse, better = sorted(
        judge_history([make_series([4 * MIB] * 8 + [6 * MIB] * 8 + [4 * MIB] * 8, MEMORY)]), key=lambda one: one.commit
    )

    assert (worse.verdict, better.verdict) == (Verdict.REGRESSED, Verdict.IMPROVED)
    assert worse.recovered_at == better.commit


@pytest.mark.parametrize(
    "values",
    [[4 * MIB] * 20, [0] * 20, [0] * 10 + [512] * 10, [100 * MIB] * 10 + [104 * MIB] * 10, [4 * MIB], []],
    ids=["equal", "none", "the smallest block", "by less than a twentieth", "one run", "no run"],
)
def test_memory_that_tells_nothing(values: Sequence[float]) -> None:
    assert judge_history([make_series(values, MEMORY)]) == []


def test_memory_that_another_torch_counts_accuses_the_toolchain() -> None:
    def compiled_by(version: str, series: Series) -> Series:
        setting = RunSetting("1", toolchain=(("torch", version),))
        return replace(series, points=tuple(replace(point, setting=setting) for point in series.points))

    old, new = make_series([4 * MIB] * 8, MEMORY), make_series([4 * MIB] * 8 + [6 * MIB] * 8, MEMORY)
    points = compiled_by("2.13", old).points + compiled_by("2.14", new).points[8:]

    found = only(judge_history([Series(old.key, points)]))

    assert found.cause is Cause.TOOLCHAIN
    assert "torch 2.13 → 2.14" in found.suspects[0].sentence


def test_a_slower_host_is_a_suspicion_that_accuses_no_kernel_and_calls_nobody() -> None:
    found = only(judge_history([make_series(host_times(factor=1.6), HOST)]))

    assert (found.verdict, found.is_confirmed, found.is_alert) == (Verdict.REGRESSED, False, False)
    assert abs(found.commit.first_parent_count - 21) <= 1
    assert "host time of a launch" in found.summary
    assert found.cause is Cause.UNKNOWN
    code = next(one for one in found.suspects if one.cause is Cause.CODE)
    assert "the kernel on the device is not timed here" in code.sentence
    assert unconfirmed([found]) == []


def test_a_machine_that_issues_all_launches_more_slowly_is_told_once() -> None:
    series = [
        make_series(host_times(factor=1.6, seed=seed), HOST, case_id=f"{kernel}/n=1/float32/fwd")
        for seed, kernel in enumerate(("rope", "gelu", "softmax"))
    ]

    found = only(judge_history(series))

    assert found.kernel == "gelu + rope + softmax"


def test_a_kernel_that_is_slower_leads_what_it_takes_beside() -> None:
    found = only(
        judge_history(
            [
                make_series(stepped(count=40, at=20, factor=1.2), case_id=SOFTMAX),
                make_series([4 * MIB] * 20 + [40 * MIB] * 20, MEMORY, case_id=SOFTMAX),
            ]
        )
    )

    assert [one.series.metric for one in found.change_points] == ["median_ns", MEMORY]


# --- without the history


TIMES = stepped(count=80, factor=1.0)

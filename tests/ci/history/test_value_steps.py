"""Steps and drifts of times, errors, memory and host times in a history."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from functools import cache

import numpy as np
import pytest
from numpy.typing import NDArray

from roofwatch.ci.changepoint.detect import find_change_points
from roofwatch.ci.history.history import unconfirmed
from roofwatch.ci.history.steps import find_value_steps, series_noise
from roofwatch.model.history import Cause, Regression, RunSetting, Series
from roofwatch.model.metrics import Better, imported_key
from roofwatch.model.verdict import Verdict
from tests.builders import NOON, make_commit_ref, make_series_key
from tests.ci.values import judge_history, make_pair, make_point, make_series, only, stepped

KEY = make_series_key("rmse_ratio")


def errors(*values: float) -> Series:
    return make_series(values, "rmse_ratio", tensor="out")


def noisy(level: float, count: int, seed: int = 0) -> list[float]:
    return [
        float(value) for value in level * np.exp(np.random.default_rng(seed).normal(0, 0.1, count))
    ]


def only_regression(series: Series) -> Regression:
    return only(judge_history([series]))


def test_a_larger_error_is_a_regression_although_it_passes() -> None:
    found = only_regression(errors(*[1e-7] * 8, *[4e-7] * 5))

    assert found.verdict is Verdict.REGRESSED
    assert found.change_points[0].commit.first_parent_count == 9
    assert "error (RMSE / RMS) 1.00e-07 to 4.00e-07 (+300.0%)" in found.summary
    assert found.is_confirmed
    assert found.is_alert


def test_an_exact_result_that_is_no_longer_exact_is_a_regression() -> None:
    found = only_regression(errors(*[0.0] * 8, *[1e-9] * 5))

    assert found.verdict is Verdict.REGRESSED
    assert (found.change_points[0].before, found.change_points[0].after) == (0.0, 1e-9)


def test_a_step_of_varying_errors_is_no_alert() -> None:
    found = only_regression(errors(*noisy(1e-7, 20), *noisy(3e-7, 20, seed=1)))

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
        [*[4e-8] * 10, *[9e-8] * 10],
    ],
    ids=[
        "equal",
        "exact",
        "two in turn",
        "by less than half",
        "two that differ",
        "within the spacing of float32",
    ],
)
def test_changes_of_errors_within_the_noise_are_ignored(values: list[float]) -> None:
    assert judge_history([errors(*values)]) == []


@pytest.mark.parametrize("count", [3, 8, 86, 300])
@pytest.mark.parametrize("factor", [4.0, 0.25])
def test_three_equal_errors_are_a_new_level_in_series_of_any_length(
    count: int, factor: float
) -> None:
    values = np.repeat([1e-5, 1e-5 * factor], [count, 3])

    (step,) = find_value_steps(KEY, values)

    assert (step.index, step.count_before, step.count_after) == (count, count, 3)
    assert (step.before, step.after) == (1e-5, 1e-5 * factor)
    assert find_value_steps(KEY, values[:-1]) == [], "two are too few"
    assert only_regression(errors(*values)).is_confirmed


MIB = 2**20
HOST, MEMORY = "host_ns", "peak_allocated_bytes"


def host_times(*, factor: float = 1.0) -> list[float]:
    return stepped(count=40, at=20, factor=factor, noise=0.04, seed=0, level_ns=5_000.0)


def test_more_memory_is_a_confirmed_alert() -> None:
    found = only(judge_history([make_series([4 * MIB] * 8 + [6 * MIB] * 4, MEMORY)]))

    assert (found.verdict, found.is_confirmed, found.is_alert) == (Verdict.REGRESSED, True, True)
    assert found.commit.first_parent_count == 9
    assert "peak allocated memory 4 MiB to 6 MiB (+50.0%)" in found.summary
    assert found.cause is Cause.CODE


@pytest.mark.parametrize(
    "values",
    [[4 * MIB] * 20, [0] * 20, [0] * 10 + [512] * 10, [100 * MIB] * 10 + [104 * MIB] * 10],
    ids=["equal", "none", "the smallest block", "by less than a twentieth"],
)
def test_small_changes_of_memory_are_ignored(values: Sequence[float]) -> None:
    assert judge_history([make_series(values, MEMORY)]) == []


def test_memory_of_another_torch_version_suspects_the_toolchain() -> None:
    def compiled_by(version: str, series: Series) -> Series:
        setting = RunSetting("1", toolchain=(("torch", version),))
        return replace(
            series, points=tuple(replace(point, setting=setting) for point in series.points)
        )

    old, new = (
        make_series([4 * MIB] * 8, MEMORY),
        make_series([4 * MIB] * 8 + [6 * MIB] * 8, MEMORY),
    )
    points = compiled_by("2.13", old).points + compiled_by("2.14", new).points[8:]

    found = only(judge_history([Series(old.key, points)]))

    assert found.cause is Cause.TOOLCHAIN
    assert "torch 2.13 → 2.14" in found.suspects[0].sentence


def test_a_slower_host_is_no_alert() -> None:
    found = only(judge_history([make_series(host_times(factor=1.6), HOST)]))

    assert (found.verdict, found.is_confirmed, found.is_alert) == (Verdict.REGRESSED, False, False)
    assert abs(found.commit.first_parent_count - 21) <= 1
    assert "host time of a launch" in found.summary
    assert found.cause is Cause.UNKNOWN
    code = next(one for one in found.suspects if one.cause is Cause.CODE)
    assert "the kernel on the device is not timed here" in code.sentence
    assert unconfirmed([found]) == []


COUNT = 24
HOT, COLD = "cupti, hot", "cuda_event, cold"


def timed(values: list[float], timings: list[str]) -> Series:
    series = make_series(values)
    points = zip(series.points, timings, strict=True)
    return replace(series, points=tuple(replace(point, timing=timing) for point, timing in points))


def test_another_timer_is_no_step() -> None:
    values = stepped(count=COUNT, at=12, factor=1.4)
    timings = [HOT] * 12 + [COLD] * 12

    assert judge_history([timed(values, timings)]) == []
    assert judge_history([timed(values, [HOT] * COUNT)]) != []


def test_a_step_of_two_timers_is_reported_once() -> None:
    hot, cold = (
        stepped(count=COUNT, factor=1.4),
        stepped(count=COUNT, factor=1.4, level_ns=1e7, seed=1),
    )
    both = [
        point
        for number in range(COUNT)
        for point in (
            make_point(number, hot[number], timing=HOT),
            make_point(number, cold[number], run=1, timing=COLD),
        )
    ]

    found = only(judge_history([replace(make_series([]), points=tuple(both))]))

    (change,) = found.change_points
    assert found.verdict is Verdict.REGRESSED
    assert change.before is not None
    assert change.before > 5e6


def daily(values: NDArray[np.float64]) -> Series:
    """One commit a day."""
    points = [
        make_point(number, float(value), measured_at=NOON + timedelta(days=number))
        for number, value in enumerate(values)
    ]
    return Series(make_series_key(), tuple(points))


def test_a_slow_drift_is_found_with_its_rate() -> None:
    days = np.arange(120)
    values = np.array(stepped(count=120, factor=1.0)) * np.exp(0.005 * np.maximum(days - 50, 0) / 7)

    found = only(judge_history([daily(values)]))

    (change,) = found.change_points
    assert change.is_gradual
    assert abs(change.commit.first_parent_count - 51) <= 12
    assert found.verdict is Verdict.REGRESSED
    assert "% a week since then" in change.evidence
    assert change.relative_change == pytest.approx(0.05, abs=0.02)
    assert unconfirmed([found]) == []  # two neighbours hardly differ
    assert change.weekly_change == pytest.approx(0.005, abs=0.002)


@cache
def step_on_a_hot_device() -> Regression:
    """A step of 20 % at commit 200, from which on the device was slowed down by heat."""
    values = [*stepped(count=200, factor=1.0), *stepped(count=140, factor=1.2, at=0)]
    points = [
        make_point(number, value, degraded_by=("heat",) if number >= 200 else ())
        for number, value in enumerate(values)
    ]
    return only(judge_history([Series(make_series_key(), tuple(points))]))


def test_a_step_has_its_size_in_standard_errors() -> None:
    (change,) = step_on_a_hot_device().change_points

    assert change.standard_errors is not None
    assert change.standard_errors > 10
    assert not change.has_code


def test_a_step_says_that_the_device_was_slowed_down() -> None:
    (change,) = step_on_a_hot_device().change_points

    assert change.degraded_by == ("heat",)


def test_a_step_has_an_outline_of_both_levels() -> None:
    outline = step_on_a_hot_device().outline

    assert outline is not None
    before = outline.values[: outline.changed_at]
    after = outline.values[outline.changed_at :]
    assert 20 <= len(before) <= 31
    assert 20 <= len(after) <= 31
    assert min(after) > 1.1 * max(before)


def test_a_drift_replaces_its_steps_unless_a_pair_confirms_one() -> None:
    days = np.arange(150)
    values = np.array(stepped(count=150, factor=1.0)) * np.exp(
        math.log(1.15) * np.clip((days - 50) / 70, 0, 1)
    )

    (change,) = only(judge_history([daily(values)])).change_points
    at = find_change_points(values, min_relative_change=0.05)[-1].index
    measured_again = judge_history([daily(values)], [make_pair(at - 1, at, factor=1.07)])

    assert change.is_gradual
    assert change.relative_change == pytest.approx(0.15, abs=0.02)
    assert [
        one.change_points[0].is_gradual
        for one in measured_again
        if one.commit == make_commit_ref(at)
    ] == [False]


# --- how sure each value is


def test_the_noise_of_a_series_ignores_its_steps() -> None:
    quiet = series_noise(make_series(stepped(count=60, factor=1.4, noise=0.002)))
    noisy = series_noise(make_series(stepped(count=60, factor=1.4, noise=0.05)))

    assert quiet is not None
    assert noisy is not None
    assert quiet.deviation == pytest.approx(0.002, rel=0.4)
    assert noisy.deviation == pytest.approx(0.05, rel=0.4)
    assert quiet.minimum_detectable_change == 0.05  # the threshold
    assert noisy.minimum_detectable_change > 0.1


IMPORTED = imported_key("speed", "ms", Better.LOWER)


def test_a_step_of_an_import_without_a_change_of_its_sources_is_the_environments() -> None:
    series = make_series(stepped(count=40, factor=1.4, noise=0.005), IMPORTED)
    same = replace(series, points=tuple(replace(one, code_hash="a") for one in series.points))

    found = only_regression(same)

    assert found.cause is Cause.RUNNER
    assert not found.is_alert
    assert "the sources that the kernel uses did not change" in found.suspects[0].sentence


def test_a_step_of_an_import_at_which_its_sources_changed_is_the_commits() -> None:
    series = make_series(stepped(count=40, factor=1.4, noise=0.005), IMPORTED)
    begin = only_regression(series).commit
    points = [replace(one, code_hash="ab"[one.commit >= begin]) for one in series.points]

    found = only_regression(replace(series, points=tuple(points)))

    assert found.cause is Cause.CODE
    assert found.is_alert
    assert found.suspects[0].sentence.startswith("the sources that the kernel uses changed from")


@pytest.mark.parametrize(
    ("base", "head", "cause", "sentence"),
    [
        (
            "a:m",
            "a:m",
            Cause.RUNNER,
            "did not change from 00000000 to 00000000, nor did its machine",
        ),
        (
            "a:m",
            "b:n",
            Cause.CODE,
            "changed from 00000000 to 00000000, and so did its machine code",
        ),
        ("a:m", "b:m", Cause.CODE, "but its machine code did not change"),
        ("a:m", "a:n", Cause.CODE, "but its machine code changed"),
        (":m", ":n", Cause.CODE, "the kernel's machine code changed from"),
        # what cannot be compiled is unknown
        ("a:m", "a", Cause.RUNNER, "did not change from"),
        (":m", ":m", Cause.UNKNOWN, ""),
        (":m", None, Cause.UNKNOWN, ""),
    ],
)
def test_the_code_of_an_import_tells_the_commit_from_the_environment(
    base: str, head: str | None, cause: Cause, sentence: str
) -> None:
    series = make_series(stepped(count=40, factor=1.4, noise=0.005), IMPORTED)
    begin = only_regression(series).commit
    points = [
        replace(point, code_hash=head if point.commit >= begin else base) for point in series.points
    ]

    regression = only_regression(replace(series, points=tuple(points)))

    assert regression.cause is cause
    text = re.sub(r"[0-9a-f]{8}", "00000000", regression.suspects[0].sentence)
    assert sentence in text


def test_the_noise_of_imported_values_is_measured_too() -> None:
    assert series_noise(make_series(stepped(count=60, factor=1.4, noise=0.01), IMPORTED))
    assert series_noise(make_series([0.0] * 30, IMPORTED)) is None

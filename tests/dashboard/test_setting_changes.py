"""Where what a series was measured with changed."""

from __future__ import annotations

from dataclasses import replace

from roofwatch.dashboard.setting_changes import setting_changes
from roofwatch.db.values import RunSetting, Series
from tests.builders import make_series_key, sha_of
from tests.dashboard.values import make_series

OLD = RunSetting("0.1.0", driver_version="550.1", toolchain=(("triton", "3.6.0"),), machine=(("ecc", "True"),))
NEW = replace(OLD, driver_version="560.2", toolchain=(("triton", "3.7.0"),))


def measured_with(*settings: RunSetting | None, runner_class: str = "A") -> Series:
    series = make_series([10_000.0] * len(settings), key=make_series_key(runner_class=runner_class))
    points = zip(series.points, settings, strict=True)
    return replace(series, points=tuple(replace(point, setting=setting) for point, setting in points))


def test_a_change_names_what_was_and_what_is() -> None:
    (change,) = setting_changes([measured_with(OLD, OLD, NEW, NEW)])

    assert change.commit.sha == sha_of(2)
    assert change.words == ("driver 550.1 → 560.2", "triton 3.6.0 → 3.7.0")


def test_what_came_or_went_is_none_on_the_other_side() -> None:
    (change,) = setting_changes([measured_with(OLD, replace(OLD, machine=(("mig", "True"),)))])

    assert change.words == ("ecc True → none", "mig none → True")


def test_series_of_one_runner_tell_a_change_once() -> None:
    assert len(setting_changes([measured_with(OLD, NEW), measured_with(OLD, NEW)])) == 1


def test_runners_are_followed_each_by_itself() -> None:
    assert setting_changes([measured_with(OLD, OLD), measured_with(NEW, NEW, runner_class="B")]) == []


def test_runs_of_which_nothing_is_known_change_nothing() -> None:
    assert setting_changes([measured_with(OLD, None, OLD)]) == []


def timed_by(*timings: str, case_id: str = "softmax/n=1/float32/fwd") -> Series:
    series = make_series([10_000.0] * len(timings), key=make_series_key(case_id=case_id))
    points = zip(series.points, timings, strict=True)
    return replace(series, points=tuple(replace(point, timing=timing) for point, timing in points))


def test_another_timer_or_cache_state_is_told_once_for_all_series_of_which_it_is_true() -> None:
    changed = timed_by("host, hot", "host, hot", "host, cold")
    likewise = timed_by("host, hot", "host, hot", "host, cold", case_id="swiglu/n=1/float32/fwd")
    untimed = timed_by("", "", "", case_id="rope/n=1/float32/fwd")

    (change,) = setting_changes([changed, likewise, untimed])

    assert change.commit.sha == sha_of(2)
    assert change.words == ("timed by host, hot → host, cold",)

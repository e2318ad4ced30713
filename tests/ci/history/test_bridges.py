"""A driver upgrade is one event of the environment, and no series ends with it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

import numpy as np
import pytest

from roofwatch.model.history import Cause, RegressionState, RunSetting, Series, SeriesPoint
from roofwatch.model.verdict import Verdict
from tests.builders import NOON, make_commit_ref, make_environment, make_series_key
from tests.ci.values import judge_history, make_point, only

KERNELS = ("rms_norm", "softmax", "matmul", "rotary", "attention")
OLD = RunSetting("1", driver_version="580.65")
NEW = RunSetting("1", driver_version="590.12")
UPGRADED_AT = 30


def series_of(
    kernel: str,
    levels_ns: Mapping[int, float],
    *,
    noise: float = 0.004,
    upgraded_at: int = UPGRADED_AT,
) -> Series:
    """One value a commit at the given levels; the newer driver from a commit on."""
    rng = np.random.default_rng(len(kernel))
    points = [
        make_point(
            number,
            level_ns * float(np.exp(rng.normal(0, noise))),
            setting=OLD if number < upgraded_at else NEW,
        )
        for number, level_ns in levels_ns.items()
    ]
    return Series(make_series_key(case_id=f"{kernel}/n=64/float32/fwd"), tuple(points))


def upgraded(count_after: int, factor: float = 1.25) -> list[Series]:
    """Five kernels that a new driver makes slower by a factor."""
    levels_ns = {
        number: 10_000.0 * (1.0 if number < UPGRADED_AT else factor)
        for number in range(UPGRADED_AT + count_after)
    }
    return [series_of(kernel, levels_ns) for kernel in KERNELS]


def with_bridge(series: Series, value_ns: float, number: int = UPGRADED_AT - 1) -> Series:
    """The series with a run of a commit that the new driver measured a day later."""
    late = make_point(number, value_ns, setting=NEW)
    late.measured_at = NOON + timedelta(days=400)
    points: list[SeriesPoint] = [*series.points, late]
    points.sort(key=lambda point: (point.commit, point.measured_at))
    return Series(series.key, tuple(points))


def test_the_driver_is_no_part_of_the_runner_class() -> None:
    classes = {
        make_environment(device_kind="cuda", driver_version=version).runner_class
        for version in ("580.65", "590.12", None)
    }

    assert len(classes) == 1


def test_a_driver_that_makes_everything_slower_is_one_event_with_the_cause_driver() -> None:
    event = only(judge_history(upgraded(6)))

    assert (event.kernel, event.verdict, event.cause) == ("*", Verdict.REGRESSED, Cause.DRIVER)
    assert event.commit == make_commit_ref(UPGRADED_AT)
    assert event.typical_change == pytest.approx(0.25, abs=0.01)


@pytest.mark.parametrize("count_after", [0, 1, 2, 5, 10])
def test_a_bridge_shows_the_event_however_many_commits_follow(count_after: int) -> None:
    bridged = [with_bridge(series, 12_500.0) for series in upgraded(count_after)]

    event = only(judge_history(bridged))

    assert (event.kernel, event.cause) == ("*", Cause.DRIVER)
    assert event.is_confirmed
    assert event.is_alert
    assert event.suspects[0].weight > 0.8
    assert "driver 580.65 → 590.12" in event.suspects[0].sentence


def test_a_bridge_without_a_difference_is_no_event() -> None:
    bridged = [with_bridge(series, 10_010.0) for series in upgraded(1, factor=1.0)]

    assert judge_history(bridged) == []


def test_a_bridge_does_not_move_the_value_of_its_commit() -> None:
    (series,) = upgraded(0)[:1]
    slower_once = with_bridge(series, 12_500.0)

    (finding,) = judge_history([slower_once])

    assert finding.cause is Cause.DRIVER
    assert not finding.is_confirmed
    assert finding.change_points[0].before == pytest.approx(10_000.0, rel=0.02)


def test_a_regression_that_is_repaired_under_another_driver_is_recovered() -> None:
    levels_ns = {number: 12_200.0 if 20 <= number < 40 else 10_000.0 for number in range(60)}

    found = judge_history([series_of("attention", levels_ns)])

    regressed = only([one for one in found if one.verdict is Verdict.REGRESSED])
    assert regressed.commit == make_commit_ref(20)
    assert regressed.state is RegressionState.OPEN
    assert regressed.recovered_at == make_commit_ref(40)

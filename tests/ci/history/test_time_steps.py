"""Times by several timers, slow drifts, and the noise of a series."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import timedelta

import numpy as np
import pytest
from numpy.typing import NDArray

from roofwatch.ci.changepoint.detect import find_change_points
from roofwatch.ci.history.history import judge_history, unconfirmed
from roofwatch.ci.history.steps import series_noise
from roofwatch.db.values import Series, Verdict
from tests.builders import NOON, make_commit_ref, make_series_key
from tests.ci.values import (
    make_pair,
    make_point,
    make_series,
    only,
    stepped,
)

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
    hot, cold = stepped(count=COUNT, factor=1.4), stepped(count=COUNT, factor=1.4, level_ns=1e7, seed=1)
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


def test_a_slow_drift_is_found_with_its_start_and_rate() -> None:
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


def test_a_step_has_an_outline_its_size_in_errors_and_says_if_the_device_was_slowed_down() -> None:
    values = [*stepped(count=200, factor=1.0), *stepped(count=140, factor=1.2, at=0)]
    points = [
        make_point(number, value, degraded_by=("heat",) if number >= 200 else ()) for number, value in enumerate(values)
    ]

    found = only(judge_history([Series(make_series_key(), tuple(points))]))

    (change,) = found.change_points
    assert change.standard_errors is not None
    assert change.standard_errors > 10
    assert change.degraded_by == ("heat",)
    assert not change.has_code
    assert found.outline is not None
    before, after = (
        found.outline.values[: found.outline.changed_at],
        found.outline.values[found.outline.changed_at :],
    )
    assert 20 <= len(before) <= 31
    assert 20 <= len(after) <= 31
    assert min(after) > 1.1 * max(before)


def test_a_drift_replaces_its_steps_unless_a_pair_confirms_one() -> None:
    days = np.arange(150)
    values = np.array(stepped(count=150, factor=1.0)) * np.exp(math.log(1.15) * np.clip((days - 50) / 70, 0, 1))

    (change,) = only(judge_history([daily(values)])).change_points
    at = find_change_points(values, min_relative_change=0.05)[-1].index
    measured_again = judge_history([daily(values)], [make_pair(at - 1, at, factor=1.07)])

    assert change.is_gradual
    assert change.relative_change == pytest.approx(0.15, abs=0.02)
    assert [one.change_points[0].is_gradual for one in measured_again if one.commit == make_commit_ref(at)] == [False]


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

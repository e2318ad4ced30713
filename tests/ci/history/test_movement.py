"""Judged change points of a window, taken together by kernel and runner."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from roofwatch.ci.history.movement import Movement, movements
from roofwatch.db.values import ChangePoint, RegressionState
from tests.builders import NOON, make_change_point, make_regression, make_series_key

RMS_NORM = make_series_key()
SOFTMAX = make_series_key(case_id="softmax/n=8/float32/fwd")


def step(number: int, before: float | None, after: float | None, *, series: object = RMS_NORM) -> ChangePoint:
    return make_change_point(number, series=series, before=before, after=after)


def moved(*points: ChangePoint, **fields: object) -> list[Movement]:
    return movements([make_regression(1, change_points=points, **fields)], since=None)


def test_steps_of_one_series_multiply() -> None:
    (found,) = moved(step(1, 100.0, 150.0), step(2, 150.0, 120.0))
    assert found.relative_change == pytest.approx(0.2)
    assert (found.slower_count, found.faster_count) == (1, 0)


def test_a_step_that_came_and_went_leaves_nothing() -> None:
    (found,) = moved(step(1, 100.0, 150.0), step(2, 150.0, 100.0))
    assert found.relative_change == pytest.approx(0.0)


def test_the_series_that_became_slowest_is_told_before_one_that_became_faster_by_more() -> None:
    other = replace(RMS_NORM, implementation="compile")
    (found,) = moved(step(1, 100.0, 110.0), step(1, 100.0, 50.0, series=other))
    assert found.relative_change == pytest.approx(0.1)
    assert (found.slower_count, found.faster_count) == (1, 1)


def test_what_fails_at_the_end_has_no_change_and_counts_as_slower() -> None:
    (found,) = moved(step(1, 100.0, None))
    assert found.relative_change is None
    assert found.slower_count == 1


def test_what_works_again_is_measured_from_there() -> None:
    (found,) = moved(step(1, 100.0, None), step(2, None, 300.0), step(3, 300.0, 330.0))
    assert found.relative_change == pytest.approx(0.1)


def test_only_commits_of_the_window_count() -> None:
    regression = make_regression(1, change_points=(step(1, 100.0, 150.0), step(3, 150.0, 180.0)))
    (found,) = movements([regression], since=NOON + timedelta(hours=2))
    assert found.relative_change == pytest.approx(0.2)


def test_what_was_dismissed_never_happened() -> None:
    assert moved(step(1, 100.0, 150.0), state=RegressionState.DISMISSED) == []


def test_kernels_and_runner_classes_are_told_apart() -> None:
    elsewhere = replace(RMS_NORM, runner_class="another")
    found = moved(*(step(1, 100.0, 150.0, series=series) for series in (RMS_NORM, elsewhere, SOFTMAX)))
    assert [(one.kernel, one.runner_class) for one in found] == [
        ("rms_norm", RMS_NORM.runner_class),
        ("rms_norm", "another"),
        ("softmax", SOFTMAX.runner_class),
    ]


def test_only_times_move() -> None:
    registers = make_change_point(1, series=make_series_key("registers", target="sm_90", runner_class=""))
    assert moved(registers) == []

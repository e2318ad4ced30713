"""Movements of a period, and recoveries."""

from __future__ import annotations

from dataclasses import replace

import pytest

from roofwatch.ci.history.regression import note_recoveries
from roofwatch.ci.history.summary import Movement, movements
from roofwatch.ci.verdicts import Thresholds
from roofwatch.db.values import ChangePoint, CommitRef, Regression, Verdict
from tests.builders import make_change_point, make_commit_ref, make_regression, make_series_key

RMS_NORM = make_series_key()


def step_of(number: int, before: float | None, after: float | None, *, series: object = RMS_NORM) -> ChangePoint:
    return make_change_point(number, series=series, before=before, after=after)


def moved(*points: ChangePoint, **fields: object) -> list[Movement]:
    return movements([make_regression(1, change_points=points, **fields)], since=None)


def test_steps_of_one_series_multiply() -> None:
    (found,) = moved(step_of(1, 100.0, 150.0), step_of(2, 150.0, 120.0))
    assert found.relative_change == pytest.approx(0.2)
    assert (found.slower_count, found.faster_count) == (1, 0)


def test_a_slowdown_comes_before_a_larger_speedup() -> None:
    other = replace(RMS_NORM, implementation="compile")
    (found,) = moved(step_of(1, 100.0, 110.0), step_of(1, 100.0, 50.0, series=other))
    assert found.relative_change == pytest.approx(0.1)
    assert (found.slower_count, found.faster_count) == (1, 1)


def test_what_fails_at_the_end_has_no_change_and_counts_as_slower() -> None:
    (found,) = moved(step_of(1, 100.0, None))
    assert found.relative_change is None
    assert found.slower_count == 1


def improvement(number: int, after: float | None, **fields: object) -> Regression:
    point = make_change_point(number, verdict=Verdict.IMPROVED, before=12_000.0, after=after)
    return make_regression(number, **{"verdict": Verdict.IMPROVED, "change_points": (point,), **fields})


def recovery(*regressions: Regression) -> CommitRef | None:
    """Of the first."""
    return note_recoveries(regressions, Thresholds())[0].recovered_at


def test_a_time_that_returns_to_its_old_level_has_recovered_at_that_commit() -> None:
    assert recovery(make_regression(1), improvement(5, 10_100.0)) == make_commit_ref(5)


def test_a_recovery_needs_most_of_the_series() -> None:
    keys = [make_series_key(implementation=name) for name in "abcde"]
    worse = make_regression(1, change_points=tuple(make_change_point(1, series=key) for key in keys))

    def back(count: int) -> Regression:
        points = [
            make_change_point(4, series=key, verdict=Verdict.IMPROVED, before=12_000.0, after=10_000.0)
            for key in keys[:count]
        ]
        return make_regression(4, verdict=Verdict.IMPROVED, change_points=tuple(points))

    assert recovery(worse, back(3)) is None
    assert recovery(worse, back(4)) == make_commit_ref(4)

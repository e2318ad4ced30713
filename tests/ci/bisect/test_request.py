"""Which series and which commits explain a regression best."""

from dataclasses import replace

from roofwatch.ci.bisect.measurements import range_of, series_to_bisect
from roofwatch.collector.record.machine import Outcome
from roofwatch.db.values import Series
from tests.builders import NOON, make_change_point, make_commit_ref, make_regression, make_series_key, sha_of
from tests.ci.values import make_point


def test_the_time_that_moved_most_is_bisected_between_the_commits_around_its_step() -> None:
    little = make_change_point(5, after=11_000.0, series=make_series_key(implementation="eager"))
    most = make_change_point(5, after=15_000.0, series=make_series_key(implementation="triton"))
    static = make_change_point(5, after=99_000.0, series=make_series_key("registers", implementation="triton"))
    regression = make_regression(5, change_points=(little, most, static))

    asked = range_of(regression)

    assert asked is not None
    assert asked.implementation == "triton"
    assert (asked.good_sha, asked.bad_sha) == (sha_of(4), sha_of(5))
    assert asked.runner_class == most.series.runner_class


def test_with_the_series_at_hand_the_ends_lie_two_measured_commits_apart_from_the_step() -> None:
    regression = make_regression(5, change_points=(make_change_point(5),))
    points = tuple(make_point(number, 10_000.0, measured_at=NOON) for number in (0, 1, 3, 4, 5, 8, 9, 10))
    failed = replace(points[2], value=None, outcome=Outcome.CRASHED)
    series = Series(make_series_key(), (*points[:2], failed, *points[3:]))

    asked = range_of(regression, series)

    assert asked is not None
    assert (asked.good_sha, asked.bad_sha) == (sha_of(0), sha_of(9))


def test_at_the_end_of_a_series_the_step_s_own_commits_are_the_ends() -> None:
    regression = make_regression(1, change_points=(make_change_point(1),))
    series = Series(make_series_key(), tuple(make_point(number, 1.0, measured_at=NOON) for number in (0, 1)))

    asked = range_of(regression, series)

    assert asked is not None
    assert (asked.good_sha, asked.bad_sha) == (make_commit_ref(0).sha, make_commit_ref(1).sha)


def test_what_moved_in_no_step_of_a_time_is_not_bisected() -> None:
    static = make_change_point(5, series=make_series_key("registers"))
    drift = make_change_point(5, is_gradual=True)
    broken = make_change_point(5, after=None)
    regression = make_regression(5, change_points=(static, drift, broken))

    assert series_to_bisect(regression) is None
    assert range_of(regression) is None

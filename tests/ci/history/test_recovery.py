"""What got worse and is back where it was."""

from roofwatch.ci.history.regression import note_recoveries
from roofwatch.ci.thresholds import Thresholds
from roofwatch.db.values import CommitRef, Regression, RegressionState, Verdict
from tests.builders import make_change_point, make_commit_ref, make_regression, make_series_key


def improvement(number: int, after: float | None, **fields: object) -> Regression:
    point = make_change_point(number, verdict=Verdict.IMPROVED, before=12_000.0, after=after)
    return make_regression(number, **{"verdict": Verdict.IMPROVED, "change_points": (point,), **fields})


def recovery(*regressions: Regression) -> CommitRef | None:
    """Of the first."""
    return note_recoveries(regressions, Thresholds())[0].recovered_at


def test_a_time_that_returns_to_its_old_level_has_recovered_at_that_commit() -> None:
    assert recovery(make_regression(1), improvement(5, 10_100.0)) == make_commit_ref(5)


def test_half_of_the_way_is_no_recovery_but_the_rest_of_it_is() -> None:
    assert recovery(make_regression(1), improvement(5, 11_000.0)) is None
    assert recovery(make_regression(1), improvement(5, 11_000.0), improvement(7, 10_000.0)) == make_commit_ref(7)


def test_an_improvement_that_came_before_or_was_refuted_undoes_nothing() -> None:
    assert recovery(make_regression(5), improvement(1, 10_000.0)) is None
    assert recovery(make_regression(1), improvement(5, 10_000.0, state=RegressionState.DISMISSED)) is None


def test_what_failed_and_works_again_has_recovered() -> None:
    failed = make_regression(1, change_points=(make_change_point(1, after=None),))
    works = make_change_point(3, verdict=Verdict.IMPROVED, before=None, after=10_000.0)

    assert recovery(failed, make_regression(3, verdict=Verdict.IMPROVED, change_points=(works,))) == make_commit_ref(3)


def test_most_of_the_series_have_to_be_back() -> None:
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

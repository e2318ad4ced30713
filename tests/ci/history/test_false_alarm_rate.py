"""How often the service was wrong, counted from what was decided."""

from __future__ import annotations

from datetime import timedelta

import pytest

from roofwatch.ci.history.false_alarms import FalseAlarms, count_false_alarms
from roofwatch.db.values import Regression, RegressionState, Verdict
from tests.builders import NOON, make_regression


def told(number: int, **fields: object) -> Regression:
    return make_regression(number, kernel=f"kernel_{number}", **fields)


def test_what_a_pair_refuted_or_a_person_called_none_is_false_among_what_is_decided() -> None:
    refuted, invalid = told(1, state=RegressionState.DISMISSED), told(2)
    confirmed, taken_up, open_one = told(3, is_confirmed=True), told(4), told(5)
    counted = count_false_alarms(
        [refuted, invalid, confirmed, taken_up, open_one],
        called_none={invalid.key},
        called_real={taken_up.key},
        since=None,
    )
    assert counted == FalseAlarms(reported_count=5, refuted_count=1, invalid_count=1, true_count=2)
    assert counted.rate == 0.5


def test_a_person_who_calls_a_confirmed_one_none_outweighs_the_measurement() -> None:
    confirmed = told(1, is_confirmed=True)
    counted = count_false_alarms([confirmed], called_none={confirmed.key}, called_real=set(), since=None)
    assert (counted.false_count, counted.true_count) == (1, 0)


def test_one_that_was_refuted_is_counted_once_whatever_people_said() -> None:
    refuted = told(1, state=RegressionState.DISMISSED)
    counted = count_false_alarms([refuted], called_none={refuted.key}, called_real=set(), since=None)
    assert counted.decided_count == 1


def test_improvements_and_what_lies_before_the_window_are_not_counted() -> None:
    counted = count_false_alarms(
        [told(1), told(5), told(6, verdict=Verdict.IMPROVED)],
        called_none=set(),
        called_real=set(),
        since=NOON + timedelta(hours=3),
    )
    assert counted.reported_count == 1


def test_without_any_decision_there_is_no_rate() -> None:
    counted = count_false_alarms([told(1)], called_none=set(), called_real=set(), since=None)
    assert counted.rate is None
    assert counted.interval is None


def test_the_interval_is_wilson_s() -> None:
    # Brown, Cai and DasGupta (2001), Interval estimation for a binomial proportion: 0 of 10 reaches to 0.278
    nothing_false = FalseAlarms(reported_count=10, refuted_count=0, invalid_count=0, true_count=10)
    assert nothing_false.interval == pytest.approx((0.0, 0.2775), abs=1e-4)

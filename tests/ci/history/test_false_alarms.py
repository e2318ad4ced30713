"""Which regressions alert, and the false discovery rate."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import date, timedelta
from uuid import UUID

import numpy as np
import pytest

from roofwatch.ci.history.finding import TrendFinding, Window
from roofwatch.ci.history.history import choose_alerts
from roofwatch.ci.history.summary import FalseAlarms, count_false_alarms
from roofwatch.model.history import Regression, RegressionState, Series
from roofwatch.model.triage import Triage, TriagedRegression, TriageState
from roofwatch.model.verdict import Status, Verdict
from tests.builders import NOON, make_change_point, make_regression, make_series_key
from tests.ci.values import judge_history, make_point

DAY = date(2026, 3, 1)


def with_p_value(
    p_value: float | None, *, number: int = 1, **fields: object
) -> tuple[Regression, list[TrendFinding]]:
    change = make_change_point(number)
    window = Window(number + 1, number + 1)
    finding = TrendFinding(
        change, Status.UNCONFIRMED, (), window, window, p_value=p_value, measured_on=DAY
    )
    return replace(make_regression(number), **fields), [finding]  # type: ignore[arg-type]  # fields of a regression


def alerts(*regressions: tuple[Regression, list[TrendFinding]], judged: int) -> list[bool]:
    chosen = choose_alerts(regressions, series_by_date={DAY: judged}, rate=0.05)
    return [regression.is_alert for regression in chosen]


def test_many_series_need_a_smaller_p_value() -> None:
    assert alerts(with_p_value(1e-3), judged=10) == [True]
    assert alerts(with_p_value(1e-3), judged=1_000) == [False]


def test_a_regression_of_many_series_counts_once() -> None:
    regression, findings = with_p_value(1e-9)
    many = (regression, findings * 100)

    assert alerts(many, with_p_value(4e-4, number=20), judged=1_000) == [True, False]


def test_a_confirmed_regression_alerts_without_a_p_value() -> None:
    confirmed = with_p_value(None, is_confirmed=True)
    once_failed = with_p_value(None, number=3)

    assert alerts(confirmed, once_failed, judged=10) == [True, False]


def test_a_dismissed_regression_does_not_alert_however_unlikely_chance_is() -> None:
    dismissed = with_p_value(1e-12, number=2, state=RegressionState.DISMISSED)

    assert alerts(dismissed, judged=10) == [False]


def day_of_series(seed: int, *, series_count: int, moved_count: int) -> list[Series]:
    """Series of heavy-tailed noise of 2 to 4 %, each of a kernel of its own; the first ones step by
    15 to 40 %, each at another commit.
    """
    rng = np.random.default_rng(seed)
    series = []
    for number in range(series_count):
        values = 1e6 * np.exp(rng.uniform(0.02, 0.04) * rng.standard_t(5, 75))
        if number < moved_count:
            values[20 + 3 * number :] *= rng.uniform(1.15, 1.4) ** (1 if number % 2 else -1)
        points = [
            make_point(place, float(value), measured_at=NOON) for place, value in enumerate(values)
        ]
        series.append(
            Series(make_series_key(case_id=f"kernel_{number}/n=1/float32/fwd"), tuple(points))
        )
    return series


@pytest.mark.slow
def test_a_day_without_a_change_alerts_no_more_often_than_is_promised() -> None:
    days = 30
    false = [
        any(
            found.is_alert
            for found in judge_history(day_of_series(seed, series_count=40, moved_count=0))
        )
        for seed in range(days)
    ]

    assert sum(false) <= 5  # at 5 % more than five come up in 1 of 200 such simulations


def test_among_the_alerts_of_days_the_false_ones_keep_their_rate() -> None:
    counts: Counter[bool] = Counter()
    for seed in range(12):
        for found in judge_history(day_of_series(1_000 + seed, series_count=48, moved_count=12)):
            if found.is_alert:
                moved = {
                    int(kernel.split("_")[1]) < 12
                    for kernel in found.kernel.split(" + ")
                    if "_" in kernel
                }
                counts[any(moved)] += 1

    assert counts[False] <= 0.08 * counts.total()
    assert counts[True] >= 100


def regression(
    number: int, triage: TriageState = TriageState.NEW, **fields: object
) -> TriagedRegression:
    return TriagedRegression(
        str(number), make_regression(number, **fields), Triage(UUID(int=number), triage)
    )


def test_a_regression_that_did_not_hold_is_a_false_alarm() -> None:
    refuted, invalid = (
        regression(1, state=RegressionState.DISMISSED),
        regression(2, TriageState.INVALID),
    )
    confirmed, taken_up = regression(3, is_confirmed=True), regression(4, TriageState.ACKNOWLEDGED)

    counted = count_false_alarms([refuted, invalid, confirmed, taken_up, regression(5)])

    assert counted == FalseAlarms(reported_count=5, refuted_count=1, invalid_count=1, true_count=2)
    assert counted.rate == 0.5


def test_improvements_are_not_counted() -> None:
    counted = count_false_alarms([regression(5), regression(6, verdict=Verdict.IMPROVED)])
    assert counted.reported_count == 1


def test_regressions_before_the_period_are_not_counted() -> None:
    counted = count_false_alarms([regression(1), regression(5)], since=NOON + timedelta(hours=3))
    assert counted.reported_count == 1


def test_the_interval_is_wilson_s() -> None:
    # Brown, Cai and DasGupta (2001), Interval estimation for a binomial proportion: 0 of 10 reaches
    # to 0.278
    nothing_false = FalseAlarms(reported_count=10, refuted_count=0, invalid_count=0, true_count=10)
    assert nothing_false.interval == pytest.approx((0.0, 0.2775), abs=1e-4)

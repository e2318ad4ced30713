"""Rows of the ledger: one for each commit, and the line that sums up a range."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from roofwatch.ci.history.commit_rows import cost_of, rows_by_commit, summarise
from roofwatch.model.history import Regression, SeriesKey
from roofwatch.model.stored_results import RecentRuns, RecentSeries, RoofCell
from roofwatch.model.triage import Triage, TriagedRegression, TriageState
from roofwatch.model.verdict import Verdict
from tests.builders import NOON, make_change_point, make_regression, make_series_key

SOFTMAX = make_series_key(case_id="softmax/n=8/float32/fwd", implementation="triton")
RMS_NORM = make_series_key(implementation="triton")


def triaged(
    regression: Regression, state: TriageState = TriageState.NEW, **fields: bool
) -> TriagedRegression:
    key = f"{regression.commit.sha}{regression.kernel}"
    identity = UUID(int=abs(hash(key)) % 2**128)
    return TriagedRegression(str(identity), regression, Triage(identity, state), **fields)


def slower(
    number: int, series: SeriesKey = RMS_NORM, *, after: float = 12_000.0, **fields: Any
) -> Regression:
    point = make_change_point(number, series=series, after=after)
    return make_regression(number, kernel=series.kernel, change_points=(point,), **fields)


def test_the_kernel_of_the_worst_change_is_named_first() -> None:
    points = (
        make_change_point(3, series=RMS_NORM, after=11_000.0),
        make_change_point(3, series=SOFTMAX, after=20_000.0),
    )
    event = make_regression(3, kernel="*", change_points=points)
    (row,) = rows_by_commit([triaged(event)])

    assert row.worst.series == SOFTMAX
    assert row.kernels == ("softmax", "rms_norm")


def test_regressions_of_one_commit_are_one_row_with_the_worst_first() -> None:
    rows = rows_by_commit(
        [triaged(slower(3)), triaged(slower(3, SOFTMAX, after=20_000.0)), triaged(slower(5))]
    )

    assert [len(row.parts) for row in rows] == [1, 2]
    assert rows[1].kernels == ("softmax", "rms_norm")
    assert rows[1].worst.series == SOFTMAX
    assert rows[1].change_on("rms_norm", RMS_NORM.runner_class) is not None
    assert rows[1].change_on("rms_norm", "another") is None


def test_a_commit_with_changes_in_both_directions_is_two_rows() -> None:
    faster = replace(slower(3, SOFTMAX, after=5_000.0), verdict=Verdict.IMPROVED)
    rows = rows_by_commit([triaged(slower(3)), triaged(faster)])
    assert {row.verdict for row in rows} == {Verdict.REGRESSED, Verdict.IMPROVED}


def test_an_unconfirmed_row_has_the_probability_of_earlier_alerts() -> None:
    (unconfirmed,) = rows_by_commit([triaged(slower(3))])
    assert unconfirmed.probability == pytest.approx(0.5), "without any decision"
    refuted = [triaged(slower(number), TriageState.INVALID) for number in range(10, 20)]
    rows = rows_by_commit([triaged(slower(3)), *refuted])
    assert rows[-1].probability == pytest.approx(0.25)
    (confirmed,) = rows_by_commit([triaged(slower(3, is_confirmed=True))])
    assert confirmed.probability is None


def test_a_snoozed_row_waits_for_nobody() -> None:
    (row,) = rows_by_commit([triaged(slower(3), is_snoozed=True)])
    assert not row.is_waiting
    assert row.state == "snoozed"


@pytest.mark.parametrize(
    ("metric", "before", "after", "is_worse"),
    [
        ("median_ns", 1.0, 2.0, True),
        ("utilisation", 0.8, 0.4, True),
        ("median_ns", 2.0, 1.0, False),
    ],
)
def test_a_cost_is_above_zero_if_the_change_is_worse(
    metric: str, before: float, after: float, *, is_worse: bool
) -> None:
    point = make_change_point(series=make_series_key(metric), before=before, after=after)
    assert (cost_of(point) > 0) is is_worse


def test_a_failure_costs_more_than_any_time() -> None:
    failed = make_change_point(after=None)
    assert cost_of(failed) > cost_of(make_change_point(after=100 * 10_000.0))


def test_the_geometric_mean_counts_every_series_of_the_runner() -> None:
    names = [make_series_key(case_id=f"k/n={n}/float32/fwd", implementation="t") for n in range(4)]
    series = [RecentSeries(key, "", (0, 1), (1.0, 1.0)) for key in names]
    library = RecentSeries(make_series_key(implementation="torch"), "", (0,), (1.0,))
    recent = RecentRuns(RMS_NORM.runner_class, (), (*series, library))
    rows = rows_by_commit([triaged(slower(3, names[0], after=16_000.0))])

    summary = summarise(rows, [recent], [])

    assert (summary.slower_count, summary.faster_count) == (1, 0)
    assert summary.geomeans[RMS_NORM.runner_class] == pytest.approx(1.6 ** (1 / 4) - 1)
    assert summary.roof_shares is None


def test_what_a_person_called_no_regression_does_not_count() -> None:
    rows = rows_by_commit([triaged(slower(3), TriageState.INVALID)])
    assert summarise(rows, [], []).slower_count == 0


def test_the_roof_share_is_that_of_the_median_case_without_libraries() -> None:
    dates = (NOON, NOON + timedelta(days=1))
    cells = [
        RoofCell(RMS_NORM, dates, (1.0, 1.0), (0.8, 0.6)),
        RoofCell(make_series_key(implementation="torch"), dates, (1.0, 1.0), (0.1, 0.1)),
    ]
    assert summarise([], [], cells).roof_shares == (0.8, 0.6)

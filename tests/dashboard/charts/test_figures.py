"""Figures of runners, of the autotuner, of samples and of spending."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, timedelta
from zoneinfo import ZoneInfo

import pytest

from roofwatch.dashboard.charts.runners import (
    ceiling_history_figure,
    runner_history_figure,
    spending_figure,
    summed,
)
from roofwatch.dashboard.charts.style import OTHERS
from roofwatch.model.machine import Outcome
from tests.builders import (
    NOON,
    make_ceiling,
    make_commit_ref,
    make_series_key,
)
from tests.dashboard.values import (
    HOSTILE,
    as_html,
    make_fleet_run,
    make_point,
    make_series,
    names,
    trace,
)


def test_the_history_of_a_runner_shows_local_times_clock_and_temperature() -> None:
    points = (
        make_point(0, 40_000.0, sm_clock_mhz=1_980.0, temperature_c=55.0),
        make_point(1, None, outcome=Outcome.CRASHED),
        make_point(
            2, 52_000.0, sm_clock_mhz=1_200.0, temperature_c=88.0, degraded_by=("hw_slowdown",)
        ),
    )
    figure = runner_history_figure(replace(make_series([]), points=points), ZoneInfo("Asia/Tokyo"))
    assert names(figure) == ["time", "SM clock", "highest temperature", "throttled or shared"]
    assert list(trace(figure, "time").y) == pytest.approx([40e-6, 52e-6])
    assert trace(figure, "time").x[0] == (NOON + timedelta(hours=9)).replace(tzinfo=None)
    doubtful = trace(figure, "throttled or shared")
    assert list(doubtful.y) == pytest.approx([52e-6])
    assert "hw_slowdown" in doubtful.hovertext[0]


def test_ceilings_are_shares_of_the_datasheet_or_of_the_highest_seen() -> None:
    worn = (make_ceiling(per_s=2.4e12), make_ceiling(level="cache", per_s=4.5e12))
    figure = ceiling_history_figure([make_fleet_run(1, ceilings=worn), make_fleet_run(0)], UTC)
    assert list(trace(figure, "dram, 100 % = datasheet, 4.8 TB/s").y) == pytest.approx(
        [4.1 / 4.8, 0.5]
    )
    assert list(trace(figure, "cache, 100 % = highest seen, 9 TB/s").y) == pytest.approx([1.0, 0.5])


def test_spending_is_stacked_by_commit_with_the_largest_parts_named() -> None:
    amounts = [(make_commit_ref(1), f"family {number}", 10.0 - number) for number in range(8)]
    spent = summed(
        [*amounts, (make_commit_ref(0), "family 0", 1.0), (make_commit_ref(0), "unknown", None)]
    )
    figure = spending_figure(spent, title="time (s)", unit="s", zone=UTC)
    assert names(figure) == [*(f"family {number}" for number in range(5)), OTHERS]
    assert list(figure.data[0].y) == [1.0, 10.0]
    assert list(figure.data[-1].y) == [0.0, 5.0 + 4.0 + 3.0]
    assert len({(one.marker.color, one.marker.pattern.shape) for one in figure.data}) == 6
    assert len({one.marker.pattern.shape for one in figure.data}) == 6
    assert figure.layout.barmode == "stack"


def test_text_from_records_is_escaped_on_the_history_of_a_runner() -> None:
    commit = replace(make_commit_ref(), subject=HOSTILE, author=HOSTILE)
    point = make_point(0, 1e6, commit=commit, degraded_by=(HOSTILE,))
    series = replace(make_series([], key=make_series_key(implementation=HOSTILE)), points=(point,))
    assert "<img" not in as_html(runner_history_figure(series, UTC))

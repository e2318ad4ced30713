"""Figures of runners and of spending."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, timedelta
from zoneinfo import ZoneInfo

from roofwatch.dashboard.charts.history import History, history_html
from roofwatch.dashboard.charts.palette import PAGE_BLUE
from roofwatch.dashboard.charts.runners import (
    case_histories,
    ceiling_histories,
    spending_figure,
    summed,
)
from roofwatch.dashboard.charts.style import OTHERS
from roofwatch.model.machine import Outcome
from tests.builders import (
    make_ceiling,
    make_commit_ref,
    make_series_key,
)
from tests.dashboard.values import (
    HOSTILE,
    make_fleet_run,
    make_point,
    make_series,
    names,
)

TOKYO = ZoneInfo("Asia/Tokyo")


def values(history: History) -> list[float | None]:
    return [point.value for point in history.series.points]


def test_a_case_has_the_readings_of_the_device_below_its_times() -> None:
    points = (
        make_point(0, 40_000.0, sm_clock_mhz=1_980.0, temperature_c=55.0),
        make_point(1, None, outcome=Outcome.CRASHED),
        make_point(
            2, 52_000.0, sm_clock_mhz=1_200.0, temperature_c=88.0, degraded_by=("hw_slowdown",)
        ),
    )
    histories = case_histories(replace(make_series([]), points=points))
    assert {history.metric.title: values(history) for history in histories} == {
        "time": [40_000.0, 52_000.0],
        "SM clock": [1_980.0, 1_200.0],
        "highest temperature": [55.0, 88.0],
    }
    clock = history_html(histories[1], UTC)
    assert "1200 MHz" in clock
    assert "hw_slowdown" in clock
    assert clock.count(f'fill="none" stroke="{PAGE_BLUE}"') == 1, "the throttled run is hollow"


def test_a_commit_that_was_measured_again_is_drawn_when_it_was_measured() -> None:
    first, again = make_point(0, 40_000.0), make_point(0, 41_000.0)
    again = replace(again, measured_at=first.measured_at + timedelta(days=40))
    (history,) = case_histories(replace(make_series([]), points=(again, first)))
    dates = [point.commit.committed_at for point in history.series.points]
    assert dates == [first.measured_at, again.measured_at]
    assert f"{again.measured_at.astimezone(TOKYO):%Y-%m-%d}" in history_html(history, TOKYO)


def test_a_ceiling_is_drawn_under_the_peak_of_its_datasheet() -> None:
    worn = (make_ceiling(per_s=2.4e12), make_ceiling(level="cache", per_s=4.5e12))
    histories = ceiling_histories([make_fleet_run(1, ceilings=worn), make_fleet_run(0)])
    by_name = {history.series.key.case_id: history for history in histories}
    dram, cache = by_name["dram"], by_name["cache"]
    assert values(dram) == [4.1e12, 2.4e12]
    assert [roof.value for roof in dram.roofs] == [4.8e12]
    assert values(cache) == [9e12, 4.5e12]
    assert cache.roofs == (), "no datasheet has it"
    assert "peak (datasheet) 4.8 TB/s" in history_html(dram, UTC)


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
    (history,) = case_histories(series)
    assert "<img" not in history_html(history, UTC)

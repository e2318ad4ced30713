"""The history of a metric over dates."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from roofwatch.dashboard.charts.history import (
    History,
    RoofLine,
    date_range,
    history_html,
)
from roofwatch.dashboard.charts.lanes import LaneMark, lanes_of
from roofwatch.dashboard.charts.scale import (
    DateScale,
    ValueScale,
    date_ticks,
    fit,
    fit_dates,
    round_values,
)
from roofwatch.dashboard.charts.setup_changes import setting_changes
from roofwatch.model.history import BandPoint, RunSetting, Series
from roofwatch.model.machine import Outcome
from tests.builders import make_change_point, make_commit_ref, make_series_key, sha_of
from tests.dashboard.values import HOSTILE, make_point, make_series

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
OLD = RunSetting(
    "0.1.0", driver_version="550.1", toolchain=(("triton", "3.6.0"),), machine=(("ecc", "True"),)
)
NEW = replace(OLD, driver_version="560.2", toolchain=(("triton", "3.7.0"),))


def heights(html: str) -> list[float]:
    """Places of the points from the top, in percent."""
    return [float(text) for text in re.findall(r'cy="([\d.]+)%"', html)]


def shares(values: list[float | None]) -> Series:
    return make_series(values, key=make_series_key("utilisation"))


def drawn_under_roofs() -> str:
    """Shares under an achievable roof and a peak."""
    roofs = (
        RoofLine("achievable (measured)", 1.0, is_measured=True),
        RoofLine("peak (datasheet)", 1.25, is_measured=False),
    )
    return history_html(History(series=shares([0.0, 0.5, 1.0]), roofs=roofs), UTC)


def test_the_axis_of_a_share_begins_at_zero() -> None:
    lowest, *_ = heights(drawn_under_roofs())
    assert lowest == 100


def test_the_axis_of_a_share_has_room_for_the_peak() -> None:
    _, middle, highest = heights(drawn_under_roofs())
    assert middle == pytest.approx(100 - 50 / 1.275, abs=0.1)
    assert highest == pytest.approx(100 - 100 / 1.275, abs=0.1)


def test_the_roofs_of_a_share_are_named() -> None:
    html = drawn_under_roofs()
    assert ">achievable (measured)<" in html
    assert "peak (datasheet) 125.0%" in html


def test_every_tick_of_a_time_has_its_unit() -> None:
    html = history_html(History(series=make_series([40_000.0, 52_000.0])), UTC)

    assert ">40 µs</span>" in html
    assert ">50 µs</span>" in html


def test_zero_has_no_unit_among_the_ticks_of_a_time() -> None:
    html = history_html(History(series=make_series([1e6, 80e6])), UTC)

    assert ">0</span>" in html
    assert "0 ns" not in html


def drawn_over_days(*days: int) -> str:
    """Values of commits at some days."""
    points = tuple(
        make_point(number, commit=replace(make_commit_ref(number), committed_at=NOON + gap))
        for number, gap in enumerate(map(timedelta, days))
    )
    return history_html(History(series=Series(make_series_key(), points)), UTC)


def test_a_point_stands_at_the_date_of_its_commit() -> None:
    html = drawn_over_days(0, 10, 90)

    first, second, last = (float(text) for text in re.findall(r'cx="([\d.]+)%"', html))
    # a day is as wide between any two commits
    assert (second - first) * 9 == pytest.approx(last - first, abs=0.1)


def test_dates_stand_under_the_axis() -> None:
    assert "Apr 2026</span>" in drawn_over_days(0, 10, 90)


def undisturbed_then_throttled() -> tuple[str, str]:
    """The marks of two points."""
    points = (make_point(0), make_point(1, degraded_by=("throttled or shared",)))
    html = history_html(History(series=Series(make_series_key(), points)), UTC)
    undisturbed, throttled = re.findall(r"<circle.*?</circle>", html)
    return undisturbed, throttled


def test_a_throttled_point_is_hollow() -> None:
    undisturbed, throttled = undisturbed_then_throttled()
    assert 'fill="none"' in throttled
    assert 'fill="none"' not in undisturbed


def test_a_throttled_point_says_why() -> None:
    undisturbed, throttled = undisturbed_then_throttled()
    assert "throttled or shared" in throttled
    assert "throttled or shared" not in undisturbed


CRASHED = make_series([10_000.0, 10_000.0, None, 10_000.0, 10_000.0])
"""The third run failed."""


def test_a_failed_run_breaks_the_line() -> None:
    html = history_html(History(series=CRASHED), UTC)
    assert html.count("<polyline") == 2


def test_a_failed_run_is_named() -> None:
    assert CRASHED.points[2].outcome is Outcome.CRASHED
    assert "✕ crashed" in history_html(History(series=CRASHED), UTC)


def test_a_change_of_another_metric_of_the_case_is_marked_with_its_name() -> None:
    changed = make_change_point(1)
    html = history_html(History(series=shares([0.8, 0.7]), changes=(changed,)), UTC)

    assert "◆ +20.0% time" in html
    assert changed.evidence in html


def test_each_kind_of_mark_has_a_lane_of_its_own() -> None:
    old = RunSetting("1", driver_version="570.1", toolchain=(("triton", "3.5"),))
    new = replace(old, driver_version="580.2", toolchain=(("triton", "3.6"),))
    points = tuple(make_point(number, setting=old if number < 2 else new) for number in range(4))
    series = Series(make_series_key(), points)
    releases = [LaneMark(make_commit_ref(3).committed_at, "v0.5.0")]

    lanes = lanes_of([series], releases)

    assert {lane.name: [mark.text for mark in lane.marks] for lane in lanes} == {
        "releases": ["v0.5.0"],
        "driver": ["570.1 → 580.2"],
        "toolchain": ["triton 3.5 → 3.6"],
    }
    html = history_html(History(series=series, lanes=tuple(lanes)), UTC)
    assert html.index("releases</div>") < html.index("v0.5.0") < html.index("driver</div>")


def drawn_with_vendor() -> str:
    """A time below that of the vendor."""
    vendor = make_series([20_000.0], key=make_series_key(implementation="cudnn"))
    return history_html(History(series=make_series([10_000.0]), vendor=vendor), UTC)


def test_the_vendor_shares_the_axis() -> None:
    of_vendor, ours = heights(drawn_with_vendor())
    assert of_vendor < ours


def test_the_vendor_is_grey() -> None:
    assert 'stroke="#888888"><title>' in drawn_with_vendor()


def drawn_far_above_its_roof() -> str:
    roof = RoofLine("possible", 1_000.0, is_measured=True)
    return history_html(History(series=make_series([50_000.0, 60_000.0]), roofs=(roof,)), UTC)


def test_a_far_roof_does_not_flatten_a_time() -> None:
    places = heights(drawn_far_above_its_roof())
    assert max(places) - min(places) > 50


def test_a_far_roof_is_named_with_its_direction() -> None:
    assert "↓ possible 1 µs" in drawn_far_above_its_roof()


def test_a_reader_who_does_not_see_it_hears_its_levels_with_their_changes() -> None:
    history = History(series=make_series([10_000.0, 12_000.0]), changes=(make_change_point(1),))
    html = history_html(history, UTC)

    assert 'role="img"' in html
    assert "10 µs at first, 12 µs at last; 1 change" in html


def test_hostile_names_stay_text() -> None:
    commit = replace(make_commit_ref(0), subject=HOSTILE, author=HOSTILE)
    change = replace(make_change_point(1), evidence=HOSTILE)
    series = Series(make_series_key(implementation=HOSTILE), (make_point(0, commit=commit),))
    html = history_html(
        History(
            series=series,
            roofs=(RoofLine(HOSTILE, 10_000.0, is_measured=True),),
            changes=(replace(change, commit=commit),),
            lanes=tuple(lanes_of([], [LaneMark(commit.committed_at, HOSTILE)])),
        ),
        UTC,
    )

    assert "<script" not in html
    assert "<img" not in html


def test_histories_without_values_are_not_drawn() -> None:
    assert history_html(History(series=make_series([None])), UTC) == ""


@pytest.mark.parametrize(
    ("days", "texts"),
    [
        (0.5, ["1 Mar 12:00", "1 Mar 15:00", "1 Mar 18:00", "1 Mar 21:00", "2 Mar 00:00"]),
        (10, ["3 Mar", "5 Mar", "7 Mar", "9 Mar", "11 Mar"]),
        (200, ["Apr 2026", "May 2026", "Jun 2026", "Jul 2026", "Aug 2026", "Sep 2026"]),
        (1_000, ["Jul 2026", "Jan 2027", "Jul 2027", "Jan 2028", "Jul 2028"]),
    ],
)
def test_dates_are_round(days: float, texts: list[str]) -> None:
    scale = DateScale(NOON, NOON + timedelta(days=days))
    assert [tick.text for tick in date_ticks(scale, UTC, max_count=6)] == texts


def test_a_flat_series_gets_a_range() -> None:
    assert fit([0.0, 0.0], min_relative_span=0.1).low <= 0
    assert fit([10.0], min_relative_span=0.1).low == pytest.approx(9.44)


def test_labels_of_values_are_round() -> None:
    assert round_values(ValueScale(0.0, 1.0)) == pytest.approx([0, 0.5, 1])


def test_several_drawings_share_one_date_axis() -> None:
    early, late = (History(series=make_series([1.0] * count)) for count in (2, 9))
    shared = date_range([early, late])
    assert shared == fit_dates([point.commit.committed_at for point in late.series.points])


# --- where the setup changed


def measured_with(*settings: RunSetting) -> Series:
    points = tuple(make_point(number, setting=setting) for number, setting in enumerate(settings))
    return Series(make_series_key(), points)


def test_a_setting_change_names_both_values() -> None:
    (change,) = setting_changes([measured_with(OLD, OLD, NEW, NEW)])

    assert change.commit.sha == sha_of(2)
    assert change.words == ("driver 550.1 → 560.2", "triton 3.6.0 → 3.7.0")


def test_a_change_of_timing_is_listed_once_for_all_series() -> None:
    timings = ["host, hot", "host, hot", "host, cold"]
    changed = Series(
        make_series_key(), tuple(make_point(at, timing=timing) for at, timing in enumerate(timings))
    )
    likewise = replace(changed, key=make_series_key(case_id="swiglu/n=1/float32/fwd"))
    untimed = make_series([10_000.0] * 3, key=make_series_key(case_id="rope/n=1/float32/fwd"))

    (change,) = setting_changes([changed, likewise, untimed])

    assert change.commit.sha == sha_of(2)
    assert change.words == ("timed by host, hot → host, cold",)


def test_a_long_series_is_a_median_with_a_band() -> None:
    points = tuple(make_point(number, 10_000.0) for number in range(3))
    band = tuple(
        BandPoint(make_commit_ref(number), low, 10_000.0, 2 * low, 40)
        for number, low in enumerate((9_000.0, 9_500.0, 9_000.0))
    )
    html = history_html(History(series=Series(make_series_key(), points, band)), UTC)

    (area,) = re.findall(r'<polygon points="([^"]+)"', html)
    assert len(area.split()) == 6
    assert html.count("<polyline") == 1


def test_a_change_of_the_timer_has_a_lane() -> None:
    points = tuple(
        make_point(number, timing=timing) for number, timing in enumerate(("host", "cupti"))
    )
    (lane,) = lanes_of([Series(make_series_key(), points)], [])
    assert (lane.name, [mark.text for mark in lane.marks]) == ("timing", ["host → cupti"])

"""Figures of series over commits."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC
from functools import partial

import pytest

from roofwatch.dashboard.charts.setup_changes import setting_changes
from roofwatch.dashboard.charts.trend import Scale, series_names, trend_figure
from roofwatch.model.history import BandPoint, RunSetting, Series
from tests.builders import (
    make_change_point,
    make_commit_ref,
    make_regression,
    make_series_key,
    sha_of,
)
from tests.dashboard.values import HOSTILE, as_html, make_point, make_series, trace

drawn = partial(trend_figure, zone=UTC)
OLD = RunSetting(
    "0.1.0", driver_version="550.1", toolchain=(("triton", "3.6.0"),), machine=(("ecc", "True"),)
)
NEW = replace(OLD, driver_version="560.2", toolchain=(("triton", "3.7.0"),))


def test_points_stand_in_commit_order_in_seconds_and_a_failed_run_is_a_mark_with_its_outcome() -> (
    None
):
    figure = drawn([make_series([2e6, None, 4e6])], [])
    values = figure.data[0]
    assert list(values.x) == [0, 1, 2]
    assert (values.y[0], values.y[1], values.y[2]) == (
        pytest.approx(2e-3),
        None,
        pytest.approx(4e-3),
    )
    assert values.connectgaps is False
    assert figure.layout.yaxis.title.text == "time (s), lower is better"
    assert figure.layout.yaxis.ticksuffix == "s"
    failed = trace(figure, "failed run")
    assert (list(failed.x), list(failed.y), failed.yaxis) == ([1], ["✕ crashed"], "y2")
    assert figure.layout.yaxis2.visible is True


def test_commits_of_several_series_share_one_axis() -> None:
    early = make_series([1e6, 1e6, 1e6])
    late = replace(
        make_series([]),
        key=make_series_key(implementation="triton"),
        points=(make_point(2), make_point(3)),
    )
    figure = drawn([early, late], [])
    assert list(figure.data[1].x) == [2, 3]
    assert figure.layout.xaxis.ticktext[3] == make_commit_ref(3).short_sha


def test_a_change_point_names_commit_author_subject_and_standing() -> None:
    series = make_series([10_000.0, 12_000.0])
    regression = make_regression(1, change_points=(make_change_point(1),), is_confirmed=True)
    figure = drawn([series], [regression])
    mark = trace(figure, "regressed")
    commit = make_commit_ref(1)
    assert list(mark.x) == [1]
    for part in (
        commit.short_sha,
        commit.author,
        commit.subject,
        "+20.0%",
        "10 µs → 12 µs",
        "confirmed",
    ):
        assert part in mark.hovertext[0]
    assert [shape.x0 for shape in figure.layout.shapes] == [1]


def test_series_differ_in_symbol_and_dash_as_well_as_in_colour() -> None:
    keys = [make_series_key(implementation=name) for name in ("compile", "torch", "triton")]
    figure = drawn([make_series([1e6, 2e6], key=key) for key in keys], [])
    for style in (
        [one.marker.color for one in figure.data],
        [one.marker.symbol for one in figure.data],
        [one.line.dash for one in figure.data],
    ):
        assert len(set(style)) == 3


def test_series_are_named_by_their_differences() -> None:
    keys = [make_series_key(implementation=name) for name in ("torch", "triton")]
    assert series_names([make_series([1.0], key=key) for key in keys]) == ["torch", "triton"]
    assert series_names([make_series([1.0])]) == [make_series_key().label]


def test_a_further_metric_has_a_row_below_on_the_same_commits_and_an_imported_one_its_own_unit() -> (
    None
):
    times = make_series([1e6, 1e6, 1e6])
    rates = make_series([2e9, 3e9], key=make_series_key(metric="flop_per_s"))
    figure = drawn([times, rates], [])
    assert [one.yaxis for one in figure.data[:2]] == ["y", "y4"]
    assert figure.layout.yaxis4.title.text == "compute rate<br>(FLOP/s), higher is better"
    assert figure.layout.yaxis4.domain[1] < figure.layout.yaxis.domain[0]
    assert figure.layout.xaxis.anchor == "y4"
    assert [one.showlegend for one in figure.data[:2]] == [True, False]
    imported = drawn(
        [make_series([5.0, 6.0], key=make_series_key(metric="ttft mean (ms, unknown)"))], []
    )
    assert list(imported.data[0].y) == [5.0, 6.0]
    assert imported.layout.yaxis.title.text == "ttft mean (ms), direction unknown"


def test_relative_values_begin_at_one_whatever_their_size() -> None:
    large = make_series([4e6, 5e6])
    small = make_series([None, 200.0, 150.0], key=make_series_key(implementation="triton"))
    figure = drawn([large, small], [], scale=Scale.RELATIVE)
    assert list(figure.data[0].y) == pytest.approx([1, 1.25])
    assert list(figure.data[1].y[1:]) == pytest.approx([1, 0.75])
    assert figure.layout.yaxis.ticksuffix == "×"


def test_a_band_begins_where_the_setting_changed_and_ends_where_it_changed_again() -> None:
    hostile = replace(OLD, driver_version="<b>3.7.0</b>")
    figure = drawn([measured_with(OLD, hostile, hostile, OLD, OLD)], [])
    (band,) = figure.layout.shapes
    assert (band.x0, band.x1) == (0.5, 2.5)
    mark = trace(figure, "measurement setup changed")
    assert list(mark.x) == [1, 3]
    assert "driver 550.1 → &lt;b&gt;3.7.0" in mark.hovertext[0]


def test_points_of_a_thinned_series_keep_their_positions_and_few_commits_have_labels() -> None:
    places = {sha_of(0): 0, sha_of(1): 700, sha_of(2): 4_999}
    figure = drawn([make_series([1e6, 9e6, 1e6])], [], places=places)
    assert list(figure.data[0].x) == [0, 700, 4_999]
    assert figure.layout.xaxis.range[1] == pytest.approx(4_999.6)
    assert figure.layout.xaxis.tickvals[-1] == 4_999
    long = drawn([make_series([1e6] * 500)], [])
    assert len(long.layout.xaxis.tickvals) <= 16
    assert long.layout.xaxis.tickvals[-1] == 499


def test_a_long_series_is_a_median_with_a_band() -> None:
    band = tuple(BandPoint(make_commit_ref(at), 1e6 + at, 2e6 + at, 3e6 + at, 40) for at in (0, 1))
    figure = drawn([replace(make_series([9e6, None]), band=band)], [], scale=Scale.RELATIVE)
    area, median, *_ = figure.data
    assert (list(median.x), list(area.x)) == ([0, 1], [0, 1, 1, 0])
    assert list(median.y) == pytest.approx([1, 1 + 5e-7])
    assert list(area.y) == pytest.approx([1.5, 1.5, 0.5, 0.5], abs=1e-5)
    assert "median of 40 runs" in median.hovertext[0]
    assert make_commit_ref(0).short_sha in median.hovertext[0]
    assert list(trace(figure, "failed run").x) == [1]


def test_text_from_records_is_escaped_everywhere_on_a_trend() -> None:
    hostile_commit = replace(make_commit_ref(1), author=HOSTILE, subject=HOSTILE)
    key = make_series_key(implementation=HOSTILE)
    points = (
        make_point(1, commit=hostile_commit),
        make_point(1, None, commit=hostile_commit, message=HOSTILE),
    )
    change = make_change_point(1, series=key, commit=hostile_commit, evidence=HOSTILE)
    figure = drawn(
        [replace(make_series([], key=key), points=points)],
        [make_regression(1, change_points=(change,))],
    )
    assert "<img" not in as_html(figure)


def measured_with(*settings: RunSetting) -> Series:
    points = tuple(make_point(number, setting=setting) for number, setting in enumerate(settings))
    return Series(make_series_key(), points)


def test_a_setting_change_names_old_and_new_value() -> None:
    (change,) = setting_changes([measured_with(OLD, OLD, NEW, NEW)])

    assert change.commit.sha == sha_of(2)
    assert change.words == ("driver 550.1 → 560.2", "triton 3.6.0 → 3.7.0")


def test_a_change_of_timer_or_cache_state_is_listed_once_for_all_series() -> None:
    timings = ["host, hot", "host, hot", "host, cold"]
    changed = Series(
        make_series_key(), tuple(make_point(at, timing=timing) for at, timing in enumerate(timings))
    )
    likewise = replace(changed, key=make_series_key(case_id="swiglu/n=1/float32/fwd"))
    untimed = make_series([10_000.0] * 3, key=make_series_key(case_id="rope/n=1/float32/fwd"))

    (change,) = setting_changes([changed, likewise, untimed])

    assert change.commit.sha == sha_of(2)
    assert change.words == ("timed by host, hot → host, cold",)

from dataclasses import replace
from typing import Any

import plotly.graph_objects as go
import pytest

from collector.part import Outcome
from dashboard.charts import roofline_figure, series_names, trend_figure
from db.values import CeilingValue, RegressionState, Verdict
from tests.builders import make_change_point, make_commit_ref, make_regression, make_series_key
from tests.dashboard.values import make_failed_case, make_measured_case, make_point, make_series

HOSTILE = "<img src=x onerror=alert(1)><b>bold</b>"
CEILINGS = (
    CeilingValue("memory", "dram", None, 1e10),
    CeilingValue("memory", "cache", None, 1e11),
    CeilingValue("compute", None, "float32", 1e12),
    CeilingValue("compute", None, "bfloat16", 5e11),
)


def trace(figure: go.Figure, name: str) -> Any:
    return next(trace for trace in figure.data if trace.name == name)


def names(figure: go.Figure) -> list[str]:
    return [trace.name for trace in figure.data]


def test_points_stand_in_commit_order_in_seconds() -> None:
    figure = trend_figure([make_series([2e6, 3e6, 4e6])], [])
    values = figure.data[0]
    assert list(values.x) == [0, 1, 2]
    assert list(values.y) == pytest.approx([2e-3, 3e-3, 4e-3])
    assert figure.layout.yaxis.title.text == "time (s), lower is better"
    assert figure.layout.yaxis.ticksuffix == "s"


def test_whiskers_reach_the_quartiles() -> None:
    series = make_series([1e6])
    point = make_point(0, 1e6, low=0.9e6, high=1.3e6)
    values = trend_figure([replace(series, points=(point,))], []).data[0]
    assert list(values.error_y.array) == pytest.approx([0.3e-3])
    assert list(values.error_y.arrayminus) == pytest.approx([0.1e-3])


def test_a_failed_run_is_a_mark_with_its_outcome_and_no_number() -> None:
    figure = trend_figure([make_series([1e6, None, 1e6])], [])
    assert figure.data[0].y[1] is None
    assert figure.data[0].connectgaps is False
    failed = trace(figure, "failed run")
    assert (list(failed.x), list(failed.y), failed.yaxis) == ([1], ["✕ crashed"], "y2")
    assert figure.layout.yaxis2.visible is True


def test_without_failures_there_is_no_strip_for_them() -> None:
    figure = trend_figure([make_series([1e6, 1e6])], [])
    assert "failed run" not in names(figure)
    assert figure.layout.yaxis2.visible is False


def test_commits_of_several_series_share_one_axis() -> None:
    early = make_series([1e6, 1e6, 1e6])
    late = replace(make_series([]), key=make_series_key(implementation="triton"), points=(make_point(2), make_point(3)))
    figure = trend_figure([early, late], [])
    assert list(figure.data[1].x) == [2, 3]
    assert figure.layout.xaxis.ticktext[3] == make_commit_ref(3).short_sha


def test_a_change_point_names_commit_author_subject_and_standing() -> None:
    series = make_series([10_000.0, 12_000.0])
    regression = make_regression(1, change_points=(make_change_point(1),), is_confirmed=True)
    figure = trend_figure([series], [regression])
    mark = trace(figure, "regressed")
    commit = make_commit_ref(1)
    assert list(mark.x) == [1]
    for part in (commit.short_sha, commit.author, commit.subject, "+20.0%", "10 µs → 12 µs", "confirmed"):
        assert part in mark.hovertext[0]
    assert [shape.x0 for shape in figure.layout.shapes] == [1]


def test_change_points_of_other_series_are_not_drawn() -> None:
    elsewhere = make_change_point(1, series=make_series_key(implementation="triton"))
    figure = trend_figure([make_series([1e6, 2e6])], [make_regression(1, change_points=(elsewhere,))])
    assert names(figure) == [make_series_key().label]
    assert not figure.layout.shapes


def test_a_dismissed_change_point_says_so() -> None:
    regression = make_regression(1, state=RegressionState.DISMISSED)
    figure = trend_figure([make_series([1e6, 2e6])], [regression])
    assert "dismissed: measured again and not there" in trace(figure, "regressed").hovertext[0]


def test_verdicts_differ_in_symbol_dash_and_word_as_well_as_in_colour() -> None:
    improved = make_change_point(2, verdict=Verdict.IMPROVED, after=8_000.0)
    figure = trend_figure(
        [make_series([1e6, 2e6, 1e6])],
        [make_regression(1), make_regression(2, verdict=Verdict.IMPROVED, change_points=(improved,))],
    )
    worse, better = trace(figure, "regressed"), trace(figure, "improved")
    assert worse.marker.symbol != better.marker.symbol
    assert worse.marker.color != better.marker.color
    assert len({shape.line.dash for shape in figure.layout.shapes}) == 2


def test_series_differ_in_symbol_and_dash_as_well_as_in_colour() -> None:
    keys = [make_series_key(implementation=name) for name in ("compile", "eager", "triton")]
    figure = trend_figure([make_series([1e6, 2e6], key=key) for key in keys], [])
    for style in (
        [trace.marker.color for trace in figure.data],
        [trace.marker.symbol for trace in figure.data],
        [trace.line.dash for trace in figure.data],
    ):
        assert len(set(style)) == 3


def test_series_are_named_by_what_tells_them_apart() -> None:
    keys = [make_series_key(implementation=name) for name in ("eager", "triton")]
    assert series_names([make_series([1.0], key=key) for key in keys]) == ["eager", "triton"]
    assert series_names([make_series([1.0])]) == [make_series_key().label]


def test_the_scale_is_logarithmic_on_request() -> None:
    series = [make_series([1e6, 2e6])]
    assert trend_figure(series, [], is_log_scale=True).layout.yaxis.type == "log"
    assert trend_figure(series, []).layout.yaxis.type == "linear"


@pytest.mark.parametrize(
    ("metric", "title", "suffix"),
    [
        ("flop_per_s", "compute rate (FLOP/s), higher is better", "FLOP/s"),
        ("local_bytes", "local memory per thread (bytes), lower is better", " B"),
        ("utilisation", "utilisation of the roof (share), higher is better", ""),
        ("rmse_ratio", "error (RMSE / RMS) (ratio), lower is better", ""),
    ],
)
def test_every_axis_names_its_unit(metric: str, title: str, suffix: str) -> None:
    figure = trend_figure([make_series([1.0], key=make_series_key(metric))], [])
    assert (figure.layout.yaxis.title.text, figure.layout.yaxis.ticksuffix) == (title, suffix)


def test_a_long_history_keeps_few_tick_labels_and_the_newest_commit() -> None:
    figure = trend_figure([make_series([1e6] * 500)], [])
    assert len(figure.layout.xaxis.tickvals) <= 16
    assert figure.layout.xaxis.tickvals[-1] == 499


def test_text_from_records_is_escaped_everywhere_on_a_trend() -> None:
    hostile_commit = replace(make_commit_ref(1), author=HOSTILE, subject=HOSTILE)
    key = make_series_key(implementation=HOSTILE)
    points = (
        make_point(1, commit=hostile_commit),
        make_point(1, None, commit=hostile_commit, message=HOSTILE),
    )
    change = make_change_point(1, series=key, commit=hostile_commit, evidence=HOSTILE)
    figure = trend_figure(
        [replace(make_series([], key=key), points=points)], [make_regression(1, change_points=(change,))]
    )
    assert "<img" not in figure.to_json().replace("\\u003c", "<")


def test_text_from_records_is_escaped_on_a_roofline() -> None:
    case = make_measured_case(implementation=HOSTILE, bound=HOSTILE)
    figure = roofline_figure([case], [CeilingValue("memory", HOSTILE, None, 1e10)])
    assert "<img" not in figure.to_json().replace("\\u003c", "<")


def test_a_case_stands_at_its_intensity_and_rate() -> None:
    case = make_measured_case(flop_count=40_000.0, memory_bytes=20_000.0, median_ns=10_000.0)
    point = trace(roofline_figure([case], CEILINGS), "eager")
    assert (list(point.x), list(point.y)) == ([2.0], [pytest.approx(4e9)])
    assert "25.0% of the memory roof" in point.hovertext[0]


def test_roofs_meet_at_the_ridge() -> None:
    figure = roofline_figure([make_measured_case()], CEILINGS)
    dram = trace(figure, "roof: dram 10 GB/s")
    flat = trace(figure, "roof: float32 1 TFLOP/s")
    assert (dram.x[1], dram.y[1]) == pytest.approx((100.0, 1e12))
    assert (flat.x[0], flat.y[0]) == pytest.approx((10.0, 1e12))


def test_compute_roofs_of_other_dtypes_are_left_out() -> None:
    figure = roofline_figure([make_measured_case()], CEILINGS)
    assert not [name for name in names(figure) if "bfloat16" in name]


@pytest.mark.parametrize(
    "case",
    [
        make_failed_case(Outcome.OUT_OF_MEMORY),
        make_measured_case(flop_count=0.0),
        make_measured_case(memory_bytes=0.0),
    ],
    ids=["failed", "no FLOP", "no bytes"],
)
def test_what_has_no_place_on_a_roofline_is_left_out(case: Any) -> None:
    assert "eager" not in names(roofline_figure([case], CEILINGS))


def test_a_run_without_ceilings_still_shows_its_points() -> None:
    assert names(roofline_figure([make_measured_case()], [])) == ["eager"]

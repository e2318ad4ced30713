"""The heat map of movements and the samples of base and head, as values."""

from __future__ import annotations

import re

from roofwatch.ci.history.movement import Movement
from roofwatch.collector.record.machine import Outcome
from roofwatch.dashboard.charts.distribution import distribution_figure
from roofwatch.dashboard.charts.heat_map import heat_map_html
from tests.builders import make_blocks, make_measurement

SLOWER = Movement("softmax", "A, 4 threads", 0.42, slower_count=2, faster_count=0)
FAILS = Movement("softmax", "B", None, slower_count=1, faster_count=0)
FASTER = Movement("matmul", "B", -0.2, slower_count=0, faster_count=1)


def heat_map(*kernels: str) -> str:
    moved = {(one.kernel, one.runner_class): one for one in (SLOWER, FAILS, FASTER)}
    measured = {*moved, ("rope", "B")}
    trends = {("softmax", "B"): "/trends?kernel=softmax&runner=B"}
    return heat_map_html(kernels, ["A, 4 threads", "B"], moved, measured, trends=trends)


def test_a_cell_says_what_moved_in_words_too_and_is_empty_where_nothing_is_measured() -> None:
    assert re.findall(r"<td[^>]*>(.*?)</td>", heat_map("softmax", "matmul", "rope")) == [
        "+42.0%",
        '<a href="/trends?kernel=softmax&amp;runner=B" target="_self">✕ fails</a>',
        *("", "-20.0%"),
        *("", "="),
    ]


def test_slower_and_faster_lie_on_two_sides_of_unchanged() -> None:
    slower, fails, faster, unchanged = re.findall(r"background:#(..)..(..)", heat_map("softmax", "matmul", "rope"))
    # red and blue of each
    assert unchanged == ("F2", "F2")
    assert int(fails[1], 16) <= int(slower[1], 16) < int(slower[0], 16)
    assert int(faster[0], 16) < int(faster[1], 16)


def test_names_of_kernels_are_text_in_labels_and_hovers() -> None:
    hostile = '"><img src=x onerror=alert(1)>'
    moved = {(hostile, hostile): Movement(hostile, hostile, 0.1, 1, 0)}
    written = heat_map_html([hostile], [hostile], moved, set(moved), trends={(hostile, hostile): hostile})
    assert "<img" not in written
    assert written.count("&quot;&gt;&lt;img") == 4 + 1


def test_every_sample_stands_below_the_curve_of_its_side() -> None:
    figure = distribution_figure(make_measurement(median_ns=1_000.0), make_measurement(median_ns=2_000.0))
    curves = {trace.name: trace for trace in figure.data if trace.mode == "lines"}
    head = curves["head, 6 samples"]
    assert (head.y[0], head.y[-1]) == (0.0, 1.0)
    assert (head.x[0], head.x[-1]) == (1_980e-9, 2_020e-9)
    assert curves["base, 6 samples"].line.dash != head.line.dash


def test_a_side_that_failed_is_left_out() -> None:
    figure = distribution_figure(make_measurement(), make_measurement(outcome=Outcome.CRASHED))
    assert {trace.name.split(",")[0] for trace in figure.data} == {"base"}


def test_a_long_tail_makes_the_axis_logarithmic() -> None:
    tail = make_measurement(blocks=make_blocks([1_000.0, 20_000.0]))
    assert distribution_figure(make_measurement(median_ns=1_000.0), tail).layout.xaxis.type == "log"
    assert distribution_figure(make_measurement(), make_measurement()).layout.xaxis.type == "linear"

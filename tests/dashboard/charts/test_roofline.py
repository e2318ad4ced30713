"""Rooflines, and bandwidths of cases without arithmetic."""

from __future__ import annotations

from datetime import UTC
from typing import Any

import pytest

from roofwatch.dashboard.charts.kernel import bandwidth_figure, points_of, roofline_figure
from tests.builders import (
    CASE_ID,
    make_case,
    make_ceiling,
    make_commit_ref,
    make_measurement,
    make_series_key,
)
from tests.dashboard.values import HOSTILE, as_html, make_series, names, trace

CEILINGS = (
    make_ceiling(per_s=1e10),
    make_ceiling(level="cache", per_s=1e11),
    make_ceiling(resource="compute", level=None, dtype="float32", per_s=1e12),
    make_ceiling(resource="compute", level=None, dtype="bfloat16", per_s=5e11),
)
CASE = make_case(flop_count=40_000.0, memory_bytes=20_000.0)


def test_a_case_is_drawn_at_its_intensity_and_rate_below_roofs_of_its_dtype_that_meet_at_the_ridge() -> (
    None
):
    placed = points_of([CASE], [make_measurement(median_ns=10_000.0, utilisation=0.25)])
    figure = roofline_figure(placed, CEILINGS, UTC)
    point = trace(figure, "torch")
    assert (list(point.x), list(point.y)) == ([2.0], [pytest.approx(4e9)])
    assert "25.0% of the memory roof" in point.hovertext[0]
    dram = trace(figure, "roof: dram 10 GB/s")
    flat = trace(figure, "roof: float32 1 TFLOP/s")
    assert (dram.x[1], dram.y[1]) == pytest.approx((100.0, 1e12))
    assert (flat.x[0], flat.y[0]) == pytest.approx((10.0, 1e12))
    assert not [name for name in names(figure) if "bfloat16" in name]


def test_a_path_joins_the_rates_of_its_case_in_the_order_of_commits() -> None:
    placed = points_of([CASE], [make_measurement()])
    path = trace(
        roofline_figure(placed, CEILINGS, UTC, make_series([20_000.0, None, 10_000.0])),
        "path of torch over commits",
    )
    assert list(path.x) == [2.0, 2.0]
    assert list(path.y) == pytest.approx([2e9, 4e9])
    assert path.mode == "lines+markers+text"
    assert list(path.text) == [
        f"first, {make_commit_ref(0).short_sha}",
        f"last, {make_commit_ref(2).short_sha}",
    ]


def test_text_from_records_is_escaped() -> None:
    placed = points_of([make_case()], [make_measurement(implementation=HOSTILE)])
    key = make_series_key(case_id=CASE_ID, implementation=HOSTILE)
    figure = roofline_figure(
        placed,
        [make_ceiling(resource="compute", level=None, dtype=HOSTILE)],
        UTC,
        make_series([1e6, 2e6], key=key),
    )
    assert "<img" not in as_html(figure)


def test_a_measured_memory_roof_ends_at_the_measured_compute_roof() -> None:
    published = make_ceiling(
        resource="compute", level=None, dtype="float32", per_s=9e11, source="datasheet"
    )
    measured = make_ceiling(resource="compute", level=None, dtype="float32", per_s=1e11)
    figure = roofline_figure(
        points_of([make_case()], [make_measurement()]), [make_ceiling(), measured, published], UTC
    )
    assert max(trace(figure, "roof: dram 10 GB/s").y) == pytest.approx(1e11)


COPY = "memory_copy/n=8/float32/fwd"
MEMORY_CEILINGS = (*CEILINGS, make_ceiling(per_s=2e10, source="datasheet"))


def copying(**fields: Any) -> Any:
    return make_case(COPY, flop_count=0.0, memory_bytes=40_000.0, **fields)


def test_a_case_without_arithmetic_is_drawn_at_its_bandwidth_below_measured_and_datasheet_ceilings() -> (
    None
):
    found = points_of([copying()], [make_measurement(COPY, median_ns=10_000.0, utilisation=0.4)])
    figure = bandwidth_figure(found, MEMORY_CEILINGS)
    point = trace(figure, "torch")
    assert (list(point.x), list(point.y)) == ([pytest.approx(4e9)], [COPY])
    assert "4 GB/s in 10 µs" in point.hovertext[0]
    assert "40.0% of the memory roof" in point.hovertext[0]
    assert figure.layout.xaxis.title.text == "memory rate (B/s), higher is better"
    dram, cache, published = (
        "roof: dram 10 GB/s",
        "roof: cache 100 GB/s",
        "roof: dram 20 GB/s, datasheet",
    )
    assert set(names(figure)) == {"torch", dram, cache, published}
    assert list(trace(figure, dram).x) == [1e10, 1e10]
    assert trace(figure, published).line.dash == "dot"


def test_a_collective_is_drawn_at_its_link_bandwidth_without_memory_ceilings() -> None:
    found = points_of([copying(bus_bytes=20_000.0)], [make_measurement(COPY, median_ns=10_000.0)])
    figure = bandwidth_figure(found, MEMORY_CEILINGS)
    assert names(figure) == ["torch"]
    assert list(trace(figure, "torch").x) == [pytest.approx(2e9)]
    assert figure.layout.xaxis.title.text == "bus bandwidth (B/s), higher is better"

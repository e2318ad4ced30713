"""Rooflines."""

from __future__ import annotations

import re

import pytest

from roofwatch.dashboard.charts.palette import PAGE_BLUE
from roofwatch.dashboard.charts.roofline import points_of, roofline_svg
from tests.builders import make_case, make_ceiling, make_measurement
from tests.dashboard.values import HOSTILE

CEILINGS = (
    make_ceiling(per_s=1e10),
    make_ceiling(level="cache", per_s=1e11),
    make_ceiling(resource="compute", level=None, dtype="float32", per_s=1e12),
    make_ceiling(resource="compute", level=None, dtype="bfloat16", per_s=5e11),
)
CASE = make_case(flop_count=40_000.0, memory_bytes=20_000.0)


def ends(svg: str, name: str) -> list[float]:
    """x and y of the start and the end of a roof."""
    pattern = r'<path d="M([\d.]+) ([\d.]+)L([\d.]+) ([\d.]+)"[^>]*><title>' + re.escape(name)
    found = re.search(pattern, svg)
    assert found is not None, name
    return [float(text) for text in found.groups()]


def test_a_case_has_its_rate_over_its_intensity() -> None:
    (point,) = points_of([CASE], [make_measurement(median_ns=10_000.0, utilisation=0.25)])

    assert point.intensity == 2.0
    assert point.flop_per_s == pytest.approx(4e9)
    assert "4 GFLOP/s in 10 µs, 25.0% of the memory roof" in point.title


def test_slopes_meet_the_flat_roof_at_the_ridge() -> None:
    svg = roofline_svg(points_of([CASE], [make_measurement()]), CEILINGS)

    dram, cache = ends(svg, "dram 10 GB/s"), ends(svg, "cache 100 GB/s")
    flat = ends(svg, "float32 1 TFLOP/s")
    assert cache[2:] == flat[:2]
    assert dram[3] == flat[1]


def test_the_roofs_of_its_dtype_alone_are_named() -> None:
    svg = roofline_svg(points_of([CASE], [make_measurement()]), CEILINGS)

    assert "bfloat16" not in svg
    for name in ("dram 10 GB/s</text>", "cache 100 GB/s</text>", "float32 1 TFLOP/s</text>"):
        assert name in svg


def test_a_point_lies_below_its_roof_by_the_share_that_it_misses() -> None:
    svg = roofline_svg(
        points_of([CASE], [make_measurement(median_ns=20_000.0, utilisation=0.1)]), CEILINGS
    )
    x1, y1, x2, y2 = ends(svg, "dram 10 GB/s")
    place = re.search(rf'<text x="([\d.]+)" y="([\d.]+)" fill="{re.escape(PAGE_BLUE)}"', svg)
    assert place is not None
    x, y = float(place[1]), float(place[2]) - 5
    roof_y = y1 + (y2 - y1) * (x - x1) / (x2 - x1)
    decades = [
        float(text)
        for text in re.findall(r'y="([\d.]+)" text-anchor="end">[\d.]+ [GT]?FLOP/s', svg)
    ]
    decade_px = (decades[0] - decades[-1]) / (len(decades) - 1)
    # 2 GFLOP/s of the 20 that the memory allows: a decade below
    assert y - roof_y == pytest.approx(decade_px, abs=0.5)


def test_a_datasheets_roof_is_a_dotted_peak() -> None:
    published = make_ceiling(per_s=2e10, source="datasheet")
    svg = roofline_svg(points_of([CASE], [make_measurement()]), [*CEILINGS, published])

    assert "peak dram 20 GB/s</text>" in svg
    assert svg.count("stroke-dasharray") == 1


def test_implementations_differ_in_their_symbol_too() -> None:
    measurements = [make_measurement(), make_measurement(implementation="triton")]
    svg = roofline_svg(points_of([CASE], measurements), CEILINGS)

    assert "●<title>" in svg
    assert "■<title>" in svg
    assert "●</span> torch" in svg


def test_cases_without_arithmetic_have_no_place_on_it() -> None:
    copying = make_case("memory_copy/n=8/float32/fwd", flop_count=0.0)
    assert points_of([copying], [make_measurement(copying.case_id)]) == []


def test_text_from_records_is_escaped() -> None:
    points = points_of([make_case()], [make_measurement(implementation=HOSTILE)])
    svg = roofline_svg(points, [make_ceiling(resource="compute", level=None, dtype=HOSTILE)])
    assert "<img" not in svg
    assert "<script" not in svg

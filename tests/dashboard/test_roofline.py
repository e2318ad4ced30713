from datetime import UTC
from typing import Any

import plotly.graph_objects as go
import pytest

from roofwatch.collector.record.machine import Outcome
from roofwatch.collector.record.measurement import CaseRecord, Measurement
from roofwatch.dashboard.charts.roofline import place, roofline_figure
from tests.builders import CASE_ID, make_case, make_ceiling, make_commit_ref, make_measurement, make_series_key
from tests.dashboard.values import make_series

HOSTILE = "<img src=x onerror=alert(1)><b>bold</b>"
CEILINGS = (
    make_ceiling(per_s=1e10),
    make_ceiling(level="cache", per_s=1e11),
    make_ceiling(resource="compute", level=None, dtype="float32", per_s=1e12),
    make_ceiling(resource="compute", level=None, dtype="bfloat16", per_s=5e11),
)
CASE = make_case(flop_count=40_000.0, memory_bytes=20_000.0)


def trace(figure: go.Figure, name: str) -> Any:
    return next(trace for trace in figure.data if trace.name == name)


def names(figure: go.Figure) -> list[str]:
    return [trace.name for trace in figure.data]


def test_a_case_stands_at_its_intensity_and_rate() -> None:
    placed = place([CASE], [make_measurement(median_ns=10_000.0, utilisation=0.25)])
    point = trace(roofline_figure(placed, CEILINGS, UTC), "eager")
    assert (list(point.x), list(point.y)) == ([2.0], [pytest.approx(4e9)])
    assert "25.0% of the memory roof" in point.hovertext[0]


def test_roofs_meet_at_the_ridge() -> None:
    figure = roofline_figure(place([CASE], [make_measurement()]), CEILINGS, UTC)
    dram = trace(figure, "roof: dram 10 GB/s")
    flat = trace(figure, "roof: float32 1 TFLOP/s")
    assert (dram.x[1], dram.y[1]) == pytest.approx((100.0, 1e12))
    assert (flat.x[0], flat.y[0]) == pytest.approx((10.0, 1e12))


def test_compute_roofs_of_other_dtypes_are_left_out() -> None:
    figure = roofline_figure(place([CASE], [make_measurement()]), CEILINGS, UTC)
    assert not [name for name in names(figure) if "bfloat16" in name]


def test_the_datasheet_s_ceilings_are_thin_dotted_and_named_so() -> None:
    published = make_ceiling(per_s=2e10, source="datasheet")
    figure = roofline_figure(place([CASE], [make_measurement()]), [*CEILINGS, published], UTC)
    line = trace(figure, "roof: dram 20 GB/s, datasheet").line
    assert (line.dash, line.width) == ("dot", 1)
    assert trace(figure, "roof: dram 10 GB/s").line.width == 2


@pytest.mark.parametrize(
    ("case", "measurement"),
    [
        (CASE, make_measurement(outcome=Outcome.OUT_OF_MEMORY)),
        (make_case(flop_count=0.0), make_measurement()),
        (make_case(memory_bytes=0.0), make_measurement()),
    ],
    ids=["failed", "no FLOP", "no bytes"],
)
def test_what_has_no_place_on_a_roofline_is_left_out(case: CaseRecord, measurement: Measurement) -> None:
    assert place([case], [measurement]) == []


def test_a_run_without_ceilings_still_shows_its_points() -> None:
    assert names(roofline_figure(place([CASE], [make_measurement()]), [], UTC)) == ["eager"]


def test_a_path_joins_the_rates_of_its_case_in_the_order_of_commits() -> None:
    placed = place([CASE], [make_measurement()])
    path = trace(
        roofline_figure(placed, CEILINGS, UTC, make_series([20_000.0, None, 10_000.0])), "path of eager over commits"
    )
    assert list(path.x) == [2.0, 2.0]
    assert list(path.y) == pytest.approx([2e9, 4e9])
    assert path.mode == "lines+markers+text"
    assert list(path.text) == [f"first, {make_commit_ref(0).short_sha}", f"last, {make_commit_ref(2).short_sha}"]


def test_one_commit_is_no_path() -> None:
    placed = place([CASE], [make_measurement()])
    assert len(names(roofline_figure(placed, (), UTC, make_series([10_000.0])))) == 1


def test_text_from_records_is_escaped() -> None:
    placed = place([make_case()], [make_measurement(implementation=HOSTILE)])
    key = make_series_key(case_id=CASE_ID, implementation=HOSTILE)
    figure = roofline_figure(
        placed,
        [make_ceiling(resource="compute", level=None, dtype=HOSTILE)],
        UTC,
        make_series([1e6, 2e6], key=key),
    )
    assert "<img" not in figure.to_json().replace("\\u003c", "<")

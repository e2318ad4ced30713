"""The figure of what moves bytes and computes nothing."""

from __future__ import annotations

from typing import Any

import plotly.graph_objects as go
import pytest
from sqlalchemy import Engine

from roofwatch.collector.record.machine import Outcome
from roofwatch.dashboard.charts.bandwidth import MAX_ROWS, bandwidth_figure, moved
from roofwatch.db.ingest.ingest import ingest_record
from tests.builders import make_case, make_ceiling, make_measurement, make_record
from tests.dashboard.conftest import OpenView
from tests.dashboard.measuring.seen import figures
from tests.dashboard.test_views import texts

COPY = "memory_copy/n=8/float32/fwd"
CEILINGS = (
    make_ceiling(per_s=1e10),
    make_ceiling(level="cache", per_s=1e11),
    make_ceiling(resource="compute", level=None, dtype="float32", per_s=1e12),
    make_ceiling(per_s=2e10, source="datasheet"),
)


def copying(case_id: str = COPY, **fields: Any) -> Any:
    return make_case(case_id, **{"flop_count": 0.0, "memory_bytes": 40_000.0, **fields})


def drawn(figure: go.Figure) -> dict[str, Any]:
    return {trace.name: trace for trace in figure.data}


def test_a_case_stands_at_the_rate_at_which_it_moves_bytes() -> None:
    found = moved([copying()], [make_measurement(COPY, median_ns=10_000.0, utilisation=0.4)])
    figure = bandwidth_figure(found, CEILINGS)
    point = drawn(figure)["eager"]
    assert (list(point.x), list(point.y)) == ([pytest.approx(4e9)], [COPY])
    assert "4 GB/s in 10 µs" in point.hovertext[0]
    assert "40.0% of the memory roof" in point.hovertext[0]
    assert figure.layout.xaxis.title.text == "memory rate (B/s), higher is better"


def test_only_the_memory_s_ceilings_are_drawn_those_of_the_datasheet_as_that() -> None:
    traces = drawn(bandwidth_figure(moved([copying()], [make_measurement(COPY)]), CEILINGS))
    assert set(traces) == {"eager", "roof: dram 10 GB/s", "roof: cache 100 GB/s", "roof: dram 20 GB/s, datasheet"}
    assert list(traces["roof: dram 10 GB/s"].x) == [1e10, 1e10]
    assert traces["roof: dram 20 GB/s, datasheet"].line.dash == "dot"


def test_a_collective_stands_at_the_bandwidth_of_its_links_without_the_memory_s_ceilings() -> None:
    found = moved([copying(bus_bytes=20_000.0)], [make_measurement(COPY, median_ns=10_000.0)])
    figure = bandwidth_figure(found, CEILINGS)
    assert set(drawn(figure)) == {"eager"}
    assert list(drawn(figure)["eager"].x) == [pytest.approx(2e9)]
    assert figure.layout.xaxis.title.text == "bus bandwidth (B/s), higher is better"


def test_what_computes_or_moves_nothing_or_was_not_timed_is_not_among_it() -> None:
    cases = [copying(), copying("a/n=1/float32/fwd", flop_count=1.0), copying("b/n=1/float32/fwd", memory_bytes=0.0)]
    measured = [make_measurement(case.case_id) for case in cases]
    failed = make_measurement(COPY, implementation="triton", outcome=Outcome.CRASHED)
    assert [one.case.case_id for one in moved(cases, [*measured, failed])] == [COPY]


def test_so_many_cases_are_drawn_in_their_natural_order() -> None:
    cases = [copying(f"memory_copy/n={n}/float32/fwd") for n in range(MAX_ROWS + 2, 0, -1)]
    figure = bandwidth_figure(moved(cases, [make_measurement(case.case_id) for case in cases]), ())
    rows = figure.layout.yaxis.categoryarray
    assert (len(rows), rows[-1], rows[0]) == (MAX_ROWS, cases[-1].case_id, f"memory_copy/n={MAX_ROWS}/float32/fwd")
    assert len(figure.data[0].x) == MAX_ROWS


def test_a_hostile_name_stays_text() -> None:
    figure = bandwidth_figure(moved([copying()], [make_measurement(COPY, implementation="<b>x</b>")]), ())
    assert figure.data[0].name == "&lt;b&gt;x&lt;/b&gt;"
    assert "<b>x</b>" not in figure.data[0].hovertext[0]


@pytest.mark.parametrize(
    ("fields", "count", "words"),
    [
        ({}, 1, "bytes that the case at least reads and writes"),
        ({"bus_bytes": 20_000.0}, 1, "No run measures a ceiling of the links"),
        ({"memory_bytes": 0.0}, 0, "no roof to hold them to"),
    ],
    ids=["memory", "links", "nothing"],
)
def test_the_kernel_view_is_never_empty_without_a_word(
    open_view: OpenView, store: Engine, fields: dict[str, Any], count: int, words: str
) -> None:
    ingest_record(store, make_record(cases=(copying(**fields),), measurements=[make_measurement(COPY)]))
    app = open_view("kernel", kernel="memory_copy")
    assert not app.exception
    assert figures(app) == count
    assert words in texts(app)

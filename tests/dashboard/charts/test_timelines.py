"""Figures of the time of a run."""

from __future__ import annotations

from datetime import UTC, timedelta
from typing import Any

import plotly.graph_objects as go
import pytest

from roofwatch.collector.profiling.activities import DeviceActivity
from roofwatch.dashboard.charts.runs import (
    MAX_KERNELS,
    MAX_SHOWN,
    device_timeline_figure,
    run_timeline_figure,
    thinned,
)
from tests.builders import make_measurement, make_record
from tests.dashboard.gpu_history import BLOCK_COUNT, HOT_AT, gpu_record
from tests.dashboard.values import HOSTILE, as_html


def traces(figure: go.Figure, name: str) -> list[Any]:
    return [one for one in figure.data if one.name == name]


def axis_titles(figure: go.Figure) -> list[str]:
    return [axis.title.text for axis in figure.select_yaxes() if axis.title.text]


def test_readings_share_the_axis_of_time_with_blocks() -> None:
    record = gpu_record()
    figure = run_timeline_figure(record, UTC)
    assert axis_titles(figure) == ["clock (MHz)", "power (W)", "temperature (°C)", "kernel"]
    clock = traces(figure, "SM clock")[0]
    assert clock.x[0] == record.started_at.replace(tzinfo=None)
    (triton,) = traces(figure, "triton")
    assert len(triton.base) == 2 * BLOCK_COUNT
    assert triton.base[0] == record.started_at.replace(tzinfo=None)
    # ten launches a sample; drawn in milliseconds
    assert triton.x[0] == pytest.approx(
        sum(record.measurements[0].blocks[0].samples_ns) * 10 / 1e6, rel=1e-3
    )
    assert "time of day" in {axis.title.text for axis in figure.select_xaxes()}


def test_throttling_is_a_bar_over_its_time() -> None:
    figure = run_timeline_figure(gpu_record(HOT_AT), UTC)
    assert "throttled by" in axis_titles(figure)
    (held,) = traces(figure, "throttled: hw thermal slowdown")
    assert [axis.type for axis in figure.select_xaxes()] == ["date"] * 5
    assert list(held.x) == [pytest.approx((599 - 401) * 50.0)]


def test_throttled_blocks_are_crossed() -> None:
    figure = run_timeline_figure(gpu_record(HOT_AT), UTC)
    (triton,) = traces(figure, "triton")
    assert triton.marker.pattern.shape[0] == "x"
    assert triton.marker.pattern.shape[-1] != "x"
    assert "throttled by hw_thermal_slowdown" in triton.hovertext[0]


def test_many_readings_are_thinned_to_their_extremes() -> None:
    values: list[float | None] = [1.0] * 50_000
    values[12_345], values[33_333], values[40_000] = 900.0, -5.0, None
    kept = thinned(values)
    assert len(kept) <= 2_000
    assert {12_345, 33_333} <= set(kept)
    assert kept == sorted(kept)


def test_of_thousands_of_blocks_the_conspicuous_ones_are_drawn() -> None:
    record = gpu_record(HOT_AT)
    held_back = record.measurements[0].blocks[0]
    assert held_back.device_state is not None
    assert held_back.device_state.degraded_by
    calm = held_back.device_state.model_copy(update={"degraded_by": ()})
    blocks = [
        held_back.model_copy(
            update={
                "started_at": record.started_at + timedelta(milliseconds=number),
                "samples_ns": (9e6 if number == 1_234 else 1e3,),
                "device_state": held_back.device_state if number == 4_321 else calm,
            }
        )
        for number in range(10_000)
    ]
    measurement = record.measurements[0].model_copy(update={"blocks": tuple(blocks)})
    (drawn,) = traces(
        run_timeline_figure(record.model_copy(update={"measurements": (measurement,)}), UTC),
        measurement.implementation,
    )
    assert 1_000 < len(drawn.base) <= 2_001
    assert max(drawn.x) == pytest.approx(9e6 * measurement.launches_per_sample / 1e6)
    assert list(drawn.marker.pattern.shape).count("x") == 1


def test_of_many_kernels_the_longest_have_rows() -> None:
    names = [f"kernel_{number}/n=1/float32/fwd" for number in range(MAX_KERNELS + 5)]
    slow = make_measurement(names[-1], median_ns=9e6)
    record = make_record(measurements=[*map(make_measurement, names[:-1]), slow])
    rows = run_timeline_figure(record, UTC).layout.yaxis.categoryarray
    assert len(rows) == MAX_KERNELS
    assert names[-1].partition("/")[0] in rows


def test_text_from_records_is_escaped_on_the_timeline() -> None:
    case_id = f"{HOSTILE.replace('/', '')}/n=1/float32/fwd"
    record = make_record(measurements=[make_measurement(case_id, implementation=HOSTILE)])
    assert "<img" not in as_html(run_timeline_figure(record, UTC))


def make_activity(
    name: str = "softmax", *, start_ns: int = 0, duration_ns: int = 1_000, **fields: Any
) -> DeviceActivity:
    defaults: dict[str, Any] = {
        "kind": "kernel",
        "device": "0",
        "stream": 7,
        "correlation": 1,
        "bytes": 0,
        "launch": {},
    }
    return DeviceActivity(
        name=name, start_ns=start_ns, duration_ns=duration_ns, **defaults | fields
    )


def two_streams() -> go.Figure:
    return device_timeline_figure(
        [
            make_activity(start_ns=5_000),
            make_activity("copy", start_ns=9_000, stream=20, kind="memcpy"),
        ]
    )


def test_each_stream_is_a_row() -> None:
    rows = set(two_streams().layout.yaxis.categoryarray)
    assert rows == {"GPU 0, stream 7", "GPU 0, stream 20"}


def test_time_starts_at_the_first_activity() -> None:
    figure = two_streams()
    (copied,) = traces(figure, "copy")
    assert list(copied.base) == [pytest.approx(4e-6)]


def test_the_longest_activities_have_colours() -> None:
    activities = [
        make_activity(f"kernel {number}", duration_ns=1_000 - number) for number in range(8)
    ]
    names = [one.name for one in device_timeline_figure(activities).data]
    assert names == [*(f"kernel {number}" for number in range(5)), "all others"]


def test_of_many_activities_the_longest_are_drawn() -> None:
    activities = [
        make_activity(start_ns=number, duration_ns=number + 1) for number in range(MAX_SHOWN + 50)
    ]
    (bars,) = device_timeline_figure(activities).data
    assert len(bars.x) == MAX_SHOWN
    assert min(bars.x) == pytest.approx(51e-9)

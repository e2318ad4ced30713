"""Figures of runs: timelines of device readings, blocks and activities."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta, tzinfo
from itertools import groupby

import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from roofwatch.collector.profiling.activities import DeviceActivity
from roofwatch.dashboard.charts.palette import VERMILLION
from roofwatch.dashboard.charts.style import (
    DOUBTFUL,
    NAMED_PARTS,
    OTHERS,
    clock_times,
    hatched,
    lay_out,
    part_marker,
    pattern_of,
    rows_of,
    style_of,
)
from roofwatch.dashboard.wording import escaped, shortened
from roofwatch.model.machine import Telemetry
from roofwatch.model.measurement import Block, Measurement
from roofwatch.model.metrics import format_ns
from roofwatch.model.record import RunRecord

_MAX_POINTS = 2_000
"""Maximum points of a line, and blocks of an implementation."""
_ROW_PX = 22
"""Height of a throttle reason or kernel."""
_PANEL_PX = 110
"""Height of the readings of one unit."""
_GAP_PX = 24
_STREAM_PX = 60
_MIN_BLOCK_MS = 1.0
"""Minimum length of a bar."""
MAX_KERNELS = 40
"""Maximum rows of blocks: the kernels with the longest total time."""
MAX_SHOWN = 3_000
"""Maximum activities of a trace, longest first."""
_BLOCK_COLUMNS = (
    "implementation",
    "kernel",
    "started_at",
    "ms",
    "is_degraded",
    "hover",
)

_Lines = Mapping[str, Sequence[float | None]]
"""Readings by name."""


def run_timeline_figure(record: RunRecord, zone: tzinfo) -> go.Figure:
    """Draw clocks, power, temperature and throttle reasons above the blocks of samples."""
    telemetry = record.telemetry
    panels: dict[str, _Lines] = {}
    reasons: dict[str, list[bool]] = {}
    if telemetry is not None:
        panels = _panels(telemetry)
        reasons = _reasons(telemetry)
    blocks = _blocks(record)
    # each kernel takes a row
    ms_by_kernel = blocks.groupby("kernel")["ms"].sum()
    longest = ms_by_kernel.nlargest(MAX_KERNELS).index
    blocks = blocks[blocks["kernel"].isin(longest)]
    kernels = list(blocks["kernel"].unique())
    strips = {
        "throttled by": len(reasons),
        "kernel": len(kernels),
    }
    heights = dict.fromkeys(panels, _PANEL_PX)
    for title, count in strips.items():
        if count:
            heights[title] = max(count, 2) * _ROW_PX
    gap_count = max(len(heights) - 1, 0)
    total_px = sum(heights.values()) + _GAP_PX * gap_count
    row_count = max(len(heights), 1)
    figure = make_subplots(
        rows=row_count,
        cols=1,
        shared_xaxes=True,
        row_heights=list(heights.values()) or None,
        vertical_spacing=_GAP_PX / max(total_px, 1),
    )
    if telemetry is not None:
        # readings are stored as offsets from the first
        offsets = [timedelta(milliseconds=offset_ms) for offset_ms in telemetry.offset_ms]
        moments = [telemetry.started_at + offset for offset in offsets]
        times = clock_times(moments, zone)
        for row, lines in enumerate(panels.values(), start=1):
            _add_panel(figure, lines, times, row)
            figure.update_yaxes(
                rangemode="tozero",
                row=row,
                col=1,
            )
        _add_reasons(figure, reasons, times, len(panels) + 1)
    if kernels:
        _add_blocks(figure, blocks, zone, row_count)
        figure.update_yaxes(
            rows_of(kernels),
            row=row_count,
            col=1,
        )
    for row, title in enumerate(heights, start=1):
        figure.update_yaxes(
            title=title,
            row=row,
            col=1,
        )
    figure.update_xaxes(
        title="time of day",
        row=row_count,
        col=1,
    )
    figure.update_xaxes(type="date")
    height_px = 200
    if heights:
        height_px = total_px + 130
    return lay_out(
        figure,
        height=height_px,
        barmode="overlay",
    )


def _panels(telemetry: Telemetry) -> dict[str, _Lines]:
    """Return the readings by title of their panel and name."""
    panels: dict[str, _Lines] = {
        "clock (MHz)": {
            "SM clock": telemetry.sm_clock_mhz,
            "memory clock": telemetry.memory_clock_mhz,
        },
        "power (W)": {"power": telemetry.power_w},
        "temperature (°C)": {
            "GPU": telemetry.temperature_c,
            "memory": telemetry.memory_temperature_c,
        },
    }
    # a device without a sensor has no readings of it
    return {title: lines for title, lines in panels.items() if any(lines.values())}


def _reasons(telemetry: Telemetry) -> dict[str, list[bool]]:
    """Return in which readings each reason was given."""
    readings = telemetry.clock_event_reasons
    names: dict[str, None] = {}
    for reasons in readings:
        names |= dict.fromkeys(reasons)
    is_given: dict[str, list[bool]] = {}
    for name in names:
        is_given[name] = [name in reasons for reasons in readings]
    return is_given


def thinned(values: Sequence[float | None]) -> list[int]:
    """Return positions to draw, in order: the lowest, highest and first missing value of each
    stretch.
    """
    if len(values) <= _MAX_POINTS:
        return list(range(len(values)))
    series = pd.Series(list(values), dtype="float64")
    # three values of each stretch, so that spikes and gaps survive
    stretch_count = _MAX_POINTS // 3
    stretch = series.index * stretch_count // len(values)
    lowest = series.fillna(math.inf).groupby(stretch).idxmin()
    highest = series.fillna(-math.inf).groupby(stretch).idxmax()
    missing = series.isna().astype(int).groupby(stretch).idxmax()
    return sorted({*lowest, *highest, *missing})


def _add_panel(
    figure: go.Figure,
    lines: _Lines,
    times: Sequence[datetime],
    row: int,
) -> None:
    for name, values in lines.items():
        positions = thinned(values)
        if not positions:
            continue
        colour, _, dash = style_of(len(figure.data))
        figure.add_scatter(
            x=[times[position] for position in positions],
            y=[values[position] for position in positions],
            mode="lines",
            name=name,
            line={
                "color": colour,
                "dash": dash,
                "width": 1.5,
            },
            # a missing reading is a gap
            connectgaps=False,
            row=row,
            col=1,
        )


def _add_reasons(
    figure: go.Figure,
    reasons: Mapping[str, list[bool]],
    times: Sequence[datetime],
    row: int,
) -> None:
    for name, is_given in reasons.items():
        starts: list[datetime] = []
        lengths_ms: list[float] = []
        for is_set, group in groupby(range(len(is_given)), key=is_given.__getitem__):
            # stretches without the reason are no bars
            if is_set:
                readings = list(group)
                # a reading stands until the next one
                end = min(readings[-1] + 1, len(times) - 1)
                start = times[readings[0]]
                length = times[end] - start
                starts.append(start)
                lengths_ms.append(length / timedelta(milliseconds=1))
        title = escaped(shortened(name.replace("_", " ")))
        hover_name = escaped(name)
        figure.add_bar(
            orientation="h",
            y=[title] * len(starts),
            base=starts,
            x=lengths_ms,
            marker={
                "color": VERMILLION,
                "pattern": hatched(DOUBTFUL),
            },
            name=f"throttled: {title}",
            # the axis names the reason
            showlegend=False,
            hovertext=[f"{hover_name} for {length_ms / 1e3:.1f} s" for length_ms in lengths_ms],
            row=row,
            col=1,
        )


def _blocks(record: RunRecord) -> pd.DataFrame:
    """Return one row per block of samples, in order of measurement."""
    kernel_of = {case.case_id: case.kernel for case in record.cases}
    rows = []
    for measurement in record.measurements:
        kernel = escaped(shortened(kernel_of[measurement.case_id]))
        for number, block in enumerate(measurement.blocks, start=1):
            # from the first kernel of a launch to the end of its last, where that is known
            samples_ns = sum(block.span_ns or block.samples_ns)
            length_ms = samples_ns * measurement.launches_per_sample / 1e6
            state = block.device_state
            is_degraded = state is not None and bool(state.degraded_by)
            rows.append(
                {
                    "implementation": measurement.implementation,
                    "kernel": kernel,
                    "started_at": block.started_at,
                    "ms": max(length_ms, _MIN_BLOCK_MS),
                    "is_degraded": is_degraded,
                    "hover": _block_hover(measurement, number, block),
                }
            )
    # named, because a run without blocks has no rows to take them from
    return pd.DataFrame(rows, columns=_BLOCK_COLUMNS)


def _block_hover(measurement: Measurement, number: int, block: Block) -> str:
    median = format_ns(block.median_ns)
    lines = [
        f"<b>{escaped(measurement.case_id)}</b> {escaped(measurement.implementation)}",
        f"block {number}: {len(block.samples_ns)} samples, median {median}",
    ]
    state = block.device_state
    if state is not None:
        if state.sm_clock_mhz is not None:
            lines.append(f"SM clock {state.sm_clock_mhz:.0f} MHz")
        if state.degraded_by:
            reasons = escaped(", ".join(state.degraded_by))
            lines.append(f"throttled by {reasons}")
    return "<br>".join(lines)


def _add_blocks(
    figure: go.Figure,
    blocks: pd.DataFrame,
    zone: tzinfo,
    row: int,
) -> None:
    for index, (implementation, drawn) in enumerate(blocks.groupby("implementation")):
        # of too many blocks, those that a reader looks for: degraded ones, then long ones
        if len(drawn) > _MAX_POINTS:
            notable_first = drawn.sort_values(["is_degraded", "ms"], ascending=False)
            drawn = notable_first.head(_MAX_POINTS)
        colour, _, _ = style_of(index)
        patterns: list[str] = []
        for is_degraded in drawn["is_degraded"]:
            pattern = pattern_of(index)
            if is_degraded:
                pattern = DOUBTFUL
            patterns.append(pattern)
        figure.add_bar(
            orientation="h",
            y=list(drawn["kernel"]),
            base=clock_times(drawn["started_at"], zone),
            x=list(drawn["ms"]),
            marker={
                "color": colour,
                # keeps short blocks visible
                "line": {
                    "color": colour,
                    "width": 1,
                },
                "pattern": hatched(patterns),
            },
            name=escaped(str(implementation)),
            hovertext=list(drawn["hover"]),
            row=row,
            col=1,
        )


def device_timeline_figure(activities: Sequence[DeviceActivity]) -> go.Figure:
    """Draw kernels, copies and fills as bars, one row per stream of each device; at least one
    activity.
    """
    began_ns = min(activity.start_ns for activity in activities)
    longest_first = sorted(
        activities,
        key=lambda activity: activity.duration_ns,
        reverse=True,
    )
    # more bars would slow the browser down
    drawn = longest_first[:MAX_SHOWN]
    totals_ns: Counter[str] = Counter()
    for activity in activities:
        totals_ns[activity.name] += activity.duration_ns
    part_names = [name for name, _ in totals_ns.most_common(NAMED_PARTS)]
    parts: dict[str, list[DeviceActivity]] = {name: [] for name in [*part_names, OTHERS]}
    for activity in drawn:
        # rare names share one colour
        members = parts.get(activity.name, parts[OTHERS])
        members.append(activity)
    figure = go.Figure()
    for index, (name, members) in enumerate(parts.items()):
        if not members:
            continue
        figure.add_bar(
            orientation="h",
            y=[_stream(activity) for activity in members],
            base=[(activity.start_ns - began_ns) / 1e9 for activity in members],
            x=[activity.duration_ns / 1e9 for activity in members],
            marker={
                **part_marker(index),
                "line": {"width": 0},
            },
            name=escaped(shortened(name)),
            hovertext=[_activity_hover(activity, began_ns) for activity in members],
        )
    rows = sorted({_stream(activity) for activity in drawn})
    return lay_out(
        figure,
        height=140 + _STREAM_PX * len(rows),
        barmode="overlay",
        xaxis={
            "title": "time since the first activity (s)",
            "tickformat": "~s",
            "ticksuffix": "s",
            "zeroline": False,
        },
        yaxis=rows_of(rows),
    )


def _activity_hover(activity: DeviceActivity, began_ns: int) -> str:
    name = escaped(shortened(activity.name, length=120))
    duration = format_ns(activity.duration_ns)
    start = format_ns(activity.start_ns - began_ns)
    return f"<b>{name}</b><br>{activity.kind}, {duration}, from {start} on"


def _stream(activity: DeviceActivity) -> str:
    return escaped(f"GPU {activity.device}, stream {activity.stream}")

"""Timelines of a run: device readings and blocks, activities on each stream, and wall time by activity."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo
from html import escape
from itertools import groupby

import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from roofwatch.collector.profiling.activities import Activity
from roofwatch.collector.record.machine import Telemetry
from roofwatch.collector.record.measurement import Block, Measurement
from roofwatch.collector.record.metrics import format_ns
from roofwatch.collector.record.record import RunRecord
from roofwatch.dashboard.charts.style import (
    BLUE,
    DOUBTFUL,
    GREEN,
    GREY,
    NAMED_PARTS,
    ORANGE,
    VERMILLION,
    calm_range,
    clock_times,
    hatched,
    lay_out,
    part_marker,
    pattern_of,
    rows_of,
    style_of,
)
from roofwatch.dashboard.wording import shortened

_MAX_POINTS = 2_000
"""Maximum points of a line."""
_ROW_PX, _PANEL_PX, _GAP_PX, _STREAM_PX, _ACTIVITY_PX = 22, 110, 24, 60, 34
_MIN_BLOCK = timedelta(milliseconds=1)
"""Minimum length of a bar."""
MAX_SHOWN = 3_000
"""Maximum activities of a trace, longest first."""
UNCOUNTED = "not counted"


@dataclass(frozen=True)
class _TimedBlock:
    measurement: Measurement
    number: int
    """Number within its measurement, from 1."""
    block: Block
    kernel: str

    @property
    def length(self) -> timedelta:
        """Return the total time of its samples."""
        sampled_ns = sum(self.block.span_ns or self.block.samples_ns) * self.measurement.launches_per_sample
        return timedelta(microseconds=sampled_ns / 1e3)

    @property
    def is_degraded(self) -> bool:
        return self.block.device_state is not None and bool(self.block.device_state.degraded_by)

    @property
    def hover(self) -> str:
        state = self.block.device_state
        lines = [
            f"<b>{escape(self.measurement.case_id)}</b> {escape(self.measurement.implementation)}",
            f"block {self.number}: {len(self.block.samples_ns)} samples, median {format_ns(self.block.median_ns)}",
        ]
        if state is not None and state.sm_clock_mhz is not None:
            lines.append(f"SM clock {state.sm_clock_mhz:.0f} MHz")
        if state is not None and state.degraded_by:
            lines.append(f"throttled by {escape(', '.join(state.degraded_by))}")
        return "<br>".join(lines)


def run_timeline_figure(record: RunRecord, zone: tzinfo) -> go.Figure:
    """Draw clocks, power, temperature and throttle reasons above the blocks of samples."""
    telemetry = record.telemetry
    panels = {} if telemetry is None else _panels(telemetry)
    reasons = {} if telemetry is None else _reasons(telemetry)
    kernel_of = {case.case_id: case.kernel for case in record.cases}
    blocks = [
        _TimedBlock(one, number, block, kernel_of[one.case_id])
        for one in record.measurements
        for number, block in enumerate(one.blocks, start=1)
    ]
    kernels = list(dict.fromkeys(one.kernel for one in blocks))
    strips = [("throttled by", len(reasons)), ("kernel", len(kernels))]
    rows = [
        *((title, _PANEL_PX) for title in panels),
        *((title, max(count, 2) * _ROW_PX) for title, count in strips if count),
    ]
    figure = make_subplots(rows=max(len(rows), 1), cols=1, shared_xaxes=True)
    if telemetry is not None:
        times = clock_times((telemetry.started_at + timedelta(milliseconds=ms) for ms in telemetry.offset_ms), zone)
        for row, lines in enumerate(panels.values(), start=1):
            _add_panel(figure, lines, times, row)
        _add_reasons(figure, reasons, times, len(panels) + 1)
    if kernels:
        _add_blocks(figure, blocks, zone, len(rows))
        figure.update_yaxes(rows_of([escape(shortened(kernel)) for kernel in kernels]), row=len(rows), col=1)
    total_px = sum(height for _, height in rows) + _GAP_PX * max(len(rows) - 1, 0)
    top = 1.0
    for row, (title, height) in enumerate(rows, start=1):
        bottom = top - height / total_px
        figure.update_yaxes(domain=[max(bottom, 0.0), top], title=title, row=row, col=1)
        top = bottom - _GAP_PX / total_px
    figure.update_xaxes(title="time of day", row=max(len(rows), 1), col=1)
    figure.update_xaxes(type="date")
    return lay_out(figure, height=total_px + 130 if rows else 200, barmode="overlay")


_Line = tuple[str, Sequence[float | None], str, str]
"""Name, values, colour, dash."""


def _panels(telemetry: Telemetry) -> dict[str, list[_Line]]:
    """Return the lines of each panel by title."""
    offered: dict[str, list[_Line]] = {
        "clock (MHz)": [
            ("SM clock", telemetry.sm_clock_mhz, BLUE, "solid"),
            ("memory clock", telemetry.memory_clock_mhz, ORANGE, "dash"),
        ],
        "power (W)": [("power", telemetry.power_w, GREEN, "solid")],
        "temperature (°C)": [("temperature", telemetry.temperature_c, VERMILLION, "solid")],
    }
    return {title: lines for title, lines in offered.items() if any(values for _, values, _, _ in lines)}


def _reasons(telemetry: Telemetry) -> dict[str, list[bool]]:
    """Return in which readings each reason was given."""
    names = dict.fromkeys(name for reasons in telemetry.clock_event_reasons for name in reasons)
    return {name: [name in reasons for reasons in telemetry.clock_event_reasons] for name in names}


def thinned(values: Sequence[float | None], max_points: int = _MAX_POINTS) -> list[int]:
    """Return positions to draw, in order: the lowest, highest and first missing value of each stretch."""
    if len(values) <= max_points:
        return list(range(len(values)))
    known = pd.Series(list(values), dtype="float64")
    stretch = known.index * (max_points // 3) // len(values)
    lowest = known.fillna(math.inf).groupby(stretch).idxmin()
    highest = known.fillna(-math.inf).groupby(stretch).idxmax()
    missing = known.isna().astype(int).groupby(stretch).idxmax()
    return sorted({*lowest, *highest, *missing})


def _add_panel(figure: go.Figure, lines: Sequence[_Line], times: Sequence[datetime], row: int) -> None:
    for name, values, colour, dash in lines:
        kept = thinned(values)
        if kept:
            figure.add_scatter(
                x=[times[at] for at in kept],
                y=[values[at] for at in kept],
                mode="lines",
                name=name,
                line={"color": colour, "dash": dash, "width": 1.5},
                connectgaps=False,
                row=row,
                col=1,
            )
    figure.update_yaxes(range=calm_range([value for _, values, _, _ in lines for value in values]), row=row, col=1)


def _add_reasons(figure: go.Figure, reasons: Mapping[str, list[bool]], times: Sequence[datetime], row: int) -> None:
    for name, is_given in reasons.items():
        spells = _spells(is_given)
        lengths = [times[last] - times[first] for first, last in spells]
        title = escape(shortened(name.replace("_", " ")))
        figure.add_bar(
            orientation="h",
            y=[title] * len(spells),
            base=[times[first] for first, _ in spells],
            x=[_milliseconds(length) for length in lengths],
            marker={"color": VERMILLION, "pattern": hatched(DOUBTFUL)},
            name=f"throttled: {title}",
            showlegend=False,
            hovertext=[f"{escape(name)} for {length.total_seconds():.1f} s" for length in lengths],
            row=row,
            col=1,
        )


def _spells(flags: Sequence[bool]) -> list[tuple[int, int]]:
    """Return first and last position of each run of true values."""
    spells = []
    for is_set, group in groupby(range(len(flags)), key=lambda at: flags[at]):
        positions = list(group)
        if is_set:
            spells.append((positions[0], min(positions[-1] + 1, len(flags) - 1)))
    return spells


def _add_blocks(figure: go.Figure, blocks: Sequence[_TimedBlock], zone: tzinfo, row: int) -> None:
    for index, implementation in enumerate(sorted({one.measurement.implementation for one in blocks})):
        own = _longest([one for one in blocks if one.measurement.implementation == implementation])
        colour = style_of(index)[0]
        figure.add_bar(
            orientation="h",
            y=[escape(shortened(one.kernel)) for one in own],
            base=clock_times((one.block.started_at for one in own), zone),
            x=[_milliseconds(max(one.length, _MIN_BLOCK)) for one in own],
            marker={
                "color": colour,
                # keeps short blocks visible
                "line": {"color": colour, "width": 1},
                "pattern": hatched([DOUBTFUL if one.is_degraded else pattern_of(index) for one in own]),
            },
            name=escape(implementation),
            hovertext=[one.hover for one in own],
            row=row,
            col=1,
        )


def _longest(blocks: Sequence[_TimedBlock]) -> Sequence[_TimedBlock]:
    """Keep degraded blocks and the longest others, if there are too many."""
    if len(blocks) <= _MAX_POINTS:
        return blocks
    return sorted(blocks, key=lambda one: (one.is_degraded, one.length), reverse=True)[:_MAX_POINTS]


def _milliseconds(length: timedelta) -> float:
    """Return Plotly's unit of lengths on a time axis."""
    return length.total_seconds() * 1e3


def device_timeline_figure(activities: Sequence[Activity]) -> go.Figure:
    """Draw kernels, copies and fills as bars, one row per stream of each device; at least one activity."""
    began_ns = min(activity.start_ns for activity in activities)
    shown = sorted(activities, key=lambda activity: activity.duration_ns, reverse=True)[:MAX_SHOWN]
    totals: Counter[str] = Counter()
    for activity in activities:
        totals[activity.name] += activity.duration_ns
    named = [name for name, _ in totals.most_common(NAMED_PARTS)]
    figure = go.Figure()
    for index, name in enumerate([*named, None]):
        own = [one for one in shown if (one.name == name if name is not None else one.name not in named)]
        if not own:
            continue
        figure.add_bar(
            orientation="h",
            y=[_stream(one) for one in own],
            base=[(one.start_ns - began_ns) / 1e9 for one in own],
            x=[one.duration_ns / 1e9 for one in own],
            marker={**part_marker(None if name is None else index), "line": {"width": 0}},
            name="all others" if name is None else escape(shortened(name)),
            hovertext=[
                f"<b>{escape(shortened(one.name, length=120))}</b><br>{one.kind}, {format_ns(one.duration_ns)}, "
                f"from {format_ns(one.start_ns - began_ns)} on"
                for one in own
            ],
        )
    rows = sorted({_stream(activity) for activity in shown})
    return lay_out(
        figure,
        height=140 + _STREAM_PX * len(rows),
        barmode="overlay",
        xaxis={"title": "time since the first activity (s)", "tickformat": "~s", "ticksuffix": "s", "zeroline": False},
        yaxis=rows_of(rows),
    )


def _stream(activity: Activity) -> str:
    return escape(f"GPU {activity.device}, stream {activity.stream}")


def spent_time_figure(spent_ns: Mapping[str, float], wall_ns: float) -> go.Figure:
    """Draw one bar per activity of a run, and one for uncounted wall time."""
    rest_ns = wall_ns - sum(spent_ns.values())
    parts = dict(spent_ns) | ({UNCOUNTED: rest_ns} if rest_ns > 0 else {})
    whole_ns = max(wall_ns, sum(parts.values())) or 1.0
    figure = go.Figure(
        go.Bar(
            orientation="h",
            y=[escape(name.replace("_", " ")) for name in parts],
            x=[value / 1e9 for value in parts.values()],
            text=[f"{format_ns(value)}, {value / whole_ns:.0%}" for value in parts.values()],
            textposition="outside",
            cliponaxis=False,
            marker={
                "color": [GREY if name == UNCOUNTED else BLUE for name in parts],
                "pattern": hatched([DOUBTFUL if name == UNCOUNTED else "" for name in parts]),
            },
        )
    )
    return lay_out(
        figure,
        height=90 + _ACTIVITY_PX * len(parts),
        showlegend=False,
        xaxis={"title": "wall time (s)", "range": [0, 1.2 * max(parts.values(), default=1.0) / 1e9]},
        yaxis={"autorange": "reversed"},
    )

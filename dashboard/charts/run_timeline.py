"""One run over its own time: what the device was seen at, and which case ran then."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo
from html import escape
from itertools import islice

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from roofwatch.collector.record.machine import Telemetry
from roofwatch.collector.record.measurement import Block, Measurement
from roofwatch.collector.record.metrics import format_ns
from roofwatch.collector.record.record import RunRecord
from roofwatch.dashboard.charts.clock_time import on_axis
from roofwatch.dashboard.charts.patterns import DOUBTFUL, hatched, pattern_of
from roofwatch.dashboard.charts.style import BLUE, GREEN, ORANGE, VERMILLION, calm_range, room_for, style_of
from roofwatch.dashboard.wording import shortened

_MAX_POINTS = 2_000
"""Of a line: as many as a wide screen has columns; of what lies between two, the extremes are kept."""
_READING_LENGTH = 4
"""Of a clock on the axis, such as `1980`."""
_ROW_PX = 22
_PANEL_PX = 110
_LEAST_BLOCK = timedelta(milliseconds=1)
"""A bar that is drawn at all."""

_NumberedBlock = tuple[Measurement, int, Block]
"""With its number within its measurement, from 1."""


@dataclass(frozen=True)
class _Panel:
    """One quantity of the telemetry above the blocks."""

    title: str
    lines: tuple[tuple[str, Sequence[float | None], str, str], ...]
    """Name, values, colour, dash."""


def run_timeline_figure(record: RunRecord, zone: tzinfo) -> go.Figure:
    """Clocks, power, temperature and what held the device back, over the blocks of samples that were taken meanwhile.

    A bar is as long as its samples together; what is done between launches lies in the gaps. Where nobody watched the
    device, the blocks stand alone.

    Args:
        record: Of the run, with a block at least or a reading.
        zone: Of the reader.
    """
    telemetry = record.telemetry
    panels = [] if telemetry is None else _panels(telemetry)
    reasons = {} if telemetry is None else _reasons(telemetry)
    timed = [measurement for measurement in record.measurements if measurement.blocks]
    kernel_of = {case.case_id: case.kernel for case in record.cases}
    kernels = list(dict.fromkeys(kernel_of[measurement.case_id] for measurement in timed))
    heights = [*([_PANEL_PX] * len(panels)), *_strip(len(reasons)), *_strip(len(kernels))]
    figure = make_subplots(rows=max(len(heights), 1), cols=1, shared_xaxes=True, vertical_spacing=0.03)
    if telemetry is not None:
        times = on_axis((telemetry.started_at + timedelta(milliseconds=ms) for ms in telemetry.offset_ms), zone)
        for row, panel in enumerate(panels, start=1):
            _add_panel(figure, panel, times, row)
        if reasons:
            _add_reasons(figure, reasons, times, len(panels) + 1)
    if kernels:
        _add_blocks(figure, timed, kernel_of, kernels, zone, len(heights))
    _lay_out(figure, heights, [*(panel.title for panel in panels), *["held back by"] * bool(reasons), "kernel"])
    longest = max((len(shortened(name)) for name in (*kernels, *reasons)), default=0)
    figure.update_layout(margin=room_for(max(longest, _READING_LENGTH), line_count=2))
    figure.update_xaxes(title="time of day", row=max(len(heights), 1), col=1)
    figure.update_xaxes(type="date")
    return figure


def thinned(values: Sequence[float | None], max_points: int = _MAX_POINTS) -> list[int]:
    """Which values to draw: the lowest and the highest of each stretch, and where nothing is known between values that
    are, in order; all of them if they are few.
    """
    if len(values) <= max_points:
        return list(range(len(values)))
    length = -(-len(values) * (3 if None in values else 2) // max_points)
    kept: list[int] = []
    for start in range(0, len(values), length):
        known = [(value, start + at) for at, value in enumerate(values[start : start + length]) if value is not None]
        drawn = {min(known)[1], max(known)[1]} if known else {start}
        unknown = (at for at in range(start, min(start + length, len(values))) if values[at] is None)
        kept += sorted(drawn | set(islice(unknown, 1)))
    return kept


def _panels(telemetry: Telemetry) -> list[_Panel]:
    offered = (
        _Panel(
            "clock (MHz)",
            (
                ("SM clock", telemetry.sm_clock_mhz, BLUE, "solid"),
                ("memory clock", telemetry.memory_clock_mhz, ORANGE, "dash"),
            ),
        ),
        _Panel("power (W)", (("power", telemetry.power_w, GREEN, "solid"),)),
        _Panel("temperature (°C)", (("temperature", telemetry.temperature_c, VERMILLION, "solid"),)),
    )
    return [panel for panel in offered if any(values for _, values, _, _ in panel.lines)]


def _reasons(telemetry: Telemetry) -> dict[str, list[bool]]:
    """Of each reason, in which readings it was given."""
    names = dict.fromkeys(name for reasons in telemetry.clock_event_reasons for name in reasons)
    return {name: [name in reasons for reasons in telemetry.clock_event_reasons] for name in names}


def _strip(row_count: int) -> list[float]:
    return [max(row_count, 2) * _ROW_PX] if row_count else []


def _add_panel(figure: go.Figure, panel: _Panel, times: Sequence[datetime], row: int) -> None:
    for name, values, colour, dash in panel.lines:
        if not values:
            continue
        kept = thinned(values)
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
    every = [value for _, values, _, _ in panel.lines for value in values]
    figure.update_yaxes(title=panel.title, range=calm_range(every), row=row, col=1)


def _add_reasons(figure: go.Figure, reasons: Mapping[str, list[bool]], times: Sequence[datetime], row: int) -> None:
    for name, is_given in reasons.items():
        spells = _spells(is_given)
        figure.add_bar(
            orientation="h",
            y=[escape(shortened(name.replace("_", " ")))] * len(spells),
            base=[times[first] for first, _ in spells],
            x=[_milliseconds(times[last] - times[first]) for first, last in spells],
            marker={"color": VERMILLION, "pattern": hatched(DOUBTFUL)},
            name=escape(f"held back: {name.replace('_', ' ')}"),
            showlegend=False,
            hovertext=[
                f"{escape(name)} for {(times[last] - times[first]).total_seconds():.1f} s" for first, last in spells
            ],
            hoverinfo="text",
            row=row,
            col=1,
        )


def _spells(flags: Sequence[bool]) -> list[tuple[int, int]]:
    """First and last position of each unbroken run of true ones; the last is where the next reading says otherwise."""
    spells, start = [], None
    for at, flag in enumerate([*flags, False]):
        if flag and start is None:
            start = at
        elif not flag and start is not None:
            spells.append((start, min(at, len(flags) - 1)))
            start = None
    return spells


def _add_blocks(
    figure: go.Figure,
    timed: Sequence[Measurement],
    kernel_of: Mapping[str, str],
    kernels: Sequence[str],
    zone: tzinfo,
    row: int,
) -> None:
    for index, implementation in enumerate(sorted({measurement.implementation for measurement in timed})):
        colour, _, _ = style_of(index)
        blocks = [
            (measurement, number, block)
            for measurement in timed
            if measurement.implementation == implementation
            for number, block in enumerate(measurement.blocks, start=1)
        ]
        own = _most_telling(blocks, kernel_of)
        is_degraded = [block.device_state is not None and bool(block.device_state.degraded_by) for _, _, block in own]
        figure.add_bar(
            orientation="h",
            y=[escape(shortened(kernel_of[measurement.case_id])) for measurement, _, _ in own],
            base=on_axis((block.started_at for _, _, block in own), zone),
            x=[_milliseconds(max(_length(measurement, block), _LEAST_BLOCK)) for measurement, _, block in own],
            marker={
                "color": colour,
                # a short block is seen by its edge alone
                "line": {"color": colour, "width": 1},
                "pattern": hatched([DOUBTFUL if degraded else pattern_of(index) for degraded in is_degraded]),
            },
            name=escape(implementation),
            hovertext=[_block_hover(measurement, number, block) for measurement, number, block in own],
            hoverinfo="text",
            row=row,
            col=1,
        )
    figure.update_yaxes(
        categoryorder="array",
        categoryarray=[escape(shortened(kernel)) for kernel in reversed(kernels)],
        row=row,
        col=1,
    )


def _most_telling(blocks: Sequence[_NumberedBlock], kernel_of: Mapping[str, str]) -> list[_NumberedBlock]:
    """All of them if they are few; else of each kernel and moment of its own time the longest one, or the longest of
    those during which the device was at fault: what lies within a pixel or two cannot be told apart.
    """
    if len(blocks) <= _MAX_POINTS:
        return list(blocks)
    by_kernel: defaultdict[str, list[_NumberedBlock]] = defaultdict(list)
    for one in blocks:
        by_kernel[kernel_of[one[0].case_id]].append(one)
    kept: list[_NumberedBlock] = []
    for own in by_kernel.values():
        starts = [block.started_at for _, _, block in own]
        begin = min(starts)
        moment = max((max(starts) - begin) / (_MAX_POINTS // len(by_kernel) or 1), timedelta(microseconds=1))
        telling: dict[int, _NumberedBlock] = {}
        for one, start in zip(own, starts, strict=True):
            at = (start - begin) // moment
            telling[at] = max(telling.get(at, one), one, key=_weight)
        kept += telling.values()
    return kept


def _weight(one: _NumberedBlock) -> tuple[bool, timedelta]:
    measurement, _, block = one
    return block.device_state is not None and bool(block.device_state.degraded_by), _length(measurement, block)


def _length(measurement: Measurement, block: Block) -> timedelta:
    sampled_ns = sum(block.span_ns or block.samples_ns) * measurement.launches_per_sample
    return timedelta(microseconds=sampled_ns / 1e3)


def _milliseconds(length: timedelta) -> float:
    """The unit of lengths on Plotly's axis of time."""
    return length.total_seconds() * 1e3


def _block_hover(measurement: Measurement, number: int, block: Block) -> str:
    state = block.device_state
    lines = [
        f"<b>{escape(measurement.case_id)}</b> {escape(measurement.implementation)}",
        f"block {number}: {len(block.samples_ns)} samples, median {format_ns(block.median_ns)}",
    ]
    if state is not None and state.sm_clock_mhz is not None:
        lines.append(f"SM clock {state.sm_clock_mhz:.0f} MHz")
    if state is not None and state.degraded_by:
        lines.append(f"held back by {escape(', '.join(state.degraded_by))}")
    return "<br>".join(lines)


def _lay_out(figure: go.Figure, heights: Sequence[float], titles: Sequence[str]) -> None:
    """Panels as high as their rows ask for, from the top down."""
    # the legend stands above, and times of day on two lines below
    gap_px, edge_px = 24, 130
    total = sum(heights) + gap_px * max(len(heights) - 1, 0)
    top = 1.0
    for row, height in enumerate(heights, start=1):
        bottom = top - height / total
        figure.update_yaxes(domain=[max(bottom, 0.0), top], title=titles[row - 1], row=row, col=1)
        top = bottom - gap_px / total
    figure.update_layout(
        height=total + edge_px if heights else 200,
        barmode="overlay",
        hovermode="closest",
        showlegend=True,
        legend={"orientation": "h", "yanchor": "bottom", "y": 1.02, "x": 0},
    )

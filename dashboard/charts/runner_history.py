"""One case on one runner over time: its time, and what the device was seen at meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import tzinfo
from html import escape

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from roofwatch.collector.record.metrics import format_ns
from roofwatch.dashboard.charts.clock_time import on_axis
from roofwatch.dashboard.charts.style import BLUE, ORANGE, VERMILLION, calm_range, commit_lines, room_for
from roofwatch.db.values import Series, SeriesPoint

_PANEL_PX = 150
_LABEL_LENGTH = 7
"""Of a time on the axis, such as `20.35µs`."""


def runner_history_figure(series: Series, zone: tzinfo) -> go.Figure:
    """Times by when they were measured, above the clock and the temperature of their blocks.

    A time in which the device was held back, or shared, has a cross around it; a run that failed has no value.

    Args:
        series: Of times, with what was seen of the device, one value at least.
        zone: Of the reader.
    """
    points = sorted((point for point in series.points if point.value is not None), key=lambda point: point.measured_at)
    panels: list[tuple[str, str, Sequence[float | None]]] = [
        ("time (s)", "time", [None if point.value is None else point.value / 1e9 for point in points])
    ]
    if any(point.sm_clock_mhz is not None for point in points):
        panels.append(("SM clock (MHz)", "SM clock", [point.sm_clock_mhz for point in points]))
    if any(point.temperature_c is not None for point in points):
        panels.append(("temperature (°C)", "highest temperature", [point.temperature_c for point in points]))
    figure = make_subplots(rows=len(panels), cols=1, shared_xaxes=True, vertical_spacing=0.06)
    times = on_axis((point.measured_at for point in points), zone)
    for row, ((title, name, values), colour, symbol) in enumerate(
        zip(panels, (BLUE, ORANGE, VERMILLION), ("circle", "square", "triangle-up"), strict=False), start=1
    ):
        figure.add_scatter(
            x=times,
            y=list(values),
            mode="lines+markers",
            name=name,
            line={"color": colour, "width": 1},
            marker={"color": colour, "symbol": symbol, "size": 7},
            hovertext=[_hover(point, zone) for point in points],
            hoverinfo="text",
            row=row,
            col=1,
        )
        # of the times everything counts; of the device, what is more than a step of its sensors
        figure.update_yaxes(title=title, range=None if row == 1 else calm_range(values), row=row, col=1)
    figure.update_yaxes(tickformat="~s", ticksuffix="s", row=1, col=1)
    _add_doubtful(figure, points, zone)
    figure.update_xaxes(title="measured at", row=len(panels), col=1, type="date")
    figure.update_layout(
        height=100 + _PANEL_PX * len(panels),
        margin=room_for(_LABEL_LENGTH, line_count=2),
        hovermode="closest",
        showlegend=True,
        legend={"orientation": "h", "yanchor": "bottom", "y": 1.02, "x": 0},
    )
    return figure


def _add_doubtful(figure: go.Figure, points: Sequence[SeriesPoint], zone: tzinfo) -> None:
    doubtful = [point for point in points if point.degraded_by]
    if not doubtful:
        return
    figure.add_scatter(
        x=on_axis((point.measured_at for point in doubtful), zone),
        y=[(point.value or 0.0) / 1e9 for point in doubtful],
        mode="markers",
        name="held back or shared",
        marker={"color": VERMILLION, "symbol": "x-thin", "size": 14, "line": {"color": VERMILLION, "width": 2}},
        hovertext=[_hover(point, zone) for point in doubtful],
        hoverinfo="text",
        row=1,
        col=1,
    )


def _hover(point: SeriesPoint, zone: tzinfo) -> str:
    lines = [f"<b>{format_ns(point.value or 0.0)}</b>"]
    if point.sm_clock_mhz is not None:
        lines.append(f"SM clock {point.sm_clock_mhz:.0f} MHz")
    if point.temperature_c is not None:
        lines.append(f"{point.temperature_c:.0f} °C")
    if point.degraded_by:
        lines.append(f"held back or shared: {escape(', '.join(point.degraded_by))}")
    return "<br>".join([*lines, *commit_lines(point.commit, zone)])

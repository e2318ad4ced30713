"""A profile as one picture in a file of its own: what took the time, and how it was spread over the recording."""

from __future__ import annotations

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from roofwatch.collector.profiling.time_spent import TimeRow, TimeSpent
from roofwatch.profiles.profiling import ProfileReport, short_name

_ROWS = 12
_ROW_PX = 30


def to_html(report: ProfileReport) -> str:
    """The picture as a document that needs nothing from the network."""
    figure = to_figure(report)
    document: str = figure.to_html(include_plotlyjs=True, full_html=True)
    return document


def to_figure(report: ProfileReport) -> go.Figure:
    """Two panels: the kernels or operators that took the most, and the longest waits on the recording's time line."""
    leading = report.leading
    title = report.summary if leading is None else f"{leading.command}<br><sup>{_wrapped(report.summary)}</sup>"
    if leading is None:
        return go.Figure(layout={"title": {"text": title}})
    time = leading.time
    rows = (time.kernels or time.operators)[:_ROWS]
    what = "kernels of the GPU" if time.kernels else "operators on the host"
    figure = make_subplots(
        rows=2,
        cols=1,
        row_heights=[0.75, 0.25],
        vertical_spacing=0.16,
        subplot_titles=[f"What took the time: {what}", "The longest waits of the GPU"],
    )
    figure.add_trace(_bars(rows), row=1, col=1)
    for trace in _timeline(time):
        figure.add_trace(trace, row=2, col=1)
    figure.update_yaxes(autorange="reversed", row=1, col=1)
    figure.update_xaxes(title_text="ms in all", row=1, col=1)
    figure.update_xaxes(title_text="ms since the recording began", range=[0, time.window_ns / 1e6], row=2, col=1)
    figure.update_layout(
        title={"text": title},
        barmode="overlay",
        showlegend=False,
        template="plotly_white",
        height=360 + _ROW_PX * len(rows),
        margin={"l": 20, "t": 150},
    )
    return figure


def _bars(rows: tuple[TimeRow, ...]) -> go.Bar:
    return go.Bar(
        orientation="h",
        y=[short_name(row.name) for row in rows],
        x=[row.total_ns / 1e6 for row in rows],
        text=[f"{row.count} x" + (f", {row.share:.0%}" if row.share is not None else "") for row in rows],
        marker={"color": "#3b6fb6"},
        name="total",
    )


def _timeline(time: TimeSpent) -> list[go.Bar]:
    found = []
    for device in time.devices:
        label = f"GPU {device.device}"
        gaps = [gap for gap in time.gaps if gap.device == device.device]
        found.append(_bar(label, [(0, time.window_ns)], "#c9d7ec", [f"busy for {device.busy_share:.0%} of the time"]))
        spans = [(gap.after_start_ns, gap.length_ns) for gap in gaps]
        hints = [", ".join(name for name, _ in gap.host) or "outside of PyTorch" for gap in gaps]
        found.append(_bar(label, spans, "#c8553d", hints))
    return found


def _bar(label: str, spans: list[tuple[int, int]], color: str, hints: list[str]) -> go.Bar:
    return go.Bar(
        orientation="h",
        y=[label] * len(spans),
        base=[start / 1e6 for start, _ in spans],
        x=[length / 1e6 for _, length in spans],
        hovertext=hints,
        marker={"color": color},
    )


def _wrapped(text: str) -> str:
    return text.replace(". ", ".<br>")

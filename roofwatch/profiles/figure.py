"""A profile as a figure in a file of its own: what took the time, and when the GPU was idle."""

from collections.abc import Sequence

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from roofwatch.profiles.report import ProfileReport, short_name

_MAX_ROWS = 12
_ROW_PX = 30


def to_html(report: ProfileReport) -> str:
    """Render the figure as a document that needs nothing from the network."""
    document: str = to_figure(report).to_html(include_plotlyjs=True, full_html=True)
    return document


def to_figure(report: ProfileReport) -> go.Figure:
    """Draw the kernels or operators with the most time, and the longest idle times of the GPU."""
    leading = report.leading
    if leading is None:
        return go.Figure(layout={"title": {"text": report.summary}})
    time = leading.time
    rows = (time.kernels or time.operators)[:_MAX_ROWS]
    what = "kernels" if time.kernels else "operators on the host"
    figure = make_subplots(
        rows=2,
        cols=1,
        row_heights=[0.75, 0.25],
        vertical_spacing=0.16,
        subplot_titles=[f"Most time: {what}", "Longest idle times of the GPU"],
    )
    bars = _bars([short_name(row.name) for row in rows], [(0, row.total_ns) for row in rows], "#3b6fb6")
    bars.text = [f"{row.count} x" + (f", {row.share:.0%}" if row.share is not None else "") for row in rows]
    figure.add_trace(bars, row=1, col=1)
    for device in time.devices:
        gaps = [gap for gap in time.gaps if gap.device == device.device]
        label = f"GPU {device.device}"
        window = _bars([label], [(0, time.window_ns)], "#c9d7ec")
        window.hovertext = [f"busy for {device.busy_share:.0%} of the time"]
        idle = _bars([label] * len(gaps), [(gap.after_start_ns, gap.length_ns) for gap in gaps], "#c8553d")
        idle.hovertext = [", ".join(name for name, _ in gap.host) or "outside PyTorch" for gap in gaps]
        figure.add_traces([window, idle], rows=2, cols=1)
    figure.update_yaxes(autorange="reversed", row=1, col=1)
    figure.update_xaxes(title_text="total (ms)", row=1, col=1)
    figure.update_xaxes(title_text="ms since the start", range=[0, time.window_ns / 1e6], row=2, col=1)
    summary = report.summary.replace(". ", ".<br>")
    figure.update_layout(
        title={"text": f"{leading.command}<br><sup>{summary}</sup>"},
        barmode="overlay",
        showlegend=False,
        template="plotly_white",
        height=360 + _ROW_PX * len(rows),
        margin={"l": 20, "t": 150},
    )
    return figure


def _bars(labels: Sequence[str], spans_ns: Sequence[tuple[int, int]], colour: str) -> go.Bar:
    """Horizontal bars from a start over a length, in ms."""
    return go.Bar(
        orientation="h",
        y=list(labels),
        base=[start_ns / 1e6 for start_ns, _ in spans_ns],
        x=[length_ns / 1e6 for _, length_ns in spans_ns],
        marker={"color": colour},
    )

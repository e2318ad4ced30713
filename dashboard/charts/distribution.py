"""Raw samples of one case, base and head: empirical distributions and block medians."""

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from roofwatch.collector.record.measurement import Measurement
from roofwatch.collector.record.metrics import format_ns
from roofwatch.dashboard.charts.style import BLUE, GREY, VERMILLION, lay_out, logarithmic
from roofwatch.dashboard.wording import escaped

_MAX_POINTS = 1_000
"""Maximum points of a curve, enough for a screen."""
_LONG_TAIL = 8.0
"""Ratio of longest to shortest sample above which the axis is logarithmic."""
_SIDES = (("base", BLUE, "dash", "circle"), ("head", VERMILLION, "solid", "diamond"))


def distribution_figure(base: Measurement | None, head: Measurement | None) -> go.Figure:
    """Draw the empirical distributions of two runs, without a side that has no samples."""
    figure = make_subplots(rows=2, cols=1, shared_xaxes=True, row_heights=[0.7, 0.3], vertical_spacing=0.06)
    every_ns: list[float] = []
    for (name, colour, dash, symbol), measurement in zip(_SIDES, (base, head), strict=True):
        if measurement is None or not measurement.blocks:
            continue
        every_ns += measurement.samples_ns
        ordered = np.sort(np.asarray(measurement.samples_ns, dtype=float))
        shares = np.arange(1, len(ordered) + 1) / len(ordered)
        kept = np.unique(np.linspace(0, len(ordered) - 1, min(len(ordered), _MAX_POINTS)).round().astype(int))
        figure.add_scatter(
            # from the floor up to the first sample
            x=[ordered[0] * 1e-9, *(ordered[kept] * 1e-9).tolist()],
            y=[0.0, *shares[kept].tolist()],
            mode="lines",
            name=f"{name}, {len(ordered)} samples",
            line={"color": colour, "width": 2, "dash": dash, "shape": "hv"},
            hovertext=[
                "",
                *(
                    f"<b>{name}</b>: {share:.0%} of the launches took {escaped(format_ns(value))} or less"
                    for value, share in zip(ordered[kept], shares[kept], strict=True)
                ),
            ],
            row=1,
            col=1,
        )
        medians_ns = [block.median_ns for block in measurement.blocks]
        figure.add_scatter(
            x=[median_ns * 1e-9 for median_ns in medians_ns],
            y=[name] * len(medians_ns),
            mode="markers",
            name=f"{name}, medians of its blocks",
            marker={"color": colour, "symbol": symbol, "size": 10, "line": {"color": GREY, "width": 1}},
            hovertext=[
                f"<b>{name}</b>: block {number} of {len(medians_ns)}, median {escaped(format_ns(median_ns))}"
                for number, median_ns in enumerate(medians_ns, start=1)
            ],
            row=2,
            col=1,
        )
    has_long_tail = bool(every_ns) and max(every_ns) > _LONG_TAIL * min(every_ns)
    scale = logarithmic(every_ns) if has_long_tail else {"type": "linear", "zeroline": False}
    figure.update_xaxes(tickformat="~s", ticksuffix="s", **scale)
    figure.update_xaxes(title="time of a launch (s), lower is better", row=2)
    figure.update_yaxes(title="cumulative share of samples", tickformat=".0%", range=[0, 1.02], zeroline=False, row=1)
    figure.update_yaxes(title="blocks", showgrid=False, zeroline=False, row=2)
    return lay_out(figure, height=420)

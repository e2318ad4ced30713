"""Raw samples of one case before and after: every share of launches that was at least as fast, and each block."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from roofwatch.collector.record.measurement import Measurement
from roofwatch.collector.record.metrics import format_ns
from roofwatch.dashboard.charts.style import BLUE, GREY, VERMILLION, logarithmic_ticks, room_for

_MOST_POINTS = 1_000
"""Of one curve: more cannot be told apart on a screen, and the ends are kept."""
_LABEL_LENGTH = 4
"""Of a share on the axis, and of a side."""
_LONG_TAIL = 8.0
"""Longest over shortest, from which on the axis is logarithmic."""
_SIDES = (("base", BLUE, "dash", "circle"), ("head", VERMILLION, "solid", "diamond"))


def distribution_figure(base: Measurement | None, head: Measurement | None) -> go.Figure:
    """The samples of two runs over each other; a side that has none is left out."""
    figure = make_subplots(rows=2, cols=1, shared_xaxes=True, row_heights=[0.7, 0.3], vertical_spacing=0.06)
    for (name, colour, dash, symbol), measurement in zip(_SIDES, (base, head), strict=True):
        if measurement is None or not measurement.blocks:
            continue
        _add_shares(figure, measurement.samples_ns, name, colour, dash)
        _add_blocks(figure, measurement, name, colour, symbol)
    if _has_long_tail(base, head):
        figure.update_xaxes(type="log", zeroline=False, **logarithmic_ticks(_samples_of(base, head)))
    else:
        figure.update_xaxes(type="linear", tickformat="~s", ticksuffix="s", zeroline=False)
    figure.update_xaxes(title="time of a launch (s), lower is better", row=2)
    figure.update_yaxes(title="launches up to here", tickformat=".0%", range=[0, 1.02], zeroline=False, row=1)
    figure.update_yaxes(title="blocks", showgrid=False, zeroline=False, row=2)
    figure.update_layout(
        height=420,
        margin=room_for(_LABEL_LENGTH),
        hovermode="closest",
        legend={"orientation": "h", "yanchor": "bottom", "y": 1.02, "x": 0},
        showlegend=True,
    )
    return figure


def _has_long_tail(*sides: Measurement | None) -> bool:
    """A launch that was held up now and then would press all others against the axis."""
    samples = _samples_of(*sides)
    return bool(samples) and max(samples) > _LONG_TAIL * min(samples)


def _samples_of(*sides: Measurement | None) -> list[float]:
    return [sample for side in sides if side is not None for sample in side.samples_ns]


def _add_shares(figure: go.Figure, samples_ns: Sequence[float], name: str, colour: str, dash: str) -> None:
    """The empirical distribution function."""
    ordered = np.sort(np.asarray(samples_ns, dtype=float))
    shares = np.arange(1, len(ordered) + 1) / len(ordered)
    kept = np.unique(np.linspace(0, len(ordered) - 1, min(len(ordered), _MOST_POINTS)).round().astype(int))
    figure.add_scatter(
        # from the floor up to the first sample
        # as lists: a browser takes arrays that it reads twice for other ones, and draws them again
        x=(np.concatenate([ordered[:1], ordered[kept]]) * 1e-9).tolist(),
        y=[0.0, *shares[kept].tolist()],
        mode="lines",
        name=f"{name}, {len(ordered)} samples",
        line={"color": colour, "width": 2, "dash": dash, "shape": "hv"},
        hovertext=[
            "",
            *(
                f"<b>{name}</b>: {share:.0%} of the launches took {escape(format_ns(value))} or less"
                for value, share in zip(ordered[kept], shares[kept], strict=True)
            ),
        ],
        hoverinfo="text",
        row=1,
        col=1,
    )


def _add_blocks(figure: go.Figure, measurement: Measurement, name: str, colour: str, symbol: str) -> None:
    figure.add_scatter(
        x=[block.median_ns * 1e-9 for block in measurement.blocks],
        y=[name] * len(measurement.blocks),
        mode="markers",
        name=f"{name}, medians of its blocks",
        marker={"color": colour, "symbol": symbol, "size": 10, "line": {"color": GREY, "width": 1}},
        hovertext=[
            f"<b>{name}</b>: block {number} of {len(measurement.blocks)}, median {escape(format_ns(block.median_ns))}"
            for number, block in enumerate(measurement.blocks, start=1)
        ],
        hoverinfo="text",
        row=2,
        col=1,
    )

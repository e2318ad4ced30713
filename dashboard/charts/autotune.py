"""What the autotuner tried for one function: every configuration with its time."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

import plotly.graph_objects as go

from roofwatch.collector.record.measurement import Autotuning
from roofwatch.collector.record.metrics import format_ns
from roofwatch.dashboard.charts.style import BLUE, GREEN, GREY, VERMILLION, room_for
from roofwatch.dashboard.wording import shortened

_ROW_PX = 24
MAX_ROWS = 60
"""The fastest are drawn."""
CHOSEN, TRIED, NOT_RUN = "chosen", "tried", "could not run"


def autotune_figure(tuned: Autotuning) -> go.Figure:
    """Configurations by time, the fastest on top; what is equal in all of them is left out of their names.

    Args:
        tuned: With timings.
    """
    told = told_of(tuned)
    timed = sorted((one for one in tuned.timings if one.time_ns is not None), key=lambda one: one.time_ns or 0.0)
    failed = [one for one in tuned.timings if one.time_ns is None]
    shown = timed[:MAX_ROWS]
    rows = [_name(one.configuration, told) for one in (*shown, *failed)]
    figure = go.Figure()
    for name, symbol, colour in ((TRIED, "circle", BLUE), (CHOSEN, "star", GREEN)):
        own = [one for one in shown if (one.configuration == tuned.chosen) == (name == CHOSEN)]
        figure.add_scatter(
            x=[(one.time_ns or 0.0) / 1e9 for one in own],
            y=[_name(one.configuration, told) for one in own],
            mode="markers",
            name=name,
            marker={"color": colour, "symbol": symbol, "size": 12, "line": {"color": GREY, "width": 1}},
            hovertext=[f"{_name(one.configuration, told)}<br>{format_ns(one.time_ns or 0.0)}" for one in own],
            hoverinfo="text",
        )
    if failed:
        figure.add_scatter(
            x=[max((one.time_ns or 0.0 for one in shown), default=0.0) / 1e9] * len(failed),
            y=[_name(one.configuration, told) for one in failed],
            mode="text",
            text=[f"✕ {NOT_RUN}"] * len(failed),
            textposition="middle left",
            textfont={"color": VERMILLION},
            name=NOT_RUN,
            hoverinfo="skip",
        )
    figure.update_layout(
        height=120 + _ROW_PX * len(rows),
        margin=room_for(max(map(len, rows)), is_titled=False),
        showlegend=True,
        legend={"orientation": "h", "yanchor": "bottom", "y": 1.02, "x": 0},
        xaxis={"title": "time of a launch (s), lower is better", "tickformat": "~s", "ticksuffix": "s"},
        yaxis={"categoryorder": "array", "categoryarray": rows[::-1], "type": "category"},
    )
    return figure


def told_of(tuned: Autotuning) -> list[str]:
    """The settings that differ between the configurations."""
    every = [one.configuration for one in tuned.timings]
    names = dict.fromkeys(name for one in every for name in one)
    return [name for name in names if len({repr(one.get(name)) for one in every}) > 1] or list(names)


def _name(configuration: Mapping[str, object], told: list[str]) -> str:
    return escape(shortened(", ".join(f"{name}={configuration[name]}" for name in told if name in configuration)))

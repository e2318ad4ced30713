"""How noisy each case of a runner is, and what can be told apart on it."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import plotly.graph_objects as go

from roofwatch.ci.ab.noise_floor import DETECTABLE_AT, CaseNoise
from roofwatch.dashboard.charts.style import GREY, room_for, style_of
from roofwatch.dashboard.wording import shortened

_ROW_PX = 26
MAX_ROWS = 40
"""The noisiest are drawn."""


def noise_figure(cases: Sequence[CaseNoise]) -> go.Figure:
    """A row a case: its noise floor, and the smallest change that is found by number of blocks.

    Args:
        cases: The noisiest first, one at least.
    """
    shown = cases[:MAX_ROWS]
    rows = [_name(case) for case in shown]
    figure = go.Figure()
    offered = [
        ("noise floor of a block", [case.noise_floor for case in shown]),
        *(
            (f"smallest change found with {blocks} blocks", [_detectable(case, blocks) for case in shown])
            for blocks in DETECTABLE_AT
        ),
    ]
    for index, (name, values) in enumerate(offered):
        colour, symbol, _ = style_of(index)
        figure.add_scatter(
            x=values,
            y=rows,
            mode="markers",
            name=name,
            marker={"color": colour, "symbol": symbol, "size": 10, "line": {"color": GREY, "width": 1}},
            hovertemplate="%{y}<br>%{x:.2%}<extra>%{fullData.name}</extra>",
        )
    figure.update_layout(
        height=140 + _ROW_PX * len(rows),
        margin=room_for(max(map(len, rows)), is_titled=False),
        showlegend=True,
        legend={"orientation": "h", "yanchor": "bottom", "y": 1.02, "x": 0},
        xaxis={"title": "share of the time, lower is better", "tickformat": ".1%", "rangemode": "tozero"},
        yaxis={"categoryorder": "array", "categoryarray": rows[::-1], "type": "category"},
    )
    return figure


def _name(case: CaseNoise) -> str:
    return escape(shortened(f"{case.case_id} · {case.implementation}"))


def _detectable(case: CaseNoise, blocks: int) -> float | None:
    return case.detectable_change.get(blocks)

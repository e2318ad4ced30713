"""The measured ceilings of a runner over time, against those of its datasheet."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime, tzinfo
from html import escape

import plotly.graph_objects as go

from roofwatch.collector.device.datasheets import beside_datasheet
from roofwatch.collector.record.machine import Ceiling
from roofwatch.dashboard.charts.clock_time import on_axis
from roofwatch.dashboard.charts.style import GREY, room_for, style_of
from roofwatch.dashboard.quantities import rate_text
from roofwatch.db.queries.fleet_values import FleetRun

_LABEL_LENGTH = 4
"""Of a share on the axis, such as `100%`."""


def ceiling_history_figure(runs: Sequence[FleetRun], zone: tzinfo) -> go.Figure:
    """Each ceiling as a share of the datasheet's where there is one, else of the highest that was ever measured.

    Args:
        runs: Of one runner class, in any order, with a measured ceiling at least.
        zone: Of the reader.
    """
    by_name: defaultdict[str, list[tuple[datetime, Ceiling]]] = defaultdict(list)
    for run in sorted(runs, key=lambda run: run.started_at):
        for ceiling in run.ceilings:
            if ceiling.source == "measured":
                by_name[ceiling_name(ceiling)].append((run.started_at, ceiling))
    figure = go.Figure()
    for index, (name, found) in enumerate(sorted(by_name.items())):
        colour, symbol, dash = style_of(index)
        published = beside_datasheet([found[-1][1]], runs[0].environment.device_name)
        whole = published[0].published_per_s if published else max(ceiling.per_s for _, ceiling in found)
        against = "datasheet" if published else "highest seen"
        figure.add_scatter(
            x=on_axis((moment for moment, _ in found), zone),
            y=[ceiling.per_s / whole for _, ceiling in found],
            mode="lines+markers",
            name=f"{escape(name)}, 100 % = {against}, {rate_text(found[-1][1].resource, whole)}",
            line={"color": colour, "dash": dash, "width": 1.5},
            marker={"color": colour, "symbol": symbol, "size": 8},
            hovertext=[
                f"<b>{escape(name)}</b> {rate_text(ceiling.resource, ceiling.per_s)}<br>"
                f"{ceiling.per_s / whole:.1%} of the {against}, {escape(ceiling.method)}"
                for _, ceiling in found
            ],
            hoverinfo="text",
        )
    figure.add_hline(y=1.0, line={"color": GREY, "dash": "dot", "width": 1})
    figure.update_layout(
        height=380,
        margin=room_for(_LABEL_LENGTH, line_count=2),
        hovermode="closest",
        showlegend=True,
        legend={"orientation": "h", "yanchor": "bottom", "y": 1.02, "x": 0},
        xaxis={"title": "measured at", "type": "date"},
        yaxis={"title": "share of the reference, higher is better", "tickformat": ".0%", "rangemode": "tozero"},
    )
    return figure


def ceiling_name(ceiling: Ceiling) -> str:
    """`dram`, or `bfloat16 compute`."""
    return f"{ceiling.level or 'memory'}" if ceiling.resource == "memory" else f"{ceiling.dtype or 'any'} compute"

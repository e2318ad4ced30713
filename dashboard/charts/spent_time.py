"""Where the wall time of a run went."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

import plotly.graph_objects as go

from roofwatch.collector.record.metrics import format_ns
from roofwatch.dashboard.charts.patterns import LEFT_OVER, hatched, pattern_of
from roofwatch.dashboard.charts.style import BLUE, GREY, room_for

_ROW_PX = 34
UNCOUNTED = "not counted"


def spent_time_figure(spent_ns: Mapping[str, float], wall_ns: float) -> go.Figure:
    """A bar for each activity in the order of a run, and one for what no activity claims.

    Args:
        spent_ns: By activity.
        wall_ns: From the run's start to its end.
    """
    parts = with_rest(spent_ns, wall_ns)
    whole = max(wall_ns, sum(parts.values())) or 1.0
    figure = go.Figure(
        go.Bar(
            orientation="h",
            y=[escape(name.replace("_", " ")) for name in parts],
            x=[value / 1e9 for value in parts.values()],
            text=[f"{format_ns(value)}, {value / whole:.0%}" for value in parts.values()],
            textposition="outside",
            cliponaxis=False,
            hoverinfo="text",
            marker={
                "color": [GREY if name == UNCOUNTED else BLUE for name in parts],
                "pattern": hatched([pattern_of(LEFT_OVER) if name == UNCOUNTED else "" for name in parts]),
            },
        )
    )
    figure.update_layout(
        height=90 + _ROW_PX * len(parts),
        margin=room_for(max(map(len, parts), default=0), is_titled=False),
        showlegend=False,
        xaxis={"title": "wall time (s)", "range": [0, 1.2 * max(parts.values(), default=1.0) / 1e9]},
        yaxis={"autorange": "reversed"},
    )
    return figure


def with_rest(spent_ns: Mapping[str, float], wall_ns: float) -> dict[str, float]:
    """The activities, and `not counted` for what is left of the run's time."""
    rest = wall_ns - sum(spent_ns.values())
    return dict(spent_ns) | ({UNCOUNTED: rest} if rest > 0 else {})

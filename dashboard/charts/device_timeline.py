"""What a profile saw running on each stream of its devices."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from html import escape

import plotly.graph_objects as go

from roofwatch.collector.profiling.kineto import Activity
from roofwatch.collector.record.metrics import format_ns
from roofwatch.dashboard.charts.patterns import hatched, pattern_of
from roofwatch.dashboard.charts.style import GREY, room_for, style_of
from roofwatch.dashboard.wording import shortened

_NAMED = 5
"""Names with a colour of their own: as many as can be told apart."""
MAX_SHOWN = 3_000
"""The longest are drawn: the rest would be thinner than a pixel."""
_ROW_PX = 60


def device_timeline_figure(activities: Sequence[Activity]) -> go.Figure:
    """Kernels, copies and fills as bars, a row for each stream of each device.

    Args:
        activities: Of one trace, one at least.
    """
    began_ns = min(activity.start_ns for activity in activities)
    shown = sorted(activities, key=lambda activity: activity.duration_ns, reverse=True)[:MAX_SHOWN]
    figure = go.Figure()
    named = _longest_names(activities)
    for index, name in enumerate(named):
        own = [activity for activity in shown if activity.name == name]
        _add_bars(figure, own, began_ns, shortened(name), style_of(index)[0], pattern_of(index))
    others = [activity for activity in shown if activity.name not in named]
    if others:
        _add_bars(figure, others, began_ns, "all others", GREY, "")
    rows = sorted({_row_of(activity) for activity in shown})
    figure.update_layout(
        height=140 + _ROW_PX * len(rows),
        margin=room_for(max(map(len, rows)), is_titled=False),
        barmode="overlay",
        hovermode="closest",
        showlegend=True,
        legend={"orientation": "h", "yanchor": "bottom", "y": 1.02, "x": 0},
        xaxis={"title": "time since the first activity (s)", "tickformat": "~s", "ticksuffix": "s", "zeroline": False},
        yaxis={"categoryorder": "array", "categoryarray": rows[::-1]},
    )
    return figure


def _longest_names(activities: Sequence[Activity]) -> list[str]:
    """The names that took most time in all."""
    totals: Counter[str] = Counter()
    for activity in activities:
        totals[activity.name] += activity.duration_ns
    return [name for name, _ in totals.most_common(_NAMED)]


def _add_bars(
    figure: go.Figure, activities: Sequence[Activity], began_ns: int, name: str, colour: str, pattern: str
) -> None:
    figure.add_bar(
        orientation="h",
        y=[_row_of(activity) for activity in activities],
        base=[(activity.start_ns - began_ns) / 1e9 for activity in activities],
        x=[activity.duration_ns / 1e9 for activity in activities],
        marker={"color": colour, "line": {"width": 0}, "pattern": hatched(pattern)},
        name=escape(name),
        hovertext=[
            f"<b>{escape(shortened(activity.name, length=120))}</b><br>{activity.kind}, "
            f"{format_ns(activity.duration_ns)}, from {format_ns(activity.start_ns - began_ns)} on"
            for activity in activities
        ],
        hoverinfo="text",
    )


def _row_of(activity: Activity) -> str:
    return escape(f"GPU {activity.device}, stream {activity.stream}")

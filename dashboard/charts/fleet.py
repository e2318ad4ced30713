"""What was spent, over commits: one bar a commit, one part of it a thing that it was spent on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import tzinfo
from html import escape

import plotly.graph_objects as go

from roofwatch.dashboard.charts.patterns import LEFT_OVER, hatched, pattern_of
from roofwatch.dashboard.charts.style import GREY, commit_lines, commit_ticks, room_for, style_of
from roofwatch.dashboard.wording import shortened
from roofwatch.db.values import CommitRef

_NAMED = 5
_PREFIXED = {"s", "J"}
"""Units that take SI prefixes: a thousandth of an hour has no name."""
_LABEL_LENGTH = 6
"""Of a value on the axis."""
OTHERS = "all others"


def spending_figure(
    spent: Mapping[CommitRef, Mapping[str, float]], *, title: str, unit: str, zone: tzinfo
) -> go.Figure:
    """Bars over commits, oldest to newest, the largest parts named.

    Args:
        spent: By commit, by what it was spent on.
        title: Of the axis, with its unit.
        unit: Behind a value.
        zone: Of the reader.
    """
    commits = sorted(spent)
    totals: dict[str, float] = {}
    for parts in spent.values():
        for name, value in parts.items():
            totals[name] = totals.get(name, 0.0) + value
    named = sorted(totals, key=lambda name: (-totals[name], name))[:_NAMED]
    figure = go.Figure()
    for index, name in enumerate(named):
        values = [spent[commit].get(name, 0.0) for commit in commits]
        _add_part(figure, commits, name, values, style_of(index)[0], pattern_of(index), unit, zone)
    if len(totals) > len(named):
        rest = [sum(value for name, value in spent[commit].items() if name not in named) for commit in commits]
        _add_part(figure, commits, OTHERS, rest, GREY, pattern_of(LEFT_OVER), unit, zone)
    figure.update_layout(
        height=400,
        margin=room_for(_LABEL_LENGTH),
        barmode="stack",
        hovermode="closest",
        showlegend=True,
        legend={"orientation": "h", "yanchor": "bottom", "y": 1.02, "x": 0},
        xaxis={"title": "commits, oldest to newest", "range": [-0.6, len(commits) - 0.4], **commit_ticks(commits)},
        yaxis={"title": title, "rangemode": "tozero", "tickformat": _format_of(unit)},
    )
    return figure


def _format_of(unit: str) -> str:
    return "~s" if unit in _PREFIXED else "~g"


def _add_part(
    figure: go.Figure,
    commits: Sequence[CommitRef],
    name: str,
    values: Sequence[float],
    colour: str,
    pattern: str,
    unit: str,
    zone: tzinfo,
) -> None:
    label = escape(shortened(name.replace("_", " ")))
    figure.add_bar(
        x=list(range(len(commits))),
        y=list(values),
        name=label,
        marker={"color": colour, "pattern": hatched(pattern)},
        hovertext=["<br>".join(commit_lines(commit, zone)) for commit in commits],
        hovertemplate=f"<b>%{{y:.3{_format_of(unit)}}} {escape(unit)}</b> {label}<br>%{{hovertext}}<extra></extra>",
    )

"""Spending over commits, as stacked bars."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import tzinfo
from html import escape

import plotly.graph_objects as go

from roofwatch.dashboard.charts.style import (
    GREY,
    LEFT_OVER,
    NAMED_PARTS,
    commit_lines,
    commit_ticks,
    hatched,
    lay_out,
    pattern_of,
    style_of,
)
from roofwatch.dashboard.wording import shortened
from roofwatch.db.values import CommitRef

_PREFIXED = {"s", "J"}
"""Units that take SI prefixes."""
OTHERS = "all others"


def spending_figure(
    spent: Mapping[CommitRef, Mapping[str, float]], *, title: str, unit: str, zone: tzinfo
) -> go.Figure:
    """Draw one bar per commit, oldest to newest, with the largest parts named.

    Args:
        spent: Amounts by commit and part.
        title: Axis title with unit.
        unit: Unit after a value.
        zone: Time zone of the reader.
    """
    commits = sorted(spent)
    tick_format = "~s" if unit in _PREFIXED else "~g"
    totals: Counter[str] = Counter()
    for parts in spent.values():
        totals.update(parts)
    named = [name for name, _ in sorted(totals.items(), key=lambda item: (-item[1], item[0]))[:NAMED_PARTS]]
    bars = {name: [spent[commit].get(name, 0.0) for commit in commits] for name in named}
    if len(totals) > len(named):
        bars[OTHERS] = [sum(value for name, value in spent[one].items() if name not in named) for one in commits]
    figure = go.Figure()
    for index, (name, values) in enumerate(bars.items()):
        is_rest = name not in named
        label = escape(shortened(name.replace("_", " ")))
        figure.add_bar(
            x=list(range(len(commits))),
            y=values,
            name=label,
            marker={
                "color": GREY if is_rest else style_of(index)[0],
                "pattern": hatched(pattern_of(LEFT_OVER if is_rest else index)),
            },
            hovertext=["<br>".join(commit_lines(commit, zone)) for commit in commits],
            hovertemplate=f"<b>%{{y:.3{tick_format}}} {escape(unit)}</b> {label}<br>%{{hovertext}}<extra></extra>",
        )
    return lay_out(
        figure,
        height=400,
        barmode="stack",
        xaxis={"title": "commits, oldest to newest", "range": [-0.6, len(commits) - 0.4], **commit_ticks(commits)},
        yaxis={"title": title, "rangemode": "tozero", "tickformat": tick_format},
    )

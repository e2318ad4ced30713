"""What Plotly's figures share: a symbol, dash and pattern for each colour, axes in units, commit
ticks.
"""

import math
from collections.abc import Iterable, Sequence
from datetime import datetime, tzinfo
from typing import Any

import plotly.graph_objects as go

from roofwatch.dashboard.charts.palette import BLUE, GREEN, GREY, ORANGE, PURPLE, SKY_BLUE
from roofwatch.dashboard.wording import escaped, shortened, written
from roofwatch.model.history import CommitRef

_STYLES = (
    (BLUE, "circle", "solid"),
    (ORANGE, "square", "dash"),
    (GREEN, "triangle-up", "dot"),
    (PURPLE, "diamond", "dashdot"),
    (SKY_BLUE, "cross", "longdash"),
)
NAMED_PARTS = len(_STYLES)
"""Parts with a colour of their own; all others are drawn together."""
OTHERS = "all others"
"""Name of the parts together that have no colour."""
UNCOUNTED = "unattributed"
"""Name of time that no activity claims."""
_PATTERNS = ("", "/", ".", "\\", "-", "|")
"""Plotly's names of hatchings."""
DOUBTFUL = "x"
"""Pattern of a bar with a doubtful value."""
_MAX_COMMIT_TICKS = 16


def lay_out(figure: go.Figure, *, height: float, **layout: Any) -> go.Figure:
    """Apply the common layout, with a legend on top, and then the figure's own. A hover text is
    shown alone.
    """
    common = {
        "margin": {
            "l": 10,
            "r": 20,
            "t": 40,
            "b": 10,
        },
        "hovermode": "closest",
        "showlegend": True,
        "legend": {
            "orientation": "h",
            "yanchor": "bottom",
            "y": 1.02,
            "x": 0,
        },
    }
    # Plotly would add the coordinates
    figure.update_traces(hoverinfo="text", selector=lambda trace: trace.hovertext is not None)
    return figure.update_layout({**common, "height": height, **layout})


def rows_of(names: Sequence[str]) -> dict[str, object]:
    """Return an axis with one row per name, the first on top."""
    # Plotly draws the first at the bottom
    bottom_up = list(reversed(names))
    return {
        "type": "category",
        "categoryorder": "array",
        "categoryarray": bottom_up,
    }


def style_of(index: int) -> tuple[str, str, str]:
    """Return colour, symbol and dash of the n-th item."""
    return _STYLES[index % len(_STYLES)]


def pattern_of(index: int) -> str:
    return _PATTERNS[index % len(_PATTERNS)]


def hatched(shape: str | Sequence[str]) -> dict[str, object]:
    """Return a bar pattern over the colour, one for all bars or one each."""
    return {
        "shape": shape,
        "fillmode": "overlay",
        "fgcolor": "rgba(255, 255, 255, 0.7)",
        "solidity": 0.3,
        "size": 6,
    }


def part_marker(index: int) -> dict[str, object]:
    """Return the bars of the n-th part; those after the named ones are all others."""
    colour = GREY
    if index < NAMED_PARTS:
        colour, _, _ = style_of(index)
    return {"color": colour, "pattern": hatched(pattern_of(index))}


def commit_ticks(commits: Sequence[CommitRef]) -> dict[str, object]:
    """Return a readable number of ticks, from the newest commit back."""
    # from the newest back, which is the one that everybody looks for
    step = math.ceil(len(commits) / _MAX_COMMIT_TICKS) or 1
    tick_indices = list(range(len(commits) - 1, -1, -step))
    return {
        "tickmode": "array",
        "tickvals": tick_indices,
        "ticktext": [commits[index].short_sha for index in tick_indices],
    }


def commit_lines(commit: CommitRef, zone: tzinfo) -> list[str]:
    subject = escaped(shortened(commit.subject))
    author = escaped(shortened(commit.author))
    moment = written(commit.committed_at, zone)
    return [
        f"<b>{escaped(commit.short_sha)}</b> {subject}",
        f"{author}, {moment}",
    ]


def clock_times(moments: Iterable[datetime], zone: tzinfo) -> list[datetime]:
    """Convert to naive local times, because Plotly ignores zones."""
    return [moment.astimezone(zone).replace(tzinfo=None) for moment in moments]

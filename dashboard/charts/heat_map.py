"""Kernels by runner classes, with how far the times of each moved. The movements come in; none is found here."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

import plotly.graph_objects as go

from ci.trends.movement import Movement
from dashboard.charts.style import GREY, MARGIN, ORANGE, SKY_BLUE
from dashboard.wording import movement_text, shortened

Cell = tuple[str, str]
"""Kernel and runner class."""

_FULL_COLOUR_AT = math.log(1.5)
"""From here on a move is as dark as it gets: half as slow again, or two thirds of the time."""
_UNCHANGED = "="


@dataclass(frozen=True)
class _Palette:
    """The ink has a contrast of 6 at least on either end of the scale, and of more between them."""

    faster: str
    unchanged: str
    slower: str
    ink: str


_ON_LIGHT = _Palette(SKY_BLUE, "#F2F2F2", ORANGE, "#1A1A1A")
_ON_DARK = _Palette("#1B5E8C", "#2A2A2A", "#8A4B00", "#F5F5F5")
_ROW_PX, _HEAD_PX = 30, 110
_COLUMN_PX, _NAMES_PX, _MOST_PX = 170, 180, 1_200


def heat_map_figure(
    kernels: Sequence[str],
    runner_classes: Sequence[str],
    movements: Mapping[Cell, Movement],
    measured: set[Cell],
    *,
    is_dark: bool = False,
) -> go.Figure:
    """Change of the times by kernel and runner class: written in each cell, and told by the sign as well as by colour.

    Args:
        kernels: Rows, from the top.
        runner_classes: Columns.
        movements: Where something moved.
        measured: Where the newest run has results; a cell without any stays empty.
        is_dark: The page is.
    """
    palette = _ON_DARK if is_dark else _ON_LIGHT
    cells = [[(kernel, runner_class) for runner_class in runner_classes] for kernel in kernels]
    figure = go.Figure(
        go.Heatmap(
            z=[[_depth(movements.get(cell), is_measured=cell in measured) for cell in row] for row in cells],
            x=list(range(len(runner_classes))),
            y=list(range(len(kernels))),
            text=[[_text(movements.get(cell), is_measured=cell in measured) for cell in row] for row in cells],
            texttemplate="%{text}",
            hovertext=[[_hover(cell, movements.get(cell)) for cell in row] for row in cells],
            hoverinfo="text",
            hoverongaps=False,
            colorscale=[[0.0, palette.faster], [0.5, palette.unchanged], [1.0, palette.slower]],
            textfont={"color": palette.ink, "size": 13},
            zmin=-_FULL_COLOUR_AT,
            zmax=_FULL_COLOUR_AT,
            showscale=False,
            xgap=2,
            ygap=2,
        )
    )
    figure.update_layout(
        height=_HEAD_PX + _ROW_PX * len(kernels),
        width=min(_NAMES_PX + _COLUMN_PX * len(runner_classes), _MOST_PX),
        margin=MARGIN,
        xaxis={
            "tickmode": "array",
            "tickvals": list(range(len(runner_classes))),
            "ticktext": [_wrapped(runner_class) for runner_class in runner_classes],
            "side": "top",
            "tickangle": 0,
            "showgrid": False,
            "zeroline": False,
            "fixedrange": True,
        },
        yaxis={
            "tickmode": "array",
            "tickvals": list(range(len(kernels))),
            "ticktext": [escape(shortened(kernel, length=40)) for kernel in kernels],
            "autorange": "reversed",
            "showgrid": False,
            "zeroline": False,
            "fixedrange": True,
            "automargin": True,
        },
        font={"color": GREY},
    )
    return figure


def _depth(movement: Movement | None, *, is_measured: bool) -> float | None:
    if movement is None:
        return 0.0 if is_measured else None
    if movement.relative_change is None:
        return _FULL_COLOUR_AT
    return math.log1p(movement.relative_change)


def _text(movement: Movement | None, *, is_measured: bool) -> str:
    if movement is None:
        return _UNCHANGED if is_measured else ""
    return escape(movement_text(movement))


def _hover(cell: Cell, movement: Movement | None) -> str:
    kernel, runner_class = (escape(shortened(text)) for text in cell)
    said = "no judged change" if movement is None else _counted(movement)
    return f"<b>{kernel}</b><br>{runner_class}<br>{said}"


def _counted(movement: Movement) -> str:
    return f"{movement.slower_count} series slower or failing, {movement.faster_count} faster"


def _wrapped(runner_class: str) -> str:
    """A line for each part, since columns are narrow."""
    return "<br>".join(escape(shortened(part, length=28)) for part in runner_class.split(", "))

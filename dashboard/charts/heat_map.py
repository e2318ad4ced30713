"""Kernels by runner classes, with how far the times of each moved. The movements come in; none is found here.

It is a table with coloured cells, which a browser draws at once, a keyboard reaches and a screen reader reads; Plotly
alone takes a third of a second to load.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

from roofwatch.ci.history.movement import Movement
from roofwatch.dashboard.charts.style import ORANGE, SKY_BLUE
from roofwatch.dashboard.wording import movement_text, shortened, view_link_html

Cell = tuple[str, str]
"""Kernel and runner class."""

_FULL_COLOUR_AT = math.log(1.5)
"""From here on a move is as dark as it gets: half as slow again, or two thirds of the time."""
_UNCHANGED = "="


@dataclass(frozen=True)
class Palette:
    """The ink has a contrast of 6 at least on either end of the scale, and of more between them."""

    faster: str
    unchanged: str
    slower: str
    ink: str


_ON_LIGHT = Palette(SKY_BLUE, "#F2F2F2", ORANGE, "#1A1A1A")
_ON_DARK = Palette("#1B5E8C", "#2A2A2A", "#8A4B00", "#F5F5F5")


def palette_of(*, is_dark: bool) -> Palette:
    """Of a page."""
    return _ON_DARK if is_dark else _ON_LIGHT


def heat_map_html(
    kernels: Sequence[str],
    runner_classes: Sequence[str],
    movements: Mapping[Cell, Movement],
    measured: set[Cell],
    *,
    trends: Mapping[Cell, str],
    is_dark: bool = False,
) -> str:
    """Change of the times by kernel and runner class: written in each cell, and told by the sign as well as by colour.

    Args:
        kernels: Rows, from the top.
        runner_classes: Columns.
        movements: Where something moved.
        measured: Where the newest run has results; a cell without any stays empty.
        trends: Where the trend of a cell is shown.
        is_dark: The page is.
    """
    palette = palette_of(is_dark=is_dark)
    head = "".join(f'<th scope="col">{_wrapped(runner_class)}</th>' for runner_class in runner_classes)
    rows = "".join(
        f'<tr><th scope="row">{escape(shortened(kernel, length=40))}</th>'
        + "".join(
            _cell((kernel, runner_class), movements, measured, trends, palette) for runner_class in runner_classes
        )
        + "</tr>"
        for kernel in kernels
    )
    return (
        f'<div class="rw-scroll" tabindex="0"><table class="rw-heat" style="--rw-ink:{palette.ink}">'
        f'<thead><tr><th scope="col">kernel</th>{head}</tr></thead><tbody>{rows}</tbody></table></div>'
    )


def _cell(
    cell: Cell, movements: Mapping[Cell, Movement], measured: set[Cell], trends: Mapping[Cell, str], palette: Palette
) -> str:
    movement = movements.get(cell)
    depth = depth_of(movement, is_measured=cell in measured)
    if depth is None:
        return "<td></td>"
    text = _UNCHANGED if movement is None else escape(movement_text(movement))
    if movement is not None and cell in trends:
        text = view_link_html(trends[cell], movement_text(movement))
    return f'<td style="background:{_colour(depth, palette)}" title="{_hover(cell, movement)}">{text}</td>'


def _colour(depth: float, palette: Palette) -> str:
    """Between the middle of the palette and the end that the sign says."""
    end = palette.slower if depth > 0 else palette.faster
    return blended(palette.unchanged, end, min(abs(depth) / _FULL_COLOUR_AT, 1.0))


def blended(begin: str, end: str, share: float) -> str:
    """The colour so far from one to the other, from 0 to 1; all as `#F2F2F2`."""
    return "#" + "".join(
        f"{round(int(begin[at : at + 2], 16) * (1 - share) + int(end[at : at + 2], 16) * share):02X}"
        for at in (1, 3, 5)
    )


def depth_of(movement: Movement | None, *, is_measured: bool) -> float | None:
    """How dark a cell is: above zero if slower, below if faster; None where nothing is measured."""
    if movement is None:
        return 0.0 if is_measured else None
    if movement.relative_change is None:
        return _FULL_COLOUR_AT
    return math.log1p(movement.relative_change)


def _hover(cell: Cell, movement: Movement | None) -> str:
    kernel, runner_class = (shortened(text) for text in cell)
    said = "no judged change" if movement is None else _counted(movement)
    return escape(f"{kernel}, {runner_class}: {said}")


def _counted(movement: Movement) -> str:
    return f"{movement.slower_count} series slower or failing, {movement.faster_count} faster"


def _wrapped(runner_class: str) -> str:
    """A line for each part, since columns are narrow."""
    return "<br>".join(escape(shortened(part, length=28)) for part in runner_class.split(", "))

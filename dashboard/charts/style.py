"""What all figures have in common: colours with a symbol and a dash each, axes in units, commits as ticks.

Colours are Okabe and Ito's, which colour-blind people can tell apart; every colour has a symbol, a dash or a word
beside it. Neutral parts are mid-grey, so that one figure is readable on a light and on a dark page.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import tzinfo
from html import escape

from roofwatch.collector.record.metrics import Metric, format_ns
from roofwatch.dashboard.wording import shortened
from roofwatch.dashboard.zone import written
from roofwatch.db.values import CommitRef

# Okabe and Ito, "Color Universal Design" (2008), without the black and the yellow that vanish on one of the two pages
BLUE, ORANGE, GREEN, PURPLE, SKY_BLUE, VERMILLION = (
    "#0072B2",
    "#E69F00",
    "#009E73",
    "#CC79A7",
    "#56B4E9",
    "#D55E00",
)
GREY = "#888888"
_STYLES = tuple(
    zip(
        (BLUE, ORANGE, GREEN, PURPLE, SKY_BLUE),
        ("circle", "square", "triangle-up", "diamond", "cross"),
        ("solid", "dash", "dot", "dashdot", "longdash"),
        strict=True,
    )
)
MARGIN = {"l": 10, "r": 10, "t": 10, "b": 10}
_TITLE_PX, _UNTITLED_PX, _CHARACTER_PX, _BELOW_PX = 59.0, 20.0, 6.2, 68.0
_BESIDE_PX, _LINE_PX = 34.0, 16.0
_LONGEST_LABEL = 16
_MAX_COMMIT_TICKS = 16
_CALM = 0.05
"""Relative span of readings below which they hardly move."""


@dataclass(frozen=True)
class Axis:
    """How Plotly writes the ticks of a unit. SI prefixes need the base unit, so ns are drawn in seconds."""

    scale: float = 1.0
    tick_format: str = "~s"
    tick_suffix: str = ""
    at_least: tuple[float, float] | None = None
    """What the axis shows at least: counts from zero, and never fractions of one."""


AXES: Mapping[str, Axis] = {
    "ns": Axis(scale=1e-9, tick_suffix="s"),
    "FLOP/s": Axis(tick_suffix="FLOP/s"),
    "B/s": Axis(tick_suffix="B/s"),
    "J": Axis(tick_suffix="J"),
    "share": Axis(tick_format=".1~%"),
    "ratio": Axis(tick_format=".1e"),
    "absolute": Axis(tick_format=".1e"),
    "registers": Axis(tick_format="d", at_least=(0, 8)),
    "instructions": Axis(tick_format=",d", at_least=(0, 8)),
    "bytes": Axis(tick_format=",d", tick_suffix=" B", at_least=(0, 8)),
}


def room_for(label_length: int, *, line_count: int = 1, is_titled: bool = True) -> dict[str, float]:
    """Margins with room for titled axes. Where the labels of ticks need more, Plotly widens a margin and draws the
    whole figure a second time: with enough of it from the start that is spared.

    Args:
        label_length: Of the longest label on the left, in characters. A very long one is left to Plotly, which knows
            how much a narrow screen has to give.
        line_count: Of labels below; times of day have two.
        is_titled: The axis on the left has a title; names of rows need none.
    """
    return {
        **MARGIN,
        "l": (_TITLE_PX if is_titled else _UNTITLED_PX) + _CHARACTER_PX * min(label_length, _LONGEST_LABEL),
        "r": _BESIDE_PX,
        "b": _BELOW_PX + _LINE_PX * (line_count - 1),
    }


def style_of(index: int) -> tuple[str, str, str]:
    """Colour, symbol and dash of the n-th thing on a chart."""
    return _STYLES[index % len(_STYLES)]


def axis_title(unit: Metric, *, line_break: str = " ") -> str:
    """`time (s), lower is better`; a low row has room for it on two lines."""
    base_unit = "s" if unit.unit == "ns" else unit.unit
    return f"{unit.title}{line_break}({base_unit}), {unit.better} is better"


def calm_range(values: Iterable[float | None]) -> list[float] | None:
    """Limits of an axis of readings that hardly move, so that one unit more does not look like a cliff; None where
    Plotly may choose them.
    """
    known = [value for value in values if value is not None]
    if not known or max(known) - min(known) > _CALM * abs(max(known)):
        return None
    return [min(known) - _CALM * abs(max(known)), max(known) + _CALM * abs(max(known))]


def logarithmic_ticks(values_ns: Iterable[float]) -> dict[str, object]:
    """Ticks at 1, 2 and 5 of each decade, for an axis in seconds. Plotly's own have their unit at powers of ten alone.

    Args:
        values_ns: Above zero, one at least.
    """
    known = list(values_ns)
    decades = range(math.floor(math.log10(min(known))), math.ceil(math.log10(max(known))) + 1)
    ticks_ns = [digit * 10.0**decade for decade in decades for digit in (1, 2, 5)]
    return {
        "tickmode": "array",
        "tickvals": [tick_ns * 1e-9 for tick_ns in ticks_ns],
        "ticktext": [format_ns(tick_ns) for tick_ns in ticks_ns],
    }


def commit_ticks(commits: Sequence[CommitRef], places: Sequence[int] | None = None) -> dict[str, object]:
    """Few enough to be read, and always the newest.

    Args:
        commits: Along the axis, oldest to newest.
        places: Of each on the axis; side by side if not given.
    """
    places = range(len(commits)) if places is None else places
    count = places[-1] + 1 if places else 0
    step = -(-count // _MAX_COMMIT_TICKS) or 1
    # the last commit at each place or before it, of those that are known
    shown = sorted({max(bisect_right(places, place) - 1, 0) for place in range(count - 1, -1, -step)})
    return {
        "tickmode": "array",
        "tickvals": [places[index] for index in shown],
        "ticktext": [commits[index].short_sha for index in shown],
    }


def commit_lines(commit: CommitRef, zone: tzinfo) -> list[str]:
    """For a hover; the time is that of the reader's zone."""
    return [
        f"<b>{escape(commit.short_sha)}</b> {escape(shortened(commit.subject))}",
        f"{escape(shortened(commit.author))}, {written(commit.committed_at, zone)}",
    ]

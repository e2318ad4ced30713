"""What all figures have in common: colours with a symbol and a dash each, axes in units, commits as ticks.

Colours are Okabe and Ito's, which colour-blind people can tell apart; every colour has a symbol, a dash or a word
beside it. Neutral parts are mid-grey, so that one figure is readable on a light and on a dark page.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

from collector.metrics import Metric
from dashboard.wording import shortened
from db.values import CommitRef

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
_MAX_COMMIT_TICKS = 16


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
    "share": Axis(tick_format=".0%"),
    "ratio": Axis(tick_format=".1e"),
    "absolute": Axis(tick_format=".1e"),
    "registers": Axis(tick_format="d", at_least=(0, 8)),
    "bytes": Axis(tick_format=",d", tick_suffix=" B", at_least=(0, 8)),
}


def style_of(index: int) -> tuple[str, str, str]:
    """Colour, symbol and dash of the n-th thing on a chart."""
    return _STYLES[index % len(_STYLES)]


def axis_title(unit: Metric) -> str:
    written = "s" if unit.unit == "ns" else unit.unit
    return f"{unit.title} ({written}), {unit.better} is better"


def commit_ticks(commits: Sequence[CommitRef]) -> dict[str, object]:
    step = -(-len(commits) // _MAX_COMMIT_TICKS) or 1
    shown = range(len(commits) - 1, -1, -step)[::-1]
    return {
        "tickmode": "array",
        "tickvals": list(shown),
        "ticktext": [commits[index].short_sha for index in shown],
    }


def commit_lines(commit: CommitRef) -> list[str]:
    return [
        f"<b>{escape(commit.short_sha)}</b> {escape(shortened(commit.subject))}",
        f"{escape(shortened(commit.author))}, {commit.committed_at:%Y-%m-%d %H:%M %Z}",
    ]

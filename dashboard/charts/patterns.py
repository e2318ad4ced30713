"""Hatching: what tells bars apart where their colours cannot."""

from __future__ import annotations

from collections.abc import Sequence

_SHAPES = ("", "/", ".", "\\", "-", "|")
"""As many as there are colours, and one for what is left over."""
DOUBTFUL = "x"
"""Of a bar whose value is to be doubted; no other bar has it."""
LEFT_OVER = len(_SHAPES) - 1


def pattern_of(index: int) -> str:
    """Plotly's name of the hatching of the n-th thing on a chart."""
    return _SHAPES[index % len(_SHAPES)]


def hatched(shape: str | Sequence[str]) -> dict[str, object]:
    """The hatching of bars, drawn over their colour; one for all, or one of each."""
    return {"shape": shape, "fillmode": "overlay", "fgcolor": "rgba(255, 255, 255, 0.7)", "solidity": 0.3, "size": 6}

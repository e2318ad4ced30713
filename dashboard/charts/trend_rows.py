"""The rows of a figure of trends: marks, a tall one of values, failures, and one for each further metric."""

from __future__ import annotations

from collections.abc import Sequence

_MARKS_PX, _VALUES_PX, _FAILURES_PX, _FURTHER_PX, _GAP_PX = 34, 400, 60, 170, 28
_FIRST_FURTHER_AXIS = 4
"""Axis 1 has the values, 2 the failures, 3 the marks."""


class Rows:
    """Places on the vertical, as shares of the figure from its lower end.

    Args:
        metrics: By name; the first has the tall row.
        has_failures: There is a row for them.
    """

    def __init__(self, metrics: Sequence[str], *, has_failures: bool) -> None:
        self._number = {name: 1 if at == 0 else at + _FIRST_FURTHER_AXIS - 1 for at, name in enumerate(metrics)}
        heights_px = {3: _MARKS_PX, 1: _VALUES_PX}
        if has_failures:
            heights_px[2] = _FAILURES_PX
        heights_px |= {self._number[name]: _FURTHER_PX for name in metrics[1:]}
        self._lowest = list(heights_px)[-1]
        self.height_px = sum(heights_px.values()) + _GAP_PX * (len(heights_px) - 1) + 60
        """With the ticks and the title below."""
        inner_px = sum(heights_px.values()) + _GAP_PX * (len(heights_px) - 1)
        top_px = inner_px
        self._domains: dict[int, list[float]] = {}
        for number, height_px in heights_px.items():
            self._domains[number] = [(top_px - height_px) / inner_px, top_px / inner_px]
            top_px -= height_px + _GAP_PX

    @property
    def lowest_axis(self) -> str:
        """Below which the commits are written."""
        return _axis(self._lowest)

    @property
    def marks(self) -> list[float]:
        return self._domains[3]

    @property
    def failures(self) -> list[float]:
        """A place that is not seen where there are none."""
        return self._domains.get(2, [0.0, 0.01])

    def axis_of(self, metric: str) -> str:
        """As a trace names it: `y`, `y4`."""
        return _axis(self._number[metric])

    def layout_key(self, metric: str) -> str:
        """As the layout names it: `yaxis`, `yaxis4`."""
        return _axis(self._number[metric]).replace("y", "yaxis")

    def domain(self, metric: str) -> list[float]:
        return self._domains[self._number[metric]]


def _axis(number: int) -> str:
    return "y" if number == 1 else f"y{number}"

"""Small drawings of the shape of a series."""

from collections.abc import Sequence
from urllib.parse import quote

from roofwatch.dashboard.charts.palette import BLUE, GREY

_SPARK_PX = (140, 48)
_MIN_RELATIVE_SPAN = 0.02
"""Relative range that fills the height of a small drawing at least: noise must not look like steps.
"""


def sparkline(values: Sequence[float], *, changed_at: int | None = None, colour: str = BLUE) -> str:
    """Draw the shape of a series as an image, from its change on in a colour; empty without a
    shape.
    """
    if len(values) < 2:
        return ""
    width, height = _SPARK_PX
    low, high = min(values), max(values)
    span = max(high - low, _MIN_RELATIVE_SPAN * abs(high)) or 1
    step_px = (width - 4) / (len(values) - 1)
    points: list[str] = []
    for index, value in enumerate(values):
        x = 2 + index * step_px
        y = height - 3 - (value - low) / span * (height - 6)
        points.append(f"{x:.1f},{y:.1f}")
    changed_part = ""
    if changed_at is not None:
        # halfway to the value before; the coloured line begins at that value
        change_x = 2 + (changed_at - 0.5) * step_px
        changed_points = " ".join(points[max(changed_at - 1, 0) :])
        changed_part = (
            f"<path d='M{change_x:.1f} 0V{height}' stroke-dasharray='3 2'/>"
            f"<polyline points='{changed_points}' stroke='{colour}' stroke-width='2'/>"
        )
    svg = (
        f"<svg xmlns='http://www.w3.org/2000/svg' width='{width}' height='{height}' fill='none' "
        f"stroke='{GREY}'>"
        f"<polyline points='{' '.join(points[:changed_at])}' stroke-width='1.5'/>"
        f"{changed_part}</svg>"
    )
    return (
        f'<img src="data:image/svg+xml,{quote(svg)}" alt="The shape of the series" width="{width}">'
    )

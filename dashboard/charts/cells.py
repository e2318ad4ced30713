"""Small drawings in the cells of a table: shares of a roof, shapes of series, changes."""

from collections.abc import Sequence
from datetime import datetime

from roofwatch.dashboard.charts.palette import GREY, PAGE_BLUE
from roofwatch.dashboard.charts.scale import DateScale, fit
from roofwatch.dashboard.wording import escaped

_FULL_SHARE = 1.3
"""Share of the achievable rate at the right end of a bar: peaks lie a little above it."""
_MIN_RELATIVE_SPAN = 0.05
"""Relative range that fills a small drawing at least: noise must not look like steps."""

STYLE = f"""
.rw-bullet {{position: relative; display: inline-block; width: 100%; min-width: 4rem; height: 10px;
  vertical-align: middle; background: rgba(128, 128, 128, 0.14)}}
.rw-bullet i {{position: absolute; inset: 0 auto 0 0; background: {PAGE_BLUE}}}
.rw-bullet b {{position: absolute; top: -3px; bottom: -3px; width: 2px; background: currentColor}}
.rw-bullet b + b {{background: none; border-left: 2px dotted {GREY}}}
.rw-spark {{width: 100%; min-width: 4rem; height: 22px; display: block; overflow: visible}}
.rw-spark polyline {{vector-effect: non-scaling-stroke}}
"""


def bullet_html(share: float | None, peak_share: float | None) -> str:
    """Draw a share of the achievable rate as a bar, with marks at the achievable rate and the peak.

    Args:
        share: None without a roof.
        peak_share: Peak of the datasheet over the achievable rate; None if it is unknown.
    """
    if share is None:
        return ""
    title = f"{share:.1%} of what is achievable (measured)"
    # the end of what was measured, then the datasheet's
    marks = f'<b style="left:{100 / _FULL_SHARE:.1f}%"></b>'
    if peak_share is not None:
        title += f"; {share / peak_share:.1%} of the peak (datasheet)"
        peak_percent = min(100 * peak_share / _FULL_SHARE, 99)
        marks += f'<b style="left:{peak_percent:.1f}%"></b>'
    width = min(100 * share / _FULL_SHARE, 100)
    return (
        f'<span class="rw-bullet" title="{escaped(title)}"><i style="width:{width:.1f}%"></i>'
        f"{marks}</span>"
    )


def sparkline_html(values: Sequence[float | None], dates: Sequence[datetime]) -> str:
    """Draw the shape of a series over dates; empty for fewer than two values."""
    # a failed run has no value, and leaves a gap in time only
    dated = [(date, value) for date, value in zip(dates, values, strict=True) if value is not None]
    if len(dated) < 2:
        return ""
    known_values = [value for _, value in dated]
    scale = fit(known_values, min_relative_span=_MIN_RELATIVE_SPAN)
    start, _ = dated[0]
    end, _ = dated[-1]
    # all values of one date would have no width
    if start == end:
        return ""
    along = DateScale(start, end)
    points: list[str] = []
    for date, value in dated:
        x = along.percent(date)
        y = 100 - scale.percent(value)
        points.append(f"{x:.1f},{y:.1f}")
    line = f'<polyline points="{" ".join(points)}" stroke="{PAGE_BLUE}" stroke-width="1.5"/>'
    return (
        '<svg class="rw-spark" viewBox="0 0 100 100" preserveAspectRatio="none" fill="none" '
        f'aria-hidden="true">{line}</svg>'
    )

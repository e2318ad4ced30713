"""The samples of base and head side by side: each launch a line, each block's median a dot."""

from collections.abc import Mapping, Sequence

import numpy as np

from roofwatch.dashboard.charts.palette import PAGE_BLUE, VERMILLION
from roofwatch.dashboard.charts.scale import ValueScale, fit, round_values
from roofwatch.dashboard.wording import escaped
from roofwatch.model.measurement import Measurement
from roofwatch.model.metrics import format_ns

_MAX_LINES = 400
"""Samples of a side that are drawn, evenly spread over its quantiles."""
_MIN_RELATIVE_SPAN = 0.02
"""Relative range that fills the width at least: noise must not look like a difference."""

STYLE = """
.rw-samples {display: grid; grid-template-columns: 4.6rem minmax(0, 1fr); font-size: 12px;
  gap: 2px 0}
.rw-samples svg {width: 100%; height: 34px; overflow: visible}
.rw-samples .axis {grid-column: 2; position: relative; height: 16px}
.rw-samples .axis span {position: absolute; transform: translateX(-50%); white-space: nowrap}
"""


def samples_html(sides: Mapping[str, Measurement]) -> str:
    """Draw the sides by name on one axis, which ends at the 99th percentile of the widest.

    Args:
        sides: At most two, each with samples.
    """
    ends_ns: list[float] = []
    for side in sides.values():
        ends_ns.append(min(side.samples_ns))
        # one hiccup of a second would flatten all others
        ends_ns.append(float(np.quantile(side.samples_ns, 0.99)))
    scale = fit(ends_ns, min_relative_span=_MIN_RELATIVE_SPAN)
    colours = (PAGE_BLUE, VERMILLION)
    rows = "".join(
        _side_html(name, side, colour, scale)
        for (name, side), colour in zip(sides.items(), colours, strict=False)
    )
    ticks: list[str] = []
    for value_ns in round_values(scale):
        x = scale.percent(value_ns)
        text = escaped(format_ns(value_ns))
        ticks.append(f'<span style="left:{x:.1f}%">{text}</span>')
    return f'<div class="rw-samples">{rows}<div class="axis">{"".join(ticks)}</div></div>'


def _side_html(
    name: str,
    side: Measurement,
    colour: str,
    scale: ValueScale,
) -> str:
    sample_count = len(side.samples_ns)
    median = format_ns(side.median_ns or 0.0)
    text = f"{name}: {sample_count} samples in {len(side.blocks)} blocks, median {median}"
    lines: list[str] = []
    for sample_ns in _spread(side.samples_ns):
        x = f"{scale.percent(sample_ns):.2f}%"
        lines.append(
            f'<line x1="{x}" x2="{x}" y1="8" y2="26" stroke="{colour}" stroke-opacity="0.25"/>'
        )
    dots: list[str] = []
    for block in side.blocks:
        x = f"{scale.percent(block.median_ns):.2f}%"
        title = escaped(f"{name}: a block of {format_ns(block.median_ns)}")
        dots.append(
            f'<circle cx="{x}" cy="17" r="4" fill="{colour}"><title>{title}</title></circle>'
        )
    return (
        f"<span>{escaped(name)} · {sample_count:,}</span>"
        '<div class="rw-plot" style="border:0;height:34px">'
        f'<svg role="img" aria-label="{escaped(text)}">{"".join(lines)}{"".join(dots)}</svg></div>'
    )


def _spread(samples_ns: Sequence[float]) -> list[float]:
    if len(samples_ns) <= _MAX_LINES:
        return list(samples_ns)
    places = np.linspace(0, 1, _MAX_LINES)
    return [float(value) for value in np.quantile(samples_ns, places)]

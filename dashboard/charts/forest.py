"""Relative changes with their intervals, one row each, beside a band in which nothing is said."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from roofwatch.dashboard.charts.palette import COLOUR_OF_VERDICT, GREY
from roofwatch.dashboard.charts.scale import clamped_percent
from roofwatch.dashboard.wording import VERDICT_MARKS, escaped, percent, shortened
from roofwatch.model.verdict import THRESHOLDS, Verdict

_LEAST_LOG_WIDTH = math.log(1.08)
"""Size of a change at the edge: noise must not fill the width."""
_MOST_LOG_WIDTH = math.log(3)
"""One far change must not flatten all others."""
_MAX_TABLE_ROWS = 60
_MAX_LABEL = 90

STYLE = f"""
.rw-forest {{position: relative; display: block; height: 20px; min-width: 8rem}}
.rw-forest > * {{position: absolute}}
.rw-forest .band {{top: -4px; bottom: -4px; background: rgba(128, 128, 128, 0.16)}}
.rw-forest .zero {{top: -4px; bottom: -4px; width: 0; border-left: 1px solid {GREY}}}
.rw-forest .interval {{top: 9px; height: 2px}}
.rw-forest .dot {{top: 5px; width: 10px; height: 10px; margin-left: -5px; border-radius: 50%}}
.rw-forest .dot.regressed {{border-radius: 0; transform: rotate(45deg)}}
.rw-forest .dot.undecided {{background: none; border: 2px solid {GREY}; box-sizing: border-box}}
.rw-forest-axis {{position: relative; display: block; height: 16px; font-size: 12px}}
.rw-forest-axis span {{position: absolute; transform: translateX(-50%); white-space: nowrap}}
.changes {{ display: table; width: 100%; font-variant-numeric: tabular-nums }}
.changes td, .changes th {{ border-width: 0 0 1px; font-weight: normal; white-space: nowrap }}
.changes td:nth-child(2) {{ width: 50% }}
@media (max-width: 760px) {{
  /* a phone shows the name on a line of its own, above the drawing and its number */
  .changes tr {{ display: flex; flex-wrap: wrap; align-items: center;
    border-bottom: 1px solid rgba(128, 128, 128, 0.4) }}
  .changes tbody th {{ flex: 1 1 100%; white-space: normal; overflow-wrap: anywhere }}
  .changes thead {{ display: none }}
  .changes td, .changes th {{ border: 0 }}
  .changes td:nth-child(2) {{ flex: 1 1 40%; width: auto }}
}}
"""


@dataclass(frozen=True)
class ForestRow:
    """A relative change, (head - base) / base, and what may be said of it."""

    change: float
    interval: tuple[float, float] | None
    """None if it is unknown."""
    verdict: Verdict

    @property
    def log_size(self) -> float:
        """Return the size of the change, in which 2x and 0.5x are equal."""
        return abs(math.log1p(self.change))


class ForestAxis:
    """An axis on which a change and its inverse are equally far from the middle."""

    def __init__(self, rows: Sequence[ForestRow]) -> None:
        sizes = [row.log_size for row in rows if row.change > -1]
        padded_size = max(sizes, default=0.0) * 1.15
        wide_enough = max(padded_size, _LEAST_LOG_WIDTH)
        self.log_width = min(wide_enough, _MOST_LOG_WIDTH)

    def percent(self, change: float) -> float:
        """Return the place of a change; a far one is at the edge."""
        # a time of zero has no logarithm
        if change <= -1:
            return 0.0
        share = 0.5 + math.log1p(change) / self.log_width / 2
        return clamped_percent(share)

    def row_html(self, row: ForestRow) -> str:
        """Draw the dot and interval of a row, above the band."""
        colour = COLOUR_OF_VERDICT.get(row.verdict, GREY)
        text = percent(row.change)
        interval = ""
        if row.interval is not None:
            low, high = row.interval
            start = self.percent(low)
            width = self.percent(high) - start
            text += f", 95 % interval {percent(low)} to {_far(high)}"
            interval = (
                f'<i class="interval" style="left:{start:.1f}%;width:{width:.1f}%;'
                f'background:{colour}"></i>'
            )
        kind = row.verdict.value
        fill = colour
        # hollow, so that it looks undecided without colour too
        if row.verdict is Verdict.INCONCLUSIVE:
            kind = "undecided"
            fill = "transparent"
        centre = self.percent(row.change)
        title = escaped(text)
        return (
            f'<span class="rw-forest" role="img" aria-label="{title}" title="{title}">'
            f"{self._band()}{interval}"
            f'<i class="dot {kind}" style="left:{centre:.1f}%;background-color:{fill}"></i></span>'
        )

    def _band(self) -> str:
        threshold = THRESHOLDS.relative_change
        low = self.percent(_inverse(threshold))
        width = self.percent(threshold) - low
        return (
            f'<i class="band" style="left:{low:.1f}%;width:{width:.1f}%"></i>'
            '<i class="zero" style="left:50%"></i>'
        )

    def axis_html(self) -> str:
        """Write the ticks: equally large factors to both sides."""
        # a tick at the very edge would be cut off
        far = math.expm1(self.log_width * 0.8)
        power = 10.0 ** math.floor(math.log10(far))
        round_changes = [power * factor for factor in (1, 2, 5)]
        tick = max(change for change in round_changes if change <= far)
        labels: list[str] = []
        for change in (_inverse(tick), 0.0, tick):
            x = self.percent(change)
            labels.append(f'<span style="left:{x:.1f}%">{_tick_text(change)}</span>')
        return f'<span class="rw-forest-axis" aria-hidden="true">{"".join(labels)}</span>'


def _inverse(change: float) -> float:
    """Return the change that undoes a change, equally far to the other side."""
    return 1 / (1 + change) - 1


def _tick_text(change: float) -> str:
    if change:
        return f"{change:+.0%}"
    return "0%"


def forest_table_html(rows: Sequence[tuple[str, ForestRow]]) -> str:
    """Write labelled rows as a table, the largest change on top."""

    def size_of(labelled: tuple[str, ForestRow]) -> float:
        _, row = labelled
        return row.log_size

    in_order = sorted(rows, key=size_of, reverse=True)
    drawn = in_order[:_MAX_TABLE_ROWS]
    axis = ForestAxis([row for _, row in drawn])
    lines: list[str] = []
    for label, row in drawn:
        name = escaped(shortened(label, length=_MAX_LABEL))
        mark = VERDICT_MARKS[row.verdict]
        lines.append(
            f"<tr><th>{name}</th><td>{axis.row_html(row)}</td>"
            f"<td>{percent(row.change)}</td><td>{mark.text}</td></tr>"
        )
    further = ""
    if len(drawn) < len(rows):
        further = f"<p>The {len(drawn)} largest of {len(rows):,}.</p>"
    return (
        '<table class="changes"><thead><tr><th></th>'
        f"<th>{axis.axis_html()}</th><th></th><th></th></tr></thead>"
        f"<tbody>{''.join(lines)}</tbody></table>"
        f"{further}<p>Grey band: a change of 3 %, below which nothing is reported.</p>"
    )


def _far(high: float) -> str:
    if math.isfinite(high):
        return percent(high)
    return "any"

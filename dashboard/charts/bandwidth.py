"""Cases that move bytes and compute nothing, under what their device can move. Ceilings and rates come in."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

import plotly.graph_objects as go

from roofwatch.collector.record.machine import Ceiling
from roofwatch.collector.record.measurement import CaseRecord, Measurement
from roofwatch.collector.record.metrics import Metric, metric
from roofwatch.dashboard.charts.measured_hover import measured_hover
from roofwatch.dashboard.charts.style import GREY, axis_title, room_for, style_of
from roofwatch.dashboard.wording import natural_order, shortened

_ROW_PX = 30
_MEASURED_DASHES = ("solid", "dash", "longdash")
_PUBLISHED_DASHES = ("dot", "dashdot")
"""Of the datasheet's ceilings, thinner than the measured ones."""
MAX_ROWS = 40
"""Cases that are drawn."""


@dataclass(frozen=True)
class Moved:
    """A measurement of a case that moves bytes alone."""

    case: CaseRecord
    measurement: Measurement

    @property
    def is_over_links(self) -> bool:
        """A collective, whose bytes go over the links between ranks."""
        return bool(self.case.bus_bytes)

    @property
    def rate(self) -> Metric:
        return metric("bus_bytes_per_s" if self.is_over_links else "memory_bytes_per_s")

    @property
    def bytes_per_s(self) -> float:
        """Over each link for a collective, else to and from the memory."""
        assert self.measurement.median_ns is not None
        return (self.case.bus_bytes or self.case.memory_bytes) / self.measurement.median_ns * 1e9


def moved(cases: Iterable[CaseRecord], measurements: Iterable[Measurement]) -> list[Moved]:
    """What a roofline has no place for: what was measured and moves bytes, but computes nothing."""
    known = {case.case_id: case for case in cases if not case.flop_count and (case.bus_bytes or case.memory_bytes)}
    return [
        Moved(known[measurement.case_id], measurement)
        for measurement in measurements
        if measurement.case_id in known and measurement.median_ns is not None
    ]


def bandwidth_figure(moves: Sequence[Moved], ceilings: Sequence[Ceiling]) -> go.Figure:
    """A row a case: the rate of each implementation, and the ceilings of the memory as lines across the rows. Links
    have no ceiling that anybody measured, and a memory's is none of theirs.

    Args:
        moves: One at least, all over links or none.
        ceilings: As measured in the same run; those of the datasheet, as thin dotted ones. Others than the memory's
            are left out.
    """
    ordered = sorted(moves, key=lambda one: natural_order(one.case.case_id))
    rows = list(dict.fromkeys(_name(one) for one in ordered))[:MAX_ROWS]
    drawn = [one for one in ordered if _name(one) in rows]
    figure = go.Figure()
    if not moves[0].is_over_links:
        _add_ceilings(figure, ceilings, rows)
    for index, name in enumerate(sorted({one.measurement.implementation for one in drawn})):
        colour, symbol, _ = style_of(index)
        own = [one for one in drawn if one.measurement.implementation == name]
        figure.add_scatter(
            x=[one.bytes_per_s for one in own],
            y=[_name(one) for one in own],
            mode="markers",
            name=escape(name),
            marker={"color": colour, "symbol": symbol, "size": 11, "line": {"color": GREY, "width": 1}},
            hovertext=[measured_hover(one.case, one.measurement, one.rate.format(one.bytes_per_s)) for one in own],
            hoverinfo="text",
        )
    figure.update_layout(
        height=150 + _ROW_PX * len(rows),
        margin=room_for(max(map(len, rows)), is_titled=False),
        hovermode="closest",
        showlegend=True,
        legend={"orientation": "h", "yanchor": "bottom", "y": 1.02, "x": 0},
        xaxis={"title": axis_title(moves[0].rate), "tickformat": "~s", "ticksuffix": "B/s", "rangemode": "tozero"},
        yaxis={"categoryorder": "array", "categoryarray": rows[::-1], "type": "category"},
    )
    return figure


def _name(one: Moved) -> str:
    return escape(shortened(one.case.case_id))


def _add_ceilings(figure: go.Figure, ceilings: Sequence[Ceiling], rows: Sequence[str]) -> None:
    """Those that were measured first, since the others stand beside them."""
    of_memory = [one for one in ceilings if one.resource == "memory"]
    for index, ceiling in enumerate(sorted(of_memory, key=lambda one: one.source == "datasheet")):
        is_published = ceiling.source == "datasheet"
        dashes = _PUBLISHED_DASHES if is_published else _MEASURED_DASHES
        label = f"{ceiling.level or 'memory'} {metric('memory_bytes_per_s').format(ceiling.per_s)}"
        # a mark at each end too: over a single row a line has no length
        figure.add_scatter(
            x=[ceiling.per_s] * 2,
            y=[rows[0], rows[-1]],
            mode="lines+markers",
            line={"color": GREY, "width": 1 if is_published else 2, "dash": dashes[index % len(dashes)]},
            marker={"color": GREY, "symbol": "line-ns-open", "size": _ROW_PX},
            name=escape(f"roof: {label}, datasheet" if is_published else f"roof: {label}"),
            hoverinfo="name",
            hoverlabel={"namelength": -1},
        )

"""Cases under the ceilings of their device. Ceilings and rates come in; none is estimated here."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import tzinfo
from html import escape

import plotly.graph_objects as go

from roofwatch.collector.record.machine import Ceiling
from roofwatch.collector.record.measurement import CaseRecord, Measurement
from roofwatch.collector.record.metrics import metric
from roofwatch.dashboard.charts.measured_hover import measured_hover
from roofwatch.dashboard.charts.style import GREY, axis_title, commit_lines, room_for, style_of
from roofwatch.db.values import Series

_MEASURED_DASHES = ("solid", "dash", "longdash")
_PUBLISHED_DASHES = ("dot", "dashdot")
"""Of the datasheet's ceilings, thinner than the measured ones."""
_LABEL_LENGTH = 4
"""Of a rate on the axis, such as `100G`."""
_CROWDED = 3e3
"""Highest over lowest, from which on an axis has ticks at powers of ten alone."""


@dataclass(frozen=True)
class Placed:
    """A measurement that has a place on a roofline."""

    case: CaseRecord
    measurement: Measurement

    @property
    def intensity(self) -> float:
        """FLOP per byte."""
        return self.case.flop_count / self.case.memory_bytes

    @property
    def flop_per_s(self) -> float:
        assert self.measurement.median_ns is not None
        return self.case.flop_count / self.measurement.median_ns * 1e9


def place(cases: Iterable[CaseRecord], measurements: Iterable[Measurement]) -> list[Placed]:
    """What can be drawn: what was measured, moves bytes and computes something."""
    known = {case.case_id: case for case in cases if case.flop_count and case.memory_bytes}
    return [
        Placed(known[measurement.case_id], measurement)
        for measurement in measurements
        if measurement.case_id in known and measurement.median_ns is not None
    ]


def roofline_figure(
    placed: Sequence[Placed], ceilings: Sequence[Ceiling], zone: tzinfo, path: Series | None = None
) -> go.Figure:
    """Compute rate against arithmetic intensity, both logarithmic, under the ceilings of the device.

    Args:
        placed: A case appears once per implementation that was measured.
        ceilings: As measured in the same run, as lines; those of the datasheet, as thin dotted ones.
        zone: Of the reader.
        path: Times of one of the cases over commits: how it came to where it is.

    Source: Williams, Waterman, Patterson, "Roofline" (CACM 2009).
    """
    figure = go.Figure()
    _add_roofs(figure, placed, ceilings)
    if path is not None:
        _add_path(figure, placed, path, zone)
    names = sorted({one.measurement.implementation for one in placed})
    for index, name in enumerate(names):
        colour, symbol, _ = style_of(index)
        own = [one for one in placed if one.measurement.implementation == name]
        figure.add_scatter(
            x=[one.intensity for one in own],
            y=[one.flop_per_s for one in own],
            mode="markers",
            name=escape(name),
            marker={"color": colour, "symbol": symbol, "size": 12, "line": {"color": GREY, "width": 1}},
            hovertext=[
                measured_hover(one.case, one.measurement, metric("flop_per_s").format(one.flop_per_s)) for one in own
            ],
            hoverinfo="text",
        )
    figure.update_layout(
        height=480,
        margin=room_for(_LABEL_LENGTH),
        hovermode="closest",
        showlegend=True,
        legend={"orientation": "h", "yanchor": "bottom", "y": 1.02, "x": 0},
        xaxis={
            "title": "arithmetic intensity (FLOP per byte)",
            "type": "log",
            "tickformat": "~g",
            **_ticks(one.x for one in figure.data),
        },
        yaxis={
            "title": axis_title(metric("flop_per_s")),
            "type": "log",
            "tickformat": "~s",
            **_ticks(one.y for one in figure.data),
        },
    )
    return figure


def _ticks(values: Iterable[Sequence[float]]) -> dict[str, object]:
    """1, 2 and 5 in every decade; of many decades the powers of ten alone, or they would crowd."""
    every = [value for one in values for value in one] or [1.0]
    decades = range(math.floor(math.log10(min(every))) - 1, math.ceil(math.log10(max(every))) + 2)
    digits = (1,) if max(every) / min(every) > _CROWDED else (1, 2, 5)
    # written out: Plotly draws the ticks of a step twice
    return {"tickmode": "array", "tickvals": [digit * 10.0**decade for decade in decades for digit in digits]}


def _add_path(figure: go.Figure, placed: Sequence[Placed], path: Series, zone: tzinfo) -> None:
    """Joined in the order of commits: what a case computes and moves stays, so it goes up and down one line."""
    case = next((one.case for one in placed if one.case.case_id == path.key.case_id), None)
    steps = [(point, point.value) for point in path.points if point.value]
    if case is None or len(steps) < 2:
        return
    rates = [case.flop_count / value * 1e9 for _, value in steps]
    figure.add_scatter(
        x=[case.flop_count / case.memory_bytes] * len(steps),
        y=rates,
        mode="lines+markers+text",
        text=[
            f"first, {steps[0][0].commit.short_sha}",
            *[""] * (len(steps) - 2),
            f"last, {steps[-1][0].commit.short_sha}",
        ],
        textposition=["middle left", *["middle right"] * (len(steps) - 1)],
        textfont={"color": GREY},
        name=escape(f"path of {path.key.implementation} over commits"),
        line={"color": GREY, "width": 1},
        marker={"color": GREY, "symbol": "line-ew-open", "size": 10},
        hovertext=[
            "<br>".join(
                [
                    f"<b>{metric('flop_per_s').format(rate)}</b>",
                    escape(path.key.label),
                    *commit_lines(point.commit, zone),
                ]
            )
            for (point, _), rate in zip(steps, rates, strict=True)
        ],
        hoverinfo="text",
    )


def _add_roofs(figure: go.Figure, placed: Sequence[Placed], ceilings: Sequence[Ceiling]) -> None:
    """Slopes of the memory ceilings up to the highest compute ceiling, and flats of the compute ceilings from the
    fastest memory on; those that were measured first, since the others stand beside them.
    """
    dtypes = {one.case.dtype for one in placed}
    by_source = sorted(ceilings, key=lambda ceiling: ceiling.source == "datasheet")
    slopes = [ceiling for ceiling in by_source if ceiling.resource == "memory"]
    every_flat = [ceiling for ceiling in by_source if ceiling.resource == "compute"]
    # the roofs of other dtypes are no limit of these cases
    flats = [flat for flat in every_flat if flat.dtype is None or flat.dtype in dtypes] or every_flat
    left, right = _span(placed, slopes, flats)
    top = max((flat.per_s for flat in flats), default=None)
    fastest = max((slope.per_s for slope in slopes), default=None)
    for index, slope in enumerate(slopes):
        end = right if top is None else top / slope.per_s
        rate = metric("memory_bytes_per_s").format(slope.per_s)
        _add_roof(
            figure,
            slope,
            (left, end),
            (left * slope.per_s, end * slope.per_s),
            f"{slope.level or 'memory'} {rate}",
            index,
        )
    for index, flat in enumerate(flats):
        start = left if fastest is None else flat.per_s / fastest
        rate = metric("flop_per_s").format(flat.per_s)
        _add_roof(figure, flat, (start, right), (flat.per_s, flat.per_s), f"{flat.dtype or 'compute'} {rate}", index)


def _span(placed: Sequence[Placed], slopes: Iterable[Ceiling], flats: Sequence[Ceiling]) -> tuple[float, float]:
    ridges = [flat.per_s / slope.per_s for slope in slopes for flat in flats]
    intensities = [one.intensity for one in placed] + ridges or [1.0]
    return min(intensities) / 4, max(intensities) * 4


def _add_roof(
    figure: go.Figure, ceiling: Ceiling, x: tuple[float, float], y: tuple[float, float], label: str, index: int
) -> None:
    is_published = ceiling.source == "datasheet"
    dashes = _PUBLISHED_DASHES if is_published else _MEASURED_DASHES
    figure.add_scatter(
        x=list(x),
        y=list(y),
        mode="lines",
        line={"color": GREY, "width": 1 if is_published else 2, "dash": dashes[index % len(dashes)]},
        name=escape(f"roof: {label}, datasheet" if is_published else f"roof: {label}"),
        hoverinfo="name",
        hoverlabel={"namelength": -1},
    )

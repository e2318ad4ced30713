"""Figures of one kernel: rooflines, bandwidths of cases without arithmetic, and what the autotuner
tried.
"""

import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from datetime import tzinfo

import numpy as np
import pandas as pd
import plotly.express as px
import plotly.graph_objects as go

from roofwatch.dashboard.charts.palette import BLUE, GREY
from roofwatch.dashboard.charts.style import (
    axis_title,
    commit_lines,
    lay_out,
    logarithmic,
    marker_of,
    rows_of,
)
from roofwatch.dashboard.wording import escaped, natural_order, rate_text, shortened
from roofwatch.model.history import Series
from roofwatch.model.machine import Ceiling
from roofwatch.model.measurement import Autotuning, CaseRecord, Measurement
from roofwatch.model.metrics import Metric, metric

_MEASURED_DASHES = ("solid", "dash", "longdash")
_DATASHEET_DASHES = ("dot", "dashdot")
_ROW_PX = 30
MAX_ROWS = 40
"""Maximum cases in a bandwidth figure."""
_MAX_VALUES = 16
"""Maximum values of an autotuned parameter on an axis."""


@dataclass(frozen=True)
class Point:
    """A measured case with FLOP per byte, or one that only moves bytes."""

    case: CaseRecord
    measurement: Measurement

    @property
    def has_arithmetic(self) -> bool:
        return bool(self.case.flop_count)

    @property
    def is_over_links(self) -> bool:
        """Whether it is a collective without arithmetic, whose bytes move between ranks."""
        return not self.has_arithmetic and bool(self.case.bus_bytes)

    @property
    def intensity(self) -> float:
        """FLOP per byte."""
        return self.case.flop_count / self.case.memory_bytes

    @property
    def rate(self) -> Metric:
        if self.has_arithmetic:
            return metric("flop_per_s")
        if self.is_over_links:
            return metric("bus_bytes_per_s")
        return metric("memory_bytes_per_s")

    @property
    def per_s(self) -> float:
        """FLOP per second, or bytes per second over each link of a collective,
        else of the memory.
        """
        assert self.measurement.median_ns is not None
        amount = self.case.flop_count or self.case.bus_bytes or self.case.memory_bytes
        return amount / self.measurement.median_ns * 1e9

    @property
    def hover(self) -> str:
        measurement = self.measurement
        assert measurement.median_ns is not None
        lines = [
            f"<b>{escaped(self.case.case_id)}</b> {escaped(measurement.implementation)}",
            f"{self.rate.format(self.per_s)} in "
            f"{metric('median_ns').format(measurement.median_ns)}",
        ]
        if measurement.utilisation is not None:
            lines.append(
                f"{metric('utilisation').format(measurement.utilisation)} of the "
                f"{measurement.bound} roof"
            )
        return "<br>".join(lines)


def points_of(cases: Iterable[CaseRecord], measurements: Iterable[Measurement]) -> list[Point]:
    """Return the measured cases that compute or move bytes."""
    cases_by_id: dict[str, CaseRecord] = {}
    for case in cases:
        is_collective = bool(case.bus_bytes) and not case.flop_count
        if case.memory_bytes or is_collective:
            cases_by_id[case.case_id] = case
    return [
        Point(cases_by_id[measurement.case_id], measurement)
        for measurement in measurements
        if measurement.case_id in cases_by_id and measurement.median_ns
    ]


def _add_points(
    figure: go.Figure,
    points: Sequence[Point],
    x: Callable[[Point], object],
    y: Callable[[Point], object],
    size: int,
) -> None:
    by_implementation: dict[str, list[Point]] = {}
    for point in points:
        by_implementation.setdefault(point.measurement.implementation, []).append(point)
    for index, (name, same) in enumerate(sorted(by_implementation.items())):
        figure.add_scatter(
            x=list(map(x, same)),
            y=list(map(y, same)),
            mode="markers",
            name=escaped(name),
            marker=marker_of(index, size),
            hovertext=[point.hover for point in same],
        )


def roofline_figure(
    placed: Sequence[Point],
    ceilings: Sequence[Ceiling],
    zone: tzinfo,
    path: Series | None = None,
) -> go.Figure:
    """Draw compute rate over arithmetic intensity, both logarithmic, under the ceilings of the
    device.

    Ceilings of the datasheet are thin and dotted. `path` is one case over commits.

    Source: Williams, Waterman, Patterson, "Roofline" (CACM 2009).
    """
    figure = go.Figure()
    _add_roofs(figure, placed, ceilings)
    if path is not None:
        _add_path(figure, placed, path, zone)
    _add_points(
        figure,
        placed,
        lambda point: point.intensity,
        lambda point: point.per_s,
        12,
    )
    return lay_out(
        figure,
        height=480,
        xaxis={
            "title": "arithmetic intensity (FLOP per byte)",
            "tickformat": "~g",
            **logarithmic(value for point in figure.data for value in point.x),
        },
        yaxis={
            "title": axis_title(metric("flop_per_s")),
            "tickformat": "~s",
            **logarithmic(value for point in figure.data for value in point.y),
        },
    )


def bandwidth_figure(moves: Sequence[Point], ceilings: Sequence[Ceiling]) -> go.Figure:
    """Draw one row per case with the rate of each implementation, and memory ceilings as vertical
    lines.

    Args:
        moves: At least one; all over links, or none.
        ceilings: As for a roofline. Links have no measured ceiling.
    """
    ordered = sorted(moves, key=lambda point: natural_order(point.case.case_id))
    all_rows = dict.fromkeys(map(_name, ordered))
    rows = list(all_rows)[:MAX_ROWS]
    drawn = [point for point in ordered if _name(point) in rows]
    figure = go.Figure()
    # the links of a collective have no measured ceiling
    if not moves[0].is_over_links:
        for index, ceiling in enumerate(_measured_first(ceilings, "memory")):
            # markers at the ends, because over a single row a line has no length
            marker = {"color": GREY, "symbol": "line-ns-open", "size": _ROW_PX}
            _add_roof(
                figure,
                ceiling,
                x=[ceiling.per_s, ceiling.per_s],
                y=[rows[0], rows[-1]],
                index=index,
                marker=marker,
            )
    _add_points(
        figure,
        drawn,
        lambda point: point.per_s,
        _name,
        10,
    )
    return lay_out(
        figure,
        height=150 + _ROW_PX * len(rows),
        xaxis={
            "title": axis_title(moves[0].rate),
            "tickformat": "~s",
            "ticksuffix": "B/s",
            "rangemode": "tozero",
        },
        yaxis=rows_of(rows),
    )


def _name(point: Point) -> str:
    return escaped(shortened(point.case.case_id))


def _add_path(
    figure: go.Figure,
    placed: Sequence[Point],
    path: Series,
    zone: tzinfo,
) -> None:
    """Draw the rates of a case over commits; its intensity is constant."""
    cases = [point.case for point in placed if point.case.case_id == path.key.case_id]
    steps = [(point, point.value) for point in path.points if point.value]
    # a single commit is drawn as a point already
    if not cases or len(steps) < 2:
        return
    case = cases[0]
    rates = [case.flop_count / value_ns * 1e9 for _, value_ns in steps]
    first_point, _ = steps[0]
    last_point, _ = steps[-1]
    first, last = first_point.commit.short_sha, last_point.commit.short_sha
    figure.add_scatter(
        x=[case.flop_count / case.memory_bytes] * len(steps),
        y=rates,
        mode="lines+markers+text",
        text=[
            f"first, {first}",
            *[""] * (len(steps) - 2),
            f"last, {last}",
        ],
        textposition=["middle left", *["middle right"] * (len(steps) - 1)],
        textfont={"color": GREY},
        name=escaped(f"path of {path.key.implementation} over commits"),
        line={"color": GREY, "width": 1},
        marker={"color": GREY, "symbol": "line-ew-open", "size": 10},
        hovertext=[
            f"<b>{metric('flop_per_s').format(rate)}</b><br>{escaped(path.key.label)}<br>"
            + "<br>".join(commit_lines(point.commit, zone))
            for (point, _), rate in zip(steps, rates, strict=True)
        ],
    )


def _add_roofs(figure: go.Figure, placed: Sequence[Point], ceilings: Sequence[Ceiling]) -> None:
    """Draw memory ceilings up to the highest compute ceiling, and compute ceilings from the fastest
    memory on.
    """
    dtypes = {point.case.dtype for point in placed}
    slopes = _measured_first(ceilings, "memory")
    all_flats = _measured_first(ceilings, "compute")
    # the roofs of other dtypes do not limit these cases
    flats = [flat for flat in all_flats if flat.dtype is None or flat.dtype in dtypes]
    if not flats:
        flats = all_flats
    ridges = [flat.per_s / slope.per_s for slope in slopes for flat in flats]
    intensities = [point.intensity for point in placed] + ridges or [1.0]
    lowest, highest = min(intensities) / 4, max(intensities) * 4
    for index, slope in enumerate(slopes):
        # a measured roof ends at the measured roofs, not at those of the datasheet
        comparable = [flat for flat in flats if flat.source == slope.source] or flats
        end = highest
        if comparable:
            end = max(flat.per_s for flat in comparable) / slope.per_s
        rates = [lowest * slope.per_s, end * slope.per_s]
        _add_roof(
            figure,
            slope,
            x=[lowest, end],
            y=rates,
            index=index,
        )
    for index, flat in enumerate(flats):
        start = lowest
        if slopes:
            start = flat.per_s / max(slope.per_s for slope in slopes)
        _add_roof(
            figure,
            flat,
            x=[start, highest],
            y=[flat.per_s, flat.per_s],
            index=index,
        )


def _measured_first(ceilings: Sequence[Ceiling], resource: str) -> list[Ceiling]:
    selected = [ceiling for ceiling in ceilings if ceiling.resource == resource]
    return sorted(selected, key=lambda ceiling: ceiling.source == "datasheet")


def _add_roof(
    figure: go.Figure,
    ceiling: Ceiling,
    *,
    x: Sequence[float],
    y: Sequence[float | str],
    index: int,
    marker: dict[str, object] | None = None,
) -> None:
    subject = ceiling.dtype
    if ceiling.resource == "memory":
        subject = ceiling.level
    rate = rate_text(ceiling.resource, ceiling.per_s)
    name = f"roof: {subject or ceiling.resource} {rate}"
    dashes: Sequence[str] = _MEASURED_DASHES
    width = 2
    if ceiling.source == "datasheet":
        name += ", datasheet"
        dashes = _DATASHEET_DASHES
        width = 1
    figure.add_scatter(
        x=x,
        y=y,
        mode="lines" if marker is None else "lines+markers",
        line={
            "color": GREY,
            "width": width,
            "dash": dashes[index % len(dashes)],
        },
        marker=marker,
        name=escaped(name),
        hoverinfo="name",
        hoverlabel={"namelength": -1},
    )


def landscape_figure(tuned: Autotuning) -> go.Figure | None:
    """Draw the best time for each pair of values of two parameters, as a multiple of the fastest.

    The parameters are the two between whose values the log time differs most. None if fewer than
    two numeric parameters vary.
    """
    timed = [timing for timing in tuned.timings if timing.time_ns is not None]
    tried = pd.DataFrame([timing.configuration for timing in timed])
    times_ns = np.array([timing.time_ns for timing in timed], dtype=float)
    log_time = pd.Series(np.log(times_ns))
    numeric = [
        name for name in tried.select_dtypes("number") if 1 < tried[name].nunique() <= _MAX_VALUES
    ]

    def negative_influence(name: Hashable) -> float:
        """Less for a parameter whose values differ more in time."""
        mean_by_value = log_time.groupby(tried[name]).transform("mean")
        return -float(mean_by_value.var())

    numeric.sort(key=lambda name: (negative_influence(name), name))
    if len(numeric) < 2:
        return None
    across, down = numeric[:2]
    # of all other parameters, the best values count
    groups = log_time.groupby([tried[down], tried[across]])
    best = groups.min().unstack()
    relative = best.sub(log_time.min()).map(math.exp)
    # as text: Plotly would draw numbers on a continuous axis
    relative.index = relative.index.astype(str)
    relative.columns = relative.columns.astype(str)
    figure = px.imshow(
        relative,
        text_auto=".2f",
        aspect="auto",
        color_continuous_scale=[BLUE, "#D9E9F3"],
    )
    figure.update_coloraxes(showscale=False)
    figure.update_traces(xgap=2, ygap=2, hovertemplate=None)
    return lay_out(
        figure,
        height=140 + 36 * len(relative),
        xaxis={"title": escaped(shortened(str(across), length=40)), "type": "category"},
        yaxis={
            "title": escaped(shortened(str(down), length=40)),
            "type": "category",
            "autorange": "reversed",
        },
    )

"""Series over commits with their stored change points."""

from collections.abc import Mapping, Sequence
from datetime import tzinfo
from enum import StrEnum

import plotly.graph_objects as go

from roofwatch.dashboard.charts.palette import VERMILLION
from roofwatch.dashboard.charts.setup_changes import setting_changes
from roofwatch.dashboard.charts.style import (
    AXES,
    Axis,
    axis_title,
    commit_lines,
    commit_ticks,
    lay_out,
    marker_of,
    style_of,
)
from roofwatch.dashboard.charts.trend_marks import (
    MARKS,
    add_changes,
    add_setup_changes,
    changes_of,
)
from roofwatch.dashboard.wording import escaped, outcome_text, shortened
from roofwatch.model.history import BandPoint, CommitRef, Regression, Series, SeriesPoint
from roofwatch.model.metrics import metric

_VALUES, _FAILURES = "y", "y2"
"""Axes; that of the marks and those of more metrics follow."""
_ROW_PX = {MARKS: 34, _FAILURES: 60}
_FURTHER_PX, _GAP_PX = 170, 28
_NAME_PARTS = ("case_id", "implementation", "function", "target", "tensor", "runner_class")
"""Parts of a series' key that its name may have."""


class Scale(StrEnum):
    ABSOLUTE = "absolute"
    LOGARITHMIC = "logarithmic"
    RELATIVE = "relative"
    """Relative to the first value of each series."""


def trend_figure(
    series: Sequence[Series],
    regressions: Sequence[Regression],
    zone: tzinfo,
    *,
    scale: Scale = Scale.ABSOLUTE,
    places: Mapping[str, int] | None = None,
    values_px: int = 400,
) -> go.Figure:
    """Draw series over commits, oldest to newest, one row per metric.

    Points have whiskers at the quartiles; a long series is a median with a band. Failed runs are in
    a row of their own, by outcome. Change points are vertical lines with a marker on top. A shaded
    band starts where the measurement setup changed. The metric of the first series gets the tallest
    row, `values_px` high. `places` has the position of each commit by sha; None for consecutive
    positions.
    """
    commits = commits_of(series)
    position = places or {commit.sha: index for index, commit in enumerate(commits)}
    commit_count = max((position[commit.sha] + 1 for commit in commits), default=0)
    metrics = list(dict.fromkeys(line.key.metric for line in series))
    further_axes = [f"y{number + 3}" for number in range(1, len(metrics))]
    axis_of = dict(zip(metrics, [_VALUES, *further_axes], strict=False))
    points = [(line, point) for line in series for point in line.points]
    failed = [(line, point) for line, point in points if point.value is None]
    rows = [MARKS, _VALUES]
    if failed:
        rows.append(_FAILURES)
    rows += further_axes
    domains, height_px = _domains(rows, values_px)
    names = series_names(series)
    styles = {name: index for index, name in enumerate(dict.fromkeys(names))}
    figure = go.Figure()
    for line, name in zip(series, names, strict=True):
        _add_values(
            figure,
            line,
            name,
            position=position,
            index=styles[name],
            axis=axis_of[line.key.metric],
            scale=scale,
            zone=zone,
        )
    _add_failures(figure, failed, position, zone)
    add_setup_changes(
        figure,
        setting_changes(series),
        position,
        commit_count,
        zone,
    )
    add_changes(
        figure,
        changes_of(series, regressions),
        position,
        commit_count,
        zone,
    )
    return lay_out(
        figure,
        height=height_px,
        dragmode="zoom",
        xaxis={
            "title": "commit",
            "range": [-0.6, commit_count - 0.4],
            "anchor": rows[-1],
            "showgrid": False,
            "zeroline": False,
            **commit_ticks(commits, [position[commit.sha] for commit in commits]),
        },
        yaxis2={
            "domain": domains.get(_FAILURES, [0.0, 0.01]),
            "type": "category",
            "title": "failed" if failed else None,
            "showgrid": False,
            "visible": bool(failed),
            "fixedrange": True,
        },
        yaxis3={
            "domain": domains[MARKS],
            "range": [0, 1],
            "visible": False,
            "fixedrange": True,
        },
        **{
            axis.replace("y", "yaxis"): {
                "domain": domains[axis],
                **_value_axis(name, scale, is_tall=axis == _VALUES),
            }
            for name, axis in axis_of.items()
        },
    )


def _domains(
    rows: Sequence[str],
    values_px: int,
) -> tuple[dict[str, list[float]], float]:
    """Return the vertical domain of each row as a share of the figure, and the figure's height."""
    row_px = {**_ROW_PX, _VALUES: values_px}
    heights_px = [row_px.get(row, _FURTHER_PX) for row in rows]
    inner_px = sum(heights_px) + _GAP_PX * (len(rows) - 1)
    domains, top_px = {}, inner_px
    for row, height_px in zip(rows, heights_px, strict=True):
        domains[row] = [(top_px - height_px) / inner_px, top_px / inner_px]
        top_px -= height_px + _GAP_PX
    return domains, inner_px + 100


def commits_of(series: Sequence[Series]) -> list[CommitRef]:
    """Return the commits with a point, oldest to newest."""
    commits: dict[str, CommitRef] = {}
    for line in series:
        commits.update({point.commit.sha: point.commit for point in line.points})
    return sorted(commits.values())


def series_names(series: Sequence[Series]) -> list[str]:
    """Name each series by the parts in which they differ; by its whole label if they do not."""
    columns: list[list[str]] = []
    for name in _NAME_PARTS:
        column: list[str] = [getattr(line.key, name) for line in series]
        if len(set(column)) > 1:
            columns.append(column)
    if not columns:
        return [line.key.label for line in series]
    return [" · ".join(filter(None, parts)) for parts in zip(*columns, strict=True)]


def _value_axis(name: str, scale: Scale, *, is_tall: bool) -> dict[str, object]:
    unit = metric(name)
    line_break = "<br>"  # a low row has no room for a long title
    if is_tall:
        line_break = " "
    axis = AXES.get(unit.unit, Axis())
    title = axis_title(unit, line_break=line_break)
    if scale is Scale.RELATIVE:
        axis = Axis(tick_format=".3~f", tick_suffix="×")
        title = f"{unit.title}{line_break}over the first, {unit.direction}"
    range_options: dict[str, object] = {}
    if axis.at_least is not None and scale is Scale.ABSOLUTE:
        range_options["include"] = axis.at_least
    return {
        "title": title,
        "type": "log" if scale is Scale.LOGARITHMIC else "linear",
        "tickformat": axis.tick_format,
        "ticksuffix": axis.tick_suffix,
        "autorangeoptions": range_options,
        "zeroline": False,
        "fixedrange": True,
    }


def _add_values(
    figure: go.Figure,
    series: Series,
    name: str,
    *,
    position: Mapping[str, int],
    index: int,
    axis: str,
    scale: Scale,
    zone: tzinfo,
) -> None:
    # a failed run has no value, which breaks the line
    # a failed run has no value, which breaks the line
    values: list[float | None] = [point.value for point in series.points]
    hovertext = [_point_hover(series, point, zone) for point in series.points]
    if series.band:
        values = [band_point.median for band_point in series.band]
        hovertext = [_band_hover(series, band_point, zone) for band_point in series.band]
    # a band has a point for a stretch of runs
    drawn = series.band or series.points
    places = [position[point.commit.sha] for point in drawn]
    factor = AXES.get(series.key.definition.unit, Axis()).scale
    if scale is Scale.RELATIVE:
        factor = 1 / next(filter(None, values), 1.0)
    colour, _, dash = style_of(index)
    if series.band:
        upper = [band_point.high * factor for band_point in series.band]
        lower = [band_point.low * factor for band_point in series.band]
        figure.add_scatter(
            # along the upper edge and back along the lower one
            x=[*places, *reversed(places)],
            y=[*upper, *reversed(lower)],
            yaxis=axis,
            mode="lines",
            fill="toself",
            fillcolor=colour,
            opacity=0.25,
            line={"width": 0},
            hoverinfo="skip",
            legendgroup=str(index),
            showlegend=False,
        )
    whiskers = {
        "type": "data",
        "symmetric": False,
        "array": [_length(point.value, point.high) * factor for point in series.points],
        "arrayminus": [_length(point.low, point.value) * factor for point in series.points],
        "thickness": 1,
        "width": 3,
    }
    figure.add_scatter(
        x=places,
        y=[None if value is None else value * factor for value in values],
        yaxis=axis,
        error_y=None if series.band else whiskers,
        mode="lines+markers",
        connectgaps=False,
        name=escaped(name),
        unselected={"marker": {"opacity": 1}},
        legendgroup=str(index),
        showlegend=axis == _VALUES,
        line={"color": colour, "width": 1.5, "dash": dash},
        marker=marker_of(index, 5 if series.band else 8),
        hovertext=hovertext,
    )


def _length(lower: float | None, upper: float | None) -> float:
    if upper is None or lower is None:
        return 0.0
    return upper - lower


def _point_hover(series: Series, point: SeriesPoint, zone: tzinfo) -> str:
    if point.value is None:
        return ""
    write = series.key.definition.format
    spread = ""
    if point.low is not None and point.high is not None:
        spread = f" (quartiles {write(point.low)} to {write(point.high)})"
    value = f"<b>{escaped(write(point.value))}</b>{escaped(spread)}"
    return "<br>".join(
        [
            value,
            escaped(series.key.label),
            *commit_lines(point.commit, zone),
        ]
    )


def _band_hover(series: Series, band_point: BandPoint, zone: tzinfo) -> str:
    write = series.key.definition.format
    median = f"<b>{escaped(write(band_point.median))}</b>, median of {band_point.run_count:,} runs"
    low, high = escaped(write(band_point.low)), escaped(write(band_point.high))
    spread = f"5 % to 95 %: {low} to {high}"
    return "<br>".join(
        [
            median,
            spread,
            escaped(series.key.label),
            *commit_lines(band_point.commit, zone),
        ]
    )


def _add_failures(
    figure: go.Figure,
    failed: Sequence[tuple[Series, SeriesPoint]],
    position: Mapping[str, int],
    zone: tzinfo,
) -> None:
    if not failed:
        return
    figure.add_scatter(
        x=[position[point.commit.sha] for _, point in failed],
        y=[outcome_text(point.outcome) for _, point in failed],
        yaxis=_FAILURES,
        mode="markers",
        name="failed run",
        marker={"symbol": "x-thin", "size": 9, "line": {"color": VERMILLION, "width": 2}},
        hovertext=[_failure_hover(series, point, zone) for series, point in failed],
    )


def _failure_hover(series: Series, point: SeriesPoint, zone: tzinfo) -> str:
    message = escaped(shortened(point.message or ""))
    lines = [
        f"<b>{outcome_text(point.outcome)}</b> {message}",
        escaped(series.key.label),
        *commit_lines(point.commit, zone),
    ]
    return "<br>".join(lines)

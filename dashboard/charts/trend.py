"""Series over commits, with their change points. Nothing is judged here: change points come in, none is found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import tzinfo
from enum import StrEnum
from html import escape

import plotly.graph_objects as go

from roofwatch.collector.record.metrics import metric
from roofwatch.dashboard.charts.style import (
    AXES,
    GREEN,
    GREY,
    VERMILLION,
    Axis,
    axis_title,
    commit_lines,
    commit_ticks,
    room_for,
    style_of,
)
from roofwatch.dashboard.charts.trend_rows import Rows
from roofwatch.dashboard.setting_changes import SettingChange
from roofwatch.dashboard.wording import VERDICT_MARKS, change_text, outcome_text, shortened, transition_text
from roofwatch.db.values import ChangePoint, CommitRef, Regression, RegressionState, Series, SeriesPoint, Verdict

_VERDICT_COLOURS = {Verdict.REGRESSED: VERMILLION, Verdict.IMPROVED: GREEN}
_VERDICT_SYMBOLS = {Verdict.REGRESSED: "diamond", Verdict.IMPROVED: "circle"}
_MAX_CHANGE_LABELS = 6
_LABEL_LENGTH = 7
"""Of a value on the axis, such as `20.35µs`."""
_MAX_WHISKERS = 500
"""Points of a series that have room for their quartiles."""


class Scale(StrEnum):
    ABSOLUTE = "absolute"
    LOGARITHMIC = "logarithmic"
    RELATIVE = "relative"
    """To the first value shown of each series."""


def trend_figure(
    series: Sequence[Series],
    regressions: Sequence[Regression],
    zone: tzinfo,
    *,
    scale: Scale = Scale.ABSOLUTE,
    setting_changes: Sequence[SettingChange] = (),
    places: Mapping[str, int] | None = None,
) -> go.Figure:
    """Series over commits, oldest to newest, in a row for each metric; they share the axis of commits.

    Values are points with whiskers at the quartiles. Zero has no place on a logarithmic scale. Runs that failed have no
    value: they stand in a strip of their own, by outcome. Change points of these series are vertical lines with a mark
    on top; a shaded band begins where what was measured with changed.

    Args:
        series: Those of the first one's metric are in the tallest row.
        regressions: Stored ones; change points of other series are left out.
        zone: Of the reader.
        scale: Of all values.
        setting_changes: Where bands begin.
        places: Of the commits on their axis, by sha; without them those of the series lie side by side.
    """
    commits = commits_of(series)
    position = places or {commit.sha: index for index, commit in enumerate(commits)}
    commit_count = max((position[commit.sha] + 1 for commit in commits), default=0)
    changes = _changes_of(series, regressions)
    metrics = list(dict.fromkeys(one.key.metric for one in series))
    failed = [(one, point) for one in series for point in one.points if point.value is None]
    rows = Rows(metrics, has_failures=bool(failed))
    figure = go.Figure()
    names = series_names(series)
    styles = {name: index for index, name in enumerate(dict.fromkeys(names))}
    for one, name in zip(series, names, strict=True):
        _add_values(figure, one, name, position, styles[name], rows.axis_of(one.key.metric), scale, zone)
    _add_failures(figure, failed, position, zone)
    _add_bands(figure, setting_changes, position, commit_count, zone)
    _add_changes(figure, changes, position, commit_count, zone)
    figure.update_layout(
        height=rows.height_px,
        margin=room_for(_LABEL_LENGTH),
        hovermode="closest",
        # a click is on a point, until the reader asks for a box: while one may be drawn, points hear no click
        dragmode="pan",
        selectdirection="h",
        legend={"orientation": "h", "yanchor": "bottom", "y": 1.02, "x": 0},
        showlegend=True,
        xaxis={
            "title": "commits, oldest to newest",
            "range": [-0.6, commit_count - 0.4],
            "anchor": rows.lowest_axis,
            "showgrid": False,
            "zeroline": False,
            "fixedrange": True,
            **commit_ticks(commits, [position[commit.sha] for commit in commits]),
        },
        yaxis2={
            "domain": rows.failures,
            "type": "category",
            "title": "failed" if failed else None,
            "showgrid": False,
            "visible": bool(failed),
            "fixedrange": True,
        },
        yaxis3={"domain": rows.marks, "range": [0, 1], "visible": False, "fixedrange": True},
        **{
            rows.layout_key(name): {"domain": rows.domain(name), **_value_axis(name, scale, is_tall=name == metrics[0])}
            for name in metrics
        },
    )
    return figure


def commits_of(series: Sequence[Series]) -> list[CommitRef]:
    """Those that any of the series has a point of, oldest to newest."""
    return sorted({point.commit.sha: point.commit for one in series for point in one.points}.values())


def _value_axis(name: str, scale: Scale, *, is_tall: bool) -> dict[str, object]:
    unit, line_break = metric(name), " " if is_tall else "<br>"
    axis = AXES[unit.unit] if scale is not Scale.RELATIVE else Axis(tick_format=".3~f", tick_suffix="×")
    has_least = axis.at_least is not None and scale is Scale.ABSOLUTE
    return {
        "title": axis_title(unit, line_break=line_break)
        if scale is not Scale.RELATIVE
        else f"{unit.title}{line_break}over the first, {unit.better} is better",
        "type": "log" if scale is Scale.LOGARITHMIC else "linear",
        "tickformat": axis.tick_format,
        "ticksuffix": axis.tick_suffix,
        "autorangeoptions": {"include": axis.at_least} if has_least else {},
        "zeroline": False,
        "fixedrange": True,
    }


def series_names(series: Sequence[Series]) -> list[str]:
    """What tells these series apart besides their metric, one name each; the whole label where nothing does."""
    parts = [
        (key.case_id, key.implementation, key.function, key.target, key.tensor, key.runner_class)
        for key in (one.key for one in series)
    ]
    varying = [column for column in zip(*parts, strict=True) if len(set(column)) > 1]
    if not varying:
        return [one.key.label for one in series]
    return [" · ".join(part for part in own if part) for own in zip(*varying, strict=True)]


def _add_values(
    figure: go.Figure,
    series: Series,
    name: str,
    position: Mapping[str, int],
    index: int,
    axis: str,
    scale: Scale,
    zone: tzinfo,
) -> None:
    factor = _factor(series, scale)
    colour, symbol, dash = style_of(index)
    whiskers = {
        "type": "data",
        "symmetric": False,
        "array": [_whisker(point.high, point.value, factor) for point in series.points],
        "arrayminus": [_whisker(point.value, point.low, factor) for point in series.points],
        "thickness": 1,
        "width": 3,
    }
    figure.add_scatter(
        x=[position[point.commit.sha] for point in series.points],
        # a failed run stays as a point without a value, so that the line breaks there
        y=[None if point.value is None else point.value * factor for point in series.points],
        yaxis=axis,
        error_y=whiskers if len(series.points) <= _MAX_WHISKERS else None,
        mode="lines+markers",
        connectgaps=False,
        name=escape(name),
        legendgroup=str(index),
        showlegend=axis == "y",
        line={"color": colour, "width": 1.5, "dash": dash},
        marker={
            "color": colour,
            "symbol": symbol,
            "size": 8 if len(series.points) <= _MAX_WHISKERS else 4,
            "line": {"color": GREY, "width": 0.5},
        },
        hovertext=[_point_hover(series, point, zone) for point in series.points],
        hoverinfo="text",
    )


def _factor(series: Series, scale: Scale) -> float:
    """From a stored value to the axis."""
    if scale is not Scale.RELATIVE:
        return AXES[series.key.definition.unit].scale
    first = next((point.value for point in series.points if point.value), None)
    return 1.0 if first is None else 1 / first


def _whisker(upper: float | None, lower: float | None, factor: float) -> float:
    return 0.0 if upper is None or lower is None else (upper - lower) * factor


def _point_hover(series: Series, point: SeriesPoint, zone: tzinfo) -> str:
    if point.value is None:
        return ""
    write = series.key.definition.format
    spread = (
        "" if point.low is None or point.high is None else f" (quartiles {write(point.low)} to {write(point.high)})"
    )
    return "<br>".join(
        [
            f"<b>{escape(write(point.value))}</b>{escape(spread)}",
            escape(series.key.label),
            *commit_lines(point.commit, zone),
        ]
    )


def _add_failures(
    figure: go.Figure, failed: Sequence[tuple[Series, SeriesPoint]], position: Mapping[str, int], zone: tzinfo
) -> None:
    if not failed:
        return
    figure.add_scatter(
        x=[position[point.commit.sha] for _, point in failed],
        y=[outcome_text(point.outcome) for _, point in failed],
        yaxis="y2",
        mode="markers",
        name="failed run",
        marker={"color": VERMILLION, "symbol": "x-thin", "size": 9, "line": {"color": VERMILLION, "width": 2}},
        hovertext=[
            "<br>".join(
                [
                    f"<b>{outcome_text(point.outcome)}</b> {escape(shortened(point.message or ''))}",
                    escape(series.key.label),
                    *commit_lines(point.commit, zone),
                ]
            )
            for series, point in failed
        ],
        hoverinfo="text",
    )


def _add_bands(
    figure: go.Figure,
    changes: Sequence[SettingChange],
    position: Mapping[str, int],
    commit_count: int,
    zone: tzinfo,
) -> None:
    """Every other stretch of runs that were measured alike is shaded; a mark where it begins says what changed."""
    starts = sorted({position[change.commit.sha] for change in changes if change.commit.sha in position})
    for left, right in zip(starts[::2], [*starts[1::2], commit_count][: len(starts[::2])], strict=True):
        figure.add_vrect(x0=left - 0.5, x1=right - 0.5, fillcolor=GREY, opacity=0.12, line_width=0, layer="below")
    if starts:
        shown = [change for change in changes if change.commit.sha in position]
        figure.add_scatter(
            x=[position[change.commit.sha] for change in shown],
            y=[0.85] * len(shown),
            yaxis="y3",
            mode="markers",
            name="measured otherwise from here",
            marker={"color": GREY, "symbol": "triangle-down", "size": 9},
            hovertext=[_setting_hover(change, zone) for change in shown],
            hoverinfo="text",
        )


def _setting_hover(change: SettingChange, zone: tzinfo) -> str:
    words = [escape(shortened(word)) for word in change.words]
    return "<br>".join(["<b>measured otherwise from here</b>", *words, *commit_lines(change.commit, zone)])


def _changes_of(series: Sequence[Series], regressions: Sequence[Regression]) -> list[tuple[Regression, ChangePoint]]:
    keys = {one.key for one in series}
    return [
        (regression, change_point)
        for regression in regressions
        for change_point in regression.change_points
        if change_point.series in keys
    ]


def _add_changes(
    figure: go.Figure,
    changes: Sequence[tuple[Regression, ChangePoint]],
    position: Mapping[str, int],
    commit_count: int,
    zone: tzinfo,
) -> None:
    for verdict, colour in _VERDICT_COLOURS.items():
        own = [
            (regression, change)
            for regression, change in changes
            if change.verdict is verdict and change.commit.sha in position
        ]
        if not own:
            continue
        for at in sorted({position[change.commit.sha] for _, change in own}):
            figure.add_shape(
                type="line",
                xref="x",
                yref="paper",
                x0=at,
                x1=at,
                y0=0,
                y1=0.95,
                line={"color": colour, "width": 1.5, "dash": "dash" if verdict is Verdict.REGRESSED else "dot"},
                layer="below",
            )
        figure.add_scatter(
            x=[position[change.commit.sha] for _, change in own],
            y=[0.35] * len(own),
            yaxis="y3",
            mode="markers+text" if len(changes) <= _MAX_CHANGE_LABELS else "markers",
            text=[change_text(change) for _, change in own],
            # towards the middle, so that the edge cuts nothing off
            textposition=[
                "middle left" if position[change.commit.sha] > commit_count / 2 else "middle right" for _, change in own
            ],
            textfont={"color": colour},
            name=VERDICT_MARKS[verdict].word,
            marker={"color": colour, "symbol": _VERDICT_SYMBOLS[verdict], "size": 11},
            hovertext=[_change_hover(regression, change, zone) for regression, change in own],
            hoverinfo="text",
        )


def _change_hover(regression: Regression, change: ChangePoint, zone: tzinfo) -> str:
    standing = "confirmed" if regression.is_confirmed else "not confirmed yet"
    if regression.state is RegressionState.DISMISSED:
        standing = "dismissed: measured again and not there"
    return "<br>".join(
        [
            f"<b>{VERDICT_MARKS[change.verdict].text} {escape(change_text(change))}</b> "
            f"({escape(transition_text(change))}), {standing}",
            escape(shortened(change.evidence, length=120)),
            escape(change.series.label),
            *commit_lines(change.commit, zone),
        ]
    )

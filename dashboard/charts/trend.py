"""Series over commits with their stored change points."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import tzinfo
from enum import StrEnum
from html import escape
from itertools import pairwise

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
    lay_out,
    style_of,
)
from roofwatch.dashboard.wording import (
    VERDICT_MARKS,
    change_text,
    confirmation_text,
    outcome_text,
    shortened,
    transition_text,
)
from roofwatch.db.values import (
    BandPoint,
    ChangePoint,
    CommitRef,
    Regression,
    RegressionState,
    RunSetting,
    Series,
    SeriesPoint,
    Verdict,
)

_VERDICT_STYLES = {Verdict.REGRESSED: (VERMILLION, "diamond", "dash"), Verdict.IMPROVED: (GREEN, "circle", "dot")}
_MAX_CHANGE_LABELS = 6
_MAX_WHISKERS = 500
"""Maximum points of a series that is drawn with quartiles."""
_VALUES, _FAILURES, _MARKS = "y", "y2", "y3"
"""Axes; those of more metrics follow."""
_ROW_PX = {_MARKS: 34, _FAILURES: 60}
_FURTHER_PX, _GAP_PX = 170, 28


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

    Points have whiskers at the quartiles; a long series is a median with a band. Failed runs are in a row of their own,
    by outcome. Change points are vertical lines with a marker on top. A shaded band starts where the measurement
    setup changed. The metric of the first series gets the tallest row, `values_px` high. `places` has the position of
    each commit by sha; None for consecutive positions.
    """
    commits = commits_of(series)
    position = places or {commit.sha: index for index, commit in enumerate(commits)}
    commit_count = max((position[commit.sha] + 1 for commit in commits), default=0)
    metrics = list(dict.fromkeys(one.key.metric for one in series))
    axis_of = {name: _VALUES if at == 0 else f"y{at + 3}" for at, name in enumerate(metrics)}
    failed = [(one, point) for one in series for point in one.points if point.value is None]
    rows = [_MARKS, _VALUES, *[_FAILURES] * bool(failed), *list(axis_of.values())[1:]]
    domains, height_px = _domains(rows, values_px)
    names = series_names(series)
    styles = {name: index for index, name in enumerate(dict.fromkeys(names))}
    figure = go.Figure()
    for one, name in zip(series, names, strict=True):
        _add_values(figure, one, name, position, styles[name], axis_of[one.key.metric], scale, zone)
    _add_failures(figure, failed, position, zone)
    _add_bands(figure, setting_changes(series), position, commit_count, zone)
    _add_changes(figure, changes_of(series, regressions), position, commit_count, zone)
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
        yaxis3={"domain": domains[_MARKS], "range": [0, 1], "visible": False, "fixedrange": True},
        **{
            axis.replace("y", "yaxis"): {"domain": domains[axis], **_value_axis(name, scale, is_tall=axis == _VALUES)}
            for name, axis in axis_of.items()
        },
    )


def _domains(rows: Sequence[str], values_px: int) -> tuple[dict[str, list[float]], float]:
    """Return the vertical domain of each row as a share of the figure, and the figure's height."""
    heights_px = [values_px if row == _VALUES else _ROW_PX.get(row, _FURTHER_PX) for row in rows]
    inner_px = sum(heights_px) + _GAP_PX * (len(rows) - 1)
    domains, top_px = {}, inner_px
    for row, height_px in zip(rows, heights_px, strict=True):
        domains[row] = [(top_px - height_px) / inner_px, top_px / inner_px]
        top_px -= height_px + _GAP_PX
    return domains, inner_px + 100


def commits_of(series: Sequence[Series]) -> list[CommitRef]:
    """Return the commits with a point, oldest to newest."""
    return sorted({point.commit.sha: point.commit for one in series for point in one.points}.values())


def series_names(series: Sequence[Series]) -> list[str]:
    """Name each series by the parts in which they differ; by its whole label if they do not."""
    parts = [
        (key.case_id, key.implementation, key.function, key.target, key.tensor, key.runner_class)
        for key in (one.key for one in series)
    ]
    varying = [column for column in zip(*parts, strict=True) if len(set(column)) > 1]
    if not varying:
        return [one.key.label for one in series]
    return [" · ".join(part for part in own if part) for own in zip(*varying, strict=True)]


def _value_axis(name: str, scale: Scale, *, is_tall: bool) -> dict[str, object]:
    unit, line_break = metric(name), " " if is_tall else "<br>"
    axis, title = AXES.get(unit.unit, Axis()), axis_title(unit, line_break=line_break)
    if scale is Scale.RELATIVE:
        axis = Axis(tick_format=".3~f", tick_suffix="×")
        title = f"{unit.title}{line_break}over the first, {unit.direction}"
    has_least = axis.at_least is not None and scale is Scale.ABSOLUTE
    return {
        "title": title,
        "type": "log" if scale is Scale.LOGARITHMIC else "linear",
        "tickformat": axis.tick_format,
        "ticksuffix": axis.tick_suffix,
        "autorangeoptions": {"include": axis.at_least} if has_least else {},
        "zeroline": False,
        "fixedrange": True,
    }


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
    # a failed run has no value, which breaks the line
    values: list[float | None] = [one.median for one in series.band] or [point.value for point in series.points]
    places = [position[one.commit.sha] for one in series.band or series.points]
    factor = AXES.get(series.key.definition.unit, Axis()).scale
    if scale is Scale.RELATIVE:
        factor = 1 / next(filter(None, values), 1.0)
    colour, symbol, dash = style_of(index)
    if series.band:
        figure.add_scatter(
            x=[*places, *reversed(places)],
            y=[*(one.high * factor for one in series.band), *(one.low * factor for one in reversed(series.band))],
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
    is_short = not series.band and len(series.points) <= _MAX_WHISKERS
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
        error_y=whiskers if is_short else None,
        mode="lines+markers",
        connectgaps=False,
        name=escape(name),
        unselected={"marker": {"opacity": 1}},
        legendgroup=str(index),
        showlegend=axis == _VALUES,
        line={"color": colour, "width": 1.5, "dash": dash},
        marker={"color": colour, "symbol": symbol, "size": 8 if is_short else 4, "line": {"color": GREY, "width": 0.5}},
        hovertext=[_band_hover(series, one, zone) for one in series.band]
        or [_point_hover(series, point, zone) for point in series.points],
    )


def _length(lower: float | None, upper: float | None) -> float:
    return 0.0 if upper is None or lower is None else upper - lower


def _point_hover(series: Series, point: SeriesPoint, zone: tzinfo) -> str:
    if point.value is None:
        return ""
    write = series.key.definition.format
    spread = (
        "" if point.low is None or point.high is None else f" (quartiles {write(point.low)} to {write(point.high)})"
    )
    value = f"<b>{escape(write(point.value))}</b>{escape(spread)}"
    return "<br>".join([value, escape(series.key.label), *commit_lines(point.commit, zone)])


def _band_hover(series: Series, one: BandPoint, zone: tzinfo) -> str:
    write = series.key.definition.format
    median = f"<b>{escape(write(one.median))}</b>, median of {one.run_count:,} runs"
    spread = f"5 % to 95 %: {escape(write(one.low))} to {escape(write(one.high))}"
    return "<br>".join([median, spread, escape(series.key.label), *commit_lines(one.commit, zone)])


def _add_failures(
    figure: go.Figure, failed: Sequence[tuple[Series, SeriesPoint]], position: Mapping[str, int], zone: tzinfo
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
        hovertext=[
            f"<b>{outcome_text(point.outcome)}</b> {escape(shortened(point.message or ''))}<br>"
            + "<br>".join([escape(series.key.label), *commit_lines(point.commit, zone)])
            for series, point in failed
        ],
    )


def _add_bands(
    figure: go.Figure, changes: "Sequence[SettingChange]", position: Mapping[str, int], commit_count: int, zone: tzinfo
) -> None:
    """Shade every other stretch between setting changes, with a marker that describes each change."""
    shown = [change for change in changes if change.commit.sha in position]
    if not shown:
        return
    starts = sorted({position[change.commit.sha] for change in shown})
    ends = [*starts[1::2], commit_count]
    for left, right in zip(starts[::2], ends, strict=False):
        figure.add_vrect(x0=left - 0.5, x1=right - 0.5, fillcolor=GREY, opacity=0.12, line_width=0, layer="below")
    title = "measurement setup changed"
    figure.add_scatter(
        x=[position[change.commit.sha] for change in shown],
        y=[0.85] * len(shown),
        yaxis=_MARKS,
        mode="markers",
        name=title,
        marker={"color": GREY, "symbol": "triangle-down", "size": 9},
        hovertext=[
            "<br>".join(
                [
                    f"<b>{title}</b>",
                    *(escape(shortened(word)) for word in change.words),
                    *commit_lines(change.commit, zone),
                ]
            )
            for change in shown
        ],
    )


@dataclass(frozen=True)
class StoredChange:
    """A change point of a regression."""

    regression: Regression
    change: ChangePoint


def changes_of(series: Sequence[Series], regressions: Sequence[Regression]) -> list[StoredChange]:
    """Return the stored change points of some series."""
    keys = {one.key for one in series}
    return [StoredChange(one, change) for one in regressions for change in one.change_points if change.series in keys]


def _add_changes(
    figure: go.Figure, changes: Sequence[StoredChange], position: Mapping[str, int], commit_count: int, zone: tzinfo
) -> None:
    for verdict, (colour, symbol, dash) in _VERDICT_STYLES.items():
        own = [one for one in changes if one.change.verdict is verdict and one.change.commit.sha in position]
        if not own:
            continue
        places = [position[one.change.commit.sha] for one in own]
        for at in sorted(set(places)):
            figure.add_shape(
                type="line",
                yref="paper",
                x0=at,
                x1=at,
                y0=0,
                y1=0.95,
                line={"color": colour, "width": 1.5, "dash": dash},
                layer="below",
            )
        figure.add_scatter(
            x=places,
            y=[0.35] * len(own),
            yaxis=_MARKS,
            mode="markers+text" if len(changes) <= _MAX_CHANGE_LABELS else "markers",
            text=[change_text(one.change) for one in own],
            # towards the middle, away from the edge
            textposition=["middle left" if at > commit_count / 2 else "middle right" for at in places],
            textfont={"color": colour},
            name=VERDICT_MARKS[verdict].word,
            marker={"color": colour, "symbol": symbol, "size": 11},
            hovertext=[_change_hover(one, zone) for one in own],
        )


def _change_hover(one: StoredChange, zone: tzinfo) -> str:
    change, standing = one.change, confirmation_text(one.regression)
    if one.regression.state is RegressionState.DISMISSED:
        standing = "dismissed: not confirmed when measured again"
    elif one.regression.state is RegressionState.NO_LONGER_FOUND:
        standing = "no longer found"
    return "<br>".join(
        [
            f"<b>{VERDICT_MARKS[change.verdict].text} {escape(change_text(change))}</b> "
            f"({escape(transition_text(change))}), {standing}",
            escape(shortened(change.evidence, length=120)),
            escape(change.series.label),
            *commit_lines(change.commit, zone),
        ]
    )


@dataclass(frozen=True)
class SettingChange:
    """From this commit on, runs of a runner class were measured with another setting."""

    commit: CommitRef
    words: tuple[str, ...]
    """One text per change, such as `triton 3.6.0 → 3.7.0`."""


def setting_changes(series: Iterable[Series]) -> list[SettingChange]:
    """Find the changes over all runs of some series, ordered by commit, without duplicates.

    Settings are followed per runner class, timings per series, because cases of one run may differ in timing.
    """
    by_class: dict[str, dict[str, SeriesPoint]] = {}
    found: list[SettingChange] = []
    for one in series:
        by_class.setdefault(one.key.runner_class, {}).update({point.run_id: point for point in one.points})
        for before, after in pairwise(point for point in one.points if point.timing):
            if before.timing != after.timing:
                found.append(SettingChange(after.commit, (f"timed by {before.timing} → {after.timing}",)))
    for points in by_class.values():
        known = [point for point in points.values() if point.setting is not None]
        known.sort(key=lambda point: (point.commit, point.measured_at))
        for before, after in pairwise(known):
            if before.setting is not None and after.setting is not None and before.setting != after.setting:
                found.append(SettingChange(after.commit, tuple(_differences(before.setting, after.setting))))
    return sorted(dict.fromkeys(found), key=lambda change: change.commit)


def _differences(before: RunSetting, after: RunSetting) -> Iterator[str]:
    was, now = _named(before), _named(after)
    for name in dict.fromkeys([*was, *now]):
        if was.get(name) != now.get(name):
            yield f"{name} {was.get(name) or 'none'} → {now.get(name) or 'none'}"


def _named(setting: RunSetting) -> dict[str, str | None]:
    return {
        "harness": setting.harness_version,
        "driver": setting.driver_version,
        "compute capability": setting.compute_capability,
        **dict(setting.toolchain),
        **dict(setting.machine),
    }

"""Values to Plotly figures. No statistics, no judgement: change points and verdicts come in, they are not found here.

Colours are Okabe and Ito's, which colour-blind people can tell apart; every colour has a symbol, a dash or a word
beside it. Neutral parts are mid-grey, so that one figure is readable on a light and on a dark page.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape

import plotly.graph_objects as go

from collector.metrics import Metric, metric
from collector.part import Outcome
from dashboard.wording import VERDICT_MARKS, change_text, outcome_text, shortened, transition_text
from db.values import (
    CeilingValue,
    ChangePoint,
    CommitRef,
    MeasuredCase,
    Regression,
    RegressionState,
    Series,
    SeriesPoint,
    Verdict,
)

# Okabe and Ito, "Color Universal Design" (2008), without the black and the yellow that vanish on one of the two pages
BLUE, ORANGE, GREEN, PURPLE, SKY_BLUE, VERMILLION = (
    "#0072B2",
    "#E69F00",
    "#009E73",
    "#CC79A7",
    "#56B4E9",
    "#D55E00",
)
GREY = "#888888"
_STYLES = tuple(
    zip(
        (BLUE, ORANGE, GREEN, PURPLE, SKY_BLUE),
        ("circle", "square", "triangle-up", "diamond", "cross"),
        ("solid", "dash", "dot", "dashdot", "longdash"),
        strict=True,
    )
)
_VERDICT_COLOURS = {Verdict.REGRESSED: VERMILLION, Verdict.IMPROVED: GREEN}
_VERDICT_SYMBOLS = {Verdict.REGRESSED: "diamond", Verdict.IMPROVED: "circle"}
_MAX_COMMIT_TICKS = 16
_MAX_CHANGE_LABELS = 6
_MARGIN = {"l": 10, "r": 10, "t": 10, "b": 10}


@dataclass(frozen=True)
class _Axis:
    """How Plotly writes the ticks of a unit. SI prefixes need the base unit, so ns are drawn in seconds."""

    scale: float = 1.0
    tick_format: str = "~s"
    tick_suffix: str = ""
    at_least: tuple[float, float] | None = None
    """What the axis shows at least: counts from zero, and never fractions of one."""


_AXES: Mapping[str, _Axis] = {
    "ns": _Axis(scale=1e-9, tick_suffix="s"),
    "FLOP/s": _Axis(tick_suffix="FLOP/s"),
    "B/s": _Axis(tick_suffix="B/s"),
    "share": _Axis(tick_format=".0%"),
    "ratio": _Axis(tick_format=".1e"),
    "absolute": _Axis(tick_format=".1e"),
    "registers": _Axis(tick_format="d", at_least=(0, 8)),
    "bytes": _Axis(tick_format=",d", tick_suffix=" B", at_least=(0, 8)),
}


def trend_figure(
    series: Sequence[Series], regressions: Sequence[Regression], *, is_log_scale: bool = False
) -> go.Figure:
    """Series of one metric over commits, oldest to newest.

    Values are points with whiskers at the quartiles; zero has no place on a logarithmic scale. Runs that failed have no
    value: they stand in a strip of their own below the axis, by outcome. Change points of these series are vertical
    lines with a mark on top.
    """
    commits = sorted({point.commit.sha: point.commit for one in series for point in one.points}.values())
    position = {commit.sha: index for index, commit in enumerate(commits)}
    unit = metric(series[0].key.metric)
    figure = go.Figure()
    for index, (one, name) in enumerate(zip(series, series_names(series), strict=True)):
        _add_values(figure, one, name, position, index)
    failed = [(one, point) for one in series for point in one.points if point.value is None]
    _add_failures(figure, failed, position)
    changes = _changes_of(series, regressions)
    _add_changes(figure, changes, position)

    axis = _AXES[unit.unit]
    figure.update_layout(
        height=520,
        margin=_MARGIN,
        hovermode="closest",
        legend={"orientation": "h", "yanchor": "bottom", "y": 1.02, "x": 0},
        showlegend=True,
        xaxis={
            "title": "commits, oldest to newest",
            "range": [-0.6, len(commits) - 0.4],
            "anchor": "y2" if failed else "y",
            "showgrid": False,
            "zeroline": False,
            **_commit_ticks(commits),
        },
        yaxis={
            "title": _axis_title(unit),
            "type": "log" if is_log_scale else "linear",
            "domain": [0.2 if failed else 0.0, 0.92],
            "tickformat": axis.tick_format,
            "ticksuffix": axis.tick_suffix,
            "autorangeoptions": {} if axis.at_least is None or is_log_scale else {"include": axis.at_least},
            "zeroline": False,
        },
        yaxis2={
            "domain": [0.0, 0.12],
            "type": "category",
            "title": "failed" if failed else None,
            "showgrid": False,
            "visible": bool(failed),
        },
        yaxis3={"domain": [0.93, 1.0], "range": [0, 1], "visible": False, "fixedrange": True},
    )
    return figure


def roofline_figure(cases: Sequence[MeasuredCase], ceilings: Sequence[CeilingValue]) -> go.Figure:
    """Compute rate against arithmetic intensity, both logarithmic, under the ceilings measured in the same run.

    A case appears once per implementation that was measured; one that failed, moves no bytes or computes nothing has no
    place on a roofline.

    Source: Williams, Waterman, Patterson, "Roofline" (CACM 2009).
    """
    placed = [case for case in cases if _is_placeable(case)]
    figure = go.Figure()
    _add_roofs(figure, placed, ceilings)
    names = sorted({case.implementation for case in placed})
    for index, name in enumerate(names):
        colour, symbol, _ = _style(index)
        own = [case for case in placed if case.implementation == name]
        figure.add_scatter(
            x=[_intensity(case) for case in own],
            y=[_flop_per_s(case) for case in own],
            mode="markers",
            name=escape(name),
            marker={"color": colour, "symbol": symbol, "size": 12, "line": {"color": GREY, "width": 1}},
            hovertext=[_case_hover(case) for case in own],
            hoverinfo="text",
        )
    figure.update_layout(
        height=480,
        margin=_MARGIN,
        hovermode="closest",
        showlegend=True,
        legend={"orientation": "h", "yanchor": "bottom", "y": 1.02, "x": 0},
        xaxis={"title": "arithmetic intensity (FLOP per byte)", "type": "log", "tickformat": "~g", "dtick": "D2"},
        yaxis={
            "title": _axis_title(metric("flop_per_s")),
            "type": "log",
            "tickformat": "~s",
            "dtick": "D2",
        },
    )
    return figure


def series_names(series: Sequence[Series]) -> list[str]:
    """What tells these series apart, one name each; the whole label where there is only one."""
    if len(series) == 1:
        return [series[0].key.label]
    parts = [
        (key.case_id, key.implementation, key.function, key.target, key.tensor, key.runner_class)
        for key in (one.key for one in series)
    ]
    varying = [column for column in zip(*parts, strict=True) if len(set(column)) > 1]
    return [" · ".join(part for part in own if part) for own in zip(*varying, strict=True)]


def _style(index: int) -> tuple[str, str, str]:
    """Colour, symbol and dash of the n-th thing on a chart."""
    return _STYLES[index % len(_STYLES)]


def _axis_title(unit: Metric) -> str:
    written = "s" if unit.unit == "ns" else unit.unit
    return f"{unit.title} ({written}), {unit.better} is better"


def _commit_ticks(commits: Sequence[CommitRef]) -> dict[str, object]:
    step = -(-len(commits) // _MAX_COMMIT_TICKS) or 1
    shown = range(len(commits) - 1, -1, -step)[::-1]
    return {
        "tickmode": "array",
        "tickvals": list(shown),
        "ticktext": [commits[index].short_sha for index in shown],
    }


def _commit_lines(commit: CommitRef) -> list[str]:
    return [
        f"<b>{escape(commit.short_sha)}</b> {escape(shortened(commit.subject))}",
        f"{escape(shortened(commit.author))}, {commit.committed_at:%Y-%m-%d %H:%M %Z}",
    ]


def _add_values(figure: go.Figure, series: Series, name: str, position: Mapping[str, int], index: int) -> None:
    unit = series.key.definition
    scale = _AXES[unit.unit].scale
    colour, symbol, dash = _style(index)
    # a failed run stays as a point without a value, so that the line breaks there
    values = [None if point.value is None else point.value * scale for point in series.points]
    figure.add_scatter(
        x=[position[point.commit.sha] for point in series.points],
        y=values,
        error_y={
            "type": "data",
            "symmetric": False,
            "array": [_whisker(point.high, point.value, scale) for point in series.points],
            "arrayminus": [_whisker(point.value, point.low, scale) for point in series.points],
            "thickness": 1,
            "width": 3,
        },
        mode="lines+markers",
        connectgaps=False,
        name=escape(name),
        line={"color": colour, "width": 1.5, "dash": dash},
        marker={"color": colour, "symbol": symbol, "size": 8, "line": {"color": GREY, "width": 0.5}},
        hovertext=[_point_hover(series, point) for point in series.points],
        hoverinfo="text",
    )


def _whisker(upper: float | None, lower: float | None, scale: float) -> float:
    return 0.0 if upper is None or lower is None else (upper - lower) * scale


def _point_hover(series: Series, point: SeriesPoint) -> str:
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
            *_commit_lines(point.commit),
        ]
    )


def _add_failures(figure: go.Figure, failed: Sequence[tuple[Series, SeriesPoint]], position: Mapping[str, int]) -> None:
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
                    *_commit_lines(point.commit),
                ]
            )
            for series, point in failed
        ],
        hoverinfo="text",
    )


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
            textposition="middle right",
            textfont={"color": colour},
            name=VERDICT_MARKS[verdict].word,
            marker={"color": colour, "symbol": _VERDICT_SYMBOLS[verdict], "size": 11},
            hovertext=[_change_hover(regression, change) for regression, change in own],
            hoverinfo="text",
        )


def _change_hover(regression: Regression, change: ChangePoint) -> str:
    standing = "confirmed" if regression.is_confirmed else "not confirmed yet"
    if regression.state is RegressionState.DISMISSED:
        standing = "dismissed: measured again and not there"
    return "<br>".join(
        [
            f"<b>{VERDICT_MARKS[change.verdict].text} {escape(change_text(change))}</b> "
            f"({escape(transition_text(change))}), {standing}",
            escape(shortened(change.evidence, length=120)),
            escape(change.series.label),
            *_commit_lines(change.commit),
        ]
    )


def _is_placeable(case: MeasuredCase) -> bool:
    return case.outcome is Outcome.OK and bool(case.median_ns and case.flop_count and case.memory_bytes)


def _intensity(case: MeasuredCase) -> float:
    return case.flop_count / case.memory_bytes


def _flop_per_s(case: MeasuredCase) -> float:
    assert case.median_ns is not None
    return case.flop_count / case.median_ns * 1e9


def _case_hover(case: MeasuredCase) -> str:
    assert case.median_ns is not None
    lines = [
        f"<b>{escape(case.case_id)}</b> {escape(case.implementation)}",
        f"{metric('flop_per_s').format(_flop_per_s(case))} in {metric('median_ns').format(case.median_ns)}",
    ]
    if case.utilisation is not None:
        lines.append(f"{metric('utilisation').format(case.utilisation)} of the {escape(case.bound or 'binding')} roof")
    return "<br>".join(lines)


def _add_roofs(figure: go.Figure, placed: Sequence[MeasuredCase], ceilings: Sequence[CeilingValue]) -> None:
    """Slopes of the memory ceilings up to the highest compute ceiling, and flats of the compute ceilings from the
    fastest memory on.
    """
    slopes = [ceiling for ceiling in ceilings if ceiling.resource == "memory"]
    dtypes = {case.dtype for case in placed}
    every_flat = [ceiling for ceiling in ceilings if ceiling.resource == "compute"]
    # the roofs of other dtypes are no limit of these cases
    flats = [flat for flat in every_flat if flat.dtype is None or flat.dtype in dtypes] or every_flat
    left, right = _roofline_span(placed, slopes, flats)
    top = max((flat.per_s for flat in flats), default=None)
    fastest = max((slope.per_s for slope in slopes), default=None)
    for index, slope in enumerate(slopes):
        end = right if top is None else top / slope.per_s
        _add_roof(
            figure,
            [left, end],
            [left * slope.per_s, end * slope.per_s],
            label=f"{slope.level or 'memory'} {metric('memory_bytes_per_s').format(slope.per_s)}",
            text_position="bottom right",
            labelled_end=0,
            dash=_style(index)[2],
        )
    for index, flat in enumerate(flats):
        start = left if fastest is None else flat.per_s / fastest
        _add_roof(
            figure,
            [start, right],
            [flat.per_s, flat.per_s],
            label=f"{flat.dtype or 'compute'} {metric('flop_per_s').format(flat.per_s)}",
            text_position="top left",
            labelled_end=1,
            dash=_style(index)[2],
        )


def _roofline_span(
    placed: Sequence[MeasuredCase], slopes: Iterable[CeilingValue], flats: Sequence[CeilingValue]
) -> tuple[float, float]:
    ridges = [flat.per_s / slope.per_s for slope in slopes for flat in flats]
    intensities = [_intensity(case) for case in placed] + ridges or [1.0]
    return min(intensities) / 4, max(intensities) * 4


def _add_roof(
    figure: go.Figure,
    x: list[float],
    y: list[float],
    *,
    label: str,
    text_position: str,
    labelled_end: int,
    dash: str,
) -> None:
    texts = [escape(label) if end == labelled_end else "" for end, _ in enumerate(x)]
    figure.add_scatter(
        x=x,
        y=y,
        mode="lines+text",
        text=texts,
        textposition=text_position,
        textfont={"color": GREY},
        line={"color": GREY, "width": 2, "dash": dash},
        name=escape(f"roof: {label}"),
        showlegend=False,
        hoverinfo="skip",
    )

"""Figures of runners: a case over time, ceilings over time, and spending by commit."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, tzinfo

import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from roofwatch.collector.device.datasheets import compare_with_datasheet
from roofwatch.dashboard.charts.palette import GREY, VERMILLION
from roofwatch.dashboard.charts.style import (
    NAMED_PARTS,
    OTHERS,
    UNCOUNTED,
    clock_times,
    commit_lines,
    commit_ticks,
    lay_out,
    marker_of,
    part_marker,
    style_of,
)
from roofwatch.dashboard.wording import escaped, rate_text, shortened
from roofwatch.model.history import CommitRef, Series, SeriesPoint
from roofwatch.model.machine import Ceiling
from roofwatch.model.metrics import format_ns
from roofwatch.model.stored_results import FleetRun

_PANEL_PX = 150
NS_PER_HOUR = 3_600e9
_PREFIXED = {"s", "J"}
"""Units that take SI prefixes."""

Amount = tuple[CommitRef, str, float | None]
"""What a part of a commit took; None if unknown."""


def runner_history_figure(series: Series, zone: tzinfo) -> go.Figure:
    """Draw times by date, above the clock and temperature of their blocks; a cross marks throttled
    or shared runs.
    """
    points = [point for point in series.points if point.value is not None]
    points.sort(key=lambda point: point.measured_at)
    panels: list[tuple[str, str, list[float | None]]] = [
        (
            "time (s)",
            "time",
            [(point.value or 0.0) / 1e9 for point in points],
        )
    ]
    clocks_mhz = [point.sm_clock_mhz for point in points]
    if _has_value(clocks_mhz):
        panels.append(("SM clock (MHz)", "SM clock", clocks_mhz))
    temperatures_c = [point.temperature_c for point in points]
    if _has_value(temperatures_c):
        panels.append(("temperature (°C)", "highest temperature", temperatures_c))
    figure = make_subplots(
        rows=len(panels),
        cols=1,
        shared_xaxes=True,
        vertical_spacing=0.06,
    )
    for row, (title, name, values) in enumerate(panels, start=1):
        marker = marker_of(row - 1, 7)
        figure.add_scatter(
            x=clock_times((point.measured_at for point in points), zone),
            y=values,
            mode="lines+markers",
            name=name,
            line={"color": marker["color"], "width": 1},
            marker=marker,
            hovertext=[_hover(point, zone) for point in points],
            row=row,
            col=1,
        )
        # small changes of a time count; readings are seen against 0
        rangemode = "normal" if row == 1 else "tozero"
        figure.update_yaxes(
            title=title,
            rangemode=rangemode,
            row=row,
            col=1,
        )
    # drawn once more, on top
    doubtful = [point for point in points if point.degraded_by]
    if doubtful:
        figure.add_scatter(
            x=clock_times((point.measured_at for point in doubtful), zone),
            y=[(point.value or 0.0) / 1e9 for point in doubtful],
            mode="markers",
            name="throttled or shared",
            marker={"symbol": "x-thin", "size": 14, "line": {"color": VERMILLION, "width": 2}},
            hovertext=[_hover(point, zone) for point in doubtful],
            row=1,
            col=1,
        )
    figure.update_yaxes(
        tickformat="~s",
        ticksuffix="s",
        row=1,
        col=1,
    )
    figure.update_xaxes(
        title="measured at",
        row=len(panels),
        col=1,
        type="date",
    )
    return lay_out(figure, height=100 + _PANEL_PX * len(panels))


def _has_value(values: Sequence[float | None]) -> bool:
    return any(value is not None for value in values)


def _hover(point: SeriesPoint, zone: tzinfo) -> str:
    lines = [f"<b>{format_ns(point.value or 0.0)}</b>"]
    if point.sm_clock_mhz is not None:
        lines.append(f"SM clock {point.sm_clock_mhz:.0f} MHz")
    if point.temperature_c is not None:
        lines.append(f"{point.temperature_c:.0f} °C")
    if point.degraded_by:
        lines.append(f"throttled or shared: {escaped(', '.join(point.degraded_by))}")
    return "<br>".join([*lines, *commit_lines(point.commit, zone)])


def ceiling_history_figure(runs: Sequence[FleetRun], zone: tzinfo) -> go.Figure:
    """Draw each ceiling as a share of the datasheet, or of the highest measured if it is not in a
    datasheet.
    """
    by_name: defaultdict[str, list[tuple[datetime, Ceiling]]] = defaultdict(list)
    for run in sorted(runs, key=lambda run: run.started_at):
        for ceiling in run.ceilings:
            if ceiling.source == "measured":
                by_name[ceiling_name(ceiling)].append((run.started_at, ceiling))
    figure = go.Figure()
    for index, (name, measured) in enumerate(sorted(by_name.items())):
        colour, _, dash = style_of(index)
        _, newest = measured[-1]
        published = compare_with_datasheet([newest], runs[0].environment.device_name)
        if published:
            whole_per_s = published[0].published_per_s
            reference = "datasheet"
        else:
            whole_per_s = max(ceiling.per_s for _, ceiling in measured)
            reference = "highest seen"
        figure.add_scatter(
            x=clock_times((moment for moment, _ in measured), zone),
            y=[ceiling.per_s / whole_per_s for _, ceiling in measured],
            mode="lines+markers",
            name=f"{escaped(name)}, 100 % = {reference}, {rate_text(newest.resource, whole_per_s)}",
            line={"color": colour, "dash": dash, "width": 1.5},
            marker=marker_of(index, 8),
            hovertext=[
                f"<b>{escaped(name)}</b> {rate_text(ceiling.resource, ceiling.per_s)}<br>"
                f"{ceiling.per_s / whole_per_s:.1%} of the {reference}, {escaped(ceiling.method)}"
                for _, ceiling in measured
            ],
        )
    figure.add_hline(y=1.0, line={"color": GREY, "dash": "dot", "width": 1})
    return lay_out(
        figure,
        height=380,
        xaxis={"title": "measured at", "type": "date"},
        yaxis={
            "title": "share of the reference, higher is better",
            "tickformat": ".0%",
            "rangemode": "tozero",
        },
    )


def ceiling_name(ceiling: Ceiling) -> str:
    """`dram`, or `bfloat16 compute`."""
    if ceiling.resource == "memory":
        return ceiling.level or "memory"
    return f"{ceiling.dtype or 'any'} compute"


# --- spending


def hours_of(run: FleetRun) -> float:
    """Return device-hours over all devices of the run."""
    return run.device_ns / NS_PER_HOUR


def hours_by_activity(runs: Iterable[FleetRun]) -> Iterator[Amount]:
    """Split device-hours by activity; the rest of a run is `not counted`."""
    for run in runs:
        rest_ns = max(run.wall_ns - sum(run.spent_ns.values()), 0.0)
        for name, spent_ns in {**run.spent_ns, UNCOUNTED: rest_ns}.items():
            if spent_ns:
                yield run.commit, name, hours_of(run) * spent_ns / run.wall_ns


def summed(amounts: Iterable[Amount]) -> pd.DataFrame:
    """Sum known amounts: one row per commit, oldest to newest, and one column per part, largest
    first.
    """
    frame = pd.DataFrame(list(amounts), columns=["commit", "part", "amount"]).dropna()
    table = frame.pivot_table(
        index="commit",
        columns="part",
        values="amount",
        aggfunc="sum",
        fill_value=0.0,
    )
    # sorting is stable, so equal parts stay in order of their names
    return table[table.sum().sort_values(ascending=False, kind="stable").index]


def spending_figure(
    spent: pd.DataFrame,
    *,
    title: str,
    unit: str,
    zone: tzinfo,
) -> go.Figure:
    """Draw one bar per commit of `summed` amounts, with the largest parts named."""
    commits: list[CommitRef] = list(spent.index)
    bars = spent.iloc[:, :NAMED_PARTS]
    if bars.shape < spent.shape:
        others = spent.iloc[:, NAMED_PARTS:].sum(axis=1)
        bars = bars.assign(**{OTHERS: others})
    tick_format = "~s" if unit in _PREFIXED else "~g"
    figure = go.Figure()
    for index, name in enumerate(map(str, bars)):
        label = escaped(shortened(name.replace("_", " ")))
        figure.add_bar(
            x=list(range(len(commits))),
            y=bars[name].tolist(),
            name=label,
            marker=part_marker(index),
            hovertext=["<br>".join(commit_lines(commit, zone)) for commit in commits],
            hovertemplate=f"<b>%{{y:.3{tick_format}}} {escaped(unit)}</b> "
            f"{label}<br>%{{hovertext}}<extra></extra>",
        )
    return lay_out(
        figure,
        height=400,
        barmode="stack",
        xaxis={
            "title": "commit",
            "range": [-0.6, len(commits) - 0.4],
            **commit_ticks(commits),
        },
        yaxis={"title": title, "rangemode": "tozero", "tickformat": tick_format},
    )

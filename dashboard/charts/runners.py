"""Figures of runners: a case over time, ceilings over time, and spending by commit."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime, tzinfo
from operator import attrgetter

import pandas as pd
import plotly.graph_objects as go

from roofwatch.collector.device.datasheets import compare_with_datasheet
from roofwatch.dashboard.charts.history import History, RoofLine
from roofwatch.dashboard.charts.style import (
    NAMED_PARTS,
    OTHERS,
    UNCOUNTED,
    commit_lines,
    commit_ticks,
    lay_out,
    part_marker,
)
from roofwatch.dashboard.wording import escaped, rate_metric, shortened
from roofwatch.model.history import CommitRef, Series, SeriesKey, SeriesPoint
from roofwatch.model.machine import Ceiling, Outcome
from roofwatch.model.metrics import TIME, Better, imported_key
from roofwatch.model.stored_results import FleetRun

NS_PER_HOUR = 3_600e9
_PREFIXED = {"s", "J"}
"""Units that take SI prefixes."""

_READINGS: Mapping[str, Callable[[SeriesPoint], float | None]] = {
    TIME.key: attrgetter("value"),
    imported_key("SM clock", "MHz", Better.HIGHER): attrgetter("sm_clock_mhz"),
    imported_key("highest temperature", "°C", Better.LOWER): attrgetter("temperature_c"),
}
"""What a run shows of a case, by key of a metric."""

Amount = tuple[CommitRef, str, float | None]
"""What a part of a commit took; None if unknown."""


def case_histories(series: Series) -> list[History]:
    """Return the times of a case by the moments of its runs, and clock and temperature of the same
    blocks where they were read.
    """
    histories: list[History] = []
    for key, value_of in _READINGS.items():
        points: list[SeriesPoint] = []
        for point in series.points:
            value = value_of(point)
            if value is not None:
                commit = _at(point.commit, point.measured_at)
                reading = replace(point, value=value, commit=commit)
                points.append(reading)
        points.sort(key=lambda point: point.measured_at)
        if points:
            key_of_metric = replace(series.key, metric=key)
            readings = Series(key_of_metric, tuple(points))
            histories.append(History(series=readings))
    return histories


def ceiling_histories(runs: Iterable[FleetRun]) -> list[History]:
    """Return the measured rate of each ceiling by the moments of the runs, under its peak."""
    points: defaultdict[str, list[SeriesPoint]] = defaultdict(list)
    newest: dict[str, tuple[FleetRun, Ceiling]] = {}
    oldest_first = sorted(runs, key=lambda run: run.started_at)
    for run in oldest_first:
        for ceiling in measured_ceilings(run.ceilings):
            name = ceiling_name(ceiling)
            newest[name] = run, ceiling
            point = SeriesPoint(
                commit=_at(run.commit, run.started_at),
                run_id=run.run_id,
                measured_at=run.started_at,
                outcome=Outcome.OK,
                value=ceiling.per_s,
            )
            points[name].append(point)
    histories: list[History] = []
    for name, (run, ceiling) in sorted(newest.items()):
        metric = rate_metric(ceiling.resource)
        key = SeriesKey(
            project=run.project,
            case_id=name,
            implementation=ceiling.method,
            metric=metric.key,
        )
        rates = Series(key, tuple(points[name]))
        peaks = compare_with_datasheet([ceiling], run.environment.device_name)
        roofs: list[RoofLine] = []
        for peak in peaks:
            roof = RoofLine(
                "peak (datasheet)",
                peak.published_per_s,
                is_measured=False,
            )
            roofs.append(roof)
        histories.append(History(series=rates, roofs=tuple(roofs)))
    return histories


def _at(commit: CommitRef, moment: datetime) -> CommitRef:
    """Return a commit that is drawn at the moment of a run."""
    # a commit may be measured again weeks after it was made
    return replace(commit, committed_at=moment)


def measured_ceilings(ceilings: Iterable[Ceiling]) -> list[Ceiling]:
    """Keep what was measured; the others are of a datasheet."""
    return [ceiling for ceiling in ceilings if ceiling.source == "measured"]


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
        # activities of parallel devices may add up to more than the run
        counted_ns = sum(run.spent_ns.values())
        rest_ns = max(run.wall_ns - counted_ns, 0.0)
        parts_ns = {**run.spent_ns, UNCOUNTED: rest_ns}
        for name, spent_ns in parts_ns.items():
            if spent_ns:
                hours = hours_of(run) * spent_ns / run.wall_ns
                yield run.commit, name, hours


def summed(amounts: Iterable[Amount]) -> pd.DataFrame:
    """Sum known amounts: one row per commit, oldest to newest, and one column per part, largest
    first.
    """
    frame = pd.DataFrame(list(amounts), columns=["commit", "part", "amount"])
    known_amounts = frame.dropna()
    table = known_amounts.pivot_table(
        index="commit",
        columns="part",
        values="amount",
        aggfunc="sum",
        fill_value=0.0,
    )
    # sorting is stable, so equal parts stay in order of their names
    totals = table.sum().sort_values(ascending=False, kind="stable")
    return table[totals.index]


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
    tick_format = "~g"
    if unit in _PREFIXED:
        tick_format = "~s"
    amount = f"<b>%{{y:.3{tick_format}}} {escaped(unit)}</b>"
    commit_texts = ["<br>".join(commit_lines(commit, zone)) for commit in commits]
    figure = go.Figure()
    # a pattern beside each colour: parts differ without it too
    for index, name in enumerate(map(str, bars)):
        label = escaped(shortened(name.replace("_", " ")))
        figure.add_bar(
            x=list(range(len(commits))),
            y=bars[name].tolist(),
            name=label,
            marker=part_marker(index),
            hovertext=commit_texts,
            hovertemplate=f"{amount} {label}<br>%{{hovertext}}<extra></extra>",
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
        yaxis={
            "title": title,
            "rangemode": "tozero",
            "tickformat": tick_format,
        },
    )

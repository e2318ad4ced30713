"""Spending by commit and part: device time, energy or money as stacked bars."""

from collections.abc import Iterable, Iterator
from datetime import tzinfo

import pandas as pd
import plotly.graph_objects as go

from roofwatch.dashboard.charts.style import (
    NAMED_PARTS,
    OTHERS,
    UNCOUNTED,
    commit_lines,
    commit_ticks,
    lay_out,
    part_marker,
)
from roofwatch.dashboard.wording import escaped, shortened
from roofwatch.db.queries.results import FleetRun
from roofwatch.db.values import CommitRef

NS_PER_HOUR = 3_600e9
_TIME_STEPS = ((1.0, "device-hours", "h"), (60.0, "device-minutes", "min"), (3_600.0, "device-seconds", "s"))
"""Per hour, coarsest first."""
_PREFIXED = {"s", "J"}
"""Units that take SI prefixes."""

Amount = tuple[CommitRef, str, float | None]
"""What a part of a commit took; None if unknown."""


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
    """Sum known amounts: one row per commit, oldest to newest, and one column per part, largest first."""
    frame = pd.DataFrame(list(amounts), columns=["commit", "part", "amount"]).dropna()
    table = frame.pivot_table(index="commit", columns="part", values="amount", aggfunc="sum", fill_value=0.0)
    # sorting is stable, so equal parts stay in order of their names
    return table[table.sum().sort_values(ascending=False, kind="stable").index]


def in_readable_time(hours: pd.DataFrame) -> tuple[pd.DataFrame, str, str]:
    """Convert device-hours to minutes or seconds if no commit takes an hour.

    Returns:
        The amounts, their name, and the unit.
    """
    most_hours = hours.sum(axis=1).max()
    factor, counted, unit = next(step for step in _TIME_STEPS if most_hours * step[0] >= 1 or step is _TIME_STEPS[-1])
    return hours * factor, counted, unit


def spending_figure(spent: pd.DataFrame, *, title: str, unit: str, zone: tzinfo) -> go.Figure:
    """Draw one bar per commit of `summed` amounts, with the largest parts named."""
    commits: list[CommitRef] = list(spent.index)
    bars = spent.iloc[:, :NAMED_PARTS]
    if bars.shape < spent.shape:
        bars = bars.assign(**{OTHERS: spent.iloc[:, NAMED_PARTS:].sum(axis=1)})
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
            hovertemplate=f"<b>%{{y:.3{tick_format}}} {escaped(unit)}</b> {label}<br>%{{hovertext}}<extra></extra>",
        )
    return lay_out(
        figure,
        height=400,
        barmode="stack",
        xaxis={"title": "commit", "range": [-0.6, len(commits) - 0.4], **commit_ticks(commits)},
        yaxis={"title": title, "rangemode": "tozero", "tickformat": tick_format},
    )

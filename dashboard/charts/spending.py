"""Spending: device time, energy and money as sums, tables and stacked bars."""

from __future__ import annotations

import fnmatch
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import tzinfo
from html import escape

import pandas as pd
import plotly.graph_objects as go

from roofwatch.dashboard.charts.style import (
    NAMED_PARTS,
    commit_lines,
    commit_ticks,
    lay_out,
    part_marker,
)
from roofwatch.dashboard.wording import shortened
from roofwatch.db.queries.results import CaseCost, FleetRun, KernelCost
from roofwatch.db.values import CommitRef

NS_PER_HOUR = 3_600e9
UNCOUNTED = "not counted"
_TIME_STEPS = ((1.0, "device-hours", "h"), (60.0, "device-minutes", "min"), (3_600.0, "device-seconds", "s"))
"""Per hour, coarsest first."""

Spending = dict[CommitRef, dict[str, float]]
"""Amounts by commit and part."""


def hours_of(run: FleetRun) -> float:
    """Return device-hours over all devices of the run."""
    return run.device_ns / NS_PER_HOUR


def _summed(amounts: Iterable[tuple[CommitRef, str, float | None]]) -> Spending:
    """Sum amounts by commit and part; unknown amounts are left out."""
    spent: Spending = {}
    for commit, part, amount in amounts:
        if amount is not None:
            parts = spent.setdefault(commit, {})
            parts[part] = parts.get(part, 0.0) + amount
    return spent


def hours_by_activity(runs: Iterable[FleetRun]) -> Spending:
    """Sum device-hours by activity; the rest of a run is `not counted`."""

    def activities(run: FleetRun) -> dict[str, float]:
        return {**run.spent_ns, UNCOUNTED: max(run.wall_ns - sum(run.spent_ns.values()), 0.0)}

    return _summed(
        (run.commit, name, hours_of(run) * spent_ns / run.wall_ns)
        for run in runs
        for name, spent_ns in activities(run).items()
        if spent_ns
    )


def by_runner(runs: Iterable[FleetRun], amount_of: Callable[[FleetRun], float | None]) -> Spending:
    """Sum an amount of each run by runner class."""
    return _summed((run.commit, run.runner_class, amount_of(run)) for run in runs)


def by_family(
    runs: Iterable[FleetRun], costs: Iterable[KernelCost], amount_of: Callable[[KernelCost], float | None]
) -> Spending:
    """Sum an amount of each kernel by family."""
    commits = {run.run_id: run.commit for run in runs}
    return _summed((commits[cost.run_id], cost.family, amount_of(cost)) for cost in costs if cost.run_id in commits)


def in_readable_time(spent: Spending) -> tuple[Spending, str, str]:
    """Convert device-hours to minutes or seconds if no commit takes an hour.

    Returns:
        The amounts, their name, and the unit.
    """
    most_hours = max((sum(parts.values()) for parts in spent.values()), default=0.0)
    factor, counted, unit = next(step for step in _TIME_STEPS if most_hours * step[0] >= 1 or step is _TIME_STEPS[-1])
    scaled = {commit: {name: hours * factor for name, hours in parts.items()} for commit, parts in spent.items()}
    return scaled, counted, unit


def price_of(runner_class: str, prices: Mapping[str, float]) -> float | None:
    """Return the price per device-hour of the first matching pattern."""
    return next((price for pattern, price in prices.items() if fnmatch.fnmatchcase(runner_class, pattern)), None)


def money_of(run: FleetRun, prices: Mapping[str, float]) -> float | None:
    price = price_of(run.runner_class, prices)
    return None if price is None else price * hours_of(run)


def runner_table(
    runs: Sequence[FleetRun], energies_j: Mapping[str, float], prices: Mapping[str, float]
) -> pd.DataFrame:
    """Return one row per runner class, most device time first."""
    by_class: defaultdict[str, list[FleetRun]] = defaultdict(list)
    for run in runs:
        by_class[run.runner_class].append(run)
    rows = []
    for runner_class, own in sorted(by_class.items(), key=lambda item: -sum(map(hours_of, item[1]))):
        hours = sum(hours_of(run) for run in own)
        commits = len({run.commit.sha for run in own})
        energy_j = [energies_j[run.run_id] for run in own if run.run_id in energies_j]
        price = price_of(runner_class, prices)
        rows.append(
            {
                "runner class": runner_class,
                "runs": len(own),
                "commits": commits,
                "device time": hours * NS_PER_HOUR,
                "per commit": hours * NS_PER_HOUR / commits,
                "timing": _share_of(own, "timing"),
                "checks": _share_of(own, "check"),
                "compiling": _share_of(own, "compile"),
                "energy": sum(energy_j) if energy_j else None,
                "energy of a run": sum(energy_j) / len(energy_j) if energy_j else None,
                "money": None if price is None else price * hours,
            }
        )
    return pd.DataFrame(rows)


def _share_of(runs: Sequence[FleetRun], activity: str) -> float | None:
    """Return an activity's share of wall time over runs that report activities."""
    telling = [run for run in runs if run.spent_ns]
    wall_ns = sum(run.wall_ns for run in telling)
    return sum(run.spent_ns.get(activity, 0) for run in telling) / wall_ns if wall_ns else None


def family_table(costs: Sequence[KernelCost]) -> pd.DataFrame:
    """Return one row per kernel family, most time first."""
    timed: defaultdict[str, float] = defaultdict(float)
    energy: defaultdict[str, float] = defaultdict(float)
    kernels: defaultdict[str, set[str]] = defaultdict(set)
    for cost in costs:
        timed[cost.family] += cost.timed_ns
        kernels[cost.family].add(cost.kernel)
        if cost.energy_j is not None:
            energy[cost.family] += cost.energy_j
    whole = sum(timed.values())
    families = sorted(timed, key=lambda family: (-timed[family], family))
    return pd.DataFrame(
        {
            "kernel family": families,
            "kernels": [len(kernels[family]) for family in families],
            "timed": [timed[family] for family in families],
            "share": [timed[family] / whole if whole else None for family in families],
            "energy": [energy.get(family) for family in families],
        }
    )


def case_table(costs: Sequence[CaseCost]) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "case": [cost.case_id for cost in costs],
            "implementation": [cost.implementation for cost in costs],
            "runs": [cost.run_count for cost in costs],
            "slowest launch": [cost.median_ns for cost in costs],
            "timed": [cost.timed_ns for cost in costs],
            "energy": [cost.energy_j for cost in costs],
        }
    )


_PREFIXED = {"s", "J"}
"""Units that take SI prefixes."""
OTHERS = "all others"


def spending_figure(
    spent: Mapping[CommitRef, Mapping[str, float]], *, title: str, unit: str, zone: tzinfo
) -> go.Figure:
    """Draw one bar per commit, oldest to newest, with the largest parts named."""
    commits = sorted(spent)
    tick_format = "~s" if unit in _PREFIXED else "~g"
    totals: Counter[str] = Counter()
    for parts in spent.values():
        totals.update(parts)
    named = [name for name, _ in sorted(totals.items(), key=lambda item: (-item[1], item[0]))[:NAMED_PARTS]]
    bars = {name: [spent[commit].get(name, 0.0) for commit in commits] for name in named}
    if len(totals) > len(named):
        bars[OTHERS] = [sum(value for name, value in spent[one].items() if name not in named) for one in commits]
    figure = go.Figure()
    for index, (name, values) in enumerate(bars.items()):
        label = escape(shortened(name.replace("_", " ")))
        figure.add_bar(
            x=list(range(len(commits))),
            y=values,
            name=label,
            marker=part_marker(index if name in named else None),
            hovertext=["<br>".join(commit_lines(commit, zone)) for commit in commits],
            hovertemplate=f"<b>%{{y:.3{tick_format}}} {escape(unit)}</b> {label}<br>%{{hovertext}}<extra></extra>",
        )
    return lay_out(
        figure,
        height=400,
        barmode="stack",
        xaxis={"title": "commits, oldest to newest", "range": [-0.6, len(commits) - 0.4], **commit_ticks(commits)},
        yaxis={"title": title, "rangemode": "tozero", "tickformat": tick_format},
    )

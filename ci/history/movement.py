"""How far times moved in a window, by kernel and runner class: change points that were judged, taken together. Pure."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from roofwatch.db.values import ChangePoint, Regression, RegressionState, SeriesKey, Verdict

_TIME = "median_ns"


@dataclass(frozen=True)
class Movement:
    """What the times of one kernel did on one runner class."""

    kernel: str
    runner_class: str
    relative_change: float | None
    """From before the window to its end, of the series that became slowest, or else of the one that became fastest;
    None where one fails since."""
    slower_count: int
    """Series that are slower at the end, or fail."""
    faster_count: int


def movements(regressions: Iterable[Regression], *, since: datetime | None) -> list[Movement]:
    """Take the judged change points of a window together.

    Steps of one series multiply: one that came and went leaves nothing. What was dismissed never happened, what the
    clock moved is none of the kernel's doing, and a drift counts for where it has come to.

    Args:
        regressions: What was judged, improvements too.
        since: Of the commits that count; None for all.

    Returns:
        By kernel and runner class, only where something moved.
    """
    steps: dict[SeriesKey, list[ChangePoint]] = defaultdict(list)
    for regression in regressions:
        if regression.state is RegressionState.DISMISSED:
            continue
        for point in regression.change_points:
            if (
                point.series.metric == _TIME
                and point.verdict is not Verdict.INCONCLUSIVE
                and (since is None or point.commit.committed_at >= since)
            ):
                steps[point.series].append(point)
    by_cell: dict[tuple[str, str], list[float]] = defaultdict(list)
    for series, points in steps.items():
        by_cell[series.kernel, series.runner_class].append(_net_log_ratio(points))
    return [_movement(kernel, runner_class, changes) for (kernel, runner_class), changes in sorted(by_cell.items())]


def _net_log_ratio(points: Iterable[ChangePoint]) -> float:
    """Infinite where the series fails at the end; what came before a failure or a recovery has no ratio to now."""
    net = 0.0
    for point in sorted(points, key=lambda point: point.commit):
        if point.after is None:
            net = math.inf
        elif not point.before or not point.after:
            net = 0.0
        else:
            net = (0.0 if math.isinf(net) else net) + math.log(point.after / point.before)
    return net


def _movement(kernel: str, runner_class: str, changes: list[float]) -> Movement:
    slowest = max(changes)
    told = slowest if slowest > 0 else min(changes)
    return Movement(
        kernel=kernel,
        runner_class=runner_class,
        relative_change=None if math.isinf(told) else math.expm1(told),
        slower_count=sum(change > 0 for change in changes),
        faster_count=sum(change < 0 for change in changes),
    )

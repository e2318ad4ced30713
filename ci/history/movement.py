"""How far times changed in a period, by kernel and runner class, over all judged change points. Pure."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from roofwatch.db.values import ChangePoint, Regression, RegressionState, SeriesKey, Verdict


@dataclass(frozen=True)
class Movement:
    """Changed times of one kernel on one runner class."""

    kernel: str
    runner_class: str
    relative_change: float | None
    """Over the period, of the series with the largest slowdown, or else speedup; None if one fails now."""
    slower_count: int
    """Series that are slower at the end, or fail."""
    faster_count: int


def movements(regressions: Iterable[Regression], *, since: datetime | None) -> list[Movement]:
    """Combine the judged change points of a period.

    Steps of one series multiply, so a step that came and went leaves nothing. Dismissed regressions and changes that
    the clock explains are left out.

    Args:
        regressions: All that were judged, improvements too.
        since: Oldest commit time that counts; None for all.

    Returns:
        By kernel and runner class, only where something changed.
    """
    steps: dict[SeriesKey, list[ChangePoint]] = defaultdict(list)
    for regression in regressions:
        if regression.state is not RegressionState.DISMISSED:
            for point in regression.change_points:
                is_recent = since is None or point.commit.committed_at >= since
                is_time = point.series.metric == "median_ns" and point.verdict is not Verdict.INCONCLUSIVE
                if is_time and is_recent:
                    steps[point.series].append(point)
    by_cell: dict[tuple[str, str], list[float]] = defaultdict(list)
    for series, points in steps.items():
        by_cell[series.kernel, series.runner_class].append(_net_log_ratio(points))
    found = []
    for (kernel, runner_class), changes in sorted(by_cell.items()):
        largest = max(changes) if max(changes) > 0 else min(changes)
        relative = None if math.isinf(largest) else math.expm1(largest)
        slower, faster = sum(change > 0 for change in changes), sum(change < 0 for change in changes)
        found.append(Movement(kernel, runner_class, relative, slower, faster))
    return found


def _net_log_ratio(points: Iterable[ChangePoint]) -> float:
    """Infinite if the series fails at the end. Changes before a failure or a recovery do not count."""
    net = 0.0
    for point in sorted(points, key=lambda point: point.commit):
        if point.after is None:
            net = math.inf
        elif not point.before or not point.after:
            net = 0.0
        else:
            net = (0.0 if math.isinf(net) else net) + math.log(point.after / point.before)
    return net

"""Summaries of judged regressions: how many were false, and how far times changed in a period.
Pure.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from roofwatch.model.history import ChangePoint, Regression, RegressionState, SeriesKey
from roofwatch.model.metrics import Better
from roofwatch.model.triage import TriagedRegression, TriageState
from roofwatch.model.verdict import Verdict

_Z_95 = 1.959964
_PRIOR_COUNT, _PRIOR_SHARE = 10, 0.5
"""Alerts that a project begins with, and their share of real ones: `bench/alert_rates.py`.
"""


def share_real(true_count: int, decided_count: int, *, prior: float = _PRIOR_SHARE) -> float:
    """Estimate the probability that the next alert of a project is real, from those decided so far.

    The mean of a beta distribution. Its prior counts as ten alerts, so it fades as decisions come.

    Args:
        true_count: Real ones.
        decided_count: All that a person or a measurement decided on.
        prior: Share of real ones before any decision.
    """
    return (_PRIOR_COUNT * prior + true_count) / (_PRIOR_COUNT + decided_count)


@dataclass(frozen=True)
class FalseAlarms:
    """How many of the reported regressions were false."""

    reported_count: int
    refuted_count: int
    """Measured again in pairs, and not there."""
    invalid_count: int
    """Marked as no regression by a person, and not refuted."""
    true_count: int
    """Confirmed by a measurement, or accepted by a person."""

    @property
    def false_count(self) -> int:
        return self.refuted_count + self.invalid_count

    @property
    def decided_count(self) -> int:
        return self.false_count + self.true_count

    @property
    def rate(self) -> float | None:
        """Share of false ones among those decided; None if none is."""
        return self.false_count / self.decided_count if self.decided_count else None

    @property
    def interval(self) -> tuple[float, float] | None:
        """95 % interval of the rate by Wilson (1927), which is valid for few decisions too."""
        rate, count = self.rate, self.decided_count
        if rate is None:
            return None
        spread = _Z_95**2 / count
        centre = (rate + spread / 2) / (1 + spread)
        half = _Z_95 * math.sqrt(rate * (1 - rate) / count + spread / (4 * count)) / (1 + spread)
        return max(centre - half, 0.0), min(centre + half, 1.0)


def count_false_alarms(
    regressions: Iterable[TriagedRegression], *, since: datetime | None = None
) -> FalseAlarms:
    """Count the reported regressions by what became of them.

    Args:
        regressions: All that were judged; improvements are left out.
        since: Oldest commit time that counts; None for all.
    """
    counts: Counter[str] = Counter()
    for triaged in regressions:
        regression, state = triaged.regression, triaged.triage.state
        is_recent = since is None or regression.commit.committed_at >= since
        if regression.verdict is not Verdict.REGRESSED or not is_recent:
            continue
        counts["reported"] += 1
        if regression.state is RegressionState.DISMISSED:
            counts["refuted"] += 1
        elif state is TriageState.INVALID:
            counts["invalid"] += 1
        elif regression.is_confirmed or state is not TriageState.NEW:
            counts["true"] += 1
    return FalseAlarms(
        reported_count=counts["reported"],
        refuted_count=counts["refuted"],
        invalid_count=counts["invalid"],
        true_count=counts["true"],
    )


# --- movement


@dataclass(frozen=True)
class Movement:
    """Changed times, or values of another tool, of one kernel on one runner class."""

    kernel: str
    runner_class: str
    relative_change: float | None
    """Over the period, of the series that got worse by most, or else better; None if one fails
    now.
    """
    log_cost_change: float
    """The same as a log ratio, positive if it got worse."""


def movements(regressions: Iterable[Regression], *, since: datetime | None) -> list[Movement]:
    """Combine the judged change points of a period.

    Steps of one series multiply, so a step that came and went leaves nothing. Dismissed regressions
    and changes that the clock explains are left out.

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
                is_judged = point.verdict is not Verdict.INCONCLUSIVE
                if point.series.is_performance and is_judged and is_recent:
                    steps[point.series].append(point)
    by_cell: dict[tuple[str, str], list[_NetChange]] = defaultdict(list)
    for series, points in steps.items():
        net = _net_log_ratio(points)
        is_rate = series.definition.better is Better.HIGHER and not math.isinf(net)
        change = _NetChange(log_cost=-net if is_rate else net, log_ratio=net)
        by_cell[series.kernel, series.runner_class].append(change)
    combined: list[Movement] = []
    for (kernel, runner_class), changes in sorted(by_cell.items()):
        change = max(changes)
        if change.log_cost <= 0:
            change = min(changes)
        relative_change = None
        if math.isfinite(change.log_ratio):
            relative_change = math.expm1(change.log_ratio)
        combined.append(Movement(kernel, runner_class, relative_change, change.log_cost))
    return combined


@dataclass(frozen=True, order=True)
class _NetChange:
    """Of one series over a period."""

    log_cost: float
    """Positive if it got worse."""
    log_ratio: float


def _net_log_ratio(points: Iterable[ChangePoint]) -> float:
    """Infinite if the series fails at the end.

    Changes before a failure or a recovery do not count.
    """
    net = 0.0
    for point in sorted(points, key=lambda point: point.commit):
        if point.after is None:
            net = math.inf
        elif not point.before or not point.after:
            net = 0.0
        elif math.isinf(net):
            net = math.log(point.after / point.before)
        else:
            net += math.log(point.after / point.before)
    return net

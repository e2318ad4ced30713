"""Slow drift of the times of a history: what no step shows, with its start and its rate. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import date

import numpy as np
from numpy.typing import NDArray

from roofwatch.ci.ab.clock import clock_step
from roofwatch.ci.causes.explain import NEAR_RUNS, explain_drift
from roofwatch.ci.changepoint.chance import chance_of_drift
from roofwatch.ci.changepoint.drift import Drift, find_drift
from roofwatch.ci.changepoint.noise import median
from roofwatch.ci.history.finding import Status, TrendFinding, windows_between
from roofwatch.ci.history.value_steps import Timeline
from roofwatch.ci.reason import Reason
from roofwatch.ci.thresholds import Thresholds
from roofwatch.collector.record.metrics import metric
from roofwatch.db.values import ChangePoint, Verdict

_WEEK_DAYS = 7.0
_PARTS = 5
"""A drift of which no two fifths of the series differ by half of it is none: a quick look that spares most series."""


def find_slow_drift(
    values: Sequence[float] | NDArray[np.float64],
    nights: Sequence[date] | NDArray[np.datetime64],
    thresholds: Thresholds,
) -> Drift | None:
    """Find a drift, going on or ended; its rate is per week, or per commit where all were measured in one week.

    Args:
        values: Times, a commit each, above 0.
        nights: When each was first measured.
        thresholds: What is worth reporting.
    """
    if len(values) < 2 * _PARTS or not _may_drift(np.asarray(values), thresholds.drift_relative_change):
        return None
    return find_drift(values, _weeks(nights), min_relative_change=thresholds.drift_relative_change)


def drift_finding(line: Timeline, drift: Drift, nights: Sequence[date], thresholds: Thresholds) -> TrendFinding:
    """Report a drift as a change that begins at the commit after the last one of the old level; one that the clock
    explains is inconclusive.

    Args:
        line: Since the last step.
        drift: As `find_slow_drift` found it there.
        nights: When each commit was first measured.
        thresholds: What is worth reporting.
    """
    commits, shown = line.commits, metric("median_ns").format
    start = min(drift.start, len(commits) - 2)
    end = len(commits) - 1 if drift.end is None else drift.end
    before = float(np.median(line.values[: start + 1]))
    after = before * (1 + drift.relative_change)
    per = "a week" if _weeks(nights) is not None else "a commit"
    evidence = f"median time drifts by {drift.rate:+.2%} {per} since then"
    if drift.end is not None:
        evidence = f"median time drifted by {drift.rate:+.2%} {per} from then to {commits[end].short_sha}"
    evidence += f", {shown(before)} to {shown(after)} ({drift.relative_change:+.1%}), {end - start} commits"
    log_change = math.log1p(drift.relative_change)
    old, new = line.runs(start - NEAR_RUNS, start + 1), line.runs(len(commits) - NEAR_RUNS, len(commits))
    verdict = Verdict.REGRESSED if after > before else Verdict.IMPROVED
    in_cycles = clock_step(old, new, log_change)
    if in_cycles is not None and in_cycles.is_clock_move(min_relative_change=thresholds.trend_relative_change):
        verdict, evidence = Verdict.INCONCLUSIVE, f"{evidence}; {Reason.CLOCK_MOVED}: {in_cycles.in_words()}"
    change = ChangePoint(
        series=line.key,
        commit=commits[start + 1],
        previous_commit=commits[start],
        verdict=verdict,
        before=before,
        after=after,
        evidence=evidence,
        is_gradual=True,
    )
    # the start is known to about a tenth of what has drifted since
    slack = max(1, (end + 1 - start) // 10)
    window, _ = windows_between(commits, max(1, start + 1 - slack), min(len(commits) - 1, start + 1 + slack))
    return TrendFinding(
        change=change,
        status=Status.UNCONFIRMED,
        suspects=explain_drift(old, new, log_change),
        window=window,
        reach=window,
        p_value=_chance(drift, line.values, nights),
        night=nights[end],
    )


def _chance(drift: Drift, values: Sequence[float] | NDArray[np.float64], nights: Sequence[date]) -> float:
    """How likely noise shows it: as what the likelihood allows however often one looks (Ville), or as the slope does in
    noise as dependent as the series cannot exclude, whichever is more.
    """
    weeks = _weeks(nights)
    when = np.arange(len(values), dtype=np.float64) if weeks is None else weeks
    return max(math.exp(-drift.likelihood_ratio / 2), chance_of_drift(values, when, drift))


def _may_drift(values: NDArray[np.float64], min_relative_change: float) -> bool:
    parts = [median(part) for part in np.array_split(values, _PARTS)]
    return min(parts) > 0 and max(parts) / min(parts) > 1 + min_relative_change / 2


def _weeks(nights: Sequence[date] | NDArray[np.datetime64]) -> NDArray[np.float64] | None:
    """Weeks since the first night; None where they do not span one."""
    days = np.asarray(nights, dtype="datetime64[D]").astype(np.float64)
    return (days - days[0]) / _WEEK_DAYS if days[-1] - days[0] >= _WEEK_DAYS else None

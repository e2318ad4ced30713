"""Slow drift of the times of a history: what no step shows, told with its start and its rate. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import date

import numpy as np
from numpy.typing import NDArray

from roofwatch.ci.causes.clock_step import clock_step
from roofwatch.ci.causes.explain import NEAR_RUNS, explain_drift
from roofwatch.ci.changepoint.chance import chance_of_drift
from roofwatch.ci.changepoint.drift import Drift, find_drift
from roofwatch.ci.changepoint.noise import median
from roofwatch.ci.history.trend_finding import Status, TrendFinding, Window
from roofwatch.ci.thresholds import Thresholds
from roofwatch.collector.record.metrics import metric
from roofwatch.db.values import ChangePoint, CommitRef, SeriesKey, SeriesPoint, Verdict

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
        thresholds: What is worth telling.
    """
    if len(values) < 2 * _PARTS or not _may_drift(np.asarray(values), thresholds.drift_relative_change):
        return None
    weeks = _weeks(nights)
    return find_drift(values, weeks, min_relative_change=thresholds.drift_relative_change)


def drift_finding(
    key: SeriesKey,
    drift: Drift,
    values: Sequence[float],
    commits: Sequence[CommitRef],
    points: Sequence[Sequence[SeriesPoint]],
    nights: Sequence[date],
    *,
    min_relative_change: float,
) -> TrendFinding:
    """Tell a drift as a change that begins at the commit after the last one of the old level; one that the clock made
    is a change that cannot be told of the kernel.
    """
    start = min(drift.start, len(commits) - 2)
    before = float(np.median(values[: start + 1]))
    after = before * (1 + drift.relative_change)
    end = len(commits) - 1 if drift.end is None else drift.end
    per = "a week" if _weeks(nights) is not None else "a commit"
    drifts = (
        f"drifts by {drift.rate:+.2%} {per} since then"
        if drift.end is None
        else f"drifted by {drift.rate:+.2%} {per} from then to {commits[end].short_sha}"
    )
    log_change = math.log1p(drift.relative_change)
    old = [point for run in points[max(0, start - NEAR_RUNS) : start + 1] for point in run]
    new = [point for run in points[-NEAR_RUNS:] for point in run]
    in_cycles = clock_step(old, new, log_change)
    is_clock = in_cycles is not None and in_cycles.is_clock_move(min_relative_change=min_relative_change)
    verdict = Verdict.REGRESSED if after > before else Verdict.IMPROVED
    change = ChangePoint(
        series=key,
        commit=commits[start + 1],
        previous_commit=commits[start],
        verdict=Verdict.INCONCLUSIVE if is_clock else verdict,
        before=before,
        after=after,
        evidence=(
            f"median time {drifts}, {metric('median_ns').format(before)} to "
            f"{metric('median_ns').format(after)} ({drift.relative_change:+.1%}), {end - start} commits"
            f"{f'; {in_cycles.in_words()}' if in_cycles is not None and is_clock else ''}"
        ),
        is_gradual=True,
    )
    # the start is known to about a tenth of what has drifted since
    slack = max(1, (end + 1 - start) // 10)
    first, last = max(1, start + 1 - slack), min(len(commits) - 1, start + 1 + slack)
    window = Window(
        min(commits[first - 1].first_parent_count + 1, commits[last].first_parent_count),
        commits[last].first_parent_count,
    )
    return TrendFinding(
        change=change,
        status=Status.UNCONFIRMED,
        suspects=explain_drift(old, new, log_change),
        window=window,
        reach=window,
        p_value=_chance(drift, values, nights),
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

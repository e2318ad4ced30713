"""How noisy a series of times is, and how small a step it can show. Pure."""

from __future__ import annotations

import statistics

from roofwatch.ci.changepoint.detect import NoiseFloor, noise_floor
from roofwatch.ci.history.points import points_by_commit
from roofwatch.ci.thresholds import Thresholds
from roofwatch.db.values import Series

_ENOUGH = 20
"""Commits before which the noise of a series is known too badly to be told."""


def series_noise(series: Series, thresholds: Thresholds | None = None) -> NoiseFloor | None:
    """By the medians of its commits, of the newest timer and cache state.

    Args:
        series: Of any metric.
        thresholds: What is worth telling; the defaults if left out.

    Returns:
        None of what is not a time, and of fewer than 20 commits.
    """
    timed = [point for point in series.points if point.value is not None]
    if series.key.metric != "median_ns" or not timed:
        return None
    by_commit = points_by_commit(point for point in timed if point.timing == timed[-1].timing)
    if len(by_commit) < _ENOUGH:
        return None
    limits = thresholds or Thresholds()
    medians = [
        statistics.median(point.value for point in points if point.value is not None) for points in by_commit.values()
    ]
    return noise_floor(medians, min_relative_change=limits.trend_relative_change)

"""Points of a series in the order in which they are judged. Pure."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from roofwatch.db.values import CommitRef, Series, SeriesPoint

PointsByCommit = Mapping[CommitRef, Sequence[SeriesPoint]]


def points_by_commit(points: Iterable[SeriesPoint]) -> dict[CommitRef, list[SeriesPoint]]:
    """Points of each commit, commits in the order of the branch."""
    grouped: dict[CommitRef, list[SeriesPoint]] = defaultdict(list)
    for point in points:
        grouped[point.commit].append(point)
    return dict(sorted(grouped.items()))


def points_by_timing(series: Series) -> dict[str, PointsByCommit]:
    """Points that have a value, by commit, each timer and cache state for itself: what two of them say does not
    compare. What gave the newest value comes first, and what gave none is not there.
    """
    timed: dict[str, list[SeriesPoint]] = defaultdict(list)
    newest: dict[str, int] = {}
    for place, point in enumerate(series.points):
        if point.value is not None:
            timed[point.timing].append(point)
            newest[point.timing] = place
    return {
        timing: points_by_commit(timed[timing])
        for timing in sorted(newest, key=lambda timing: newest[timing], reverse=True)
    }


def with_value(by_commit: PointsByCommit) -> dict[CommitRef, list[SeriesPoint]]:
    """Points that have a value; a commit without any is left out."""
    return {
        commit: known
        for commit, points in by_commit.items()
        if (known := [point for point in points if point.value is not None])
    }


def value_of_each(by_commit: PointsByCommit) -> list[float]:
    """The median of each commit's points, all of which have a value."""
    return [
        statistics.median(point.value for point in points if point.value is not None) for points in by_commit.values()
    ]

"""Points of a series in the order in which they are judged. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from db.values import CommitRef, SeriesPoint


def points_by_commit(points: Iterable[SeriesPoint]) -> dict[CommitRef, list[SeriesPoint]]:
    """Points of each commit, commits in the order of the branch."""
    grouped: dict[CommitRef, list[SeriesPoint]] = defaultdict(list)
    for point in points:
        grouped[point.commit].append(point)
    return dict(sorted(grouped.items()))

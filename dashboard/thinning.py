"""Fewer points of a long series that look the same when drawn: of each stretch its ends and its extremes. Pure.

Source: Jugel, Jerzak, Hackenbroich, Markl, M4: A Visualization-Oriented Time Series Data Aggregation (VLDB 2014): the
first, last, lowest and highest value of every stretch draw the same line as all of its values.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from db.values import Series, SeriesPoint

MOST_POINTS = 2_000
"""Of one series on a figure: more than there are pixels in a row."""
_KEPT_OF_A_STRETCH = 6


def thin(series: Series, *, kept_commits: Collection[str] = (), most: int = MOST_POINTS) -> Series:
    """A series of about `most` points, with every extreme and every outcome that it has.

    Args:
        series: Returned as it is where it is short enough.
        kept_commits: Shas whose points stay whatever they say, such as those of change points.
        most: About so many points.
    """
    points = series.points
    if len(points) <= most:
        return series
    length = -(-len(points) * _KEPT_OF_A_STRETCH // most)
    kept = {
        position
        for start in range(0, len(points), length)
        for position in _telling(points, range(start, min(start + length, len(points))))
    }
    kept |= {position for position, point in enumerate(points) if point.commit.sha in kept_commits}
    return replace(series, points=tuple(points[position] for position in sorted(kept)))


def _telling(points: Sequence[SeriesPoint], stretch: range) -> Iterator[int]:
    """Positions of what tells a stretch: its ends, its lowest and highest value, and where it first and last failed."""
    yield stretch[0]
    yield stretch[-1]
    values = [(value, position) for position in stretch if (value := points[position].value) is not None]
    if values:
        yield min(values)[1]
        yield max(values)[1]
    failures = [position for position in stretch if points[position].value is None]
    if failures:
        yield failures[0]
        yield failures[-1]

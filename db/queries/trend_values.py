"""What is handed out of a trend: series that are short enough to be drawn, and where their points lie."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from roofwatch.db.values import Series


@dataclass(frozen=True)
class Trend:
    """Series over the commits of one window."""

    series: tuple[Series, ...]
    """Those that have points there, in the order asked for."""
    places: Mapping[str, int]
    """Of the commits of all points, by sha: from 0, among all commits of the window on which any series has a run."""
    commit_count: int
    """Of the window, whether a point of them is here or not."""
    run_count: int
    """Behind the longest series, whether a point of them is here or not."""

    @property
    def is_thinned(self) -> bool:
        return self.run_count > max((len(one.points) for one in self.series), default=0)


@dataclass(frozen=True)
class WindowEnd:
    """A commit that a window may end with."""

    sha: str
    committed_at: datetime

"""Whether a runner has gone silent: nothing came from it for much longer than it usually stays away. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise

MIN_GAPS = 4
"""Fewer say nothing about what is usual."""
REMEMBERED_GAPS = 50
"""Of the newest: a runner that was made nightly is not measured by its hourly past."""
SILENT_AFTER = 3.0
"""Times the usual longest gap. A runner that rests at weekends has these among its gaps."""
LEAST_SILENCE = timedelta(hours=1)
"""Runs of one job follow each other within minutes: their gaps are no rhythm."""


@dataclass(frozen=True)
class Rhythm:
    """How often a runner gives results."""

    last_at: datetime
    usual_gap: timedelta | None
    """Median between two results; None where there are too few."""
    silent_from: datetime | None
    """When it counts as silent if nothing comes; None where there is no rhythm yet."""

    def is_silent(self, now: datetime) -> bool:
        return self.silent_from is not None and now >= self.silent_from


def rhythm_of(times: Iterable[datetime]) -> Rhythm:
    """The rhythm of a runner.

    Args:
        times: When its results came, in any order; at least one.

    Raises:
        ValueError: there is none.
    """
    ordered = sorted(times)
    if not ordered:
        raise ValueError("a rhythm takes the time of one result at least")
    gaps = [(after - before).total_seconds() for before, after in pairwise(ordered)]
    gaps = [gap for gap in gaps if gap > 0][-REMEMBERED_GAPS:]
    if len(gaps) < MIN_GAPS:
        return Rhythm(ordered[-1], None, None)
    longest = statistics.quantiles(gaps, n=10, method="inclusive")[-1]
    allowed = max(timedelta(seconds=SILENT_AFTER * longest), LEAST_SILENCE)
    return Rhythm(ordered[-1], timedelta(seconds=statistics.median(gaps)), ordered[-1] + allowed)

"""Whether a time moved or the clock did: one step of a history in clock cycles. Pure.

As base against head (`roofwatch.ci.ab.clock`), a move in time must be there in clock cycles too, time multiplied by
the SM
clock that was read meanwhile. Here the clocks are those of the runs on either level.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from roofwatch.ci.ab.clock import MIN_CLOCK_MOVE
from roofwatch.ci.reason import Reason
from roofwatch.db.values import SeriesPoint

GONE = 1 / 3
"""A change in cycles of less than this share of the change in time is none: the noise of a median clock leaves that."""
_MIN_RUNS = 3
"""On either level, with a clock: as few as blocks decide anything (`roofwatch.ci.ab.compare.MIN_BLOCKS`)."""
_MIN_SHARE = 0.5
"""Of the runs of a level, with a clock: what is known of fewer may be another part of it."""


@dataclass(frozen=True)
class ClockStep:
    """One step of a time, with the clocks on either side."""

    before_mhz: float
    """Median SM clock of the runs on the old level."""
    after_mhz: float
    log_change: float
    """Of the time."""
    log_cycles: float
    """Of the clock cycles."""

    def is_clock_move(self, *, min_relative_change: float) -> bool:
        """Whether the clock moved so that it explains the time, and nothing worth telling is left of it in cycles.

        Args:
            min_relative_change: Of a step that is worth telling, as a fraction.
        """
        clock = self.log_cycles - self.log_change
        if clock * self.log_change >= 0 or abs(clock) < math.log1p(MIN_CLOCK_MOVE):
            return False
        # what goes the other way in cycles is no part of the change either
        left = self.log_cycles * math.copysign(1.0, self.log_change)
        return left <= GONE * abs(self.log_change) and left < math.log1p(min_relative_change)

    def in_words(self) -> str:
        return (
            f"{Reason.CLOCK_MOVED}: the SM clock moved from {self.before_mhz:.0f} to {self.after_mhz:.0f} MHz, and in "
            f"clock cycles the change is {math.expm1(self.log_cycles):+.1%}"
        )


def clock_step(before: Sequence[SeriesPoint], after: Sequence[SeriesPoint], log_change: float) -> ClockStep | None:
    """A step in cycles; None where the clock of too few runs was read.

    Args:
        before: Runs of the old level, timed.
        after: Runs of the new one.
        log_change: ln(after / before) of the levels' times.
    """
    there, here = _clocked(before), _clocked(after)
    if there is None or here is None:
        return None
    levels = [statistics.median(math.log(time * mhz) for time, mhz in runs) for runs in (there, here)]
    times = [statistics.median(math.log(time) for time, _ in runs) for runs in (there, here)]
    clock_log_change = (levels[1] - levels[0]) - (times[1] - times[0])
    return ClockStep(
        before_mhz=statistics.median(mhz for _, mhz in there),
        after_mhz=statistics.median(mhz for _, mhz in here),
        log_change=log_change,
        log_cycles=log_change + clock_log_change,
    )


def _clocked(runs: Sequence[SeriesPoint]) -> list[tuple[float, float]] | None:
    """Times and clocks of the runs that have both."""
    known = [(run.value, run.sm_clock_mhz) for run in runs if run.value and run.sm_clock_mhz]
    return known if len(known) >= max(_MIN_RUNS, _MIN_SHARE * len(runs)) else None

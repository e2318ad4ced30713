"""What is known of a series that is judged value by value. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class OnlineState:
    """All that is known of a series, small enough to store beside it."""

    min_relative_change: float = 0.03
    seen: int = 0
    """Values so far, gaps included: the position of the next one."""
    unit: float = 0.0
    """What values are divided by where one of the first was 0 or below; 0 where logarithms are judged."""
    values: tuple[float, ...] = ()
    """Newest values of the present level, in time order."""
    positions: tuple[int, ...] = ()
    """Where they stand in the series."""
    earlier: tuple[float, ...] = ()
    """Newest values of the level before, as long as the present one may be a burst."""
    residuals: tuple[float, ...] = ()
    """Distances of earlier values from their level, on the scale they are judged on, less by what a value was less
    certain than most; none while learning."""
    errors: tuple[float, ...] = ()
    """Standard error of each of `values` as a fraction of it, to 32 bits; 0 where it is not known, none if none is."""
    earlier_errors: tuple[float, ...] = ()
    """Likewise of `earlier`."""


@dataclass(frozen=True)
class Alarm:
    """A new level, as far as it can be seen from the values up to now."""

    index: int
    """Position of its first value."""
    before: float
    after: float
    count_after: int
    """Values of the new level that were needed to see it."""
    is_return: bool
    """Whether the series is back at the level before the last alarm, which was a burst then."""

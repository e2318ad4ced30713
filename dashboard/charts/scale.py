"""Axes of drawings in HTML: round values, calendar dates, and their places in percent."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo

_DAY_STEPS = (1, 2, 7, 14)
_HOUR_STEPS = (1, 3, 6, 12)
_MONTH_STEPS = (1, 2, 3, 6, 12, 24, 60)
_MAX_MARGIN = 0.06
_VALUE_TICKS = 4


@dataclass(frozen=True)
class Tick:
    percent: float
    text: str


@dataclass(frozen=True)
class ValueScale:
    """Maps a range of numbers to 0 % (low) to 100 % (high)."""

    low: float
    high: float

    def percent(self, value: float) -> float:
        """Return the place of a value; one outside the range is at the edge."""
        share = (value - self.low) / (self.high - self.low)
        return 100 * min(max(share, 0.0), 1.0)

    def covers(self, value: float) -> bool:
        return self.low <= value <= self.high


def fit(values: Sequence[float], *, min_relative_span: float) -> ValueScale:
    """Return a range around values, at least so wide in relation to the largest of them.

    Args:
        values: At least one.
        min_relative_span: Noise must not look like steps.
    """
    low, high = min(values), max(values)
    missing = min_relative_span * abs(high) - (high - low)
    if missing > 0:
        low, high = low - missing / 2, high + missing / 2
    if low == high:
        low, high = low - 1, high + 1
    margin = _MAX_MARGIN * (high - low)
    padded_low = low - margin
    # an amount that is never negative gets no negative axis
    if low >= 0:
        padded_low = max(padded_low, 0.0)
    return ValueScale(padded_low, high + margin)


def round_values(scale: ValueScale) -> list[float]:
    """Return about four multiples of 1, 2 or 5 times a power of ten within a range."""
    rough_step = (scale.high - scale.low) / _VALUE_TICKS
    power = 10.0 ** math.floor(math.log10(rough_step))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough_step)
    # multiples of the step, so that zero is one of them where it is in the range
    first = math.ceil(scale.low / step)
    last = math.floor(scale.high / step)
    return [number * step for number in range(first, last + 1)]


@dataclass(frozen=True)
class DateScale:
    """Maps dates to 0 % (start) to 100 % (end)."""

    start: datetime
    end: datetime

    def percent(self, moment: datetime) -> float:
        share = (moment - self.start) / (self.end - self.start)
        return 100 * min(max(share, 0.0), 1.0)

    def covers(self, moment: datetime) -> bool:
        return self.start <= moment <= self.end


def fit_dates(moments: Sequence[datetime]) -> DateScale:
    """Return the range of dates, with a little room at both ends."""
    start, end = min(moments), max(moments)
    length = max(end - start, timedelta(hours=1))
    return DateScale(start - 0.02 * length, end + 0.02 * length)


def date_ticks(scale: DateScale, zone: tzinfo, *, max_count: int) -> list[Tick]:
    """Return round dates: hours, days, weeks, months or years."""
    start, end = scale.start.astimezone(zone), scale.end.astimezone(zone)
    midnight = start.replace(
        hour=0,
        minute=0,
        second=0,
        microsecond=0,
    )
    days = (end - start) / timedelta(days=1)
    # the widest unit whose dates still fit under the drawing
    if days > max_count * _DAY_STEPS[-1]:
        pattern = "%b %Y"
        moments = _months(midnight.replace(day=1), end, max_count)
    elif days > max_count / 2:
        pattern = "%-d %b"
        step_days = next(step for step in _DAY_STEPS if days / step <= max_count)
        moments = _steps(midnight, end, timedelta(days=step_days))
    else:
        pattern = "%-d %b %H:%M"
        step_hours = next((step for step in _HOUR_STEPS if days * 24 / step <= max_count), 24)
        moments = _steps(midnight, end, timedelta(hours=step_hours))
    return [
        Tick(scale.percent(moment), moment.strftime(pattern))
        for moment in moments
        if scale.covers(moment)
    ]


def _steps(start: datetime, end: datetime, step: timedelta) -> list[datetime]:
    return [start + number * step for number in range(int((end - start) / step) + 1)]


def _months(first: datetime, end: datetime, max_count: int) -> list[datetime]:
    """Return the firsts of months from one of them on, in steps of whole months or years."""
    count = (end.year - first.year) * 12 + end.month - first.month
    step = next((step for step in _MONTH_STEPS if count / step <= max_count), 120)
    moments: list[datetime] = []
    for number in range(count + 1):
        year, month = divmod(first.month - 1 + number, 12)
        # quarters begin in January, steps of years with the first month
        counted_months = number
        if step < 12:
            counted_months = month
        if counted_months % step == 0:
            moments.append(first.replace(year=first.year + year, month=month + 1))
    return moments

"""Axes of drawings in HTML: round values, calendar dates, and their places in percent."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo

_DAY = timedelta(days=1)
_HOUR = timedelta(hours=1)
_DAY_STEPS = (1, 2, 7, 14)
_HOUR_STEPS = (1, 3, 6, 12)
_MONTH_STEPS = (1, 2, 3, 6, 12, 24, 60)
_MAX_MARGIN = 0.06
"""Share of the range that stays free at both ends."""
_VALUE_TICKS = 4


@dataclass(frozen=True)
class Tick:
    """A date under a drawing."""

    percent: float
    text: str


def clamped_percent(share: float) -> float:
    """Return a share in percent; one outside 0 to 1 is at the edge."""
    return 100 * min(max(share, 0.0), 1.0)


@dataclass(frozen=True)
class ValueScale:
    """Maps a range of numbers to 0 % (low) to 100 % (high)."""

    low: float
    high: float

    def percent(self, value: float) -> float:
        """Return the place of a value; one outside the range is at the edge."""
        span = self.high - self.low
        return clamped_percent((value - self.low) / span)

    def covers(self, value: float) -> bool:
        return self.low <= value <= self.high


def fit(values: Sequence[float], *, min_relative_span: float) -> ValueScale:
    """Return a range around values, at least so wide in relation to the largest of them.

    Args:
        values: At least one.
        min_relative_span: Noise must not look like steps.
    """
    low = min(values)
    high = max(values)
    least_span = min_relative_span * abs(high)
    missing = least_span - (high - low)
    if missing > 0:
        low -= missing / 2
        high += missing / 2
    # only zeros
    if low == high:
        low -= 1
        high += 1
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
    round_steps = [power * factor for factor in (1, 2, 5, 10)]
    step = next(step for step in round_steps if step >= rough_step)
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
        length = self.end - self.start
        return clamped_percent((moment - self.start) / length)

    def covers(self, moment: datetime) -> bool:
        return self.start <= moment <= self.end


def fit_dates(moments: Sequence[datetime]) -> DateScale:
    """Return the range of dates, with a little room at both ends."""
    start = min(moments)
    end = max(moments)
    length = max(end - start, _HOUR)
    margin = 0.02 * length
    return DateScale(start - margin, end + margin)


def date_ticks(
    scale: DateScale,
    zone: tzinfo,
    *,
    max_count: int,
) -> list[Tick]:
    """Return round dates: hours, days, weeks, months or years."""
    start = scale.start.astimezone(zone)
    end = scale.end.astimezone(zone)
    midnight = start.replace(
        hour=0,
        minute=0,
        second=0,
        microsecond=0,
    )
    days = (end - start) / _DAY
    # the widest unit whose dates still fit under the drawing
    longest_step = _DAY_STEPS[-1]
    if days > max_count * longest_step:
        pattern = "%b %Y"
        first_of_month = midnight.replace(day=1)
        moments = _months(first_of_month, end, max_count)
    elif days > max_count / 2:
        pattern = "%-d %b"
        step_days = next(step for step in _DAY_STEPS if days / step <= max_count)
        moments = _steps(midnight, end, step_days * _DAY)
    else:
        pattern = "%-d %b %H:%M"
        hours = days * 24
        step_hours = next((step for step in _HOUR_STEPS if hours / step <= max_count), 24)
        moments = _steps(midnight, end, step_hours * _HOUR)
    drawn = filter(scale.covers, moments)
    return [Tick(scale.percent(moment), moment.strftime(pattern)) for moment in drawn]


def _steps(
    start: datetime,
    end: datetime,
    step: timedelta,
) -> list[datetime]:
    step_count = int((end - start) / step)
    return [start + number * step for number in range(step_count + 1)]


def _months(
    first: datetime,
    end: datetime,
    max_count: int,
) -> list[datetime]:
    """Return the firsts of months from one of them on, in steps of whole months or years."""
    years = end.year - first.year
    count = years * 12 + end.month - first.month
    step = next((step for step in _MONTH_STEPS if count / step <= max_count), 120)
    moments: list[datetime] = []
    for number in range(count + 1):
        months_since_january = first.month - 1 + number
        years_later, month_index = divmod(months_since_january, 12)
        # quarters begin in January, steps of years with the first month
        counted_months = number
        if step < 12:
            counted_months = month_index
        if counted_months % step == 0:
            year = first.year + years_later
            moments.append(first.replace(year=year, month=month_index + 1))
    return moments

"""Times as profiler files have them, in microseconds; they are counted in whole nanoseconds."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any

Duration = int
"""In ns."""
TOP_COUNT = 10
"""Names that are told unless more are asked for."""
_EXACT_US = 2**50 / 1000
"""Below this a float tells nanoseconds apart."""
_MOST_NS = 2**62
"""Of a time and of a length of time: more than a century, which only a damaged trace has."""


def nanoseconds(microseconds: Any) -> int | None:
    """A time of a trace in whole ns; None where it has no usable one, such as one that no clock shows."""
    if type(microseconds) is float and -_EXACT_US < microseconds < _EXACT_US:
        return round(microseconds * 1000)
    if isinstance(microseconds, (str, float)):  # an old trace wrote text; NaN and Infinity are floats
        try:
            microseconds = Decimal(microseconds)
        except InvalidOperation:
            return None
    if isinstance(microseconds, Decimal):
        if not microseconds.is_finite():
            return None
    elif not isinstance(microseconds, int) or isinstance(microseconds, bool):
        return None
    return round(microseconds * 1000) if abs(microseconds) <= _MOST_NS // 1000 else None


def to_us(nanoseconds: float) -> float:
    return round(nanoseconds / 1e3, 6)


def longest(durations_by_name: Mapping[str, Sequence[Duration]]) -> list[dict[str, Any]]:
    """Count, sum, mean, least and largest of each name, largest sum first, ties by name."""
    ordered = sorted(durations_by_name.items(), key=lambda item: (-sum(item[1]), item[0]))
    return [
        {
            "name": name,
            "count": len(durations),
            "sum_us": to_us(sum(durations)),
            "mean_us": to_us(sum(durations) / len(durations)),
            "min_us": to_us(min(durations)),
            "max_us": to_us(max(durations)),
        }
        for name, durations in ordered
    ]


def delays(durations: Sequence[Duration]) -> dict[str, Any] | None:
    """How long kernels waited after their launch; negative where a call outlasts the start of its kernel."""
    if not durations:
        return None
    return {
        "matched": len(durations),
        "mean_us": to_us(statistics.fmean(durations)),
        "median_us": to_us(statistics.median(durations)),
        "min_us": to_us(min(durations)),
        "max_us": to_us(max(durations)),
        "negative": sum(duration < 0 for duration in durations),
    }

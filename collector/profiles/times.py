"""Durations as the summaries of profiler files write them: microseconds, from whole nanoseconds."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

Duration = int
"""In ns."""


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

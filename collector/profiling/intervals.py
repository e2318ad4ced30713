"""Lengths of time, where intervals overlap."""

from __future__ import annotations

from collections.abc import Iterable

Interval = tuple[int, int]
"""Start and end in ns."""


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """The same time as intervals that are apart, in order."""
    merged: list[Interval] = []
    for start, end in sorted(intervals):
        if merged and start <= merged[-1][1]:
            if end > merged[-1][1]:
                merged[-1] = (merged[-1][0], end)
        else:
            merged.append((start, end))
    return merged


def length_ns(apart: Iterable[Interval]) -> int:
    """Of intervals that are apart."""
    return sum(end - start for start, end in apart)


def overlap_ns(first: list[Interval], second: list[Interval]) -> int:
    """Length of the time that is in both; each list holds intervals that are apart, in order."""
    total = left = right = 0
    while left < len(first) and right < len(second):
        start = max(first[left][0], second[right][0])
        end = min(first[left][1], second[right][1])
        total += max(end - start, 0)
        if first[left][1] < second[right][1]:
            left += 1
        else:
            right += 1
    return total

"""Bytes of profiler files, busy time of overlapping intervals, and totals per name."""

from __future__ import annotations

import gzip
import statistics
import zlib
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

from roofwatch.collector.errors import CollectorError

MAX_BYTES = 4 * 2**30
"""Of one file, unpacked: more is refused before it fills the memory."""
_GZIP_MAGIC = b"\x1f\x8b"
_CHUNK_BYTES = 2**24


class ProfileError(CollectorError):
    """A file that no reader here understands, or that is cut short or corrupt."""


def read_bytes(path: Path) -> bytes:
    """The file's content, unpacked if it is gzip, whatever its name.

    Raises:
        ProfileError: it is not there, cannot be read, is empty, is cut short, or unpacks to more than `MAX_BYTES`.
    """
    try:
        content = _unpacked(path) if is_packed(path) else _whole(path)
    except OSError as error:
        raise ProfileError(f"{path}: cannot be read: {error.strerror or error}") from None
    if not content:
        raise ProfileError(f"{path}: is empty; record the profile again")
    return content


def is_packed(path: Path) -> bool:
    """Whether the file is gzip, whatever its name.

    Raises:
        OSError: it cannot be read.
    """
    with path.open("rb") as file:
        return file.read(2) == _GZIP_MAGIC


def head_of(path: Path, count: int = 16) -> bytes:
    """The first bytes as they are in the file.

    Raises:
        ProfileError: it cannot be read.
    """
    try:
        with path.open("rb") as file:
            return file.read(count)
    except OSError as error:
        raise ProfileError(f"{path}: cannot be read: {error.strerror or error}") from None


def _whole(path: Path) -> bytes:
    size = path.stat().st_size
    if size > MAX_BYTES:
        raise ProfileError(f"{path}: {size} bytes; at most {MAX_BYTES} are read")
    return path.read_bytes()


def _unpacked(path: Path) -> bytes:
    parts, total = [], 0
    try:
        with gzip.open(path) as packed:
            while part := packed.read(_CHUNK_BYTES):
                total += len(part)
                if total > MAX_BYTES:
                    raise ProfileError(f"{path}: unpacks to more than {MAX_BYTES} bytes, which is more than is read")
                parts.append(part)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ProfileError(f"{path}: is not a whole gzip file ({error}); copy it again") from None
    return b"".join(parts)


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

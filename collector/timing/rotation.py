"""Launches that take turns on copies of their data, so that each finds none of its own in the cache."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from roofwatch.collector.timing.stopwatch import Launch
from roofwatch.spec import UnsupportedError

_MOST_COPIES = 4_096
"""A graph holds a launch of each: more take longer to make than to time."""
_CACHES_EXCEEDED_BY = 2


@dataclass(frozen=True)
class Copies:
    """How to come by more calls that do the same, each on memory of its own."""

    make: Callable[[], Launch]
    """Makes one."""
    touched_bytes: float
    """What one launch reads and writes of its own."""


def copy_count(touched_bytes: float, cache_bytes: int) -> int:
    """How many copies a rotation takes: at least two, together twice the cache.

    Raises:
        UnsupportedError: so many that nobody can wait for them.

    Source: NVIDIA/cutlass:media/docs/cpp/gemm_performance_measurement_methodology_guidelines.md.
    """
    count = max(2, math.ceil(_CACHES_EXCEEDED_BY * cache_bytes / touched_bytes)) if touched_bytes else 2
    if count > _MOST_COPIES:
        raise UnsupportedError(
            f"a launch touches {touched_bytes:.0f} bytes, so that {count} copies of them are twice the "
            f"last-level cache of {cache_bytes} bytes; up to {_MOST_COPIES} are made: --cache hot or cold, as the "
            "timer has it"
        )
    return count


class Rotation:
    """Calls one of several launches after the other. Each result is kept until its launch comes round again, so that
    results do not take turns on the same memory either.
    """

    def __init__(self, launches: list[Launch]) -> None:
        self.count = len(launches)
        self._waiting = deque(launches)
        self._results: deque[object] = deque(maxlen=self.count - 1)

    def __call__(self) -> object:
        launch = self._waiting[0]
        self._waiting.rotate(-1)
        result = launch()
        self._results.append(result)
        return result

"""Wall time on a CPU."""

from __future__ import annotations

import math
from collections.abc import Callable
from time import perf_counter_ns

from roofwatch.collector.record.measurement import CacheState, Timer
from roofwatch.collector.timing.method import TimingMethod
from roofwatch.collector.timing.stopwatch import Launch, Ranks, Sample

_SHORTEST_SAMPLE_NS = 100_000.0
"""1000 times the cost of reading the clock twice."""


class CpuStopwatch:
    """Wall time of the calling thread: a call on the CPU is synchronous.

    Args:
        launch: What is timed.
        cache: What each launch finds. Cold ones are timed one by one, since a second would find the first one's data.
        prepare_cache: Brings that about.
        ranks: Those that launch together.
    """

    def __init__(self, launch: Launch, cache: CacheState, prepare_cache: Callable[[], None], ranks: Ranks) -> None:
        self.method = TimingMethod(Timer.PERF_COUNTER, cache)
        self._launch = launch
        self._prepare_cache = prepare_cache
        self._ranks = ranks

    def rehearse(self) -> float:
        return self._elapsed_ns(1)

    def launches_for(self, launch_ns: float) -> int:
        is_cold = self.method.cache is CacheState.COLD
        return 1 if is_cold else max(1, math.ceil(_SHORTEST_SAMPLE_NS / launch_ns))

    def take(self, sample_count: int, launches: int) -> list[Sample]:
        return [Sample(busy_ns=self._elapsed_ns(launches) / launches) for _ in range(sample_count)]

    def _elapsed_ns(self, launches: int) -> float:
        self._prepare_cache()
        self._ranks.align()
        start = perf_counter_ns()
        for _ in range(launches):
            self._launch()
        # a clock that did not advance is a launch below its resolution, not one that took no time
        return max(1.0, self._ranks.slowest_ns(float(perf_counter_ns() - start)))

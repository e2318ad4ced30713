"""The interface of every timer, and the timer for CPUs."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter_ns

from roofwatch.collector.record.measurement import CacheState

Launch = Callable[[], object]
"""Does the work; on a GPU, enqueues it on the current stream and returns."""


@dataclass(frozen=True)
class Sample:
    """One launch, or the mean of several; None if the timer cannot measure it."""

    busy_ns: float
    """Time the device was busy."""
    span_ns: float | None = None
    """From the start of the first kernel to the end of the last."""
    host_ns: float | None = None
    """Host time to issue the launch."""
    launch_delay_ns: float | None = None
    """From the call to the start of the first kernel."""
    kernels: tuple[str, ...] | None = None
    """Sorted names of its kernels, copies and memsets."""


class Ranks:
    """Processes that launch together with this one; none here, more in subclasses."""

    def align(self) -> None:
        """Wait for all ranks."""

    def slowest_ns(self, elapsed_ns: float) -> float:
        """The longest time of all ranks."""
        return elapsed_ns


ALONE = Ranks()


class Stopwatch(ABC):
    """Times one prepared launch; one subclass per timer.

    Args:
        launch: The launch to time.
        cache: Cache state before each launch; with a cold cache each launch is its own sample.
        prepare_cache: Establishes the cache state, outside the timed section.
        ranks: Processes that launch together.
    """

    shortest_sample_ns: float
    """Shorter launches are repeated within a sample."""

    def __init__(self, launch: Launch, cache: CacheState, prepare_cache: Callable[[], None], ranks: Ranks) -> None:
        self._launch = launch
        self._cache = cache
        self._prepare_cache = prepare_cache
        self._ranks = ranks

    def launches_for(self, launch_ns: float) -> int:
        """Launches per sample for a launch of this duration."""
        return 1 if self._cache is CacheState.COLD else max(1, math.ceil(self.shortest_sample_ns / launch_ns))

    @abstractmethod
    def rehearse(self) -> float:
        """Launch once under measurement conditions; returns its approximate time in ns."""

    @abstractmethod
    def take(self, sample_count: int, launches: int) -> list[Sample]:
        """Take samples.

        Raises:
            UnsupportedError: this timer cannot time this launch.
            Exception: whatever the launch raises.
        """


class CpuStopwatch(Stopwatch):
    """Wall time of the calling thread; a call on the CPU is synchronous."""

    shortest_sample_ns = 100_000.0
    """1000 times the cost of reading the clock twice."""

    def rehearse(self) -> float:
        return self._elapsed_ns(1)

    def take(self, sample_count: int, launches: int) -> list[Sample]:
        return [Sample(busy_ns=self._elapsed_ns(launches) / launches) for _ in range(sample_count)]

    def _elapsed_ns(self, launches: int) -> float:
        self._prepare_cache()
        self._ranks.align()
        start = perf_counter_ns()
        for _ in range(launches):
            self._launch()
        # a launch below the clock's resolution does not take 0 ns
        return max(1.0, self._ranks.slowest_ns(float(perf_counter_ns() - start)))

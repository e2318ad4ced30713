"""The interface of every timer, and the one for CPUs."""

from __future__ import annotations

import gc
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter_ns
from typing import Protocol

from roofwatch.collector.record.measurement import CacheState, Timer
from roofwatch.collector.timing.method import TimingMethod

Launch = Callable[[], object]
"""Does the work; on a GPU, enqueues it on the current stream and returns."""


@dataclass(frozen=True)
class Sample:
    """One launch, or the mean of several. What a timer cannot tell is None."""

    busy_ns: float
    """How long the device worked."""
    span_ns: float | None = None
    """From the start of the first kernel to the end of the last."""
    host_ns: float | None = None
    """How long the host took to issue it."""
    launch_delay_ns: float | None = None
    """From the call to the start of the first kernel."""
    kernels: tuple[str, ...] | None = None
    """Names of its kernels, copies and fills, sorted."""


class Ranks(Protocol):
    """Those that make each launch together with this process."""

    def align(self) -> None:
        """Go on once all are here."""

    def slowest_ns(self, elapsed_ns: float) -> float:
        """The longest of their times."""


class Alone:
    """No others to wait for."""

    def align(self) -> None:
        pass

    def slowest_ns(self, elapsed_ns: float) -> float:
        return elapsed_ns


class Stopwatch(Protocol):
    """Times one prepared launch; one implementation per timer."""

    @property
    def method(self) -> TimingMethod: ...

    def rehearse(self) -> float:
        """Launch once, as it will be when it counts; about how long that took, in ns."""

    def launches_for(self, launch_ns: float) -> int:
        """How many launches make a sample, of a launch that takes so long."""

    def take(self, sample_count: int, launches: int) -> list[Sample]:
        """So many samples, each of so many launches.

        Raises:
            UnsupportedError: this timer cannot time this launch.
            Exception: whatever the launch raises.
        """


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


@contextmanager
def garbage_left_alone(*, collects_first: bool = False) -> Iterator[None]:
    """Look for no garbage for the time of a `with` block: where the search would fall into what is timed, or takes time
    and finds nothing, since much is made and kept. Afterwards it is as it was.

    Args:
        collects_first: Once before the block, so that what others left is not kept for so long.
    """
    was_enabled = gc.isenabled()
    if collects_first:
        gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()

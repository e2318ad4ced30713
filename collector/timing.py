"""Time launches of a prepared call: perf_counter on the CPU, events on a GPU, behind one interface.

A sample is one launch, or the mean of several where one is too short for the timer. Sampling stops when the median
is known well enough or the budget is spent, whichever is first; all samples are kept.

What several ranks launch together takes as long as on the slowest of them, and each sample begins when all are there.
"""

from __future__ import annotations

import gc
import math
import statistics
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter_ns
from typing import Any, Protocol

import torch

from collector.measurement import CacheState, Timer
from collector.sampling import SamplingPlan

Launch = Callable[[], object]

_CHECK_EVERY = 10
_Z_95 = 1.959964


@dataclass(frozen=True)
class TimedLaunches:
    samples_ns: tuple[float, ...]
    launches_per_sample: int
    timer: Timer
    cache: CacheState


class _Stopwatch(Protocol):
    """Times `launches` launches in one go; one implementation per kind of device."""

    timer: Timer
    cache: CacheState
    shortest_sample_ns: float

    def time_ns(self, launch: Launch, launches: int) -> float: ...


class Ranks(Protocol):
    """Those that make each launch together with this process."""

    def align(self) -> None:
        """Go on once all are here."""

    def slowest_ns(self, elapsed_ns: float) -> float:
        """The longest of their times."""


class _Alone:
    """No others to wait for."""

    def align(self) -> None:
        pass

    def slowest_ns(self, elapsed_ns: float) -> float:
        return elapsed_ns


class _CpuStopwatch:
    """Wall time of the calling thread, on a hot cache: a CPU call is synchronous, and flushing a last-level cache that
    other tenants share would cost more than it tells.
    """

    timer = Timer.PERF_COUNTER
    cache = CacheState.HOT
    shortest_sample_ns = 100_000.0  # 1000 times the cost of reading the clock twice

    def __init__(self, ranks: Ranks) -> None:
        self._ranks = ranks

    def time_ns(self, launch: Launch, launches: int) -> float:
        self._ranks.align()
        start = perf_counter_ns()
        for _ in range(launches):
            launch()
        return self._ranks.slowest_ns(float(perf_counter_ns() - start))


class _CudaStopwatch:
    """Device time between two events on a cold L2 cache.

    The cache is overwritten before every timed launch, warm-up included, so rereading the input earns nothing.
    Events resolve about 500 ns and include launch gaps of kernels that are shorter than their launch; the device
    timer that does not is a later one, and is another `timer` in the record, never a silent replacement.

    Source: triton.testing.do_bench, with twice the queried L2 in place of its fixed 256 MB.
    """

    timer = Timer.CUDA_EVENT
    cache = CacheState.COLD
    shortest_sample_ns = 0.0  # one launch per sample: a second one would find a warm cache

    def __init__(self, ranks: Ranks) -> None:
        self._ranks = ranks
        l2_bytes = torch.cuda.get_device_properties(torch.cuda.current_device()).L2_cache_size
        self._flush = torch.empty(max(2 * l2_bytes, 2**20), dtype=torch.int8, device="cuda")

    def time_ns(self, launch: Launch, launches: int) -> float:
        start: Any = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        end: Any = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        self._flush.zero_()
        self._ranks.align()
        start.record()
        for _ in range(launches):
            launch()
        end.record()
        end.synchronize()
        return self._ranks.slowest_ns(float(start.elapsed_time(end)) * 1e6)


def sample_launches(
    launch: Launch,
    plan: SamplingPlan,
    *,
    device: str = "cpu",
    launches_per_sample: int | None = None,
    ranks: Ranks | None = None,
) -> TimedLaunches:
    """Time a call again and again.

    Args:
        launch: Does the work; on a GPU, enqueues it on the current stream and returns.
        plan: When to stop.
        device: `cpu` or `cuda`.
        launches_per_sample: What an earlier block of the same measurement used; chosen here if left out.
        ranks: Those that make each launch together with this process; None if it launches alone. All of them stop at
            the same sample, since they decide by the same times.

    Returns:
        Time of each sample in ns per launch, in the order taken.
    """
    kind = _CudaStopwatch if device.startswith("cuda") else _CpuStopwatch
    stopwatch: _Stopwatch = kind(ranks or _Alone())
    with _no_garbage_collection():
        launch_ns = _warm_up(stopwatch, launch, plan.warmup_ms * 1e6)
        count = launches_per_sample or max(1, math.ceil(stopwatch.shortest_sample_ns / launch_ns))
        samples: list[float] = []
        spent_ns = 0.0
        while True:
            elapsed_ns = stopwatch.time_ns(launch, count)
            # a clock that did not advance is a launch below its resolution, not one that took no time
            samples.append(max(elapsed_ns, 1.0) / count)
            spent_ns += elapsed_ns
            if len(samples) >= plan.max_samples:
                break
            if len(samples) < plan.min_samples:
                continue
            if spent_ns >= plan.budget_ms * 1e6:
                break
            if len(samples) % _CHECK_EVERY == 0 and relative_width_of_median(samples) <= plan.relative_width:
                break
    return TimedLaunches(tuple(samples), count, stopwatch.timer, stopwatch.cache)


def relative_width_of_median(samples_ns: list[float]) -> float:
    """Width of the distribution-free 95 % interval of the median, relative to the median; infinite below 6 samples.

    Source: order statistics by the binomial distribution in its normal approximation (Conover, Practical
    Nonparametric Statistics, 3rd ed., section 3.2).
    """
    count = len(samples_ns)
    if count < 6:
        return math.inf
    ordered = sorted(samples_ns)
    half = _Z_95 * math.sqrt(count) / 2
    low = max(0, math.floor(count / 2 - half) - 1)
    high = min(count - 1, math.ceil(count / 2 + half))
    return (ordered[high] - ordered[low]) / statistics.median(ordered)


def _warm_up(stopwatch: _Stopwatch, launch: Launch, warmup_ns: float) -> float:
    """Run untimed for a while; returns the fastest launch seen, in ns."""
    fastest_ns = math.inf
    spent_ns = 0.0
    done = 0
    while done < 3 or spent_ns < warmup_ns:
        elapsed_ns = max(stopwatch.time_ns(launch, 1), 1.0)
        fastest_ns = min(fastest_ns, elapsed_ns)
        spent_ns += elapsed_ns
        done += 1
    return fastest_ns


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    was_enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()

"""Device time between two events, of launches that were queued while the device was held."""

from __future__ import annotations

import math
from collections.abc import Callable
from time import perf_counter_ns
from typing import Any

import torch

from roofwatch.collector.record.measurement import CacheState, Timer
from roofwatch.collector.timing.busy_device import HeldDevice
from roofwatch.collector.timing.method import TimingMethod
from roofwatch.collector.timing.stopwatch import Launch, Ranks, Sample

_SHORTEST_SAMPLE_NS = 50_000.0
"""100 times what events resolve."""


class EventStopwatch:
    """Times launches by events around each, all of them queued before the first one runs.

    Events resolve about 0.5 µs, and what lies between them holds the gaps between a launch's kernels.

    Args:
        launch: What is timed.
        cache: What each launch finds.
        prepare_cache: Brings that about, before the first event.
        ranks: Those that launch together.
    """

    def __init__(self, launch: Launch, cache: CacheState, prepare_cache: Callable[[], None], ranks: Ranks) -> None:
        self.method = TimingMethod(Timer.CUDA_EVENT, cache)
        self._launch = launch
        self._prepare_cache = prepare_cache
        self._ranks = ranks
        self._device = HeldDevice(ranks)

    def rehearse(self) -> float:
        return self._timed_batch(1, 1, lambda work, _: _run_and_wait(work))[0].busy_ns

    def launches_for(self, launch_ns: float) -> int:
        is_cold = self.method.cache is CacheState.COLD
        return 1 if is_cold else max(1, math.ceil(_SHORTEST_SAMPLE_NS / launch_ns))

    def take(self, sample_count: int, launches: int) -> list[Sample]:
        samples: list[Sample] = []
        while len(samples) < sample_count:
            # held for as many launches at most; a sample of more of them is queued alone
            at_once = max(1, self._device.most_at_once // launches)
            samples += self._timed_batch(min(at_once, sample_count - len(samples)), launches, self._device.queue)
        return samples

    def _timed_batch(
        self, sample_count: int, launches: int, run: Callable[[Callable[[], None], int], bool]
    ) -> list[Sample]:
        """The samples; none of them if the device did not wait for all to be queued."""
        events = [(_event(), _event()) for _ in range(sample_count)]
        host_ns: list[float] = []

        def work() -> None:
            for start, end in events:
                self._prepare_cache()
                self._ranks.align()
                start.record()
                began_at = perf_counter_ns()
                for _ in range(launches):
                    self._launch()
                host_ns.append((perf_counter_ns() - began_at) / launches)
                end.record()

        if not run(work, sample_count * launches):
            return []
        return [
            Sample(
                busy_ns=self._ranks.slowest_ns(max(1.0, float(start.elapsed_time(end)) * 1e6)) / launches, host_ns=host
            )
            for (start, end), host in zip(events, host_ns, strict=True)
        ]


def _run_and_wait(work: Callable[[], None]) -> bool:
    work()
    torch.cuda.synchronize()
    return True


def _event() -> Any:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]  # torch leaves the annotation out

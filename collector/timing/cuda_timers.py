"""Device time from CUDA events: around queued launches, or around replays of a CUDA graph."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from time import perf_counter_ns
from typing import Any

import torch

from roofwatch.collector.record.measurement import CacheState, Timer
from roofwatch.collector.timing.caches import Rotation
from roofwatch.collector.timing.method import TimingMethod
from roofwatch.collector.timing.stopwatch import Launch, Ranks, Sample
from roofwatch.spec import UnsupportedError

_FIRST_CYCLES = 200_000
"""About 0.1 ms on a GPU, several times the time to issue one launch."""
_MOST_CYCLES = 50_000_000
_MOST_AT_ONCE = 50
"""A GPU queues about a thousand launches before the host has to wait; TritonBench uses the same limit."""


class BusyDevice:
    """Queues work behind a spinning kernel, and verifies that the kernel was still spinning when all work was queued.

    If it ended too early, it spins four times as long for half as much work. A launch that synchronises with the device
    cannot be queued; it is then timed without the spinning kernel.

    Args:
        ranks: Processes that launch together and repeat together.

    Source: nvbench's blocking kernel. Ours ends by itself, so that a synchronising launch cannot deadlock.
    """

    def __init__(self, ranks: Ranks) -> None:
        self._ranks = ranks
        self._cycles = _FIRST_CYCLES
        self.most_at_once = _MOST_AT_ONCE
        self.can_hold = True
        """Whether launches can be queued; if not, times include host time between them."""

    def queue(self, work: Callable[[], None], count: int) -> bool:
        """Queue work and wait for it; False if some of it started early and must be repeated."""
        if not self.can_hold:
            work()
            torch.cuda.synchronize()
            return True
        held: Any = torch.cuda.Event()  # type: ignore[no-untyped-call]  # torch leaves the annotation out
        torch.cuda._sleep(self._cycles * count)  # type: ignore[no-untyped-call]  # as above
        held.record()
        work()
        was_early = bool(held.query())
        torch.cuda.synchronize()
        # any rank's haste is everyone's: all of them repeat, or none does
        if not self._ranks.slowest_ns(float(was_early)):
            return True
        self._cycles *= 4
        self.most_at_once = max(1, self.most_at_once // 2)
        self.can_hold = self._cycles < _MOST_CYCLES
        return False


_SHORTEST_EVENT_SAMPLE_NS = 50_000.0
"""100 times the resolution of events."""


class EventStopwatch:
    """Times launches with CUDA events; all launches are queued before the first one runs.

    Events resolve about 0.5 µs. The time between them includes gaps between a launch's kernels.

    Args:
        launch: The launch to time.
        cache: Cache state before each launch.
        prepare_cache: Establishes the cache state, before the first event.
        ranks: Processes that launch together.
    """

    def __init__(self, launch: Launch, cache: CacheState, prepare_cache: Callable[[], None], ranks: Ranks) -> None:
        self.method = TimingMethod(Timer.CUDA_EVENT, cache)
        self._launch = launch
        self._prepare_cache = prepare_cache
        self._ranks = ranks
        self._device = BusyDevice(ranks)

    def rehearse(self) -> float:
        return self._timed_batch(1, 1, lambda work, _: _run_and_wait(work))[0].busy_ns

    def launches_for(self, launch_ns: float) -> int:
        is_cold = self.method.cache is CacheState.COLD
        return 1 if is_cold else max(1, math.ceil(_SHORTEST_EVENT_SAMPLE_NS / launch_ns))

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
        """Samples; empty if some work started early."""
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


_SHORTEST_GRAPH_SAMPLE_NS = 1_000_000.0
"""A replay starts some microseconds before its first kernel: 0.5 % of this."""
_MOST_LAUNCHES = 8_192
_PREVIOUS_ERROR = "previous error during capture"
_LAUNCHES_QUEUED_AT_ONCE = 500
"""Launches in a graph that take about as long as one launch without it."""


class FailedCaptureError(UnsupportedError):
    """A launch that cannot be captured in a CUDA graph.

    After a failed capture torch's allocator refuses to free memory and to capture again in this process.

    Source: CUDAGraph::capture_end does not end the allocator's part if CUDA's fails.
    """


class GraphStopwatch:
    """Times replays of one CUDA graph that holds all launches of a sample, so that none waits for the host.

    Launches of a rotation are unrolled, each copy equally often. Host time is measured without the graph.

    Args:
        launch: The launch to time; a rotation unless the cache is hot.
        cache: Cache state before each launch.
        ranks: Processes that launch together.
    """

    def __init__(self, launch: Launch, cache: CacheState, ranks: Ranks) -> None:
        self.method = TimingMethod(Timer.CUDA_GRAPH, cache)
        self._launch = launch
        self._turn = launch.count if isinstance(launch, Rotation) else 1
        self._ranks = ranks
        self._device = BusyDevice(ranks)
        self._host_ns: list[float] = []
        self._graph: Any = None
        self._launches = 0

    def rehearse(self) -> float:
        start, end = _event(), _event()
        self._ranks.align()
        start.record()
        began_at = perf_counter_ns()
        self._launch()
        self._host_ns.append(float(perf_counter_ns() - began_at))
        end.record()
        end.synchronize()
        return self._ranks.slowest_ns(max(1.0, float(start.elapsed_time(end)) * 1e6))

    def launches_for(self, launch_ns: float) -> int:
        wanted = min(_MOST_LAUNCHES, max(1, math.ceil(_SHORTEST_GRAPH_SAMPLE_NS / launch_ns)))
        return math.ceil(wanted / self._turn) * self._turn

    def take(self, sample_count: int, launches: int) -> list[Sample]:
        if launches != self._launches:
            self._capture(launches)
        samples: list[Sample] = []
        while len(samples) < sample_count:
            samples += self._replayed(launches)
        return samples

    def _capture(self, launches: int) -> None:
        if launches % self._turn:
            raise UnsupportedError(
                f"{launches} launches per sample are no whole turns of {self._turn} copies, which an earlier block did "
                "not need: measure both in one run"
            )
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph, stream=torch.cuda.current_stream()):
                for _ in range(launches):
                    self._launch()
        except RuntimeError as error:
            # the end of a capture that was spoilt is refused too, and says less than what spoilt it
            cause = (_PREVIOUS_ERROR in str(error) and error.__context__) or error
            if isinstance(cause, torch.OutOfMemoryError):
                raise cause from None
            said = str(cause).splitlines() or [type(cause).__name__]
            raise FailedCaptureError(
                f"this launch cannot be captured in a CUDA graph ({said[0]}); "
                f"--timer {Timer.CUPTI} or {Timer.CUDA_EVENT} can time it"
            ) from None
        graph.replay()  # the first one uploads it
        torch.cuda.synchronize()
        self._graph, self._launches = graph, launches

    def _replayed(self, launches: int) -> list[Sample]:
        """One sample; None if the graph started early."""
        start, end = _event(), _event()

        def work() -> None:
            self._ranks.align()
            start.record()
            self._graph.replay()
            end.record()

        if not self._device.queue(work, 1 + launches // _LAUNCHES_QUEUED_AT_ONCE):
            return []
        elapsed_ns = self._ranks.slowest_ns(max(1.0, float(start.elapsed_time(end)) * 1e6))
        return [Sample(busy_ns=elapsed_ns / launches, host_ns=statistics.median(self._host_ns))]

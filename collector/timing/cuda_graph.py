"""Device time of a CUDA graph that holds many launches, for where there is no CUPTI."""

from __future__ import annotations

import math
import statistics
from time import perf_counter_ns
from typing import Any

import torch

from roofwatch.collector.record.measurement import CacheState, Timer
from roofwatch.collector.timing.busy_device import HeldDevice
from roofwatch.collector.timing.method import TimingMethod
from roofwatch.collector.timing.rotation import Rotation
from roofwatch.collector.timing.stopwatch import Launch, Ranks, Sample
from roofwatch.spec import UnsupportedError

_SHORTEST_SAMPLE_NS = 1_000_000.0
"""A replay begins some microseconds before its first kernel: half a per cent of it."""
_MOST_LAUNCHES = 8_192
_PREVIOUS_ERROR = "previous error during capture"
_LAUNCHES_QUEUED_AT_ONCE = 500
"""Of a graph, in about the time that one launch takes without it."""


class FailedCaptureError(UnsupportedError):
    """A launch that no graph can hold. Of a capture that failed torch's allocator believes that it goes on: from then
    on it refuses, in this process, to give anything back, and to capture anything else.

    Source: CUDAGraph::capture_end, which ends the allocator's part after CUDA's, and not at all where that fails.
    """


class GraphStopwatch:
    """Times replays of one graph that holds all launches of a sample, so that none waits for the host.

    The launches of a rotation are unrolled in it, every copy as often as the others. What the host takes is measured
    while it launches without the graph.

    Args:
        launch: What is timed; a rotation unless the cache is to be hot.
        cache: What each launch finds.
        ranks: Those that launch together.
    """

    def __init__(self, launch: Launch, cache: CacheState, ranks: Ranks) -> None:
        self.method = TimingMethod(Timer.CUDA_GRAPH, cache)
        self._launch = launch
        self._turn = launch.count if isinstance(launch, Rotation) else 1
        self._ranks = ranks
        self._device = HeldDevice(ranks)
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
        wanted = min(_MOST_LAUNCHES, max(1, math.ceil(_SHORTEST_SAMPLE_NS / launch_ns)))
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
        """One sample; none if the device did not wait for the graph to be queued."""
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


def _event() -> Any:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]  # torch leaves the annotation out

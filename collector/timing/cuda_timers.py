"""Device time from CUDA events: around queued launches, or around replays of a CUDA graph."""

import math
import statistics
from collections.abc import Callable
from time import perf_counter_ns
from typing import Any

import torch

from roofwatch.collector.timing.memory import Rotation
from roofwatch.collector.timing.stopwatch import Ranks, Sample, Stopwatch
from roofwatch.model.measurement import Timer
from roofwatch.spec import UnsupportedError

_FIRST_CYCLES = 200_000
"""About 0.1 ms on a GPU, several times the time to issue one launch."""
_MAX_CYCLES = 50_000_000
_MAX_QUEUED = 50
"""A GPU queues about a thousand launches before the host has to wait; TritonBench uses the same
limit.
"""


class BusyDevice:
    """Queues work behind a spinning kernel, and verifies that the kernel still spins when all work
    is queued.

    If it ended too early, it spins four times as long for half as much work. A launch that
    synchronises with the device cannot be queued; it is then timed without the spinning kernel.

    Source: nvbench's blocking kernel. This one ends by itself, to avoid a deadlock with a
    synchronising launch.
    """

    def __init__(self, ranks: Ranks) -> None:
        self._ranks = ranks
        self._cycles = _FIRST_CYCLES
        self.max_queued = _MAX_QUEUED
        self.can_queue = True
        """Whether launches can be queued; if not, times include host time between them."""

    def queue(self, work: Callable[[], None], count: int) -> bool:
        """Queue work and wait for it; False if some of it started early and must be repeated."""
        if not self.can_queue:
            work()
            torch.cuda.synchronize()
            return True
        # torch leaves the annotations out
        spun: Any = torch.cuda.Event()  # type: ignore[no-untyped-call]
        torch.cuda._sleep(self._cycles * count)  # type: ignore[no-untyped-call]
        spun.record()
        work()
        was_early = bool(spun.query())
        torch.cuda.synchronize()
        # all ranks repeat, or none
        if not self._ranks.slowest_ns(float(was_early)):
            return True
        self._cycles *= 4
        self.max_queued = max(1, self.max_queued // 2)
        self.can_queue = self._cycles < _MAX_CYCLES
        return False


class _CudaStopwatch(Stopwatch):
    """Times with CUDA events around queued work."""

    def __post_init__(self) -> None:
        self._device = BusyDevice(self.ranks)
        self._host_ns: list[float] = []

    def rehearse(self) -> float:
        """Time one launch in ns with events, to choose how many a sample has."""
        start = _event()
        end = _event()
        self.prepare_cache()
        self.ranks.align()
        start.record()
        began_at = perf_counter_ns()
        self.launch()
        self._host_ns.append(float(perf_counter_ns() - began_at))
        end.record()
        torch.cuda.synchronize()
        return self._elapsed_ns(start, end)

    def _elapsed_ns(self, start: Any, end: Any) -> float:
        """Time between two events on the slowest rank; 1 ns if it is below their resolution."""
        return self.ranks.slowest_ns(max(1.0, float(start.elapsed_time(end)) * 1e6))


class EventStopwatch(_CudaStopwatch):
    """Times launches with CUDA events; all launches are queued before the first one runs.

    Events resolve about 0.5 µs. The time between them includes gaps between a launch's kernels.
    """

    shortest_sample_ns = 50_000.0
    """100 times the resolution of events."""

    def take(self, sample_count: int, launches: int) -> list[Sample]:
        """Take samples, as many in a batch as the device can queue."""
        samples: list[Sample] = []
        while len(samples) < sample_count:
            at_once = max(1, self._device.max_queued // launches)
            samples += self._timed_batch(min(at_once, sample_count - len(samples)), launches)
        self.has_host_gaps = not self._device.can_queue
        return samples

    def _timed_batch(self, sample_count: int, launches: int) -> list[Sample]:
        """Take samples; none if some work started early."""
        events = [(_event(), _event()) for _ in range(sample_count)]
        host_ns: list[float] = []

        def work() -> None:
            for start, end in events:
                self.prepare_cache()
                self.ranks.align()
                start.record()
                began_at = perf_counter_ns()
                for _ in range(launches):
                    self.launch()
                host_ns.append((perf_counter_ns() - began_at) / launches)
                end.record()

        if not self._device.queue(work, sample_count * launches):
            return []
        return [
            Sample(busy_ns=self._elapsed_ns(start, end) / launches, host_ns=host)
            for (start, end), host in zip(events, host_ns, strict=True)
        ]


def _event() -> Any:
    # torch leaves the annotation out
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]


_MAX_GRAPH_LAUNCHES = 8_192
_PREVIOUS_ERROR = "previous error during capture"
_LAUNCHES_QUEUED_AT_ONCE = 500
"""Launches in a graph that take about as long to queue as one launch without it."""


class GraphStopwatch(_CudaStopwatch):
    """Times replays of one CUDA graph that holds all launches of a sample, without host time
    between them.

    Launches of a rotation are unrolled, each copy equally often. Host time is measured without the
    graph.
    """

    shortest_sample_ns = 1_000_000.0
    """A replay starts some microseconds before its first kernel: 0.5 % of this."""

    def __post_init__(self) -> None:
        """A graph holds one launch of each copy at least."""
        super().__post_init__()
        if isinstance(self.launch, Rotation):
            self._copy_count = self.launch.count
        else:
            self._copy_count = 1
        self._graph: Any = None
        self._launches = 0

    def launches_for(self, launch_ns: float) -> int:
        launches = min(_MAX_GRAPH_LAUNCHES, super().launches_for(launch_ns))
        turns = math.ceil(launches / self._copy_count)
        return turns * self._copy_count

    def take(self, sample_count: int, launches: int) -> list[Sample]:
        if launches != self._launches:
            self._capture(launches)
        samples: list[Sample] = []
        while len(samples) < sample_count:
            samples += self._replayed(launches)
        return samples

    def _capture(self, launches: int) -> None:
        if launches % self._copy_count:
            raise UnsupportedError(
                f"{launches} launches per sample, from an earlier block, are not a multiple of "
                f"{self._copy_count} "
                "copies; measure both in one run"
            )
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph, stream=torch.cuda.current_stream()):
                for _ in range(launches):
                    self.launch()
        except RuntimeError as error:
            # CUDA's error at the end of a failed capture hides the cause
            cause = (_PREVIOUS_ERROR in str(error) and error.__context__) or error
            if isinstance(cause, torch.OutOfMemoryError):
                raise cause from None
            lines = str(cause).splitlines() or [type(cause).__name__]
            raise UnsupportedError(
                f"this launch cannot be captured in a CUDA graph ({lines[0]}); "
                f"--timer {Timer.CUPTI} or {Timer.CUDA_EVENT} can time it"
            ) from None
        graph.replay()  # the first replay uploads the graph
        torch.cuda.synchronize()
        self._graph = graph
        self._launches = launches

    def _replayed(self, launches: int) -> list[Sample]:
        """Take one sample; none if the graph started early."""
        start = _event()
        end = _event()

        def work() -> None:
            self.ranks.align()
            start.record()
            self._graph.replay()
            end.record()

        if not self._device.queue(work, 1 + launches // _LAUNCHES_QUEUED_AT_ONCE):
            return []
        return [
            Sample(
                busy_ns=self._elapsed_ns(start, end) / launches,
                host_ns=statistics.median(self._host_ns),
            )
        ]

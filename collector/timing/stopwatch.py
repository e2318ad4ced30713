"""The interface of every timer, the timer for CPUs, and processes that launch together."""

import math
import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter_ns
from typing import ClassVar

import torch
from torch import distributed

from roofwatch.model.measurement import CacheState
from roofwatch.model.worker_protocol import RankPlace
from roofwatch.spec import UnsupportedError

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
    launch_delay_ns: float | None = None
    """From the call to the start of the first kernel."""
    kernels: tuple[str, ...] | None = None
    """Sorted names of its kernels, copies and memsets."""


@dataclass
class Ranks:
    """The process group of this process on one machine; without a place, it launches alone."""

    rank_place: RankPlace | None = None
    device: str = "cpu"

    @property
    def count(self) -> int:
        if self.rank_place is None:
            return 1
        return self.rank_place.count

    def join(self) -> None:
        """Form the process group if it does not exist yet.

        Raises:
            UnsupportedError: torch or the machine cannot run that many ranks.
        """
        if self.rank_place is None:
            return
        self._require_support()
        if distributed.is_initialized():
            return
        if self.device == "cuda":
            torch.cuda.set_device(self.rank_place.index)
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")  # the host name may not resolve
        rendezvous = str(self.rank_place.rendezvous)
        # missing from torch's annotations
        store = distributed.FileStore(rendezvous, self.count)  # type: ignore[attr-defined]
        backend = "gloo" if self.device == "cpu" else "cpu:gloo,cuda:nccl"
        distributed.init_process_group(
            backend,
            store=store,
            rank=self.rank_place.index,
            world_size=self.count,
        )

    def align(self) -> None:
        """Wait for the other ranks: on a CPU at once, on a GPU on its current stream.

        Unlike torch's barrier, an all-reduce does not block the host, whose delay would be timed.
        """
        if self.rank_place is not None:
            distributed.all_reduce(torch.zeros(1, device=self.device))

    def slowest_ns(self, elapsed_ns: float) -> float:
        """Longest time of all ranks; the same on each."""
        if self.rank_place is None:
            return elapsed_ns
        longest = torch.tensor([elapsed_ns], dtype=torch.float64)
        distributed.all_reduce(longest, distributed.ReduceOp.MAX)
        return float(longest)

    def _require_support(self) -> None:
        if not distributed.is_available():
            raise UnsupportedError("needs torch.distributed, which this torch was built without")
        if self.device == "cpu":
            return
        if not distributed.is_nccl_available():
            raise UnsupportedError("needs NCCL, which this torch was built without")
        gpu_count = torch.cuda.device_count()
        if gpu_count < self.count:
            raise UnsupportedError(f"needs {self.count} GPUs, one per rank; torch sees {gpu_count}")


ALONE = Ranks()


@dataclass
class Stopwatch(ABC):
    """Times one prepared launch; one subclass per timer. With a cold cache each launch is its own
    sample.
    """

    launch: Launch
    cache: CacheState
    prepare_cache: Callable[[], None]
    ranks: Ranks

    shortest_sample_ns: ClassVar[float]
    """Shorter launches are repeated within a sample."""
    has_host_gaps: bool = False
    """Whether launches could not be queued ahead, so times include host time between kernels."""

    def __post_init__(self) -> None:  # noqa: B027  most timers need no preparation
        """Prepare the timer."""

    def launches_for(self, launch_ns: float) -> int:
        # only the first launch of several would find a cold cache
        if self.cache is CacheState.COLD:
            return 1
        return max(1, math.ceil(self.shortest_sample_ns / launch_ns))

    @abstractmethod
    def rehearse(self) -> float:
        """Launch once under measurement conditions; returns its approximate time in ns."""

    @abstractmethod
    def take(self, sample_count: int, launches: int) -> list[Sample]:
        """Take samples.

        Raises:
            UnsupportedError: this timer cannot time this launch.
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
        self.prepare_cache()
        self.ranks.align()
        start = perf_counter_ns()
        for _ in range(launches):
            self.launch()
        # a launch below the clock's resolution does not take 0 ns
        return max(1.0, self.ranks.slowest_ns(float(perf_counter_ns() - start)))

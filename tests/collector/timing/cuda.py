"""A stand-in for what timers use of torch.cuda: one stream on a made-up clock, which refuses what
CUDA refuses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

NS_PER_CYCLE = 0.5


class StandInGpu:
    """A device that does what is queued one after the other while its host goes on.

    `happened` has what was queued, in order; `host_ns` is where the host is, `free_ns` when the
    device is done.
    """

    def __init__(self) -> None:
        self.host_ns = 1_000_000
        self.free_ns = 0
        self.happened: list[str] = []
        self.spins_ns: list[int] = []
        self.captured: list[int] | None = None
        """Of the launches of a graph that is captured just now, how long they take."""
        self.on_kernel: Callable[[str, int, int], None] = lambda *_: None
        """Told of each that runs: its name, its start and its end."""

    def launch(self, name: str, device_ns: int, host_ns: int = 0) -> None:
        """Queue a kernel, which takes the host so long."""
        self.host_ns += host_ns
        if self.captured is not None:
            self.captured.append(device_ns)
            return
        start_ns = max(self.free_ns, self.host_ns)
        self.free_ns = start_ns + device_ns
        self.happened.append(name)
        self.on_kernel(name, start_ns, self.free_ns)

    def synchronize(self) -> None:
        if self.captured is not None:
            raise RuntimeError(
                "CUDA error: operation not permitted when stream is capturing\nCompile with ..."
            )
        self.host_ns = max(self.host_ns, self.free_ns)
        self.happened.append("wait")

    def sleep(self, cycles: int) -> None:
        self.spins_ns.append(int(cycles * NS_PER_CYCLE))
        self.launch("spin", self.spins_ns[-1])

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Have torch, and the timers' clock, be this."""
        gpu = self
        monkeypatch.setattr(torch.cuda, "synchronize", self.synchronize)
        monkeypatch.setattr(torch.cuda, "_sleep", self.sleep)
        monkeypatch.setattr(torch.cuda, "current_stream", lambda: "the stream")
        monkeypatch.setattr(torch.cuda, "Event", lambda **options: StandInEvent(gpu, **options))
        monkeypatch.setattr(torch.cuda, "CUDAGraph", lambda: StandInGraph(gpu))
        monkeypatch.setattr(torch.cuda, "graph", capture)
        for module in ("cuda_timers", "cupti"):
            monkeypatch.setattr(
                f"roofwatch.collector.timing.{module}.perf_counter_ns", lambda: gpu.host_ns
            )


class StandInEvent:
    def __init__(self, gpu: StandInGpu, *, enable_timing: bool = False) -> None:
        self._gpu = gpu
        self._has_time = enable_timing
        self._at_ns: int | None = None

    def record(self) -> None:
        assert self._gpu.captured is None, "what is captured has no time"
        self._at_ns = max(self._gpu.free_ns, self._gpu.host_ns)
        if self._has_time:
            self._gpu.happened.append("event")

    def query(self) -> bool:
        return self._at_ns is None or self._gpu.host_ns >= self._at_ns

    def synchronize(self) -> None:
        self._gpu.host_ns = max(self._gpu.host_ns, self._at_ns or 0)

    def elapsed_time(self, end: StandInEvent) -> float:
        """In ms, as torch's."""
        if not (self._has_time and end._has_time) or self._at_ns is None or end._at_ns is None:
            raise ValueError("both events must be created with enable_timing and be recorded")
        if not (self.query() and end.query()):
            raise RuntimeError("CUDA error: device not ready")
        return (end._at_ns - self._at_ns) / 1e6


class StandInGraph:
    def __init__(self, gpu: StandInGpu) -> None:
        self.gpu = gpu
        self.launches_ns: list[int] | None = None

    def replay(self) -> None:
        if self.launches_ns is None:
            raise RuntimeError("called replay() without a preceding successful capture")
        self.gpu.launch(f"graph of {len(self.launches_ns)}", sum(self.launches_ns))


@contextmanager
def capture(graph: StandInGraph, *, stream: Any) -> Iterator[None]:
    assert stream == "the stream", (
        "what is captured is what is timed, on the stream where it is timed"
    )
    graph.gpu.captured = []
    try:
        yield
        graph.launches_ns = graph.gpu.captured
    except RuntimeError:
        # torch ends the capture all the same, which CUDA then refuses
        raise RuntimeError(
            "CUDA error: operation failed due to a previous error during capture"
        ) from None
    finally:
        graph.gpu.captured = None

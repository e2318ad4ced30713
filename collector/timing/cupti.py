"""Device time from CUPTI's activity records."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from time import perf_counter_ns

import torch

from roofwatch.collector.record.measurement import CacheState, Timer
from roofwatch.collector.timing.activity import Window, samples_of
from roofwatch.collector.timing.cupti_records import recorder
from roofwatch.collector.timing.method import TimingMethod
from roofwatch.collector.timing.stopwatch import Launch, Ranks, Sample


class CuptiStopwatch:
    """Times launches one by one on an idle device, by when CUPTI says that their kernels began and ended.

    Kernels, copies and fills are recorded and nothing else: tracing the runtime's calls too would slow them down.

    Args:
        launch: What is timed.
        cache: What each launch finds.
        prepare_cache: Brings that about, before the window of the launch.
        ranks: Those that launch together. They wait for each other and for their devices first, so a collective's
            times hold by how much its hosts differ.

    Raises:
        TimerError: CUPTI cannot be had; the message says why, and the way out.
    """

    def __init__(self, launch: Launch, cache: CacheState, prepare_cache: Callable[[], None], ranks: Ranks) -> None:
        self.method = TimingMethod(Timer.CUPTI, cache)
        self._launch = launch
        self._prepare_cache = prepare_cache
        self._ranks = ranks
        self._recorder = recorder()

    def rehearse(self) -> float:
        window = self._window()  # unrecorded: to begin and end recording takes longer than most launches
        return max(1.0, float(window.end_ns - window.begin_ns))

    def launches_for(self, launch_ns: float) -> int:  # noqa: ARG002  of any length: records resolve nanoseconds
        return 1

    def take(self, sample_count: int, launches: int) -> list[Sample]:
        assert launches == 1, "a second launch would find the first one's data, and overlap with it"
        with self._recorder.recording():
            windows = [self._window() for _ in range(sample_count)]
            samples = samples_of(self._recorder.activities(), windows)
        return [replace(sample, busy_ns=self._ranks.slowest_ns(sample.busy_ns)) for sample in samples]

    def _window(self) -> Window:
        self._prepare_cache()
        self._ranks.align()
        torch.cuda.synchronize()
        begin_ns = self._recorder.now_ns()
        called_at = perf_counter_ns()
        self._launch()
        host_ns = float(perf_counter_ns() - called_at)
        torch.cuda.synchronize()
        return Window(begin_ns, self._recorder.now_ns(), host_ns)

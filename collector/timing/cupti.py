"""Device time from CUPTI activity records, through NVIDIA's `cupti-python`."""

import ctypes
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from time import perf_counter_ns
from types import ModuleType
from typing import Any

import torch

from roofwatch.collector.profiling.activities import length_ns, union
from roofwatch.collector.timing.stopwatch import Sample, Stopwatch
from roofwatch.model.errors import TimerError
from roofwatch.spec import UnsupportedError


@dataclass(frozen=True)
class CuptiActivity:
    """A kernel, copy or memset; times by the profiler's clock."""

    name: str
    start_ns: int
    end_ns: int
    stream: int = 0


@dataclass(frozen=True)
class LaunchWindow:
    """One launch; the device is idle before and after it."""

    begin_ns: int
    """By the profiler's clock, just before the call."""
    end_ns: int
    """By the same clock, after the device finished."""
    host_ns: float
    """Time until the call returned."""


_CLOCK_TOLERANCE_NS = 500
"""Device times, converted to the profiler's clock, may precede the call by some 100 ns
(pytorch/kineto#1380).
"""


def samples_of(
    activities: Iterable[CuptiActivity], windows: Sequence[LaunchWindow]
) -> list[Sample]:
    """Sum up the activities that started in each launch's window; others, such as cache flushes,
    are ignored.

    Raises:
        UnsupportedError: no activity, or one without times, in a window.

    Source: tile-ai/TileOPs#1891. Correlating by API calls needs driver tracing, which slowed a call
    of three kernels twentyfold there.
    """
    ordered = sorted(activities, key=lambda activity: activity.start_ns)
    starts_ns = [activity.start_ns for activity in ordered]
    samples: list[Sample] = []
    empty_count = 0
    previous_end_ns = 0
    for window in windows:
        # an activity belongs to one window only, in spite of the tolerance
        begin_ns = max(window.begin_ns - _CLOCK_TOLERANCE_NS, previous_end_ns + 1)
        previous_end_ns = window.end_ns
        first = bisect_left(starts_ns, begin_ns)
        end = bisect_right(starts_ns, window.end_ns)
        if first < end:
            samples.append(_sample(ordered[first:end], window))
        else:
            empty_count += 1
    if empty_count:
        raise UnsupportedError(
            f"CUPTI recorded no GPU activity in {empty_count} of {len(windows)} launches; "
            "if this call uses the GPU, use --timer cuda_event"
        )
    return samples


def _sample(activities: Sequence[CuptiActivity], window: LaunchWindow) -> Sample:
    first_ns = activities[0].start_ns
    last_ns = max(activity.end_ns for activity in activities)
    busy_ns = length_ns(union((activity.start_ns, activity.end_ns) for activity in activities))
    return Sample(
        # a kernel below the clock's resolution does not take 0 ns
        busy_ns=max(1.0, float(busy_ns)),
        span_ns=max(1.0, float(last_ns - first_ns)),
        host_ns=window.host_ns,
        launch_delay_ns=float(max(0, first_ns - window.begin_ns)),
        kernels=tuple(sorted(activity.name for activity in activities)),
    )


_BUFFER_BYTES = 8 * 2**20
_NO_RECORD_LIMIT = 0
_MAX_REPEATS = 2
"""Of a batch with a window without records: one is CUPTI's loss, but a launch that does not use the
GPU has them each time."""
_ALL_BUFFERS = 1
"""CUPTI_ACTIVITY_FLAG_FLUSH_FORCED: includes buffers that are not full."""


class CuptiRecorder:
    """CUPTI in this process; it has one set of callbacks."""

    def __init__(self, cupti: ModuleType) -> None:
        self._activities: list[CuptiActivity] = []
        self._untimed = 0
        self._cupti: Any = cupti
        kinds = cupti.ActivityKind
        self._kinds = (kinds.CONCURRENT_KERNEL, kinds.MEMCPY, kinds.MEMSET)
        self._call(
            partial(cupti.activity_register_callbacks, self._give_buffer, self._take_records)
        )

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Start recording on an idle device; forget earlier records."""
        with ExitStack() as stack:
            for kind in self._kinds:
                self._call(partial(self._cupti.activity_enable, kind))
                stack.callback(self._disable, kind)
            self._dropped()  # resets the count
            self._activities.clear()
            self._untimed = 0
            yield

    def _disable(self, kind: object) -> None:
        with suppress(self._cupti.cuptiError):  # a kernel that broke the device has its own error
            self._cupti.activity_disable(kind)

    def now_ns(self) -> int:
        return int(self._cupti.get_timestamp())

    def activities(self) -> list[CuptiActivity]:
        """All activities since recording started; the device must be idle.

        Raises:
            UnsupportedError: CUPTI dropped records, so a launch would look too short.
        """
        self._call(partial(self._cupti.activity_flush_all, _ALL_BUFFERS))
        lost = self._dropped() + self._untimed
        if lost:
            raise UnsupportedError(
                f"CUPTI lost {lost} records of kernels, so times would be too short; use fewer "
                f"kernels per call, "
                "end other profilers, or use --timer cuda_event"
            )
        return list(self._activities)

    def _dropped(self) -> int:
        """Records dropped since the last call.

        Source: cuptiActivityGetNumDroppedRecords; buffers are global since CUDA 6.
        """
        dropped = ctypes.c_size_t()
        self._call(
            partial(self._cupti.activity_get_num_dropped_records, 0, 0, ctypes.addressof(dropped))
        )
        return dropped.value

    def _give_buffer(self) -> tuple[int, int]:
        return _BUFFER_BYTES, _NO_RECORD_LIMIT

    def _take_records(self, records: list[Any]) -> None:
        for record in records:
            if record.kind not in self._kinds:
                continue
            if record.end == 0:  # CUPTI does not know when it ended
                self._untimed += 1
                continue
            # copies and memsets have no name
            name = getattr(record, "name", None)
            if not name:
                name = self._cupti.ActivityKind(record.kind).name.lower()
            activity = CuptiActivity(
                name=str(name),
                start_ns=int(record.start),
                end_ns=int(record.end),
                stream=int(getattr(record, "stream_id", 0)),
            )
            self._activities.append(activity)

    def _call(self, call: Callable[[], object]) -> None:
        try:
            call()
        except self._cupti.cuptiError as error:
            raise TimerError(
                f"CUPTI failed: {error}; the cause may be another profiler in this process or a "
                f"driver older than CUPTI"
            ) from None


@cache
def recorder() -> CuptiRecorder:
    """The recorder of this process; torch must have initialised CUDA.

    Raises:
        TimerError: CUPTI is not available.
    """
    if torch.version.hip:
        raise TimerError("cupti: supports only NVIDIA GPUs")
    try:
        from cupti import cupti
    except ImportError as error:
        raise TimerError(
            f"cupti: cupti-python is not installed ({error}): pip install 'roofwatch[gpu]'"
        ) from None
    try:
        return CuptiRecorder(cupti)
    except RuntimeError as error:  # its NotSupportedError: no driver, or no CUPTI of this version
        raise TimerError(f"cupti: {error}") from None


class CuptiStopwatch(Stopwatch):
    """Times launches one by one on an idle device, from CUPTI's kernel start and end times.

    Only kernels, copies and memsets are recorded: tracing API calls would slow them down. Times of
    a collective include the skew between hosts.

    Raises:
        TimerError: CUPTI is not available; the message says why and what to do.
    """

    def __post_init__(self) -> None:
        self._recorder = recorder()

    def rehearse(self) -> float:
        window = self._window()  # not recorded: starting to record takes longer than most launches
        return max(1.0, float(window.end_ns - window.begin_ns))

    def launches_for(self, launch_ns: float) -> int:  # noqa: ARG002  records resolve nanoseconds
        return 1

    def take(self, sample_count: int, launches: int) -> list[Sample]:
        assert launches == 1, "each sample is one launch"
        for repeats_left in reversed(range(_MAX_REPEATS + 1)):
            with self._recorder.recording():
                windows = [self._window() for _ in range(sample_count)]
                activities = self._recorder.activities()
            failure = None
            try:
                samples = samples_of(activities, windows)
            except UnsupportedError as error:
                samples = []
                failure = error
            # all ranks repeat, or none
            if not self.ranks.slowest_ns(float(failure is not None)):
                break
            if not repeats_left:
                raise failure or UnsupportedError(
                    "CUPTI recorded no GPU activity in a launch of another rank"
                )
        return [
            replace(sample, busy_ns=self.ranks.slowest_ns(sample.busy_ns)) for sample in samples
        ]

    def _window(self) -> LaunchWindow:
        self.prepare_cache()
        self.ranks.align()
        torch.cuda.synchronize()
        begin_ns = self._recorder.now_ns()
        called_at = perf_counter_ns()
        self.launch()
        host_ns = float(perf_counter_ns() - called_at)
        torch.cuda.synchronize()
        return LaunchWindow(
            begin_ns=begin_ns,
            end_ns=self._recorder.now_ns(),
            host_ns=host_ns,
        )

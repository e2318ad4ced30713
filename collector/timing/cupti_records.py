"""CUPTI's activity records, through NVIDIA's own binding, cupti-python."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from types import ModuleType
from typing import Any

import torch

from roofwatch.collector.errors import TimerError
from roofwatch.collector.timing.activity import Activity
from roofwatch.spec import UnsupportedError

_BUFFER_BYTES = 8 * 2**20
_NO_RECORD_LIMIT = 0
_ALL_BUFFERS = 1
"""CUPTI_ACTIVITY_FLAG_FLUSH_FORCED: those too that are not full."""


class Recorder:
    """CUPTI as this process has it: there is one set of callbacks for all."""

    def __init__(self, cupti: ModuleType) -> None:
        self._activities: list[Activity] = []
        self._untimed = 0
        self._cupti: Any = cupti
        kinds = cupti.ActivityKind
        self._kinds = (kinds.CONCURRENT_KERNEL, kinds.MEMCPY, kinds.MEMSET)
        self._call(partial(cupti.activity_register_callbacks, self._give_buffer, self._take_records))

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Record from an idle device on; what was recorded before is forgotten."""
        for kind in self._kinds:
            self._call(partial(self._cupti.activity_enable, kind))
        self._dropped()  # what was lost before is nobody's
        self._activities.clear()
        self._untimed = 0
        try:
            yield
        finally:
            for kind in self._kinds:
                self._call(partial(self._cupti.activity_disable, kind))

    def now_ns(self) -> int:
        return int(self._cupti.get_timestamp())

    def activities(self) -> list[Activity]:
        """What was recorded since recording began, all of it, once the device is idle.

        Raises:
            UnsupportedError: CUPTI lost records, so that a launch would look shorter than it was.
        """
        # forced: the last kernels of a launch may lie in a buffer that is not full, though its first were handed over
        self._call(partial(self._cupti.activity_flush_all, _ALL_BUFFERS))
        lost = self._dropped() + self._untimed
        if lost:
            raise UnsupportedError(
                f"CUPTI lost {lost} records of kernels: launches would look shorter than they were; measure fewer "
                "kernels in one call, end other profilers, or take --timer cuda_event"
            )
        return list(self._activities)

    def _dropped(self) -> int:
        """Records that CUPTI had no room for since it was asked last.

        Source: cuptiActivityGetNumDroppedRecords. Buffers are global since CUDA 6: it is asked of no context or stream.
        """
        dropped = ctypes.c_size_t()
        self._call(partial(self._cupti.activity_get_num_dropped_records, 0, 0, ctypes.addressof(dropped)))
        return dropped.value

    def _give_buffer(self) -> tuple[int, int]:
        return _BUFFER_BYTES, _NO_RECORD_LIMIT

    def _take_records(self, records: list[Any]) -> None:
        for record in records:
            if record.kind not in self._kinds:
                continue
            if record.end == 0:  # as the start is where CUPTI could not tell: something ran, and for how long is lost
                self._untimed += 1
            else:
                name = getattr(record, "name", None) or self._cupti.ActivityKind(record.kind).name.lower()
                self._activities.append(Activity(str(name), int(record.start), int(record.end)))

    def _call(self, call: Callable[[], object]) -> None:
        try:
            call()
        except self._cupti.cuptiError as error:
            raise TimerError(
                f"CUPTI refuses: {error}; another profiler in this process, or a driver older than CUPTI, does that"
            ) from None


@cache
def recorder() -> Recorder:
    """The process's own; torch has to have started CUDA.

    Raises:
        TimerError: CUPTI cannot be had.
    """
    if torch.version.hip:
        raise TimerError("cupti: it knows NVIDIA's GPUs alone")
    try:
        from cupti import cupti
    except ImportError as error:
        raise TimerError(f"cupti: cupti-python is not installed ({error}): pip install 'roofwatch[gpu]'") from None
    try:
        return Recorder(cupti)
    except RuntimeError as error:  # its NotSupportedError: no driver, or no CUPTI of this version
        raise TimerError(f"cupti: {error}") from None

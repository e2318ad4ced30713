"""CUPTI's activity records, through NVIDIA's own binding, cupti-python."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from types import ModuleType
from typing import Any

import torch

from collector.errors import TimerError
from collector.timers.activity import Activity

_BUFFER_BYTES = 8 * 2**20
_NO_RECORD_LIMIT = 0
_COMPLETE_BUFFERS, _ALL_BUFFERS = 0, 1


class Recorder:
    """CUPTI as this process has it: there is one set of callbacks for all."""

    def __init__(self, cupti: ModuleType) -> None:
        self._activities: list[Activity] = []
        self._cupti: Any = cupti
        kinds = cupti.ActivityKind
        self._kinds = (kinds.CONCURRENT_KERNEL, kinds.MEMCPY, kinds.MEMSET)
        self._call(partial(cupti.activity_register_callbacks, self._give_buffer, self._take_records))

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Record from an idle device on; what was recorded before is forgotten."""
        for kind in self._kinds:
            self._call(partial(self._cupti.activity_enable, kind))
        self._activities.clear()
        try:
            yield
        finally:
            for kind in self._kinds:
                self._call(partial(self._cupti.activity_disable, kind))

    def now_ns(self) -> int:
        return int(self._cupti.get_timestamp())

    def activities_since(self, begin_ns: int) -> list[Activity]:
        """What was recorded since recording began, once the device is idle; that something started after `begin_ns`
        says whether all is there.
        """
        self._flush(_COMPLETE_BUFFERS)
        if not any(activity.start_ns >= begin_ns for activity in self._activities):
            self._flush(_ALL_BUFFERS)
        return list(self._activities)

    def _flush(self, which: int) -> None:
        """Have records handed over; they are when this returns."""
        self._call(partial(self._cupti.activity_flush_all, which))

    def _give_buffer(self) -> tuple[int, int]:
        return _BUFFER_BYTES, _NO_RECORD_LIMIT

    def _take_records(self, records: list[Any]) -> None:
        for record in records:
            # both are 0 where CUPTI could not tell
            if record.kind in self._kinds and record.end > 0:
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

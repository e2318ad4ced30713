"""Takes the place of CUPTI where there is no GPU."""

import ctypes
import enum
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from roofwatch.collector.timing.cupti import CuptiRecorder


class Kind(enum.IntEnum):
    MEMCPY = 1
    MEMSET = 2
    CONCURRENT_KERNEL = 10


class StandInError(Exception):
    pass


class StandIn:
    """Delivers records in buffers as CUPTI does: a record without a free buffer is dropped and
    counted, and only a forced flush delivers a buffer that is not full.
    """

    ActivityKind = Kind
    cuptiError = StandInError  # noqa: N815  the binding's name

    def __init__(self, records_per_buffer: int = 2, most_records: int = 200) -> None:
        self.enabled: set[Kind] = set()
        self._records_per_buffer = records_per_buffer
        self._most_records = most_records
        self._records: list[Any] = []
        self._dropped = 0
        self.refused: set[Kind] = set()
        self.is_broken = False
        self._take_records: Callable[[list[Any]], None] = lambda _: None

    def activity_register_callbacks(
        self, request: Callable[[], tuple[int, int]], complete: Any
    ) -> None:
        assert request()[0] > 0
        self._take_records = complete

    def activity_enable(self, kind: Kind) -> None:
        if kind in self.refused:
            raise StandInError("CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED")
        self.enabled.add(kind)

    def activity_disable(self, kind: Kind) -> None:
        if self.is_broken:
            raise StandInError("CUPTI_ERROR_UNKNOWN")
        self.enabled.remove(kind)

    def run(self, *records: Any) -> None:
        """Have the device do something, which is recorded if it is of a kind that is."""
        recorded = self._records + [record for record in records if record.kind in self.enabled]
        self._records = recorded[: self._most_records]
        self._dropped += len(recorded) - len(self._records)

    def activity_flush_all(self, flag: int) -> None:
        partly_full = 0 if flag else len(self._records) % self._records_per_buffer
        count = len(self._records) - partly_full
        self._take_records(self._records[:count])
        self._records = self._records[count:]

    def activity_get_num_dropped_records(self, context: int, stream_id: int, dropped: int) -> None:
        assert (context, stream_id) == (0, 0), "buffers are global"
        ctypes.c_size_t.from_address(dropped).value, self._dropped = self._dropped, 0


def kernel(name: str, start: int, end: int) -> SimpleNamespace:
    return SimpleNamespace(kind=int(Kind.CONCURRENT_KERNEL), name=name, start=start, end=end)


def recorder_of(stand_in: StandIn) -> CuptiRecorder:
    return CuptiRecorder(stand_in)  # type: ignore[arg-type]  # all that is used of the module

"""CUPTI's records from a stand-in, their assignment to launches,
and the names of the real binding.
"""

import ctypes
import enum
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from roofwatch.collector.timing.cupti import (
    CuptiActivity,
    CuptiRecorder,
    LaunchWindow,
    recorder,
    samples_of,
)
from roofwatch.model.errors import TimerError
from roofwatch.spec import UnsupportedError


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


@pytest.mark.parametrize("kernel_count", [1, 2, 3])
def test_a_partly_filled_buffer_is_flushed_and_what_has_no_name_is_named_by_its_kind(
    kernel_count: int,
) -> None:
    cupti = StandIn(records_per_buffer=2)
    records = recorder_of(cupti)
    with records.recording():
        cupti.run(
            SimpleNamespace(kind=2, start=20, end=30), *[kernel("last", 31, 32)] * kernel_count
        )
        assert records.activities() == [
            CuptiActivity("memset", 20, 30),
            *[CuptiActivity("last", 31, 32)] * kernel_count,
        ]


def test_dropped_records_and_kernels_without_times_are_refused() -> None:
    cupti = StandIn(records_per_buffer=2, most_records=2)
    records = recorder_of(cupti)
    with records.recording():
        cupti.run(*(kernel("mine", at, at + 1) for at in range(20, 25)))
        with pytest.raises(UnsupportedError, match=r"CUPTI lost 3 records .* --timer cuda_event"):
            records.activities()
        cupti.run(kernel("known", 20, 30), kernel("unknown", 0, 0))
        with pytest.raises(UnsupportedError, match="CUPTI lost 1 records"):
            records.activities()


def test_a_cupti_error_is_explained() -> None:
    cupti = StandIn()
    records = recorder_of(cupti)
    cupti.refused = {Kind.MEMSET}
    with (
        pytest.raises(TimerError, match=r"MULTIPLE_SUBSCRIBERS.*another profiler"),
        records.recording(),
    ):
        pass
    assert not cupti.enabled


def test_the_error_of_a_kernel_is_not_hidden_by_that_of_a_broken_device() -> None:
    cupti = StandIn()
    cupti.is_broken = True
    with pytest.raises(ValueError, match="illegal memory access"), recorder_of(cupti).recording():
        raise ValueError("illegal memory access")


def test_the_binding_has_every_name_used() -> None:
    cupti = pytest.importorskip(
        "cupti.cupti", reason="cupti-python is not installed: the extra gpu"
    )

    names = [name for name in vars(StandIn) if name.startswith("activity_")]
    assert all(callable(getattr(cupti, name)) for name in (*names, "get_timestamp"))
    assert issubclass(cupti.cuptiError, Exception)
    for kind in Kind:
        assert cupti.ActivityKind[kind.name] == kind


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_a_missing_driver_is_explained() -> None:
    pytest.importorskip("cupti.cupti", reason="cupti-python is not installed: the extra gpu")

    with pytest.raises(TimerError, match="CUDA driver is not found"):
        recorder()


# --- assignment of activities to launches, times in ns


def test_a_kernel_that_seems_to_start_before_its_launch_counts() -> None:
    early = [CuptiActivity("mine", 9_900, 9_990), CuptiActivity("mine", 19_950, 20_040)]

    samples = samples_of(early, [LaunchWindow(10_000, 10_100, 0), LaunchWindow(20_000, 20_100, 0)])

    assert [sample.busy_ns for sample in samples] == [90, 90]
    assert [sample.launch_delay_ns for sample in samples] == [0, 0]


def test_overlapping_kernels_are_busy_once_and_gaps_count_only_in_the_span() -> None:
    activities = [
        CuptiActivity("first", 1_010, 1_050),
        CuptiActivity("second", 1_030, 1_060),
        CuptiActivity("memset", 1_100, 1_110),
    ]

    (sample,) = samples_of(activities[::-1], [LaunchWindow(1_000, 1_200, 0)])

    assert (sample.busy_ns, sample.span_ns) == (60, 100)
    assert sample.kernels == ("first", "memset", "second")


def test_a_kernel_below_the_clocks_resolution_takes_one_ns_and_an_empty_launch_is_refused() -> None:
    empty = CuptiActivity("empty", 1_010, 1_010)
    (sample,) = samples_of([empty], [LaunchWindow(1_000, 1_100, 0)])

    assert sample.busy_ns == 1
    with pytest.raises(UnsupportedError, match="in 1 of 2 launches"):
        samples_of([empty], [LaunchWindow(1_000, 1_100, 0), LaunchWindow(2_000, 2_100, 0)])

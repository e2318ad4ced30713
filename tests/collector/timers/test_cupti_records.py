"""CUPTI's records, from a stand-in that hands over what CUPTI would; and the real binding, as far as it goes here."""

import enum
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from collector.errors import TimerError
from collector.timers.activity import Activity
from collector.timers.cupti_records import Recorder, recorder


class Kind(enum.IntEnum):
    MEMCPY = 1
    MEMSET = 2
    CONCURRENT_KERNEL = 10


class StandInError(Exception):
    pass


class StandIn:
    """Hands over records as CUPTI does: on a flush, and those of a buffer that is not full only on a forced one."""

    ActivityKind = Kind
    cuptiError = StandInError  # noqa: N815  the binding's name

    def __init__(self) -> None:
        self.enabled: set[Kind] = set()
        self.complete: list[Any] = []
        self.incomplete: list[Any] = []
        self.is_refusing = False
        self._take_records: Callable[[list[Any]], None] = lambda _: None

    def activity_register_callbacks(self, request: Callable[[], tuple[int, int]], complete: Any) -> None:
        assert request()[0] > 0
        self._take_records = complete

    def activity_enable(self, kind: Kind) -> None:
        if self.is_refusing:
            raise StandInError("CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED")
        self.enabled.add(kind)

    def activity_disable(self, kind: Kind) -> None:
        self.enabled.remove(kind)

    def activity_flush_all(self, flag: int) -> None:
        records, self.complete = self.complete, []
        if flag:
            records, self.incomplete = records + self.incomplete, []
        self._take_records(records)


def kernel(name: str, start: int, end: int) -> SimpleNamespace:
    return SimpleNamespace(kind=int(Kind.CONCURRENT_KERNEL), name=name, start=start, end=end)


def module(stand_in: StandIn) -> ModuleType:
    return stand_in  # type: ignore[return-value]  # all that is used of the module


def test_kernels_copies_and_fills_are_recorded_and_nothing_else() -> None:
    cupti = StandIn()
    with Recorder(module(cupti)).recording():
        assert cupti.enabled == set(Kind)
    assert cupti.enabled == set()


def test_a_record_becomes_an_activity_and_what_has_no_name_is_called_by_its_kind() -> None:
    cupti = StandIn()
    records = Recorder(module(cupti))
    with records.recording():
        cupti.complete = [kernel("softmax", 20, 30), SimpleNamespace(kind=2, start=31, end=32)]
        assert records.activities_since(20) == [Activity("softmax", 20, 30), Activity("memset", 31, 32)]


def test_records_of_a_buffer_that_is_not_full_are_asked_for_until_the_last_launch_is_there() -> None:
    cupti = StandIn()
    records = Recorder(module(cupti))
    with records.recording():
        cupti.complete, cupti.incomplete = [kernel("first", 20, 30)], [kernel("second", 120, 130)]
        assert [activity.name for activity in records.activities_since(100)] == ["first", "second"]


def test_what_was_recorded_before_is_forgotten() -> None:
    cupti = StandIn()
    records = Recorder(module(cupti))
    with records.recording():
        cupti.complete = [kernel("earlier", 20, 30)]
        records.activities_since(0)
    with records.recording():
        cupti.complete = [kernel("now", 50, 60)]
        assert [activity.name for activity in records.activities_since(0)] == ["now"]


def test_a_kernel_whose_time_is_not_known_is_none_of_zero_time() -> None:
    cupti = StandIn()
    records = Recorder(module(cupti))
    with records.recording():
        cupti.complete = [kernel("unknown", 0, 0)]
        assert records.activities_since(0) == []


def test_a_refusal_says_what_may_be_in_the_way() -> None:
    cupti = StandIn()
    records = Recorder(module(cupti))
    cupti.is_refusing = True
    with pytest.raises(TimerError, match=r"MULTIPLE_SUBSCRIBERS.*another profiler"), records.recording():
        pass


def test_the_binding_has_every_name_that_is_called() -> None:
    cupti = pytest.importorskip("cupti.cupti", reason="cupti-python is not installed: the extra gpu")

    for name in (
        *("activity_register_callbacks", "activity_enable", "activity_disable", "activity_flush_all"),
        "get_timestamp",
    ):
        assert callable(getattr(cupti, name))
    assert issubclass(cupti.cuptiError, Exception)
    for kind in Kind:
        assert cupti.ActivityKind[kind.name] == kind


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_without_a_driver_the_message_says_so() -> None:
    pytest.importorskip("cupti.cupti", reason="cupti-python is not installed: the extra gpu")

    with pytest.raises(TimerError, match="CUDA driver is not found"):
        recorder()

"""CUPTI's records from a stand-in, their assignment to launches,
and the names of the real binding.
"""

from types import SimpleNamespace

import pytest
import torch

from roofwatch.collector.timing.cupti import (
    CuptiActivity,
    LaunchWindow,
    recorder,
    samples_of,
)
from roofwatch.model.errors import TimerError
from roofwatch.spec import UnsupportedError
from tests.collector.timing.stand_in_cupti import Kind, StandIn, kernel, recorder_of


@pytest.mark.parametrize("kernel_count", [1, 2, 3, 4])
def test_a_partly_filled_buffer_is_flushed(kernel_count: int) -> None:
    cupti = StandIn(records_per_buffer=2)
    records = recorder_of(cupti)
    with records.recording():
        cupti.run(*[kernel("last", 31, 32)] * kernel_count)
        assert records.activities() == [CuptiActivity("last", 31, 32)] * kernel_count


def test_an_activity_without_a_name_is_named_by_its_kind() -> None:
    cupti = StandIn(records_per_buffer=2)
    records = recorder_of(cupti)
    with records.recording():
        cupti.run(SimpleNamespace(kind=2, start=20, end=30), kernel("last", 31, 32))
        assert records.activities() == [
            CuptiActivity("memset", 20, 30),
            CuptiActivity("last", 31, 32),
        ]


def test_dropped_records_are_refused() -> None:
    cupti = StandIn(records_per_buffer=2, most_records=2)
    records = recorder_of(cupti)
    with records.recording():
        cupti.run(*(kernel("mine", at, at + 1) for at in range(20, 25)))
        with pytest.raises(UnsupportedError, match=r"CUPTI lost 3 records .* --timer cuda_event"):
            records.activities()


def test_a_kernel_without_times_is_refused() -> None:
    cupti = StandIn(records_per_buffer=2, most_records=2)
    records = recorder_of(cupti)
    with records.recording():
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


def test_overlapping_kernels_are_busy_once_within_a_span_with_gaps() -> None:
    activities = [
        CuptiActivity("first", 1_010, 1_050),
        CuptiActivity("second", 1_030, 1_060),
        CuptiActivity("memset", 1_100, 1_110),
    ]

    (sample,) = samples_of(activities[::-1], [LaunchWindow(1_000, 1_200, 0)])

    assert (sample.busy_ns, sample.span_ns) == (60, 100)
    assert sample.kernels == ("first", "memset", "second")


def test_a_kernel_below_the_clocks_resolution_takes_one_ns() -> None:
    short = CuptiActivity("short", 1_010, 1_010)
    (sample,) = samples_of([short], [LaunchWindow(1_000, 1_100, 0)])

    assert sample.busy_ns == 1


def test_a_launch_without_activity_is_refused() -> None:
    activity = CuptiActivity("kernel", 1_010, 1_020)

    with pytest.raises(UnsupportedError, match="in 1 of 2 launches"):
        samples_of([activity], [LaunchWindow(1_000, 1_100, 0), LaunchWindow(2_000, 2_100, 0)])

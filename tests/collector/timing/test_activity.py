"""Which activities belong to which launch, on activities as CUPTI gives them. Times in ns."""

import pytest

from roofwatch.collector.timing.cupti import Activity, Window, samples_of
from roofwatch.spec import UnsupportedError


def window(begin_ns: int, end_ns: int, host_ns: float = 5_000) -> Window:
    return Window(begin_ns, end_ns, host_ns)


def test_the_kernels_of_a_launch_are_those_that_start_in_its_window() -> None:
    activities = [
        Activity("flush", 100, 900),
        Activity("mine", 1_010, 1_030),
        Activity("flush", 1_200, 1_900),
        Activity("mine", 2_015, 2_040),
    ]

    samples = samples_of(activities, [window(1_000, 1_100), window(2_000, 2_100)])

    assert [sample.busy_ns for sample in samples] == [20, 25]
    assert [sample.launch_delay_ns for sample in samples] == [10, 15]
    assert [sample.kernels for sample in samples] == [("mine",), ("mine",)]


def test_kernels_side_by_side_are_busy_once_and_gaps_between_kernels_are_span_alone() -> None:
    activities = [
        Activity("first", 1_010, 1_050),
        Activity("beside", 1_030, 1_060),
        Activity("memset", 1_100, 1_110),
    ]

    (sample,) = samples_of(activities, [window(1_000, 1_200)])

    assert (sample.busy_ns, sample.span_ns) == (60, 100)
    assert sample.kernels == ("beside", "first", "memset")


def test_a_launch_ends_with_its_last_kernel_and_not_with_the_last_to_start() -> None:
    (sample,) = samples_of([Activity("long", 1_000, 1_500), Activity("short", 1_100, 1_200)], [window(1_000, 1_600)])

    assert sample.span_ns == sample.busy_ns == 500


def test_records_may_come_in_any_order() -> None:
    activities = [Activity("b", 2_010, 2_020), Activity("a", 1_010, 1_020)]

    samples = samples_of(activities, [window(1_000, 1_100), window(2_000, 2_100)])

    assert [sample.kernels for sample in samples] == [("a",), ("b",)]


def test_a_kernel_too_short_for_the_clock_took_some_time_all_the_same() -> None:
    (sample,) = samples_of([Activity("empty", 1_010, 1_010)], [window(1_000, 1_100)])

    assert sample.busy_ns == 1


def test_launches_that_ran_nothing_are_no_samples_of_zero() -> None:
    with pytest.raises(UnsupportedError, match="in 1 of 2 launches"):
        samples_of([Activity("mine", 1_010, 1_030)], [window(1_000, 1_100), window(2_000, 2_100)])

"""Assignment of CUPTI's activities to launches. Times in ns."""

import pytest

from roofwatch.collector.timing.cupti import Activity, Window, samples_of
from roofwatch.spec import UnsupportedError


def window(begin_ns: int, end_ns: int) -> Window:
    return Window(begin_ns, end_ns, host_ns=5_000)


def test_the_kernels_of_a_launch_start_in_its_window() -> None:
    activities = [
        Activity("mine", 2_015, 2_040),
        Activity("flush", 100, 900),
        Activity("mine", 1_010, 1_030),
        Activity("flush", 1_200, 1_900),
    ]

    samples = samples_of(activities, [window(1_000, 1_100), window(2_000, 2_100)])

    assert [sample.busy_ns for sample in samples] == [20, 25]
    assert [sample.launch_delay_ns for sample in samples] == [10, 15]
    assert [sample.kernels for sample in samples] == [("mine",), ("mine",)]


def test_overlapping_kernels_are_busy_once_and_gaps_count_only_in_the_span() -> None:
    activities = [Activity("first", 1_010, 1_050), Activity("second", 1_030, 1_060), Activity("memset", 1_100, 1_110)]

    (sample,) = samples_of(activities, [window(1_000, 1_200)])

    assert (sample.busy_ns, sample.span_ns) == (60, 100)
    assert sample.kernels == ("first", "memset", "second")


def test_a_kernel_below_the_clocks_resolution_takes_one_ns_and_an_empty_launch_is_refused() -> None:
    empty = Activity("empty", 1_010, 1_010)
    (sample,) = samples_of([empty], [window(1_000, 1_100)])

    assert sample.busy_ns == 1
    with pytest.raises(UnsupportedError, match="in 1 of 2 launches"):
        samples_of([empty], [window(1_000, 1_100), window(2_000, 2_100)])

"""Where the time of small traces went, worked by hand, and lengths of time compared with counting
each ns.
"""

from itertools import pairwise
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from roofwatch.collector.profiling.activities import HostEvent, length_ns, overlap_ns, union
from roofwatch.collector.profiling.time_spent import (
    TimeRow,
    annotation_rows,
    busiest_thread_ns,
    operator_rows,
    time_spent,
)
from tests.builders import make_trace


def event(
    category: str, name: str, start_us: int, length_us: int, thread: int = 1, **arguments: Any
) -> dict[str, Any]:
    at = {"ts": start_us, "dur": length_us, "pid": 9, "tid": thread}
    return {"ph": "X", "cat": category, "name": name, "args": arguments, **at}


def host_of(*events: dict[str, Any]) -> list[HostEvent]:
    return make_trace(events).host_events


def totals(rows: list[TimeRow]) -> list[tuple[str, int, int]]:
    return [(row.name, row.count, row.total_ns) for row in rows]


def test_self_time_excludes_nested_calls() -> None:
    host = host_of(
        event("cpu_op", "linear", 0, 100),
        event("cpu_op", "addmm", 10, 60),
        event("cuda_runtime", "cudaLaunchKernel", 20, 15),
        event("cpu_op", "relu", 100, 5),
    )
    assert totals(operator_rows(host)) == [
        ("addmm", 1, 45_000),
        ("linear", 1, 40_000),
        ("cudaLaunchKernel", 1, 15_000),
        ("relu", 1, 5_000),
    ]


def test_nested_operators_of_one_name_count_once() -> None:
    host = host_of(event("cpu_op", "copy", 0, 10), event("cpu_op", "copy", 2, 4))
    assert totals(operator_rows(host)) == [("copy", 2, 10_000)]


def test_calls_of_two_threads_do_not_nest_in_each_other() -> None:
    host = host_of(event("cpu_op", "copy", 0, 10), event("cpu_op", "b", 2, 4, thread=2))
    assert totals(operator_rows(host)) == [("copy", 1, 10_000), ("b", 1, 4_000)]
    assert busiest_thread_ns(host) == 10_000


def test_nested_annotations_of_one_name_count_once() -> None:
    marks = host_of(event("user_annotation", "step", 0, 10), event("user_annotation", "step", 2, 4))
    assert totals(annotation_rows(marks)) == [("step", 2, 10_000)]


def test_a_gap_is_described_by_what_surrounds_it() -> None:
    events = [
        event("kernel", "first", 0, 10, device=0, stream=7),
        event("kernel", "second", 110, 10, device=0, stream=7),
        event("kernel", "beside", 112, 20, device=0, stream=8),
        event("user_annotation", "load", 15, 80),
        event("cpu_op", "aten::to", 20, 30),
        event("cpu_op", "before and into it", 5, 8, thread=2),
    ]
    (gap,) = time_spent(make_trace(events)).gaps
    assert (gap.device, gap.after_start_ns, gap.length_ns, gap.before) == (
        "0",
        10_000,
        100_000,
        "second",
    )
    assert gap.host == (("load", 50_000), ("aten::to", 30_000))
    assert gap.host_inside_ns == 80_000


OVERLAPPING = [
    event("cpu_op", "prepare", 0, 50),
    event("cuda_runtime", "cudaLaunchKernel", 50, 10, correlation=1),
    event("kernel", "a", 60, 20, device=0, stream=7, correlation=1),
    event("gpu_memcpy", "Memcpy HtoD", 70, 30, device=0, stream=8, bytes=8),
]


def test_time_before_the_first_kernel_is_idle() -> None:
    time = time_spent(make_trace(OVERLAPPING))

    (device,) = time.devices
    assert (device.busy_ns, device.window_ns, device.busy_share) == (40_000, 100_000, 0.4)
    assert time.median_launch_delay_ns == 10_000


def test_overlapping_activities_keep_their_own_shares() -> None:
    time = time_spent(make_trace(OVERLAPPING))

    assert [(row.name, row.share) for row in (*time.kernels, *time.transfers)] == [
        ("a", 0.5),
        ("Memcpy HtoD", 0.75),
    ]


def test_a_trace_of_the_cpu_has_operators_only() -> None:
    time = time_spent(make_trace([event("cpu_op", "mm", 0, 75), event("cpu_op", "add", 75, 25)]))
    assert time.devices == ()
    assert [(row.name, row.share) for row in time.operators] == [("mm", 0.75), ("add", 0.25)]


intervals = st.lists(
    st.tuples(st.integers(0, 60), st.integers(0, 20)).map(
        lambda pair: (pair[0], pair[0] + pair[1])
    ),
    max_size=12,
)


def moments(some: list[tuple[int, int]]) -> set[int]:
    return {moment for start, end in some for moment in range(start, end)}


@settings(deadline=None)
@given(intervals)
def test_a_union_is_disjoint_with_every_nanosecond_counted_once(
    some: list[tuple[int, int]],
) -> None:
    disjoint = union(some)
    assert length_ns(disjoint) == len(moments(some))
    assert all(end < start for (_, end), (start, _) in pairwise(disjoint))


@settings(deadline=None)
@given(intervals, intervals)
def test_an_overlap_equals_counting_every_nanosecond(
    some: list[tuple[int, int]], others: list[tuple[int, int]]
) -> None:
    assert overlap_ns(union(some), union(others)) == len(moments(some) & moments(others))

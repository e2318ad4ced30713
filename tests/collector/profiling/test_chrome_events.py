"""Traces in the forms that writers give them."""

import json
from decimal import Decimal
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roofwatch.collector.profiling.chrome_trace import scan_trace
from roofwatch.collector.profiling.host_work import HostWork
from roofwatch.collector.profiling.kineto import TraceSummary
from roofwatch.collector.profiling.profile_file import ProfileError
from roofwatch.collector.profiling.time_spent import time_spent

EVENTS: list[dict[str, Any]] = [
    {"ph": "X", "cat": "kernel", "name": 'a "quoted" ] name', "ts": 10, "dur": 2, "args": {"device": 0, "stream": 7}},
    {"ph": "X", "cat": "kernel", "name": "b", "ts": 11, "dur": 4, "args": {"device": 0, "stream": 8}},
]


def scanned(document: str) -> tuple[dict[str, Any] | None, list[dict[str, Any]]]:
    events: list[dict[str, Any]] = []
    return scan_trace(document.encode(), "trace", events.append), events


@pytest.mark.parametrize(
    "document",
    [
        json.dumps({"traceEvents": EVENTS, "traceName": "x"}),
        json.dumps({"traceName": "x", "traceEvents": EVENTS}, indent=2),
        "\ufeff" + json.dumps({"traceName": "x", "traceEvents": EVENTS}),
    ],
)
def test_fields_before_and_after_the_events_are_found(document: str) -> None:
    assert scanned(document) == ({"traceName": "x"}, EVENTS)


def test_events_are_the_same_whether_they_are_read_by_the_piece_or_one_by_one() -> None:
    many = [
        event | {"args": {"at": number, "text": "}, {", "nested": [{"a": {}}]}}
        for number in range(9_000)
        for event in EVENTS
    ]
    odd = [*many[:9_000], {"ph": "X", "name": "k", "dur": float("inf")}, *many[9_000:]]

    assert scanned(json.dumps({"traceEvents": many}))[1] == many
    assert scanned(json.dumps({"traceEvents": odd}))[1] == odd  # Infinity is no JSON, and Python's reader takes it


def test_a_bare_array_of_events_is_a_trace() -> None:
    assert scanned(json.dumps(EVENTS)) == ({}, EVENTS)


def test_a_comma_before_the_end_of_the_events_is_forgiven() -> None:
    # as writers leave it that append events one by one
    assert scanned('{"traceEvents": [' + json.dumps(EVENTS[0]) + ",\n]}")[1] == EVENTS[:1]


@settings(deadline=None)
@given(cut=st.integers(1, 200))
def test_a_trace_that_is_cut_anywhere_is_never_taken_for_whole(cut: int) -> None:
    document = json.dumps({"traceEvents": EVENTS, "traceName": "x"})
    try:
        header, _ = scanned(document[: max(len(document) - cut, 0)])
    except ProfileError:
        return
    assert header is None


def test_times_since_1970_keep_their_nanoseconds() -> None:
    document = '{"traceEvents": [{"ph": "X", "cat": "kernel", "name": "k", "ts": 1711964646000000.123, "dur": 0.001}]}'
    trace = TraceSummary()
    scan_trace(document.encode(), "trace", trace.add)
    assert (trace.activities[0].start_ns, trace.activities[0].duration_ns) == (1_711_964_646_000_000_123, 1)


def test_events_without_a_usable_time_are_counted_and_not_guessed() -> None:
    trace = TraceSummary()
    for time in (None, "soon", float("nan"), Decimal("Infinity"), True, [1]):
        trace.add({"ph": "X", "cat": "kernel", "name": "k", "ts": time, "dur": 1})
    assert trace.activities == []
    assert trace.to_dict({})["gpu_or_runtime_events_without_usable_time"] == 6


def test_activity_that_overlaps_is_busy_time_once() -> None:
    trace = TraceSummary()
    for event in EVENTS:
        trace.add(event)
    busy = trace.to_dict({})["devices"]["0"]["all_gpu_activity"]
    assert (busy["span_us"], busy["busy_us"], busy["idle_us"], busy["busy_fraction"]) == (5.0, 5.0, 0.0, 1.0)
    assert trace.to_dict({})["kernels"]["sum_us"] == 6.0


def amd_event(name: str, start_us: float, *, category: str = "cuda_runtime", **arguments: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": category, "name": name, "pid": 2, "tid": 0, "ts": start_us, "dur": 3, "args": arguments}


def test_a_trace_of_amd_is_read_like_one_of_nvidia() -> None:
    """Built, in the form of RoctracerActivity_inl.h in pytorch/kineto at 87ecc16: a kernel says its device, stream
    and correlation, and everything else stands at the call. A real trace of an older form is in tests/data.
    """
    shape: dict[str, Any] = {"grid": [8192, 3, 1], "block": [256, 1, 1], "shared memory": 512}
    trace = TraceSummary()
    for event in (
        amd_event("hipLaunchKernel", 1, cid=198, correlation=5, stream="0x0", **shape),
        amd_event("hipExtModuleLaunchKernel", 2, cid=106, correlation=6, stream="0x0", **shape),
        amd_event("hipMemcpyWithStream", 3, cid=245, correlation=7, src="0x1", dst="0x2", size="4096", kind="1"),
        amd_event("Cijk_Ailk", 8, category="kernel", device=2, stream=0, correlation=5, kind="Dispatch Kernel"),
        amd_event(
            "ncclDevKernel_Generic", 9, category="kernel", device=2, stream=1, correlation=6, kind="Dispatch Kernel"
        ),
        amd_event(
            "Memcpy HtoD (Host -> Device)", 20, category="gpu_memcpy", device=2, stream=0, correlation=7, kind="HtoD"
        ),
    ):
        trace.add(event)
    summary = trace.to_dict({})

    assert summary["launches"]["kernel_launch_calls_by_name"] == {"hipExtModuleLaunchKernel": 1, "hipLaunchKernel": 1}
    assert summary["launches"]["delay_call_start_to_kernel_start"]["mean_us"] == 7.0
    assert summary["devices"]["2"]["collectives"]["overlapped_with_compute_us"] == 2.0
    grids = {kernel["name"]: kernel["first_launch"]["grid"] for kernel in summary["kernels"]["top_by_total_time"]}
    assert grids == {"Cijk_Ailk": [8192, 3, 1], "ncclDevKernel_Generic": [32, 3, 1]}, "the other call counts threads"
    assert {kernel["first_launch"]["shared_memory_bytes"] for kernel in summary["kernels"]["top_by_total_time"]} == {
        512
    }
    assert summary["memcpy"]["bytes"] == 4096


def test_a_shape_that_the_kernel_says_is_its_own_and_nonsense_at_a_call_is_left_as_it_is() -> None:
    said: dict[str, Any] = {"grid": [64, 1, 1], "block": [64, 1, 1], "shared memory": 0}
    nonsense: dict[str, Any] = {"grid dim": [64, 1, 1], "block dim": [0, 0, 0]}
    trace = TraceSummary()
    for event in (
        amd_event("hipLaunchKernel", 1, correlation=5, grid=[1, 1, 1], block=[1, 1, 1]),
        amd_event("kernel", 2, category="kernel", correlation=5, **said),
        amd_event("hipExtModuleLaunchKernel", 3, correlation=6, **nonsense),
        amd_event("odd", 4, category="kernel", correlation=6),
        amd_event("hipMemcpyAsync", 5, correlation=7, size="unknown"),
        amd_event("Memcpy", 6, category="gpu_memcpy", correlation=7),
    ):
        trace.add(event)
    summary = trace.to_dict({})

    first = {kernel["name"]: kernel["first_launch"] for kernel in summary["kernels"]["top_by_total_time"]}
    assert (first["kernel"]["grid"], first["odd"]["grid"]) == ([64, 1, 1], [64, 1, 1])
    assert summary["memcpy"]["bytes"] == 0


@pytest.mark.parametrize("told", [{}, {"correlation": [1]}, {"correlation": {"of": 1}}], ids=["none", "list", "object"])
def test_what_has_no_id_in_common_is_not_taken_for_the_same_launch(told: dict[str, Any]) -> None:
    trace = TraceSummary()
    for event in (
        amd_event("hipLaunchKernel", 1, grid=[4, 1, 1], block=[64, 1, 1], **told),
        amd_event("hipMemcpyAsync", 2, size="100", **told),
        amd_event("kernel", 3, category="kernel", stream=[7], **told),
        amd_event("Memcpy", 8, category="gpu_memcpy", **told),
    ):
        trace.add(event)
    summary = trace.to_dict({})

    (kernel,) = summary["kernels"]["top_by_total_time"]
    assert "grid" not in kernel["first_launch"]
    assert summary["memcpy"]["bytes"] == 0
    assert trace.launched() == []


def test_numbers_that_no_machine_has_at_a_call_raise_nothing() -> None:
    trace = TraceSummary()
    for event in (
        amd_event("hipExtModuleLaunchKernel", 1, correlation=5, grid=[10**400, 1, 1], block=[64, 1, 1]),
        amd_event("", 10**400, category="kernel", correlation=5),
        amd_event("kernel", 2, category="kernel", correlation=5),
        amd_event("hipMemcpyAsync", 5, correlation=7, size="9" * 5_000),
        amd_event("Memcpy", 6, category="gpu_memcpy", correlation=7),
    ):
        trace.add(event)
    summary = trace.to_dict({})

    (kernel,) = summary["kernels"]["top_by_total_time"]
    assert kernel["first_launch"] == {"block": [64, 1, 1], "stream": 0, "device": 2}
    assert summary["gpu_or_runtime_events_without_usable_time"] == 1
    assert summary["memcpy"]["bytes"] == 0


@pytest.mark.parametrize(
    "damage",
    [
        {"est. achieved occupancy %": [37]},
        {"est. achieved occupancy %": "high"},
        {"device": "²"},
        {"stream": 2**70},
        {"registers per thread": {}, "grid": "8x8", "block": [2**70]},
        {"bytes": 1e300},
        {"bytes": 10**400},
    ],
    ids=str,
)
@pytest.mark.parametrize("category", ["kernel", "gpu_memcpy", "cuda_profiler_range"])
def test_what_a_damaged_event_says_of_its_launch_is_left_out(damage: dict[str, Any], category: str) -> None:
    trace, host = TraceSummary(), HostWork()
    for event in (*EVENTS, amd_event("odd", 3, category=category, **damage)):
        trace.add(event)
        host.add(event)

    told = json.loads(orjson.dumps(trace.to_dict({})))

    assert told["events_total"] == 3
    assert told["kernels"]["count"] == 2 + (category == "kernel")
    assert told["kernels"]["occupancy"]["with_field"] == 0
    assert told["memcpy"]["bytes"] == 0
    assert time_spent(trace, host).window_ns == 12_000


@pytest.mark.parametrize("place", ['{"deep": %s, "traceEvents": []}', '{"traceEvents": [{"ph": "X", "args": %s}]}'])
def test_lists_in_lists_without_end_are_no_trace_that_can_be_read(place: str) -> None:
    nested = "[" * 100_000 + "]" * 100_000
    try:
        header, _ = scanned(place % nested)
    except ProfileError:
        return
    assert header is None


def test_lists_in_lists_as_deep_as_json_is_read_stop_nothing() -> None:
    nested: Any = []
    for _ in range(900):
        nested = [nested]
    trace = TraceSummary()
    trace.add(
        amd_event("kernel", 3, category="kernel", grid=nested, block=[nested], **{"registers per thread": nested})
    )
    header = {"deviceProperties": [{"id": 0, "name": nested}], "distributedInfo": {"backend": {"deep": nested}}}

    told = trace.to_dict(header)

    assert told["kernels"]["count"] == 1
    assert told["devices_declared"][0]["id"] == 0
    json.dumps(told)

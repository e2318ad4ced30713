"""Traces in the forms that writers give them, traces that are damaged, and summaries of the calls
of a case.
"""

import gzip
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roofwatch.collector.profiling.case_profile import profile_of_calls
from roofwatch.collector.profiling.summary import summarise_trace
from roofwatch.collector.profiling.time_spent import time_spent
from roofwatch.collector.profiling.trace import Trace, scan_trace
from roofwatch.model.errors import ProfileError
from roofwatch.model.results import MOST_NAME, MOST_ROWS, CaseProfile
from tests.builders import CASE_ID, make_trace

EVENTS: list[dict[str, Any]] = [
    {
        "ph": "X",
        "cat": "kernel",
        "name": 'a "quoted" ] name',
        "ts": 10,
        "dur": 2,
        "args": {"device": 0, "stream": 7},
    },
    {
        "ph": "X",
        "cat": "kernel",
        "name": "b",
        "ts": 11,
        "dur": 4,
        "args": {"device": 0, "stream": 8},
    },
]


def scanned(text: str) -> tuple[dict[str, Any] | None, list[dict[str, Any]]]:
    events: list[dict[str, Any]] = []
    document = scan_trace(text, "trace", events.append)
    return None if document is None else document.header, events


@pytest.mark.parametrize(
    "text",
    [
        json.dumps({"traceEvents": EVENTS, "traceName": "x"}),
        json.dumps({"traceName": "x", "traceEvents": EVENTS}, indent=2),
        '{"traceName": "x", "traceEvents": [' + ", ".join(map(json.dumps, EVENTS)) + ",\n]}",
    ],
    ids=["after", "before", "trailing comma"],
)
def test_events_are_found_with_the_fields_around_them(text: str) -> None:
    assert scanned(text) == ({"traceName": "x"}, EVENTS)


def test_a_bare_array_of_events_is_a_trace() -> None:
    assert scanned(json.dumps(EVENTS)) == ({}, EVENTS)


def test_a_byte_order_mark_is_ignored() -> None:
    trace = Trace.read(("\ufeff" + json.dumps({"traceEvents": EVENTS})).encode(), "trace")
    assert trace is not None
    assert [activity.name for activity in trace.activities] == [event["name"] for event in EVENTS]


@settings(deadline=None)
@given(cut=st.integers(1, 200))
def test_a_truncated_trace_is_never_accepted(cut: int) -> None:
    document = json.dumps({"traceEvents": EVENTS, "traceName": "x"})
    try:
        header, _ = scanned(document[: max(len(document) - cut, 0)])
    except ProfileError:
        return
    assert header is None


def test_times_since_1970_keep_their_nanoseconds() -> None:
    text = (
        '{"traceEvents": [{"ph": "X", "cat": "kernel", "name": "k", "ts": '
        '1711964646000000.123, "dur": 0.001}]}'
    )
    trace = Trace.read(text.encode(), "trace")
    assert trace is not None
    assert (trace.activities[0].start_ns, trace.activities[0].duration_ns) == (
        1_711_964_646_000_000_123,
        1,
    )


def test_events_without_a_usable_time_are_counted() -> None:
    times = (
        None,
        "soon",
        float("nan"),
        Decimal("Infinity"),
        Decimal("1e999999"),
        10**400,
        True,
        [1],
    )
    events = [{"ph": "X", "cat": "kernel", "name": "k", "ts": time, "dur": 1} for time in times]
    found = summarise_trace(make_trace(events))
    assert found["kernels"]["count"] == 0
    assert found["gpu_or_runtime_events_without_usable_time"] == len(times)


def amd_event(
    name: str, start_us: float, *, category: str = "cuda_runtime", **arguments: Any
) -> dict[str, Any]:
    return {
        "ph": "X",
        "cat": category,
        "name": name,
        "pid": 2,
        "tid": 0,
        "ts": start_us,
        "dur": 3,
        "args": arguments,
    }


def test_a_trace_of_amd_takes_launch_configurations_from_the_calls() -> None:
    """In the form of RoctracerActivity_inl.h in pytorch/kineto at 87ecc16."""
    shape: dict[str, Any] = {"grid": [8192, 3, 1], "block": [256, 1, 1], "shared memory": 512}
    events = [
        amd_event("hipLaunchKernel", 1, correlation=5, **shape),
        amd_event("hipExtModuleLaunchKernel", 2, correlation=6, **shape),
        amd_event("hipMemcpyWithStream", 3, correlation=7, size="4096", kind="1"),
        amd_event("Cijk_Ailk", 8, category="kernel", device=2, stream=0, correlation=5),
        amd_event("ncclDevKernel_Generic", 9, category="kernel", device=2, stream=1, correlation=6),
        amd_event("Memcpy HtoD", 20, category="gpu_memcpy", device=2, stream=0, correlation=7),
        amd_event("own", 30, category="kernel", device=2, correlation=5, grid=[64, 1, 1]),
    ]
    found = summarise_trace(make_trace(events))

    assert found["launches"]["kernel_launch_calls_by_name"] == {
        "hipExtModuleLaunchKernel": 1,
        "hipLaunchKernel": 1,
    }
    assert found["devices"]["2"]["collectives"]["overlapped_with_compute_us"] == 2.0
    first = {
        kernel["name"]: kernel["first_launch"] for kernel in found["kernels"]["top_by_total_time"]
    }
    assert first["Cijk_Ailk"]["grid"] == [8192, 3, 1]
    assert first["ncclDevKernel_Generic"]["grid"] == [32, 3, 1], "this call counts threads"
    assert first["own"]["grid"] == [64, 1, 1], "the kernel's own fields come first"
    assert {launch["shared_memory_bytes"] for launch in first.values()} == {512}
    assert found["memcpy"]["bytes"] == 4096


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
        {"size": "9" * 5_000},
    ],
    ids=lambda damage: str(damage)[:40],
)
@pytest.mark.parametrize("category", ["kernel", "gpu_memcpy", "cuda_profiler_range"])
def test_damaged_fields_of_an_event_are_left_out(damage: dict[str, Any], category: str) -> None:
    trace = make_trace([*EVENTS, amd_event("odd", 3, category=category, **damage)])

    found = json.loads(orjson.dumps(summarise_trace(trace)))

    assert found["kernels"]["count"] == 2 + (category == "kernel")
    assert found["kernels"]["occupancy"]["with_field"] == 0
    assert found["memcpy"]["bytes"] == 0
    assert time_spent(trace).window_ns == 12_000


def test_endless_nesting_is_refused() -> None:
    with pytest.raises(ProfileError, match="not a whole trace"):
        scanned('{"traceEvents": [' + "[" * 200_000 + "]" * 200_000 + "]}")


# --- calls of a case


DATA = Path(__file__).parents[2] / "data" / "profiles"
EXPECTED: dict[str, Any] = json.loads((DATA / "expected.json").read_text())
TRACES = (
    "simple_add_a100.json",
    "multi_stream_events_a100.json.gz",
    "bert_small_h100.json.gz",
    "gemm_mi300.json",
)


def profile_of(content: bytes) -> CaseProfile:
    return profile_of_calls(content, case_id=CASE_ID, implementation="torch", call_count=2)


def trace(*events: dict[str, Any]) -> bytes:
    return json.dumps(
        {"traceEvents": [{"ph": "X", "pid": 0, "tid": 7, **event} for event in events]}
    ).encode()


def kernel(name: str, start_us: float, for_us: float, **arguments: Any) -> dict[str, Any]:
    return {
        "cat": "kernel",
        "name": name,
        "ts": start_us,
        "dur": for_us,
        "args": {"device": 0, **arguments},
    }


@pytest.mark.parametrize("name", TRACES)
def test_the_rows_of_a_real_trace_are_the_expected_ones(name: str) -> None:
    content = (DATA / name).read_bytes()
    expected, profile = (
        EXPECTED[name],
        profile_of(gzip.decompress(content) if name.endswith(".gz") else content),
    )

    expected_us = sum(expected[part]["sum_us"] for part in ("kernels", "memcpy", "memset"))
    assert sum(row.total_ns for row in profile.rows) + profile.left_out_ns == pytest.approx(
        1e3 * expected_us, rel=1e-9
    )
    kernels = {row.name: row for row in profile.rows if row.kind == "kernel"}
    for total in expected["kernels"]["top_by_total_time"][:3]:
        row, launch = kernels[total["name"][:MOST_NAME]], total["first_launch"]
        assert row.count == total["count"]
        assert row.total_ns / 1e3 == pytest.approx(total["sum_us"], rel=1e-9)
        assert (list(row.grid), list(row.block)) == (launch["grid"], launch["block"])
        assert row.registers == launch.get("registers_per_thread")
    delay_us = expected["launches"]["delay_call_start_to_kernel_start"]["median_us"]
    assert profile.launch_delay_ns == pytest.approx(1e3 * delay_us)


def test_rows_beyond_the_longest_are_counted_together() -> None:
    profile = profile_of(
        trace(*(kernel(f"k{at:02}", 100 * at, at + 1) for at in range(MOST_ROWS + 2)))
    )

    assert len(profile.rows) == MOST_ROWS
    assert (profile.left_out_count, profile.left_out_ns) == (2, 1_000 + 2_000)
    assert profile.rows[0].name == f"k{MOST_ROWS + 1}"


ODD_KERNEL = kernel(
    "half \ud800\0", 30, 1, grid=[1, -1, 1], block="256", **{"registers per thread": True}
)


def test_names_are_cut_to_what_a_record_can_hold() -> None:
    long = "void gemm<" + "float, " * 200
    profile = profile_of(
        trace(
            kernel(long + "1>", 0, 8),
            kernel(long + "2>", 10, 8),
            ODD_KERNEL,
            kernel("", 40, 0.5),
        )
    )

    assert [(row.name, row.count) for row in profile.rows] == [
        (long[:MOST_NAME], 2),
        ("half ?", 1),
        ("(unnamed)", 1),
    ]


def test_invalid_fields_are_unknown() -> None:
    (row,) = profile_of(trace(ODD_KERNEL)).rows

    assert (row.grid, row.block, row.registers) == ((), (), None)


def test_a_trace_without_a_device_has_the_operators_of_the_host() -> None:
    inside = {"cat": "cpu_op", "name": "aten::mm", "ts": 2, "dur": 6}
    profile = profile_of(
        trace({"cat": "cpu_op", "name": "aten::matmul", "ts": 0, "dur": 10}, inside)
    )

    assert [(row.kind, row.device, row.name, row.total_ns) for row in profile.rows] == [
        ("operator", "cpu", "aten::mm", 6_000),
        ("operator", "cpu", "aten::matmul", 4_000),
    ]
    assert (profile.span_ns, profile.busy_ns) == (10_000, 10_000)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b'{"traceEvents": []}', "recorded neither"),
        (b"{}", "no trace"),
        (b'{"traceEvents": [{"ph":', "not a whole"),
    ],
)
def test_a_trace_without_calls_is_an_error(content: bytes, why: str) -> None:
    with pytest.raises(ProfileError, match=why):
        profile_of(content)

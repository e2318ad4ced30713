"""Summaries of the calls of a case, from real traces of GPUs and from small ones."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from roofwatch.collector.errors import ProfileError
from roofwatch.collector.profiling.case_profile import profile_of_calls
from roofwatch.collector.record.results import MOST_NAME, MOST_ROWS, CaseProfile
from tests.builders import CASE_ID

DATA = Path(__file__).parents[2] / "data" / "profiles"
EXPECTED: dict[str, Any] = json.loads((DATA / "expected.json").read_text())
TRACES = ("simple_add_a100.json", "multi_stream_events_a100.json.gz", "bert_small_h100.json.gz", "gemm_mi300.json")


def profile_of(content: bytes) -> CaseProfile:
    return profile_of_calls(content, case_id=CASE_ID, implementation="torch", call_count=2)


def trace(*events: dict[str, Any]) -> bytes:
    return json.dumps({"traceEvents": [{"ph": "X", "pid": 0, "tid": 7, **event} for event in events]}).encode()


def kernel(name: str, start_us: float, for_us: float, **arguments: Any) -> dict[str, Any]:
    return {"cat": "kernel", "name": name, "ts": start_us, "dur": for_us, "args": {"device": 0, **arguments}}


@pytest.mark.parametrize("name", TRACES)
def test_the_rows_of_a_real_trace_have_the_expected_times_and_launches(name: str) -> None:
    content = (DATA / name).read_bytes()
    expected, profile = EXPECTED[name], profile_of(gzip.decompress(content) if name.endswith(".gz") else content)

    expected_us = sum(expected[part]["sum_us"] for part in ("kernels", "memcpy", "memset"))
    assert sum(row.total_ns for row in profile.rows) + profile.left_out_ns == pytest.approx(1e3 * expected_us, rel=1e-9)
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
    profile = profile_of(trace(*(kernel(f"k{at:02}", 100 * at, at + 1) for at in range(MOST_ROWS + 2))))

    assert len(profile.rows) == MOST_ROWS
    assert (profile.left_out_count, profile.left_out_ns) == (2, 1_000 + 2_000)
    assert profile.rows[0].name == f"k{MOST_ROWS + 1}"


def test_names_are_cut_to_what_a_record_can_hold_and_invalid_fields_are_unknown() -> None:
    long = "void gemm<" + "float, " * 200
    odd = kernel("half \ud800\0", 30, 1, grid=[1, -1, 1], block="256", **{"registers per thread": True})
    profile = profile_of(trace(kernel(long + "1>", 0, 8), kernel(long + "2>", 10, 8), odd, kernel("", 40, 0.5)))

    assert [(row.name, row.count) for row in profile.rows] == [(long[:MOST_NAME], 2), ("half ?", 1), ("(unnamed)", 1)]
    assert (profile.rows[1].grid, profile.rows[1].block, profile.rows[1].registers) == ((), (), None)


def test_a_trace_without_a_device_has_the_operators_of_the_host() -> None:
    inside = {"cat": "cpu_op", "name": "aten::mm", "ts": 2, "dur": 6}
    profile = profile_of(trace({"cat": "cpu_op", "name": "aten::matmul", "ts": 0, "dur": 10}, inside))

    assert [(row.kind, row.device, row.name, row.total_ns) for row in profile.rows] == [
        ("operator", "cpu", "aten::mm", 6_000),
        ("operator", "cpu", "aten::matmul", 4_000),
    ]
    assert (profile.span_ns, profile.busy_ns) == (10_000, 10_000)


@pytest.mark.parametrize(
    ("content", "why"),
    [(b'{"traceEvents": []}', "recorded neither"), (b"{}", "no trace"), (b'{"traceEvents": [{"ph":', "not a whole")],
)
def test_a_trace_without_calls_is_an_error(content: bytes, why: str) -> None:
    with pytest.raises(ProfileError, match=why):
        profile_of(content)

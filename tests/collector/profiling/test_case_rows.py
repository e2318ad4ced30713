"""What a record says of the calls of a case, by traces of real GPUs and by one of this CPU."""

import gzip
import json
import math
from pathlib import Path
from typing import Any

import pytest

from roofwatch.collector.profiling.case_profile import profile_of_calls
from roofwatch.collector.profiling.profile_file import ProfileError
from roofwatch.collector.record.results import MOST_NAME, MOST_ROWS, CaseProfile
from tests.builders import CASE_ID

DATA = Path(__file__).parents[2] / "data" / "profiles"
EXPECTED: dict[str, Any] = json.loads((DATA / "expected.json").read_text())
TRACES = (
    *("simple_add_a100.json", "multi_stream_events_a100.json.gz", "alexnet_a100.json.gz", "bert_small_h100.json.gz"),
    "gemm_mi300.json",
)


def profile_of(content: bytes) -> CaseProfile:
    return profile_of_calls(content, case_id=CASE_ID, implementation="torch", call_count=2)


def of_file(name: str) -> CaseProfile:
    content = (DATA / name).read_bytes()
    return profile_of(gzip.decompress(content) if name.endswith(".gz") else content)


def trace(*events: dict[str, Any]) -> bytes:
    return json.dumps({"traceEvents": [{"ph": "X", "pid": 0, "tid": 7, **event} for event in events]}).encode()


def kernel(name: str, start_us: float, for_us: float, **arguments: Any) -> dict[str, Any]:
    return {"cat": "kernel", "name": name, "ts": start_us, "dur": for_us, "args": {"device": 0, **arguments}}


@pytest.mark.parametrize("name", TRACES)
def test_the_rows_of_a_real_trace_have_the_expected_counts_and_times(name: str) -> None:
    expected, profile = EXPECTED[name], of_file(name)

    rows_of = {kind: [row for row in profile.rows if row.kind == kind] for kind in ("kernel", "memcpy", "memset")}
    kinds = {"kernel": "kernels", "memcpy": "memcpy", "memset": "memset"}
    assert math.isclose(
        sum(row.total_ns for row in profile.rows) + profile.left_out_ns,
        1e3 * sum(expected[part]["sum_us"] for part in kinds.values()),
        rel_tol=1e-9,
    ), "nothing is dropped without being told"
    longest = {row.name: row for row in rows_of["kernel"]}
    for told in expected["kernels"]["top_by_total_time"][:3]:
        row = longest[told["name"][:MOST_NAME]]
        assert row.count == told["count"]
        assert row.total_ns / 1e3 == pytest.approx(told["sum_us"], rel=1e-9)
    if profile.left_out_count == 0:
        assert sum(row.count for row in rows_of["kernel"]) == expected["kernels"]["count"]
        assert sum(row.bytes or 0 for row in rows_of["memcpy"]) == expected["memcpy"]["bytes"]


@pytest.mark.parametrize("name", ["simple_add_a100.json", "gemm_mi300.json"])
def test_how_a_kernel_was_launched_comes_along(name: str) -> None:
    profile = of_file(name)

    told = EXPECTED[name]["kernels"]["top_by_total_time"][0]
    first = next(row for row in profile.rows if row.kind == "kernel")
    assert list(first.grid) == told["first_launch"]["grid"]
    assert list(first.block) == told["first_launch"]["block"]
    assert first.registers == told["first_launch"].get("registers_per_thread")
    assert first.configuration_count == told["distinct_launch_configs"]
    delay = EXPECTED[name]["launches"]["delay_call_start_to_kernel_start"]["median_us"]
    assert profile.launch_delay_ns == pytest.approx(1e3 * delay)


def test_the_device_is_busy_where_anything_is_under_way() -> None:
    profile = profile_of(trace(kernel("a", 0, 4), kernel("b", 2, 4), kernel("a", 10, 5)))

    assert (profile.span_ns, profile.busy_ns, profile.idle_ns) == (15_000, 11_000, 4_000)
    assert [(row.name, row.count, row.mean_ns, row.max_ns) for row in profile.rows] == [
        ("a", 2, 4_500, 5_000),
        ("b", 1, 4_000, 4_000),
    ]
    assert profile.launch_delay_ns is None


def test_what_is_beyond_the_longest_is_counted_together() -> None:
    profile = profile_of(trace(*(kernel(f"k{at:02}", 100 * at, at + 1) for at in range(MOST_ROWS + 2))))

    assert len(profile.rows) == MOST_ROWS
    assert (profile.left_out_count, profile.left_out_ns) == (2, 1_000 + 2_000)
    assert profile.rows[0].name == f"k{MOST_ROWS + 1}"


def test_names_are_cut_and_made_text_and_what_cannot_be_is_not_known() -> None:
    long = "void gemm<" + "float, " * 200
    odd = kernel("half \ud800\0", 30, 1, grid=[1, -1, 1], block="256", **{"registers per thread": True})
    profile = profile_of(trace(kernel(long + "1>", 0, 8), kernel(long + "2>", 10, 8), odd, kernel("", 40, 0.5)))

    assert [(row.name, row.count) for row in profile.rows] == [(long[:MOST_NAME], 2), ("half ?", 1), ("(unnamed)", 1)]
    assert (profile.rows[1].grid, profile.rows[1].block, profile.rows[1].registers) == ((), (), None)


def test_without_a_device_the_operators_of_the_host_are_told() -> None:
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
def test_what_holds_no_calls_is_an_error(content: bytes, why: str) -> None:
    with pytest.raises(ProfileError, match=why):
        profile_of(content)

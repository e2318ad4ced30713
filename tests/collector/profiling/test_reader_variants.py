"""Variants of profiler files: locales, encodings, older schemas, and files that were not closed."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from roofwatch.collector.profiling.ncu_metrics import counters_of
from roofwatch.collector.profiling.number_text import DecimalMark, number
from roofwatch.collector.profiling.profile_file import read_profile
from roofwatch.model.errors import ProfileError

HEADER = (
    '"ID","Kernel Name","Block Size","Grid Size","Section Name",'
    '"Metric Name","Metric Unit","Metric Value"'
)


def details_page(*rows: tuple[str, str, str]) -> str:
    lines = [HEADER]
    for metric, unit, value in rows:
        lines.append(f'"0","scale","(256, 1, 1)","(8, 1, 1)","s","{metric}","{unit}","{value}"')
    return "\n".join(lines) + "\n"


def write(folder: Path, content: str | bytes, name: str = "profile") -> Path:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def test_decimal_commas_of_ncu_are_read_as_such(tmp_path: Path) -> None:
    page = details_page(
        ("DRAM Throughput", "%", "61,84"),
        ("Duration", "nsecond", "1.234.567"),
        ("Registers Per Thread", "register/thread", "40"),
    )
    (kernel,) = read_profile(write(tmp_path, page))["kernels"]

    assert kernel["dram_throughput_pct"] == 61.84
    assert kernel["duration_ns"] == 1_234_567
    assert kernel["registers_per_thread"] == 40


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("98,86", 98.86),
        ("1.234,5", 1234.5),
        ("1.234", 1234),
        ("98.86", 98.86),  # as rules write an estimate
        ("n/a", None),
        ("nan", None),
    ],
)
def test_a_number_of_a_report_with_decimal_commas(text: str, value: float | None) -> None:
    assert number(text, DecimalMark.COMMA) == value


def test_commas_that_group_thousands_stay_thousands(tmp_path: Path) -> None:
    page = details_page(("DRAM Throughput", "%", "61.84"), ("Duration", "nsecond", "1,234,567"))
    (kernel,) = read_profile(write(tmp_path, page))["kernels"]

    assert (kernel["dram_throughput_pct"], kernel["duration_ns"]) == (61.84, 1_234_567)


def test_a_page_with_both_decimal_marks_is_refused(tmp_path: Path) -> None:
    page = details_page(("DRAM Throughput", "%", "61,84"), ("L2 Hit Rate", "%", "10.5"))

    with pytest.raises(ProfileError, match=r"'61,84' has a decimal comma.*LC_ALL=C"):
        read_profile(write(tmp_path, page))


def test_decimal_commas_of_the_raw_page_are_read(tmp_path: Path) -> None:
    page = (
        '"ID","Kernel Name","Block Size","Grid Size","dram__bytes.sum","sm__inst_issued.avg"\n'
        '"","","","","Mbyte","inst"\n'
        '"0","scale","(256, 1, 1)","(8, 1, 1)","1,5","0,125"\n'
    )
    (kernel,) = read_profile(write(tmp_path, page))["kernels"]

    assert kernel["dram_bytes"] == 1_500_000
    assert kernel["counters"] == {"sm__inst_issued.avg": 0.125}


def test_utf16_with_crlf_is_read(tmp_path: Path) -> None:
    page = details_page(("DRAM Throughput", "%", "61.84")).replace("\n", "\r\n")
    (kernel,) = read_profile(write(tmp_path, page.encode("utf-16")))["kernels"]
    assert kernel["dram_throughput_pct"] == 61.84

    trace = json.dumps({"traceEvents": [KERNEL_EVENT]}, indent=1).replace("\n", "\r\n")
    assert read_profile(write(tmp_path, trace.encode("utf-16")))["kernels"]["count"] == 1


def test_a_counter_that_is_nan_is_missing(tmp_path: Path) -> None:
    page = details_page(
        ("sm__cycles_active.avg", "cycle", "nan"),
        ("sm__inst_executed.sum", "inst", "1,024"),
        ("DRAM Throughput", "%", "-nan"),
    )
    (counters,) = counters_of(read_profile(write(tmp_path, page))["kernels"], "scale", "triton")

    assert counters.values == {"sm__inst_executed.sum": 1024.0}


def test_an_estimate_that_is_nan_is_no_estimate() -> None:
    rule = {
        "rule": "SOLBottleneck",
        "type": "OPT",
        "message": "Check",
        "estimated_speedup_pct": float("nan"),
        "speedup_scope": "global",
    }
    (counters,) = counters_of([{"name": "scale", "findings": [rule]}], "scale", "triton")

    assert counters.findings[0].estimated_speedup is None


KERNEL_EVENT = {
    "ph": "X",
    "cat": "kernel",
    "name": "scale",
    "ts": 10,
    "dur": 2,
    "args": {"device": 0, "stream": 7},
}


@pytest.mark.parametrize("end", ["", ",", ",\n", "\n"])
def test_a_bare_array_of_events_may_lack_its_end(tmp_path: Path, end: str) -> None:
    events = ",\n".join([json.dumps(KERNEL_EVENT)] * 3)

    assert read_profile(write(tmp_path, f"[\n{events}{end}"))["kernels"]["count"] == 3


def test_a_bare_array_that_ends_within_an_event_is_truncated(tmp_path: Path) -> None:
    events = json.dumps([KERNEL_EVENT, KERNEL_EVENT])

    with pytest.raises(ProfileError, match="not a whole trace"):
        read_profile(write(tmp_path, events[:-10]))


def test_an_export_of_schema_2_is_read(tmp_path: Path) -> None:
    path = tmp_path / "old.sqlite"
    with closing(sqlite3.connect(path)) as export, export:
        export.executescript(
            """
            CREATE TABLE StringIds (id INTEGER, value TEXT);
            INSERT INTO StringIds VALUES (1, 'scale(float *)'), (2, 'scale'),
                (3, 'cudaLaunchKernel_v7000');
            CREATE TABLE EXPORT_META_DATA (name TEXT, value TEXT);
            INSERT INTO EXPORT_META_DATA VALUES ('EXPORT_SCHEMA_VERSION', '2.9');
            CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, deviceId INTEGER,
                streamId INTEGER, correlationId INTEGER, globalPid INTEGER, demangledName INTEGER,
                shortName INTEGER, gridX INTEGER, gridY INTEGER, gridZ INTEGER, blockX INTEGER,
                blockY INTEGER, blockZ INTEGER);
            INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL
                VALUES (1000, 3500, 0, 7, 5, 16777216, 1, 2, 8, 1, 1, 256, 1, 1);
            CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER, end INTEGER, globalTid INTEGER,
                correlationId INTEGER, nameId INTEGER);
            INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (100, 200, 16777217, 5, 3);
            """
        )
    found = read_profile(path)

    assert found["export"] == {"EXPORT_SCHEMA_VERSION": "2.9"}
    (row,) = found["kernels"]["top_by_total_time"]
    assert (row["name"], row["sum_us"]) == ("scale(float *)", 2.5)
    assert found["launches"]["kernel_launches_by_name"] == {"cudaLaunchKernel": 1}


GPU_TRACE = """\
Start (ns),Duration (ns),CorrId,GrdX,GrdY,GrdZ,BlkX,BlkY,BlkZ,Reg/Trd,StcSMem (MB),DymSMem (MB),\
Bytes (MB),Throughput (MB/s),SrcMemKd,DstMemKd,Device,Ctx,GreenCtx,Strm,Name
1000,500,123,,,,,,,,,,4.194,6337.593,Pinned,Device,RTX (0),1,,13,[CUDA memcpy Host-to-Device]
2000,300,128,4096,1,1,256,1,1,16,0.000,0.001,,,,,RTX (0),1,,13,"scale<float>(float *, int)"
2200,300,129,4096,1,1,256,1,1,16,0.000,0.001,,,,,RTX (0),1,,14,"scale<float>(float *, int)"
3000,10,130,,,,,,,,,,0.001,100.0,Device,,RTX (0),1,,13,[CUDA memset]
"""


def test_the_gpu_trace_of_nsys_stats_is_read(tmp_path: Path) -> None:
    tool_line = "Processing [run.sqlite] with [cuda_gpu_trace.py]...\n"
    found = read_profile(write(tmp_path, tool_line + GPU_TRACE))

    (kernel,) = found["kernels"]["top_by_total_time"]
    assert (kernel["name"], kernel["count"], kernel["sum_us"]) == (
        "scale<float>(float *, int)",
        2,
        0.6,
    )
    assert kernel["first_launch"]["grid"] == [4096, 1, 1]
    assert found["memcpy"]["by_kind"]["Host-to-Device"]["bytes"] == 4_194_000
    assert found["memset"]["count"] == 1
    assert found["devices"]["RTX (0)"]["busy_us"] == 1.01

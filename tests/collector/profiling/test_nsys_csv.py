"""Statistics of Nsight Systems as CSV, in the columns that `nsys stats` prints."""

from pathlib import Path

import pytest

from roofwatch.collector.profiling.profile_file import read_profile, redact_profile
from roofwatch.collector.redaction import Redaction
from roofwatch.model.errors import ProfileError

TOOL_LINE = "Processing [/home/alice/run.sqlite] with [/opt/nsys/reports/cuda_gpu_kern_sum.py]..."
KERNELS = """Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name
25.0,1000,1,1000.0,1000.0,1000,1000,0.0,"void reduce<float, int>(float *, int)"
75.0,3000,2,1500.0,1500.0,1400,1600,141.4,matmul
"""
TIMES = """Time (%),Total Time (ns),Count,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Operation
100.0,2500,2,1250.0,1250.0,1000,1500,353.6,[CUDA memcpy Host-to-Device]
"""
SIZES = """Total (MB),Count,Avg (MB),Med (MB),Min (MB),Max (MB),StdDev (MB),Operation
4.194,2,2.097,2.097,2.097,2.097,0.000,[CUDA memcpy Host-to-Device]
"""
CALLS = """Time (%),Total Time (ns),Num Calls,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name
90.0,9000,3,3000.0,3000.0,2000,4000,1000.0,cudaLaunchKernel_v7000
10.0,1000,1,1000.0,1000.0,1000,1000,0.0,cudaMalloc_v3020
"""


def written(tmp_path: Path, *reports: str) -> Path:
    file = tmp_path / "stats"
    file.write_text("\n".join(f"{TOOL_LINE}\n{report}" for report in reports))
    return file


def test_sums_of_kernels_and_copies_are_read_report_by_report(tmp_path: Path) -> None:
    found = read_profile(written(tmp_path, KERNELS, TIMES, SIZES, CALLS))

    assert found["reports"] == [
        "cuda_api_sum",
        "cuda_gpu_kern_sum",
        "cuda_gpu_mem_size_sum",
        "cuda_gpu_mem_time_sum",
    ]
    kernels = found["kernels"]
    assert (kernels["count"], kernels["distinct_names"], kernels["sum_us"], kernels["max_us"]) == (
        3,
        2,
        4.0,
        1.6,
    )
    assert [row["name"] for row in kernels["top_by_total_time"]] == [
        "matmul",
        "void reduce<float, int>(float *, int)",
    ]
    assert kernels["top_by_total_time"][0]["mean_us"] == 1.5
    assert found["memcpy"] == {
        "count": 2,
        "sum_us": 2.5,
        "bytes": 4_194_000,
        "by_kind": {"Host-to-Device": {"count": 2, "sum_us": 2.5, "bytes": 4_194_000}},
    }
    assert found["launches"] == {"kernel_launches_by_name": {"cudaLaunchKernel": 3}}


@pytest.mark.parametrize(("unit", "scale"), [("us", 1e3), ("ms", 1e6), ("s", 1e9)])
def test_the_unit_comes_from_the_column_name(tmp_path: Path, unit: str, scale: float) -> None:
    report = f"Time (%),Total Time ({unit}),Instances,Name\n100.0,{3000 / scale:.9f},2,matmul\n"

    assert read_profile(written(tmp_path, report))["kernels"]["sum_us"] == 3.0


def test_a_report_that_ends_inside_a_row_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match="export it again"):
        read_profile(written(tmp_path, KERNELS.partition("void")[0]))


def test_a_redacted_copy_leaves_out_the_file_names_that_the_tool_prints(tmp_path: Path) -> None:
    file, copy = written(tmp_path, KERNELS, CALLS), tmp_path / "copy.csv"

    redact_profile(file, copy, Redaction())

    assert "alice" not in copy.read_text()
    assert read_profile(copy) == read_profile(file)

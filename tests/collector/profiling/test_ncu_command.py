"""Command lines of Nsight Compute, the process that it profiles, and its error messages."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from roofwatch.collector.profiling.ncu_command import (
    NcuAnswer,
    NcuJob,
    explain_error,
    import_command,
    last_error,
    profile_command,
    saw_no_kernel,
    target_command,
)
from roofwatch.collector.record.machine import Outcome
from roofwatch.collector.record.measurement import CacheState
from roofwatch.collector.suite import SuiteSource
from tests.roofwatch.command import SUITES

NCU, REPORT = Path("/opt/ncu"), Path("/tmp/a/report.ncu-rep")
TOTAL = "total/n=500/float32/fwd"


def test_a_set_is_counted_with_the_kept_metrics_on_cold_caches() -> None:
    command = profile_command(NCU, ["python", "job.json"], REPORT)

    assert " ".join(command) == (
        "/opt/ncu --target-processes application-only --profile-from-start off --replay-mode kernel "
        "--clock-control none --cache-control all --set full --metrics gpu__time_duration.sum,dram__bytes_read.sum,"
        "dram__bytes_write.sum,lts__t_bytes.sum,l1tex__t_bytes.sum,"
        "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active,"
        "sm__inst_executed_pipe_tensor.avg.pct_of_peak_sustained_active --force-overwrite "
        "--export /tmp/a/report.ncu-rep python job.json"
    )


def test_metrics_by_name_are_counted_alone_and_caches_stay_hot_on_demand() -> None:
    metrics = "dram__bytes.sum,lts__t_bytes.sum"

    assert " ".join(profile_command(NCU, ["python"], REPORT, metrics=metrics, cache=CacheState.HOT)) == (
        "/opt/ncu --target-processes application-only --profile-from-start off --replay-mode kernel "
        "--clock-control none --cache-control none --metrics dram__bytes.sum,lts__t_bytes.sum --force-overwrite "
        "--export /tmp/a/report.ncu-rep python"
    )
    assert " ".join(import_command(NCU, REPORT)) == (
        "/opt/ncu --import /tmp/a/report.ncu-rep --csv --page raw --print-kernel-base function"
    )


@pytest.mark.parametrize(
    ("line", "way_out"),
    [
        ("ERR_NVGPUCTRPERM - The user does not have permission to access counters", "sudo -E.*CAP_SYS_ADMIN"),
        ("Profiling failed because a driver resource was unavailable.", "dcgmi profile --pause.*--resume"),
        ("Failed to find metric dram__bites.sum", r"dram__bites\.sum.*--query-metrics"),
    ],
)
def test_a_known_error_is_explained_with_a_way_out(line: str, way_out: str) -> None:
    explanation = explain_error(f"==PROF== Connected to process 1\n==ERROR== {line}\n")
    assert explanation is not None
    assert re.search(way_out, explanation)


def test_output_of_the_program_is_not_an_error_of_the_tool() -> None:
    assert explain_error("a test prints ERR_NVGPUCTRPERM\n==PROF== Report: /tmp/report.ncu-rep\n") is None
    failed = "==ERROR== Could not open the device\n==ERROR== The application returned an error code (1).\n"
    assert last_error(failed) == "Could not open the device"
    assert last_error("==ERROR== The application returned an error code (11).\n") is None
    assert saw_no_kernel("==WARNING== No kernels were profiled.\n")


def run_target(tmp_path: Path, **fields: object) -> NcuAnswer:
    """Do a job in the process that Nsight Compute would profile."""
    answer, job_file = tmp_path / "answer.json", tmp_path / "job.json"
    defaults = {
        "source": SuiteSource(SUITES / "bench_good.py"),
        "case_id": TOTAL,
        "implementation": "eager",
        "device": "cpu",
        "warm_up_count": 1,
        "answer": answer,
    }
    job_file.write_text(NcuJob.model_validate(defaults | fields).model_dump_json())
    subprocess.run(target_command(sys.executable, job_file), check=True, cwd=tmp_path)
    return NcuAnswer.model_validate_json(answer.read_bytes())


@pytest.mark.slow
def test_the_target_makes_the_call_despite_packages_in_its_working_directory(tmp_path: Path) -> None:
    (tmp_path / "collector.py").write_text("raise SystemExit('the wrong package')\n")

    assert run_target(tmp_path) == NcuAnswer()
    assert run_target(tmp_path, case_id="total/n=500/float32/bwd") == NcuAnswer()


@pytest.mark.slow
def test_a_kernel_that_fails_is_an_answer_with_its_outcome(tmp_path: Path) -> None:
    answer = run_target(tmp_path, case_id="scale/n=1000/float32/fwd", implementation="triton")

    assert answer.failure is not None
    assert answer.failure.outcome is not Outcome.OK
    assert run_target(tmp_path, case_id="missing").failure is not None

"""The command lines of Nsight Compute, word by word."""

import subprocess
import sys
from pathlib import Path

import pytest

from roofwatch.collector.profiling.ncu.command import CounterChoice, import_command, profile_command, target_command
from roofwatch.collector.profiling.ncu.job import NcuAnswer, NcuJob
from roofwatch.collector.record.machine import Outcome
from roofwatch.collector.record.measurement import CacheState
from roofwatch.collector.suite import SuiteSource
from tests.roofwatch.command import SUITES

NCU, REPORT = Path("/opt/ncu"), Path("/tmp/a/report.ncu-rep")
TOTAL = "total/n=500/float32/fwd"


def test_a_set_is_counted_with_the_kept_metrics_on_cold_caches_at_the_clock_as_it_is() -> None:
    command = profile_command(NCU, ["python", "job.json"], CounterChoice("full"), REPORT)

    assert " ".join(command) == (
        "/opt/ncu --target-processes application-only --profile-from-start off --replay-mode kernel "
        "--clock-control none --cache-control all --set full --metrics gpu__time_duration.sum,dram__bytes_read.sum,"
        "dram__bytes_write.sum,lts__t_bytes.sum,l1tex__t_bytes.sum,"
        "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active,"
        "sm__inst_executed_pipe_tensor.avg.pct_of_peak_sustained_active --force-overwrite "
        "--export /tmp/a/report.ncu-rep python job.json"
    )


def test_metrics_by_name_are_counted_alone_and_caches_left_hot_on_demand() -> None:
    choice = CounterChoice("dram__bytes.sum,lts__t_bytes.sum", CacheState.HOT)
    command = profile_command(NCU, ["python"], choice, REPORT)

    assert " ".join(command) == (
        "/opt/ncu --target-processes application-only --profile-from-start off --replay-mode kernel "
        "--clock-control none --cache-control none --metrics dram__bytes.sum,lts__t_bytes.sum --force-overwrite "
        "--export /tmp/a/report.ncu-rep python"
    )


def test_a_page_of_a_report_is_printed_as_csv_with_the_names_that_the_module_gives_kernels() -> None:
    assert " ".join(import_command(NCU, REPORT, "raw")) == (
        "/opt/ncu --import /tmp/a/report.ncu-rep --csv --page raw --print-kernel-base function"
    )


def run_target(tmp_path: Path, **fields: object) -> NcuAnswer:
    """Do a job in the process that Nsight Compute would look into."""
    answer = tmp_path / "answer.json"
    usual = {
        "source": SuiteSource(SUITES / "bench_good.py"),
        "case_id": TOTAL,
        "implementation": "eager",
        "device": "cpu",
        "warm_up_count": 1,
        "answer": answer,
    }
    job_file = tmp_path / "job.json"
    job_file.write_text(NcuJob.model_validate(usual | fields).model_dump_json())
    subprocess.run(target_command(sys.executable, job_file), check=True, cwd=tmp_path)
    return NcuAnswer.model_validate_json(answer.read_bytes())


@pytest.mark.slow
def test_the_target_makes_the_call_whatever_packages_the_folder_it_starts_in_has(tmp_path: Path) -> None:
    (tmp_path / "collector.py").write_text("raise SystemExit('not the package that was meant')\n")

    assert run_target(tmp_path) == NcuAnswer()


@pytest.mark.slow
def test_a_backward_call_is_made_too(tmp_path: Path) -> None:
    assert run_target(tmp_path, case_id="total/n=500/float32/bwd") == NcuAnswer()


@pytest.mark.slow
def test_a_kernel_that_fails_is_an_answer_with_its_outcome(tmp_path: Path) -> None:
    answer = run_target(tmp_path, case_id="scale/n=1000/float32/fwd", implementation="triton")

    assert answer.failure is not None
    assert answer.failure.outcome is not Outcome.OK
    assert run_target(tmp_path, case_id="gone").failure is not None

"""Counters of Nsight Compute: its command lines and errors, calls under a stand-in for it, and its
files.
"""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from roofwatch.collector.profiling import ncu_count
from roofwatch.collector.profiling.executed_work import WORK_METRICS
from roofwatch.collector.profiling.ncu_count import (
    CountedCall,
    NcuError,
    NcuJob,
    count_call,
    profile_command,
)
from roofwatch.collector.profiling.ncu_metrics import (
    NcuMetric,
    counters_of,
    facts,
    stall_shares,
    stalls_of,
)
from roofwatch.collector.profiling.profile_file import read_profile
from roofwatch.install import python_command
from roofwatch.model.machine import Outcome
from roofwatch.model.measurement import CacheState
from roofwatch.model.suite_source import SuiteSource
from roofwatch.model.worker_protocol import Failure
from tests.roofwatch.command import SUITES

NCU, REPORT = Path("/opt/ncu"), Path("/tmp/a/report.ncu-rep")


def test_a_set_is_counted_with_the_kept_metrics_on_cold_caches() -> None:
    assert " ".join(profile_command(NCU, ["python", "job.json"], REPORT)) == (
        "/opt/ncu --target-processes application-only --profile-from-start off --replay-mode "
        "kernel "
        "--clock-control none --cache-control all --set full --metrics "
        "gpu__time_duration.sum,dram__bytes_read.sum,"
        "dram__bytes_write.sum,lts__t_bytes.sum,l1tex__t_bytes.sum,"
        "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active,"
        "sm__inst_executed_pipe_tensor.avg.pct_of_peak_sustained_active,"
        f"{','.join(WORK_METRICS)} --force-overwrite "
        "--export /tmp/a/report.ncu-rep python job.json"
    )


def test_metrics_by_name_are_counted_alone() -> None:
    metrics = "dram__bytes.sum,lts__t_bytes.sum"
    command = profile_command(NCU, ["python"], REPORT, metrics=metrics, cache=CacheState.HOT)

    assert " ".join(command) == (
        "/opt/ncu --target-processes application-only --profile-from-start off --replay-mode "
        "kernel "
        "--clock-control none --cache-control none --metrics dram__bytes.sum,lts__t_bytes.sum "
        "--force-overwrite "
        "--export /tmp/a/report.ncu-rep python"
    )


def test_metrics_that_this_ncu_does_not_know_are_left_out(tmp_path: Path) -> None:
    tool = tmp_path / "ncu"
    tool.write_text(
        "#!/bin/sh\necho 'Device NVIDIA H100'\necho 'dram__bytes_read  byte  # of bytes read from "
        "DRAM'\n"
    )
    tool.chmod(0o755)
    assert ncu_count.known_metrics(tool, 60.0) == ("dram__bytes_read.sum",)
    # one that a GPU does not have would end the whole run
    assert ncu_count.known_metrics(tmp_path / "missing", 60.0) == ncu_count.KEPT_METRICS[:5]


def run_target(tmp_path: Path, case_id: str) -> Failure | None:
    """Do a job in the process that Nsight Compute would profile."""
    answer, job_file = tmp_path / "answer.json", tmp_path / "job.json"
    source = SuiteSource(SUITES / "bench_good.py")
    job = NcuJob(
        source=source,
        case_id=case_id,
        implementation="torch",
        device="cpu",
        warm_up_count=1,
        answer=answer,
    )
    job_file.write_text(job.model_dump_json())
    subprocess.run(
        python_command("roofwatch.collector.jobs.ncu_target", str(job_file)),
        check=True,
        cwd=tmp_path,
    )
    return ncu_count.ANSWER.validate_json(answer.read_bytes())


@pytest.mark.slow
def test_the_target_makes_the_call_despite_packages_in_its_working_directory(
    tmp_path: Path,
) -> None:
    (tmp_path / "collector.py").write_text("raise SystemExit('the wrong package')\n")

    assert run_target(tmp_path, "total/n=500/float32/fwd") is None
    assert run_target(tmp_path, "total/n=500/float32/bwd") is None


ANSWERS = """
job = json.loads(pathlib.Path(json.loads(sys.argv[-1])[0]).read_text())
pathlib.Path(job["answer"]).write_text('{ANSWER}')
"""
FINE = ANSWERS.replace("{ANSWER}", "null")
FAILS = ANSWERS.replace("{ANSWER}", '{"outcome": "out_of_memory", "message": "CUDA out of memory"}')
NO_DRIVER_RESOURCE = "Profiling failed because a driver resource was unavailable."
REPORTS = "pathlib.Path(sys.argv[sys.argv.index('--export') + 1]).write_bytes(b'no report')\n"


def count(stand_in: str, tmp_path: Path, *, timeout_s: float = 30.0) -> CountedCall:
    pytest.importorskip(
        "ncu_report", reason="the module that reads Nsight Compute's reports is not installed"
    )
    tool = tmp_path / "ncu"
    tool.write_text(f"#!{sys.executable}\nimport json, pathlib, sys, time\n{stand_in}")
    tool.chmod(0o755)
    source = SuiteSource(tmp_path)
    return count_call(source, "k/n=1/float32/fwd", "triton", executable=tool, timeout_s=timeout_s)


@pytest.mark.parametrize(
    ("stand_in", "message"),
    [
        (
            f"{FINE}print('==ERROR== ERR_NVGPUCTRPERM - The user does not have permission')",
            "sudo -E.*CAP_SYS_ADMIN",
        ),
        (f"{FAILS}print('==ERROR== {NO_DRIVER_RESOURCE}')", "dcgmi profile --pause.*--resume"),
        (f"{FINE}print('==ERROR== The disk is gone')", "wrote no report: The disk is gone"),
        (
            "print('==ERROR== Failed to find metric a__b.sum'); sys.exit(1)",
            r"a__b\.sum.*--query-metrics",
        ),
    ],
)
def test_a_problem_of_the_machine_is_an_error_with_a_way_out(
    stand_in: str, message: str, tmp_path: Path
) -> None:
    with pytest.raises(NcuError, match=message):
        count(stand_in, tmp_path)


@pytest.mark.parametrize(
    ("stand_in", "outcome", "message"),
    [
        (FAILS, Outcome.OUT_OF_MEMORY, "CUDA out of memory"),
        (FAILS + REPORTS, Outcome.OUT_OF_MEMORY, "CUDA out of memory"),
        (
            f"{FINE}print('==WARNING== No kernels were profiled.')",
            Outcome.UNSUPPORTED,
            "launches no kernel",
        ),
        (
            "print('Segmentation fault'); sys.exit(11)",
            Outcome.CRASHED,
            "last output: Segmentation fault",
        ),
        (
            f"{FAILS}print('a test prints ERR_NVGPUCTRPERM')",
            Outcome.OUT_OF_MEMORY,
            "CUDA out of memory",
        ),
        (
            "print('==ERROR== The application returned an error code (11).')",
            Outcome.CRASHED,
            "without an answer",
        ),
    ],
)
def test_a_problem_of_the_kernel_is_an_outcome(
    stand_in: str, outcome: Outcome, message: str, tmp_path: Path
) -> None:
    call = count(stand_in, tmp_path)

    assert call.outcome is outcome
    assert message in (call.message or "")
    assert call.counters == ()


def test_a_call_that_hangs_is_ended_with_all_it_has_started(tmp_path: Path) -> None:
    call = count("while True: time.sleep(60)", tmp_path, timeout_s=0.2)

    assert (call.outcome, call.message) == (Outcome.TIMED_OUT, "not counted after 0.2 s")


@pytest.mark.gpu
def test_a_case_of_our_own_suite_is_counted() -> None:
    try:
        executable = ncu_count.find_ncu()
    except NcuError as error:
        pytest.skip(str(error))
    try:
        case_id = "swiglu/n_rows=256,n_cols=11008/bfloat16/fwd"
        call = count_call(SuiteSource(), case_id, "triton", executable=executable)
    except NcuError as error:
        if "ERR_NVGPUCTRPERM" not in str(error):
            raise
        pytest.skip(f"counters cannot be read here: {error}")
    assert call.outcome is Outcome.OK, call.message
    (kernel,) = call.counters
    assert kernel.values["duration_ns"] > 0
    assert 0 < kernel.values["dram_throughput_share"] <= 1
    assert kernel.values["dram_read_bytes"] > 0


# --- metrics and rules of a report


DATA = Path(__file__).parents[2] / "data" / "profiles"
LONG = "smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio"
WAIT = "smsp__average_warps_issue_stalled_wait_per_issue_active.ratio"
SELECTED = "smsp__average_warps_issue_stalled_selected_per_issue_active.ratio"


def of(**values: float) -> dict[str, list[NcuMetric]]:
    return {name: [NcuMetric(value, "")] for name, value in values.items()}


def test_findings_are_sorted_by_estimated_speedup() -> None:
    (counters,) = counters_of(
        read_profile(DATA / "copy_blocked_details.csv")["kernels"], "copy/n=1/int64/fwd", "cuda"
    )

    assert [
        (
            finding.rule,
            finding.estimated_speedup and round(finding.estimated_speedup, 4),
            finding.is_estimate_of_a_part,
        )
        for finding in counters.findings
    ] == [
        ("UncoalescedGlobalAccess", 0.7414, False),
        ("MemoryCacheAccessPattern", 0.4514, False),
        ("MemoryCacheAccessPattern", 0.4296, False),
        ("CPIStall", 0.3816, False),
        ("CPIStall", 0.3816, False),
        ("HighPipeUtilization", 0.9886, True),
        ("IssueSlotUtilization", 0.3816, True),
        ("SOLBottleneck", None, False),
        ("MemoryL2Compression", None, False),
    ]


def test_stall_reasons_are_shares_of_a_warps_time() -> None:
    assert list(stall_shares(of(**{LONG: 6.0, WAIT: 1.0, SELECTED: 1.0})).items()) == [
        ("long_scoreboard", 0.75),
        ("wait", 0.125),
    ]
    values = {"stall_wait_share": 0.1, "stall_barrier_share": 0.3, "dram_throughput_share": 0.9}
    assert list(stalls_of(values).items()) == [("barrier", 0.3), ("wait", 0.1)]


def test_stall_reasons_come_from_samples_without_counters() -> None:
    samples: dict[str, Any] = {
        "smsp__pcsamp_warps_issue_stalled_barrier": 30.0,
        "smsp__pcsamp_warps_issue_stalled_barrier_not_issued": 29.0,
        "smsp__pcsamp_warps_issue_stalled_selected": 10.0,
    }
    assert stall_shares(of(**samples)) == {"barrier": 0.75}
    assert stall_shares(of(**samples, **{WAIT: 2.0})) == {"wait": 1.0}
    assert stall_shares(of(**{WAIT: 0.0})) == {}


def test_dram_bytes_are_reads_plus_writes_unless_reported() -> None:
    both = {"dram__bytes_read.sum": 300.0, "dram__bytes_write.sum": 100.0}
    assert facts(of(**both))["dram_bytes"] == 400.0
    assert facts(of(**both, **{"dram__bytes.sum": 410.0}))["dram_bytes"] == 410.0
    assert "dram_bytes" not in facts(of(**{"dram__bytes_read.sum": 300.0}))


@pytest.mark.parametrize(
    ("name", "architecture"),
    [
        ("sm__pipe_tc_cycles_active.avg.pct_of_peak_sustained_elapsed", "Blackwell"),
        ("sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active", "Ampere and Hopper"),
        (
            "sm__pipe_tensor_op_hmma_cycles_active.avg.pct_of_peak_sustained_active",
            "Volta and Turing",
        ),
    ],
)
def test_the_tensor_metric_of_each_architecture_is_read(name: str, architecture: str) -> None:
    assert facts({name: [NcuMetric(61.0, "%")]})["tensor_pipe_pct"] == 61.0, architecture

"""A call under a stand-in for Nsight Compute that fails as the real one does."""

import sys
from pathlib import Path

import pytest

from roofwatch.collector.profiling.ncu_count import CountedCall, NcuError, count_call, find_ncu
from roofwatch.collector.record.machine import Outcome
from roofwatch.collector.suite import SuiteSource

pytest.importorskip("ncu_report", reason="the module that reads Nsight Compute's reports is not installed")

ANSWERS = """
job = json.loads(pathlib.Path(sys.argv[-1]).read_text())
pathlib.Path(job["answer"]).write_text('{ANSWER}')
"""
FINE = ANSWERS.replace("{ANSWER}", "{}")
FAILS = ANSWERS.replace("{ANSWER}", '{"failure": {"outcome": "out_of_memory", "message": "CUDA out of memory"}}')
REPORTS = "pathlib.Path(sys.argv[sys.argv.index('--export') + 1]).write_bytes(b'no report')\n"


def count(stand_in: str, tmp_path: Path, *, timeout_s: float = 30.0) -> CountedCall:
    tool = tmp_path / "ncu"
    tool.write_text(f"#!{sys.executable}\nimport json, pathlib, sys, time\n{stand_in}")
    tool.chmod(0o755)
    source = SuiteSource(tmp_path)
    return count_call(source, "k/n=1/float32/fwd", "triton", executable=tool, timeout_s=timeout_s)


@pytest.mark.parametrize(
    ("stand_in", "message"),
    [
        (f"{FINE}print('==ERROR== ERR_NVGPUCTRPERM - The user does not have permission')", "CAP_SYS_ADMIN"),
        (f"{FAILS}print('==ERROR== Profiling failed because a driver resource was unavailable.')", "dcgmi profile"),
        (f"{FINE}print('==ERROR== The disk is gone')", "wrote no report: The disk is gone"),
        ("print('==ERROR== Failed to find metric a__b.sum'); sys.exit(1)", "Failed to find metric a__b.sum"),
    ],
)
def test_a_problem_of_the_machine_is_an_error_with_a_way_out(stand_in: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(NcuError, match=message):
        count(stand_in, tmp_path)


@pytest.mark.parametrize(
    ("stand_in", "outcome", "message"),
    [
        (FAILS, Outcome.OUT_OF_MEMORY, "CUDA out of memory"),
        (FAILS + REPORTS, Outcome.OUT_OF_MEMORY, "CUDA out of memory"),
        (f"{FINE}print('==WARNING== No kernels were profiled.')", Outcome.UNSUPPORTED, "launches no kernel"),
        ("print('Segmentation fault'); sys.exit(11)", Outcome.CRASHED, "last output: Segmentation fault"),
    ],
)
def test_a_problem_of_the_kernel_is_an_outcome(stand_in: str, outcome: Outcome, message: str, tmp_path: Path) -> None:
    call = count(stand_in, tmp_path)

    assert call.failure is not None
    assert call.failure.outcome is outcome
    assert message in call.failure.message
    assert call.counters == ()


def test_a_call_that_hangs_is_ended_with_all_it_has_started(tmp_path: Path) -> None:
    call = count("while True: time.sleep(60)", tmp_path, timeout_s=0.2)

    assert call.failure is not None
    assert (call.failure.outcome, call.failure.message) == (Outcome.TIMED_OUT, "not counted after 0.2 s")


@pytest.mark.gpu
def test_a_case_of_our_own_suite_is_counted() -> None:
    try:
        executable = find_ncu()
    except NcuError as error:
        pytest.skip(str(error))
    try:
        call = count_call(
            SuiteSource(),
            "swiglu/n_rows=256,n_cols=11008/bfloat16/fwd",
            "triton",
            executable=executable,
        )
    except NcuError as error:
        pytest.skip(f"counters cannot be read here: {error}")
    assert call.failure is None, call.failure
    (kernel,) = call.counters
    assert kernel.values["duration_ns"] > 0
    assert 0 < kernel.values["dram_throughput_share"] <= 1
    assert kernel.values["dram_read_bytes"] > 0

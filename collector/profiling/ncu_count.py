"""Count what the kernels of a case do, with NVIDIA Nsight Compute.

A kernel that fails is an outcome; counters that no kernel could read are an `NcuError`.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from roofwatch.collector.errors import CollectorError
from roofwatch.collector.profiling.ncu_command import (
    CounterChoice,
    NcuAnswer,
    NcuJob,
    explain_error,
    import_command,
    last_error,
    profile_command,
    saw_no_kernel,
    target_command,
)
from roofwatch.collector.profiling.ncu_csv import read_ncu_csv
from roofwatch.collector.profiling.ncu_metrics import counters_of
from roofwatch.collector.profiling.ncu_report import is_report_readable, read_ncu_report
from roofwatch.collector.record.machine import Outcome
from roofwatch.collector.record.results import Counters
from roofwatch.collector.suite import SuiteSource
from roofwatch.collector.workers.protocol import Failure

_USUAL_PLACES = ("usr/local/cuda/bin/ncu", "opt/nvidia/nsight-compute/*/ncu")
_TAIL_CHARACTERS = 1_500
_IMPORT_TIMEOUT_S = 300.0
_KILL_TIMEOUT_S = 5.0


class NcuError(CollectorError):
    """Nsight Compute is missing or cannot count on this machine; the message gives a way out."""


@dataclass(frozen=True)
class CountingPlan:
    """How to count; `timeout_s` covers all passes over all kernels of a call."""

    choice: CounterChoice = field(default_factory=CounterChoice)
    device: str = "cuda"
    warm_up_count: int = 3
    timeout_s: float = 900.0


@dataclass(frozen=True)
class CountedCall:
    """The counters of one call, or how it failed."""

    case_id: str
    implementation: str
    command: tuple[str, ...]
    counters: tuple[Counters, ...] = ()
    device_name: str | None = None
    """None if the report was read through its CSV, which has no name of the device."""
    failure: Failure | None = None


def find_ncu() -> Path:
    """Find ncu on PATH, else the newest in the usual places.

    Raises:
        NcuError: it is not installed.
    """
    on_path = shutil.which("ncu")
    if on_path is not None:
        return Path(on_path)
    for pattern in _USUAL_PLACES:
        found = [file for file in sorted(Path("/").glob(pattern)) if os.access(file, os.X_OK)]
        if found:
            return found[-1]
    raise NcuError(
        "NVIDIA Nsight Compute is not installed: ncu is neither on PATH nor in the usual places; install the CUDA "
        "toolkit, or Nsight Compute from developer.nvidia.com/nsight-compute"
    )


def count_call(
    source: SuiteSource,
    case_id: str,
    implementation: str,
    plan: CountingPlan,
    *,
    executable: Path,
    output: Path | None = None,
) -> CountedCall:
    """Make one call of a case under Nsight Compute.

    Args:
        source: The suite.
        case_id: A case of the suite.
        implementation: An implementation of the case.
        plan: How to count.
        executable: From `find_ncu`.
        output: Keep the report here; a `.csv` file gets its raw page.

    Raises:
        NcuError: counters cannot be read on this machine.
        ProfileError: the report cannot be read.
    """
    with tempfile.TemporaryDirectory(prefix="roofwatch-ncu-") as name:
        folder = Path(name)
        job_file, report = folder / "job.json", folder / "report.ncu-rep"
        job = NcuJob(
            source=source,
            case_id=case_id,
            implementation=implementation,
            device=plan.device,
            warm_up_count=plan.warm_up_count,
            answer=folder / "answer.json",
        )
        job_file.write_text(job.model_dump_json())
        command = tuple(profile_command(executable, target_command(sys.executable, job_file), plan.choice, report))
        failure = _run(command, plan.timeout_s, job.answer, report)
        if failure is not None:
            return CountedCall(case_id, implementation, command, failure=failure)
        profile = read_report(executable, report)
        if output is not None:
            _keep(executable, report, output)
    has_device = profile["format"] == "ncu-rep" and profile["kernels"]
    return CountedCall(
        case_id,
        implementation,
        command,
        counters=counters_of(profile, case_id, implementation),
        device_name=profile["kernels"][0]["device"] if has_device else None,
    )


def read_report(executable: Path, report: Path) -> dict[str, Any]:
    """Read a report with NVIDIA's module, or from the CSV that ncu prints if the module is not installed.

    Raises:
        NcuError: ncu cannot print it.
        ProfileError: it cannot be read.
    """
    if is_report_readable():
        return read_ncu_report(report)
    profile, details = (
        read_ncu_csv(_print_page(executable, report, page), f"{report}, {page} page") for page in ("raw", "details")
    )
    if profile is None:
        raise NcuError(f"{report}: ncu printed no CSV; install the module that reads reports: pip install ncu-report")
    findings = {} if details is None else {kernel["id"]: kernel["findings"] for kernel in details["kernels"]}
    kernels = [kernel | {"findings": findings.get(kernel["id"], [])} for kernel in profile["kernels"]]
    return profile | {"kernels": kernels}


def _run(command: tuple[str, ...], timeout_s: float, answer_file: Path, report: Path) -> Failure | None:
    """Run ncu and return how the call failed; None if it was counted.

    Raises:
        NcuError: ncu failed, not the call.
    """
    status, output = _run_in_own_group(command, timeout_s)
    explanation = explain_error(output)
    if explanation is not None:  # first: a permission problem may also surface as an error of the kernel
        raise NcuError(f"Nsight Compute: {explanation}")
    if status is None:
        return Failure(outcome=Outcome.TIMED_OUT, message=f"not counted after {timeout_s:g} s")
    try:
        answer = NcuAnswer.model_validate_json(answer_file.read_bytes())
    except (OSError, ValidationError):
        answer = None
    if answer is not None and (answer.failure is not None or report.exists()):
        return answer.failure
    error, tail = last_error(output), output[-_TAIL_CHARACTERS:].strip()
    if answer is None and error is None:
        return Failure(outcome=Outcome.CRASHED, message=f"the process ended without an answer; its last output: {tail}")
    if answer is not None and saw_no_kernel(output):
        return Failure(outcome=Outcome.UNSUPPORTED, message="the call launches no kernel, so there is nothing to count")
    raise NcuError(f"Nsight Compute wrote no report: {error or tail or f'exit status {status}'}")


def _run_in_own_group(command: tuple[str, ...], timeout_s: float) -> tuple[int | None, str]:
    """Run a command, end all processes that it started, and return its status (None: timed out) and output."""
    with tempfile.TemporaryFile() as log:
        try:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        except OSError as error:
            raise NcuError(f"{command[0]}: cannot be started: {error.strerror}") from None
        status: int | None = None
        try:
            with contextlib.suppress(subprocess.TimeoutExpired):
                status = process.wait(timeout_s)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(_KILL_TIMEOUT_S)
        log.seek(0)
        return status, log.read().decode(errors="replace")


def _print_page(executable: Path, report: Path, page: str) -> bytes:
    command = import_command(executable, report, page)
    try:
        done = subprocess.run(command, capture_output=True, timeout=_IMPORT_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NcuError(f"{report}: cannot print its {page} page: {error}") from None
    if done.returncode != 0:
        output = (done.stderr or done.stdout)[-_TAIL_CHARACTERS:].decode(errors="replace").strip()
        raise NcuError(f"{report}: cannot print its {page} page: {output or f'exit status {done.returncode}'}")
    return done.stdout


def _keep(executable: Path, report: Path, output: Path) -> None:
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        if output.suffix == ".csv":
            output.write_bytes(_print_page(executable, report, "raw"))
        else:
            shutil.copyfile(report, output)
    except OSError as error:
        raise NcuError(f"{output}: cannot write the report: {error.strerror}") from None

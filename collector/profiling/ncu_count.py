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
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from roofwatch.collector.errors import CollectorError
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
from roofwatch.collector.profiling.ncu_metrics import counters_of
from roofwatch.collector.profiling.ncu_report import read_ncu_report, require_module
from roofwatch.collector.record.machine import Outcome
from roofwatch.collector.record.measurement import CacheState
from roofwatch.collector.record.results import Counters
from roofwatch.collector.suite import SuiteSource
from roofwatch.collector.workers.protocol import Failure

_USUAL_PLACES = ("usr/local/cuda/bin/ncu", "opt/nvidia/nsight-compute/*/ncu")
_WARM_UP_COUNT = 3
_TAIL_CHARACTERS = 1_500
_IMPORT_TIMEOUT_S = 300.0
_KILL_TIMEOUT_S = 5.0


class NcuError(CollectorError):
    """Nsight Compute is missing or cannot count on this machine; the message gives a way out."""


@dataclass(frozen=True)
class CountedCall:
    """The counters of one call, or how it failed."""

    case_id: str
    implementation: str
    command: tuple[str, ...]
    counters: tuple[Counters, ...] = ()
    device_name: str | None = None
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
    *,
    executable: Path,
    metrics: str = "full",
    cache: CacheState = CacheState.COLD,
    timeout_s: float = 900.0,
    output: Path | None = None,
) -> CountedCall:
    """Make one call of a case under Nsight Compute; all passes over its kernels share `timeout_s`.

    Args:
        source: The suite of the case.
        case_id: The case.
        implementation: One of its implementations.
        executable: From `find_ncu`.
        metrics: A set of sections such as `basic` or `full`, or names of metrics separated by commas.
        cache: `cold` flushes the caches before each pass, `hot` does not.
        timeout_s: Time limit.
        output: Where to keep the report; a `.csv` file gets its raw page.

    Raises:
        NcuError: counters cannot be read on this machine.
        ProfileError: the report cannot be read, or NVIDIA's module for reading it is not installed.
    """
    require_module()
    with tempfile.TemporaryDirectory(prefix="roofwatch-ncu-") as name:
        folder = Path(name)
        job_file, report = folder / "job.json", folder / "report.ncu-rep"
        job = NcuJob(
            source=source,
            case_id=case_id,
            implementation=implementation,
            device="cuda",
            warm_up_count=_WARM_UP_COUNT,
            answer=folder / "answer.json",
        )
        job_file.write_text(job.model_dump_json())
        target = target_command(sys.executable, job_file)
        command = tuple(profile_command(executable, target, report, metrics=metrics, cache=cache))
        failure = _run(command, timeout_s, job.answer, report)
        if failure is not None:
            return CountedCall(case_id, implementation, command, failure=failure)
        profile = read_ncu_report(report)
        if output is not None:
            _keep(executable, report, output)
    kernels = profile["kernels"]
    return CountedCall(
        case_id,
        implementation,
        command,
        counters=counters_of(kernels, case_id, implementation),
        device_name=kernels[0]["device"] if kernels else None,
    )


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


def _print_raw_page(executable: Path, report: Path) -> bytes:
    command = import_command(executable, report)
    try:
        done = subprocess.run(command, capture_output=True, timeout=_IMPORT_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NcuError(f"{report}: ncu cannot print it: {error}") from None
    if done.returncode != 0:
        output = (done.stderr or done.stdout)[-_TAIL_CHARACTERS:].decode(errors="replace").strip()
        raise NcuError(f"{report}: ncu cannot print it: {output or f'exit status {done.returncode}'}")
    return done.stdout


def _keep(executable: Path, report: Path, output: Path) -> None:
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        if output.suffix == ".csv":
            output.write_bytes(_print_raw_page(executable, report))
        else:
            shutil.copyfile(report, output)
    except OSError as error:
        raise NcuError(f"{output}: cannot write the report: {error.strerror}") from None

"""Count what a case's kernels do, with NVIDIA Nsight Compute where it is installed.

A kernel that fails is an outcome. That counters cannot be read at all, for whatever kernel, is an `NcuError`.
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
from roofwatch.collector.profiling.ncu.command import (
    CounterChoice,
    counters_of,
    import_command,
    last_error,
    profile_command,
    saw_no_kernel,
    target_command,
    trouble_of,
)
from roofwatch.collector.profiling.ncu.job import NcuAnswer, NcuJob
from roofwatch.collector.profiling.ncu_files import is_report_readable, read_ncu_csv, read_ncu_report
from roofwatch.collector.record.machine import Outcome
from roofwatch.collector.record.results import Counters
from roofwatch.collector.suite import SuiteSource
from roofwatch.collector.workers.protocol import Failure

_USUAL_PLACES = ("/usr/local/cuda/bin/ncu", "/opt/nvidia/nsight-compute/*/ncu")
_TAIL_CHARACTERS = 1_500
_IMPORT_TIMEOUT_S = 300.0
_KILL_TIMEOUT_S = 5.0


class NcuError(CollectorError):
    """Nsight Compute is not there, or cannot count on this machine; the message says what helps."""


@dataclass(frozen=True)
class CountingPlan:
    """How to count.

    Args:
        choice: What.
        device: Where the call is made.
        warm_up_count: Calls before the one that counts.
        timeout_s: For all of it: a set takes dozens of passes over each kernel.
    """

    choice: CounterChoice = field(default_factory=CounterChoice)
    device: str = "cuda"
    warm_up_count: int = 3
    timeout_s: float = 900.0


@dataclass(frozen=True)
class CountedCall:
    """What came back of one call: counters, or how it failed."""

    case_id: str
    implementation: str
    command: tuple[str, ...]
    counters: tuple[Counters, ...] = ()
    device_name: str | None = None
    """None where the report was read through its CSV, which does not tell."""
    failure: Failure | None = None


def find_ncu() -> Path:
    """Nsight Compute's command line program: on PATH, else the newest in the usual places.

    Raises:
        NcuError: it is not installed.
    """
    on_path = shutil.which("ncu")
    if on_path is not None:
        return Path(on_path)
    for place in map(Path, _USUAL_PLACES):
        parts = place.relative_to("/").as_posix()
        found = [file for file in sorted(Path("/").glob(parts)) if os.access(file, os.X_OK)]
        if found:
            return found[-1]
    raise NcuError(
        "NVIDIA Nsight Compute is not installed: there is no ncu on PATH nor in the usual places; it comes with the "
        "CUDA toolkit, and alone from developer.nvidia.com/nsight-compute"
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
        case_id: A case of it.
        implementation: One of the case's implementations.
        plan: How to count.
        executable: From `find_ncu`.
        output: Keeps the report: a file that ends in `.csv` gets its raw page, any other the report itself.

    Raises:
        NcuError: counters cannot be read on this machine.
        ProfileError: the report that was written cannot be read.
    """
    with tempfile.TemporaryDirectory(prefix="roofwatch-ncu-") as name:
        folder = Path(name)
        job_file, report, answer = folder / "job.json", folder / "report.ncu-rep", folder / "answer.json"
        job = NcuJob(
            source=source,
            case_id=case_id,
            implementation=implementation,
            device=plan.device,
            warm_up_count=plan.warm_up_count,
            answer=answer,
        )
        job_file.write_text(job.model_dump_json())
        command = profile_command(executable, target_command(sys.executable, job_file), plan.choice, report)
        done = _run(command, plan.timeout_s)
        failure = _judge(done, _answer(answer), report, plan)
        if failure is not None:
            return CountedCall(case_id, implementation, tuple(command), failure=failure)
        profile = read_report(executable, report)
        if output is not None:
            _keep(executable, report, output)
    return CountedCall(
        case_id,
        implementation,
        tuple(command),
        counters=counters_of(profile, case_id, implementation),
        device_name=profile["kernels"][0].get("device")
        if profile["format"] == "ncu-rep" and profile["kernels"]
        else None,
    )


def read_report(executable: Path, report: Path) -> dict[str, Any]:
    """What a report says: through NVIDIA's module, or through `ncu`'s own CSV where that is not installed.

    Raises:
        NcuError: `ncu` cannot print it.
        ProfileError: it cannot be read.
    """
    if is_report_readable():
        return read_ncu_report(report)
    raw, details = (_page(executable, report, page) for page in ("raw", "details"))
    profile = read_ncu_csv(raw, f"{report}, raw page")
    described = read_ncu_csv(details, f"{report}, details page")
    if profile is None:
        raise NcuError(
            f"{report}: ncu printed no CSV of it; install ncu-report to read it without: pip install ncu-report"
        )
    findings = {kernel["id"]: kernel["findings"] for kernel in (described or {"kernels": []})["kernels"]}
    kernels = [kernel | {"findings": findings.get(kernel["id"], [])} for kernel in profile["kernels"]]
    return profile | {"kernels": kernels}


@dataclass(frozen=True)
class _Done:
    status: int | None
    """None: it took too long and was ended."""
    output: str


def _run(command: list[str], timeout_s: float) -> _Done:
    """Run a program in a group of its own, so that what it has started ends with it."""
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
        return _Done(status, log.read().decode(errors="replace"))


def _judge(done: _Done, answer: NcuAnswer | None, report: Path, plan: CountingPlan) -> Failure | None:
    """How the call failed; None if it was counted.

    Raises:
        NcuError: it is not the call's doing that nothing was counted.
    """
    trouble = trouble_of(done.output)
    if trouble is not None:  # first: what the driver refuses to the tool may come back as the kernel's error
        raise NcuError(f"Nsight Compute: {trouble}")
    if done.status is None:
        return Failure(outcome=Outcome.TIMED_OUT, message=f"not counted after {plan.timeout_s:g} s")
    if answer is not None and answer.failure is not None:
        return answer.failure
    if report.exists() and answer is not None:
        return None
    error = last_error(done.output)
    if answer is None and error is None:
        tail = done.output[-_TAIL_CHARACTERS:].strip()
        return Failure(outcome=Outcome.CRASHED, message=f"the process ended without an answer; its last output: {tail}")
    if answer is not None and saw_no_kernel(done.output):
        return Failure(outcome=Outcome.UNSUPPORTED, message="the call launches no kernel, so there is nothing to count")
    raise NcuError(f"Nsight Compute wrote no report: {error or done.output[-_TAIL_CHARACTERS:].strip() or done.status}")


def _answer(file: Path) -> NcuAnswer | None:
    try:
        return NcuAnswer.model_validate_json(file.read_bytes())
    except (OSError, ValidationError):
        return None


def _page(executable: Path, report: Path, page: str) -> bytes:
    try:
        done = subprocess.run(
            import_command(executable, report, page), capture_output=True, timeout=_IMPORT_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NcuError(f"{report}: its {page} page cannot be printed: {error}") from None
    if done.returncode != 0:
        said = (done.stderr or done.stdout)[-_TAIL_CHARACTERS:].decode(errors="replace").strip()
        raise NcuError(f"{report}: its {page} page cannot be printed: {said or f'exit status {done.returncode}'}")
    return done.stdout


def _keep(executable: Path, report: Path, output: Path) -> None:
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        if output.suffix == ".csv":
            output.write_bytes(_page(executable, report, "raw"))
        else:
            shutil.copyfile(report, output)
    except OSError as error:
        raise NcuError(f"{output}: the report cannot be kept there: {error.strerror}") from None

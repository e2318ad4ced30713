"""Count what the kernels of a case do, with NVIDIA Nsight Compute.

A kernel that fails is an outcome; counters that no kernel could read are an `NcuError`.
"""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from roofwatch.collector.profiling.executed_work import WORK_METRICS
from roofwatch.collector.profiling.ncu_files import read_ncu_report, require_module
from roofwatch.collector.profiling.ncu_metrics import counters_of
from roofwatch.install import python_command
from roofwatch.model.errors import CollectorError
from roofwatch.model.machine import Outcome
from roofwatch.model.measurement import CacheState
from roofwatch.model.results import Counters
from roofwatch.model.suite_source import SuiteSource
from roofwatch.model.worker_protocol import Failure

_USUAL_PLACES = ("usr/local/cuda/bin/ncu", "opt/nvidia/nsight-compute/*/ncu")
_WARM_UP_COUNT = 3
_TAIL_CHARACTERS = 1_500
_QUERY_TIMEOUT_S = 60.0
_KILL_TIMEOUT_S = 5.0
_OF_EVERY_GPU = (
    "gpu__time_duration.sum",
    "dram__bytes_read.sum",
    "dram__bytes_write.sum",
    "lts__t_bytes.sum",
    "l1tex__t_bytes.sum",
)
KEPT_METRICS = (
    *_OF_EVERY_GPU,
    "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",
    "sm__inst_executed_pipe_tensor.avg.pct_of_peak_sustained_active",
    *WORK_METRICS,
)
"""Counted in addition to any set of sections, if the GPU has them."""
_CACHE_CONTROL = {CacheState.COLD: "all", CacheState.HOT: "none"}

_KNOWN_ERRORS = (
    (
        re.compile("ERR_NVGPUCTRPERM"),
        "this user may not read the GPU's counters (ERR_NVGPUCTRPERM). Either run as "
        "administrator: `sudo -E env "
        "PATH=$PATH roofwatch ncu ...`; or allow all users, with the line `options nvidia "
        "NVreg_RestrictProfilingToAdminUsers=0` in a file of /etc/modprobe.d and a restart; or "
        "give the container the "
        "capability CAP_SYS_ADMIN: --cap-add=SYS_ADMIN",
    ),
    (
        re.compile("driver resource was unavailable"),
        "another tool uses the GPU's counters, for example DCGM (dcgm-exporter in Kubernetes): "
        "pause it with `dcgmi "
        "profile --pause`, and resume it afterwards with `dcgmi profile --resume`",
    ),
    (
        re.compile("failed to find metric|unrecognised option|did not match any", re.IGNORECASE),
        "unknown set, metric or option ({line}); see ncu --list-sets and ncu --query-metrics",
    ),
    (
        re.compile("not supported on", re.IGNORECASE),
        "it cannot count on this GPU ({line}); use a newer version, and a whole GPU instead of a "
        "MIG or vGPU slice",
    ),
)
_ERROR_LINE = re.compile(r"^==ERROR==\s*(?P<text>.+)$", re.MULTILINE)
_NO_KERNELS = re.compile(r"^==WARNING==.*No kernels were profiled", re.MULTILINE)
_TARGET_FAILED = re.compile(
    "application returned an error|error occurred while trying to profile", re.IGNORECASE
)


class NcuJob(BaseModel):
    """One call of one case for the profiled process to make."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    source: SuiteSource
    case_id: str
    implementation: str
    device: str
    warm_up_count: int
    """Calls before the profiled one, for compilation and autotuning."""
    answer: Path
    """Where to write the `ANSWER`."""


ANSWER: TypeAdapter[Failure | None] = TypeAdapter(Failure | None)
"""How the call ended; no file is written if the process died."""


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
    outcome: Outcome = Outcome.OK
    message: str | None = None


def find_ncu() -> Path:
    """Find ncu on PATH, else the newest in the usual places.

    Raises:
        NcuError: it is not installed.
    """
    on_path = shutil.which("ncu")
    if on_path is not None:
        return Path(on_path)
    for pattern in _USUAL_PLACES:
        files = sorted(Path("/").glob(pattern))
        executables = [file for file in files if os.access(file, os.X_OK)]
        if executables:
            return executables[-1]  # the newest: versions are part of the path
    raise NcuError(
        "NVIDIA Nsight Compute is not installed: ncu is neither on PATH nor in the usual places; "
        "install the CUDA "
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
        metrics: A set of sections such as `basic` or `full`, or names of metrics separated by
            commas.
        cache: `cold` flushes the caches before each pass, `hot` does not.
        timeout_s: Time limit.
        output: Where to keep the report.

    Raises:
        NcuError: counters cannot be read on this machine.
        ProfileError: the report cannot be read, or NVIDIA's module for reading it is not installed.
    """
    require_module()
    with tempfile.TemporaryDirectory(prefix="roofwatch-ncu-") as name:
        folder = Path(name)
        job_file = folder / "job.json"
        report = folder / "report.ncu-rep"
        job = NcuJob(
            source=source,
            case_id=case_id,
            implementation=implementation,
            device="cuda",
            warm_up_count=_WARM_UP_COUNT,
            answer=folder / "answer.json",
        )
        job_file.write_text(job.model_dump_json())
        target = python_command("roofwatch.collector.jobs.ncu_target", str(job_file))
        always_counted: tuple[str, ...] = ()
        # the question takes seconds
        if not _are_names(metrics):
            always_counted = known_metrics(executable, min(timeout_s, _QUERY_TIMEOUT_S))
        command = profile_command(
            executable=executable,
            target=target,
            report=report,
            metrics=metrics,
            always_counted=always_counted,
            cache=cache,
        )
        call = CountedCall(
            case_id=case_id,
            implementation=implementation,
            command=tuple(command),
        )
        failure = _run(
            command=command,
            timeout_s=timeout_s,
            answer_file=job.answer,
            report=report,
        )
        if failure is not None:
            return replace(
                call,
                outcome=failure.outcome,
                message=failure.message,
            )
        kernels = read_ncu_report(report)["kernels"]
        if output is not None:
            _copy(report, output)
    if not kernels:
        return call
    counters = counters_of(kernels, case_id, implementation)
    return replace(
        call,
        counters=counters,
        device_name=kernels[0]["device"],
    )


def _run(
    command: Sequence[str],
    timeout_s: float,
    answer_file: Path,
    report: Path,
) -> Failure | None:
    """Run ncu and return how the call failed; None if it was counted.

    Raises:
        NcuError: ncu failed, not the call.
    """
    status, output = _run_in_own_group(command, timeout_s)
    errors = [match["text"].strip() for match in _ERROR_LINE.finditer(output)]
    # first: a permission problem may also surface as an error of the kernel
    for pattern, explanation in _KNOWN_ERRORS:
        line = next(filter(pattern.search, errors), None)
        if line is not None:
            raise NcuError(f"Nsight Compute: {explanation.format(line=line)}")
    if status is None:
        return Failure(outcome=Outcome.TIMED_OUT, message=f"not counted after {timeout_s:g} s")
    # an error of the program itself is described by its answer
    own_errors = [line for line in errors if not _TARGET_FAILED.search(line)]
    error = None
    if own_errors:
        error = own_errors[-1]
    tail = output[-_TAIL_CHARACTERS:].strip()
    try:
        failure = ANSWER.validate_json(answer_file.read_bytes())
    except (OSError, ValidationError):
        if error is None:
            message = f"the process ended without an answer; its last output: {tail}"
            return Failure(outcome=Outcome.CRASHED, message=message)
        raise NcuError(f"Nsight Compute wrote no report: {error}") from None
    if failure is not None or report.exists():
        return failure
    if _NO_KERNELS.search(output):
        return Failure(
            outcome=Outcome.UNSUPPORTED,
            message="the call launches no kernel, so there is nothing to count",
        )
    raise NcuError(f"Nsight Compute wrote no report: {error or tail or f'exit status {status}'}")


def _run_in_own_group(command: Sequence[str], timeout_s: float) -> tuple[int | None, str]:
    """Run a command, end all processes that it started, and return its status (None: timed out) and
    output.
    """
    with tempfile.TemporaryFile() as log:
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
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


def _copy(report: Path, output: Path) -> None:
    """Keep the report where the user wants it."""
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(report, output)
    except OSError as error:
        raise NcuError(f"{output}: cannot write the report: {error.strerror}") from None


# --- command lines of ncu


def known_metrics(executable: Path, timeout_s: float) -> tuple[str, ...]:
    """Those of `KEPT_METRICS` that ncu knows on this machine; if it does not answer in time, those
    that every GPU has.

    One unknown name ends a whole run of ncu.
    """
    try:
        command = [str(executable), "--query-metrics"]
        listed = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=True,
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return _OF_EVERY_GPU
    names = {line.split()[0] for line in listed.splitlines() if line.strip()}
    return tuple(metric for metric in KEPT_METRICS if metric.partition(".")[0] in names)


def _are_names(metrics: str) -> bool:
    """Whether metrics are given by name, which has two underscores; else as a set of sections."""
    return "__" in metrics


def profile_command(
    executable: Path,
    target: Sequence[str],
    report: Path,
    *,
    metrics: str = "full",
    always_counted: Sequence[str] = KEPT_METRICS,
    cache: CacheState = CacheState.COLD,
) -> list[str]:
    """Build the command that profiles `target`, which starts and stops the profiler itself.

    If `metrics` is a set of sections and not names of metrics, the metrics in `always_counted` are
    counted too.
    """
    names = metrics
    sections: list[str] = []
    if not _are_names(metrics):
        names = ",".join(always_counted)
        sections = ["--set", metrics]
    metric_options = []
    if names:
        metric_options = ["--metrics", names]
    return [
        str(executable),
        "--target-processes",
        "application-only",
        "--profile-from-start",
        "off",
        "--replay-mode",
        "kernel",
        "--clock-control",
        "none",
        "--cache-control",
        _CACHE_CONTROL[cache],
        *sections,
        *metric_options,
        "--force-overwrite",
        "--export",
        str(report),
        *target,
    ]

"""Run a program unchanged while every Python process in it that imports torch profiles itself.

The folder `inject/` goes before the program's PYTHONPATH and records into a private folder. After
the program ends, redacted copies of the traces are kept.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from roofwatch.collector.compile.binary import amd_resources, nvidia_resources
from roofwatch.collector.profiling.redact import redact_trace
from roofwatch.collector.profiling.time_spent import TimeSpent, time_spent
from roofwatch.collector.profiling.trace import Trace
from roofwatch.collector.redaction import EVERYTHING, Redaction
from roofwatch.model.errors import CollectorError, ProfileError, ToolchainError
from roofwatch.model.files import atomic_write, compress, reason_of

_INJECTED_FOLDER = Path(__file__).parent / "inject"
_VARIABLE = "ROOFWATCH_CAPTURE"
_GRACE_S = 60
"""Time to write traces after SIGTERM."""
_SIGNAL_BASE = 128

_Events = list[dict[str, Any]]
"""What one process recorded, in order."""


class ProfilingError(CollectorError):
    """The program cannot be started, or the recording cannot be written."""


@dataclass(frozen=True)
class Window:
    """Which part of the program to record. Steps are optimizer steps."""

    after_s: float = 0.0
    for_s: float | None = 20.0
    """None: until the program ends."""
    warmup_steps: int = 0
    steps: int | None = None
    with_shapes: bool = False
    with_stacks: bool = False


@dataclass(frozen=True)
class CapturedTrace:
    trace: str
    """File name in the folder of the profile."""
    pid: int
    rank: int | None
    command: str
    device: str
    end_reason: str
    """Why the recording ended."""
    time: TimeSpent


@dataclass(frozen=True)
class CapturedProcess:
    """One Python process of the program."""

    pid: int
    parent: int
    torch_version: str | None
    """None if torch was not imported."""
    has_recorded: bool
    """A recording was started; without a trace it was lost."""
    forked_count: int
    traces: tuple[CapturedTrace, ...]
    errors: tuple[str, ...]


@dataclass(frozen=True)
class CapturedKernel:
    """One compiled variant of a Triton kernel. The last three fields are per thread; None if they
    cannot be read.
    """

    name: str
    hash: str
    backend: str
    arch: str
    warps: int | None
    stages: int | None
    shared_bytes: int | None
    was_cached: bool
    compile_ns: dict[str, int]
    """By stage; for a cached kernel the time to read it."""
    registers: int | None = None
    spill_bytes: int | None = None
    spilled_registers: int | None = None
    """AMD only."""


@dataclass(frozen=True)
class Capture:
    exit_status: int
    """As a shell gives it: 128 plus the signal's number if a signal ended the program."""
    was_ended: bool
    """By roofwatch, after `max_seconds`."""
    processes: tuple[CapturedProcess, ...]
    kernels: tuple[CapturedKernel, ...]


def profile_program(
    command: Sequence[str],
    folder: Path,
    *,
    window: Window,
    redaction: Redaction,
    max_seconds: float | None = None,
    stdout_to_stderr: bool = False,
) -> Capture:
    """Run a program to its end, and write its traces to a folder.

    Args:
        command: The program with its arguments; a file that ends in `.py` runs under this Python.
        folder: Created if missing.
        window: Which part to record.
        redaction: What the traces may contain.
        max_seconds: Time after which to end the program; it may still write its trace.
        stdout_to_stderr: Send the output of the program to standard error.

    Raises:
        ProfilingError: the program cannot be started, or the folder cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        scratch = tempfile.TemporaryDirectory(prefix=".recording-", dir=folder)
    except OSError as error:
        raise ProfilingError(f"{folder}: cannot be written: {reason_of(error)}") from None
    with scratch as name:
        recorded = Path(name)
        exit_status, was_ended = _run(command, recorded, window, max_seconds, stdout_to_stderr)
        by_process = _read_events(recorded)
        processes = _keep_processes(by_process, recorded, folder, redaction)
    kernels = _kernels(event for events in by_process for event in events)
    return Capture(exit_status, was_ended, processes, kernels)


def _run(
    command: Sequence[str],
    recorded: Path,
    window: Window,
    max_seconds: float | None,
    stdout_to_stderr: bool,
) -> tuple[int, bool]:
    """Run the program; return its exit status, and whether its time was up."""
    words = (
        [sys.executable, *command]
        if command[0].endswith(".py") and Path(command[0]).is_file()
        else list(command)
    )
    python_path = os.environ.get("PYTHONPATH")
    environment = {
        "KINETO_LOG_LEVEL": "99",  # silence messages at start and stop
        **os.environ,
        "PYTHONPATH": f"{_INJECTED_FOLDER}{os.pathsep}{python_path}"
        if python_path
        else str(_INJECTED_FOLDER),
        _VARIABLE: json.dumps({"folder": str(recorded.resolve()), "window": asdict(window)}),
    }
    try:
        program = subprocess.Popen(
            words, env=environment, stdout=sys.stderr if stdout_to_stderr else None
        )
    except OSError as error:
        raise ProfilingError(
            f"{words[0]}: cannot be started: {error.strerror}; give the command after --, for "
            f"example: -- python "
            "train.py"
        ) from None
    was_ended = False
    try:
        try:
            status = program.wait(max_seconds)
        except subprocess.TimeoutExpired:
            status, was_ended = _end(program), True
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):  # a terminal sends Ctrl-C to both
            with suppress(subprocess.TimeoutExpired):
                program.wait(_GRACE_S)
        if program.poll() is None:
            _end(program)
        raise
    return status if status >= 0 else _SIGNAL_BASE - status, was_ended


def _end(program: subprocess.Popen[bytes]) -> int:
    program.send_signal(signal.SIGTERM)
    try:
        return program.wait(_GRACE_S)
    except subprocess.TimeoutExpired:
        program.kill()
        return program.wait()


def _read_events(recorded: Path) -> list[_Events]:
    """Read the events of each process, in order of start; lines cut off by a kill are skipped."""
    found = []
    for file in recorded.glob("*.jsonl"):
        events = []
        for line in file.read_text(errors="replace").splitlines():
            with suppress(ValueError):
                events.append(json.loads(line))
        if events:
            found.append(events)
    return sorted(found, key=lambda events: (events[0]["at_ns"], events[0]["pid"]))


def _keep_processes(
    by_process: list[_Events], recorded: Path, folder: Path, redaction: Redaction
) -> tuple[CapturedProcess, ...]:
    """Keep the traces of all processes but forked workers, such as those of a DataLoader."""
    workers = [
        events  # of a forked child that did not import torch anew
        for events in by_process
        if events[0]["event"] == "forked" and all(event["event"] != "torch" for event in events)
    ]
    is_alone = sum(any(event["event"] == "trace" for event in events) for events in by_process) == 1
    processes = []
    for events in by_process:
        if events not in workers:
            forked_count = sum(worker[0]["parent"] == events[0]["pid"] for worker in workers)
            processes.append(
                _keep_process(events, recorded, folder, redaction, forked_count, is_alone=is_alone)
            )
    return tuple(processes)


def _keep_process(
    events: _Events,
    recorded: Path,
    folder: Path,
    redaction: Redaction,
    forked_count: int,
    *,
    is_alone: bool,
) -> CapturedProcess:
    first = events[0]
    pid, rank = first["pid"], None if first.get("rank") is None else int(first["rank"])
    command = " ".join(redaction.arguments(first.get("arguments", ())))
    of_kind: dict[str, _Events] = defaultdict(list)
    for event in events:
        of_kind[event["event"]].append(event)
    errors = [redaction.text(event["message"]) for event in of_kind["failed"]]
    traces = []
    for number, event in enumerate(of_kind["trace"], start=1):
        process = "" if is_alone else f"-rank{rank}" if rank is not None else f"-{pid}"
        name = f"trace{process}{f'-{number}' if number > 1 else ''}.json.gz"
        try:
            time = _keep_trace(recorded / event["file"], folder / name, redaction)
        except ProfileError as error:
            errors.append(redaction.text(str(error)))
        else:
            traces.append(
                CapturedTrace(name, pid, rank, command, event["device"], event["end_reason"], time)
            )
    return CapturedProcess(
        pid=pid,
        parent=first["parent"],
        torch_version=next((event["version"] for event in of_kind["torch"]), None),
        has_recorded=bool(of_kind["recording"]),
        forked_count=forked_count,
        traces=tuple(traces),
        errors=tuple(errors),
    )


def _kernels(events: Iterable[dict[str, Any]]) -> tuple[CapturedKernel, ...]:
    """Return each kernel that was compiled or taken from Triton's cache once, sorted by name."""
    found: dict[str, dict[str, Any]] = {}
    for event in events:
        # the event of the process that compiled it has the compile times
        if event["event"] == "kernel" and (event["hash"] not in found or not event["was_cached"]):
            found[event["hash"]] = event
    return tuple(
        map(_kernel, sorted(found.values(), key=lambda event: (event["name"], event["hash"])))
    )


def _kernel(event: dict[str, Any]) -> CapturedKernel:
    names = [field.name for field in fields(CapturedKernel) if field.name in event]
    kernel, code = CapturedKernel(**{name: event[name] for name in names}), Path(event["code"])
    try:
        if code.suffix == ".cubin":
            found = nvidia_resources(code.read_bytes(), event["name"])
        else:
            found = amd_resources(code.read_text())
    except (OSError, ToolchainError, ValueError):
        return kernel  # for example, the program deleted its cache
    return replace(
        kernel,
        registers=found["registers"],
        spill_bytes=found["local_bytes"],
        spilled_registers=found.get("spilled_registers"),
    )


def _keep_trace(recorded: Path, kept: Path, redaction: Redaction) -> TimeSpent:
    """Compress a trace into its place, redacted, and return where its time went."""
    try:
        content = recorded.read_bytes()
        redacted = (
            None
            if redaction.kept == EVERYTHING
            else redact_trace(content, recorded.name, redaction)
        )
        content = content if redacted is None else redacted[0]
        trace = Trace.read(content, recorded.name)
        if trace is None:
            raise ProfileError(f"{recorded.name}: torch wrote no trace")
        atomic_write(kept, compress(content))
    except OSError as error:
        raise ProfilingError(f"{kept}: cannot be written: {reason_of(error)}") from None
    return time_spent(trace)

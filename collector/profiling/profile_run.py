"""Runs a program while every Python in it that imports torch profiles itself, without a change to the program.

A folder of ours goes before the program's PYTHONPATH; what is in it (collector/profiling/inject) records, and writes
what
happens into a folder that nobody else can read. When the program is over, traces are copied from there without what
must not leave the machine.
"""

from __future__ import annotations

import gzip
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from roofwatch.collector.compile.captured_kernels import CapturedKernel, captured_kernels
from roofwatch.collector.errors import CollectorError
from roofwatch.collector.outbox.files import atomic_write, reason_of
from roofwatch.collector.profiling.profile_file import ProfileError
from roofwatch.collector.profiling.redacted import redact_trace
from roofwatch.collector.redaction import Kind, Redaction

KERNELS_FILE = "kernels.jsonl"
_HOOK = Path(__file__).parent / "inject"
_VARIABLE = "ROOFWATCH_CAPTURE"
_SILENT = "99"
_GRACE_S = 60
"""For writing traces, once a program was told to end."""
_SIGNAL_BASE = 128
_PACKING = 6


class ProfilingError(CollectorError):
    """The program cannot be started, or what was recorded cannot be kept."""


@dataclass(frozen=True)
class Window:
    """Which part of the program is recorded. Steps are those of its optimizer."""

    after_s: float = 0.0
    for_s: float | None = 20.0
    """None: until the program ends."""
    warmup_steps: int = 0
    steps: int | None = None
    with_shapes: bool = False
    with_stacks: bool = False


@dataclass(frozen=True)
class CapturedTrace:
    file: str
    """Its name in the folder of the profile."""
    device: str
    because: str
    """Why it ended, in words."""


@dataclass(frozen=True)
class CapturedProcess:
    """One process in which Python started."""

    pid: int
    parent: int
    rank: int | None
    command: str
    torch_version: str | None
    """None where torch was not imported."""
    has_recorded: bool
    """A recording began; without a trace it was lost."""
    forked_count: int
    traces: tuple[CapturedTrace, ...]
    troubles: tuple[str, ...]


@dataclass(frozen=True)
class Capture:
    exit_status: int
    """As a shell gives it: 128 and the signal's number where a signal ended the program."""
    was_ended: bool
    """By us, when its time was up."""
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
    """Run a program to its end and keep what was recorded.

    Args:
        command: The program with its arguments; a file that ends in `.py` runs under this Python.
        folder: Gets the traces and `kernels.jsonl`; made if it is not there.
        window: What is recorded of it.
        redaction: What the traces may tell.
        max_seconds: After them the program is told to end, and given time to write its trace.
        stdout_to_stderr: Send what it prints to standard error, where standard output has to stay clean.

    Raises:
        ProfilingError: the program cannot be started, or the folder cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        scratch = tempfile.TemporaryDirectory(prefix=".recording-", dir=folder)  # readable for this account alone
    except OSError as error:
        raise ProfilingError(f"{folder}: cannot be written: {reason_of(error)}") from None
    with scratch as recorded:
        exit_status, was_ended = _run(command, Path(recorded), window, max_seconds, stdout_to_stderr)
        events = _events(Path(recorded))
        is_alone = sum(any(event["event"] == "trace" for event in told) for told in events) == 1
        processes = tuple(
            _process(told, events, Path(recorded), folder, redaction, is_alone=is_alone)
            for told in events
            if not _is_mere_copy(told)
        )
        kernels = captured_kernels([event for told in events for event in told], Path(recorded))
        if kernels:
            lines = [redaction.text(json.dumps(asdict(kernel))) for kernel in kernels]
            atomic_write(folder / KERNELS_FILE, "".join(f"{line}\n" for line in lines).encode())
    return Capture(exit_status, was_ended, processes, kernels)


def _run(
    command: Sequence[str], recorded: Path, window: Window, max_seconds: float | None, stdout_to_stderr: bool
) -> tuple[int, bool]:
    words = [sys.executable, *command] if command[0].endswith(".py") and Path(command[0]).is_file() else list(command)
    try:
        program = subprocess.Popen(
            words, env=_environment(recorded, window), stdout=sys.stderr if stdout_to_stderr else None
        )
    except OSError as error:
        raise ProfilingError(
            f"{words[0]}: cannot be started: {error.strerror}; after -- comes the command as in a shell, for example "
            "-- python train.py"
        ) from None
    with _passed_on(program):
        try:
            status = program.wait(max_seconds)
            was_ended = False
        except subprocess.TimeoutExpired:
            status, was_ended = _end(program), True
    return status if status >= 0 else _SIGNAL_BASE - status, was_ended


def _environment(recorded: Path, window: Window) -> dict[str, str]:
    before = os.environ.get("PYTHONPATH")
    return {
        # Kineto would print when it starts and stops
        "KINETO_LOG_LEVEL": _SILENT,
        **os.environ,
        "PYTHONPATH": f"{_HOOK}{os.pathsep}{before}" if before else str(_HOOK),
        _VARIABLE: json.dumps({"folder": str(recorded.resolve()), "window": asdict(window)}),
    }


@contextmanager
def _passed_on(program: subprocess.Popen[bytes]) -> Iterator[None]:
    """End the program when we are told to end. What a terminal sends with Ctrl-C has reached it by itself."""
    try:
        yield
    except KeyboardInterrupt:
        try:
            program.wait(_GRACE_S)
        except subprocess.TimeoutExpired:
            _end(program)
        raise
    except BaseException:
        _end(program)
        raise


def _end(program: subprocess.Popen[bytes]) -> int:
    program.send_signal(signal.SIGTERM)
    try:
        return program.wait(_GRACE_S)
    except subprocess.TimeoutExpired:
        program.kill()
        return program.wait()


def _events(recorded: Path) -> list[list[dict[str, Any]]]:
    """What each process wrote, the first to start first; a line that a kill cut short is left out."""
    found = []
    for file in recorded.glob("*.jsonl"):
        told = []
        for line in file.read_text(errors="replace").splitlines():
            try:
                told.append(json.loads(line))
            except ValueError:
                continue
        if told:
            found.append(told)
    return sorted(found, key=lambda told: (told[0]["at_ns"], told[0]["pid"]))


def _is_mere_copy(told: list[dict[str, Any]]) -> bool:
    """A forked child that went on with what its parent had loaded, such as a worker of a DataLoader."""
    return told[0]["event"] == "forked" and all(event["event"] != "torch" for event in told)


def _process(
    told: list[dict[str, Any]],
    all_told: list[list[dict[str, Any]]],
    recorded: Path,
    folder: Path,
    redaction: Redaction,
    *,
    is_alone: bool,
) -> CapturedProcess:
    first = told[0]
    by_event: dict[str, list[dict[str, Any]]] = {}
    for event in told:
        by_event.setdefault(event["event"], []).append(event)
    rank = first.get("rank")
    troubles = [redaction.text(event["message"]) for event in by_event.get("failed", ())]
    traces = []
    for number, event in enumerate(by_event.get("trace", ())):
        who = "" if is_alone else f"-rank{rank}" if rank is not None else f"-{first['pid']}"
        name = f"trace{who}{f'-{number + 1}' if number else ''}.json.gz"
        try:
            _keep_trace(recorded / event["file"], folder / name, redaction)
        except ProfileError as error:
            troubles.append(redaction.text(str(error)))
            continue
        traces.append(CapturedTrace(name, event["device"], event["because"]))
    return CapturedProcess(
        pid=first["pid"],
        parent=first["parent"],
        rank=None if rank is None else int(rank),
        command=" ".join(redaction.arguments(first.get("arguments", ()))),
        torch_version=next((event["version"] for event in by_event.get("torch", ())), None),
        has_recorded="recording" in by_event,
        forked_count=sum(_is_mere_copy(other) and other[0]["parent"] == first["pid"] for other in all_told),
        traces=tuple(traces),
        troubles=tuple(troubles),
    )


def _keep_trace(recorded: Path, kept: Path, redaction: Redaction) -> None:
    """Pack a trace into its place, without what must not leave the machine.

    Raises:
        ProfileError: what torch wrote is no whole trace.
        ProfilingError: it cannot be written.
    """
    if redaction.kept == frozenset(Kind):
        with recorded.open("rb") as source, gzip.open(kept, "wb", _PACKING) as target:
            shutil.copyfileobj(source, target)
        return
    done = redact_trace(recorded.read_bytes(), recorded.name, redaction)
    if done is None:
        raise ProfileError(f"{recorded.name}: torch wrote no trace")
    try:
        atomic_write(kept, gzip.compress(done[0], _PACKING))
    except OSError as error:
        raise ProfilingError(f"{kept}: cannot be written: {reason_of(error)}") from None

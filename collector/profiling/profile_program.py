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
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from roofwatch.collector.profiling.captured import (
    CapturedProgram,
    ProfilingError,
    RecordingState,
    keep_processes,
    kernels_of,
    read_events,
    recording_state,
)
from roofwatch.collector.redaction import Redaction
from roofwatch.model.files import reason_of

_INJECTED_FOLDER = Path(__file__).parent / "inject"
_VARIABLE = "ROOFWATCH_CAPTURE"
_GRACE_S = 60
"""Time to write traces after SIGTERM."""
_POLL_S = 0.5
_SIGNAL_BASE = 128


@dataclass(frozen=True)
class RecordingWindow:
    """Which part of the program to record. Steps are optimizer steps."""

    after_s: float = 0.0
    for_s: float | None = 20.0
    """None: until the program ends."""
    warmup_steps: int | None = 0
    """None: as many as the recorder finds right; what comes before them is recorded apart."""
    steps: int | None = None
    with_shapes: bool = False
    with_stacks: bool = False


def profile_program(
    command: Sequence[str],
    folder: Path,
    *,
    window: RecordingWindow,
    redaction: Redaction,
    max_seconds: float | None = None,
    is_ended_when_recorded: bool = False,
    on_state: Callable[[RecordingState], None] = lambda _: None,
    stdout_to_stderr: bool = False,
) -> CapturedProgram:
    """Run a program to its end, and write its traces to a folder. Ctrl-C ends it and keeps them.

    Args:
        command: The program with its arguments; a file that ends in `.py` runs under this Python.
        folder: Created if missing.
        window: Which part to record.
        redaction: What the traces may contain.
        max_seconds: Time after which to end the program; it may still write its trace.
        is_ended_when_recorded: End the program once the window of each process is recorded.
        on_state: Called when the state of the recording changes while the program goes on.
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
        exit_status, was_ended = _run(
            command=command,
            recorded=recorded,
            window=window,
            max_seconds=max_seconds,
            is_ended_when_recorded=is_ended_when_recorded,
            on_state=on_state,
            stdout_to_stderr=stdout_to_stderr,
        )
        by_process = read_events(recorded)
        processes = keep_processes(
            by_process=by_process,
            recorded=recorded,
            folder=folder,
            redaction=redaction,
        )
    kernels = kernels_of(event for events in by_process for event in events)
    return CapturedProgram(
        exit_status=exit_status,
        was_ended=was_ended,
        processes=processes,
        kernels=kernels,
    )


def _run(
    command: Sequence[str],
    recorded: Path,
    window: RecordingWindow,
    max_seconds: float | None,
    is_ended_when_recorded: bool,
    on_state: Callable[[RecordingState], None],
    stdout_to_stderr: bool,
) -> tuple[int, bool]:
    """Run the program; return its exit status, and whether we ended it."""
    words = list(command)
    if words[0].endswith(".py") and Path(words[0]).is_file():
        words.insert(0, sys.executable)
    import_paths = [str(_INJECTED_FOLDER)]
    # an empty entry of PYTHONPATH would add the working directory
    if os.environ.get("PYTHONPATH"):
        import_paths.append(os.environ["PYTHONPATH"])
    settings = {"folder": str(recorded.resolve()), "window": asdict(window)}
    environment = {
        "KINETO_LOG_LEVEL": "99",  # silence messages at start and stop
        # without it, kernels that torch.compile writes for a CPU have no name in a trace
        "TORCHINDUCTOR_CPP_ENABLE_KERNEL_PROFILE": "1",
        **os.environ,
        "PYTHONPATH": os.pathsep.join(import_paths),
        _VARIABLE: json.dumps(settings),
    }
    stdout = None
    if stdout_to_stderr:
        stdout = sys.stderr
    try:
        program = subprocess.Popen(
            words,
            env=environment,
            stdout=stdout,
        )
    except OSError as error:
        raise ProfilingError(
            f"{words[0]}: cannot be started: {error.strerror}; give the command after --, for "
            f"example: -- python "
            "train.py"
        ) from None
    try:
        has_ended = _wait(
            program,
            recorded=recorded,
            max_seconds=max_seconds,
            is_ended_when_recorded=is_ended_when_recorded,
            on_state=on_state,
        )
    except KeyboardInterrupt:
        # a terminal sends Ctrl-C to both; the program may still write its trace
        has_ended = True
        with suppress(subprocess.TimeoutExpired):
            program.wait(_GRACE_S)
    except BaseException:
        _end(program)
        raise
    status = program.poll()
    if status is None:
        status = _end(program)
    if status < 0:  # Popen gives the number of a signal as a negative status
        status = _SIGNAL_BASE - status
    return status, not has_ended


def _wait(
    program: subprocess.Popen[bytes],
    recorded: Path,
    max_seconds: float | None,
    is_ended_when_recorded: bool,
    on_state: Callable[[RecordingState], None],
) -> bool:
    """Wait for a program; return whether it has ended by itself."""
    started_s = time.monotonic()
    last_state = RecordingState.RECORDING
    while True:
        with suppress(subprocess.TimeoutExpired):
            program.wait(_POLL_S)
            return True
        state = last_state
        if state is not RecordingState.COMPLETE:
            state = recording_state(read_events(recorded))
        if state is RecordingState.COMPLETE and is_ended_when_recorded:
            return False
        if state is not last_state:
            last_state = state
            on_state(state)
        if max_seconds is not None and time.monotonic() - started_s >= max_seconds:
            return False


def _end(program: subprocess.Popen[bytes]) -> int:
    """Let a program write its traces and end; kill it if it does not."""
    program.send_signal(signal.SIGTERM)
    try:
        return program.wait(_GRACE_S)
    except subprocess.TimeoutExpired:
        program.kill()
        return program.wait()

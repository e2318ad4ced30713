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
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path

from roofwatch.collector.compile.binary import amd_resources, nvidia_resources
from roofwatch.collector.profiling.attribution import StepAttribution, read_attributions
from roofwatch.collector.profiling.redact import redact_trace
from roofwatch.collector.profiling.steady import SteadyPart, cut_out, find_steady_part
from roofwatch.collector.profiling.time_spent import TimeSpent, time_spent
from roofwatch.collector.profiling.trace import Trace
from roofwatch.collector.redaction import EVERYTHING, Redaction
from roofwatch.model.errors import CollectorError, ProfileError, ToolchainError
from roofwatch.model.files import JsonObject, atomic_write, compress, reason_of

_INJECTED_FOLDER = Path(__file__).parent / "inject"
_VARIABLE = "ROOFWATCH_CAPTURE"
_GRACE_S = 60
"""Time to write traces after SIGTERM."""
_SIGNAL_BASE = 128

_Events = list[JsonObject]
"""What one process recorded, in order."""


class ProfilingError(CollectorError):
    """The program cannot be started, or the recording cannot be written."""


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
    part: str
    """`window`, or `start-up`: what came before the steps."""
    recorded_ns: int
    """Length of the whole trace."""
    steady: SteadyPart | None
    """The steps in it, if the program repeats itself."""
    time: TimeSpent
    """Of the steady part if there is one, else of the whole trace."""


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
    attributions: tuple[StepAttribution, ...] = ()
    """Times of one step by module, function and line, on devices and on the host."""


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
class CapturedProgram:
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
    window: RecordingWindow,
    redaction: Redaction,
    max_seconds: float | None = None,
    stdout_to_stderr: bool = False,
) -> CapturedProgram:
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
        exit_status, was_ended = _run(
            command=command,
            recorded=recorded,
            window=window,
            max_seconds=max_seconds,
            stdout_to_stderr=stdout_to_stderr,
        )
        by_process = _read_events(recorded)
        processes = _keep_processes(by_process, recorded, folder, redaction)
    kernels = _kernels(event for events in by_process for event in events)
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
    stdout_to_stderr: bool,
) -> tuple[int, bool]:
    """Run the program; return its exit status, and whether its time was up."""
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
        **os.environ,
        "PYTHONPATH": os.pathsep.join(import_paths),
        _VARIABLE: json.dumps(settings),
    }
    try:
        program = subprocess.Popen(
            words,
            env=environment,
            stdout=sys.stderr if stdout_to_stderr else None,
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
            status = _end(program)
            was_ended = True
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):  # a terminal sends Ctrl-C to both
            with suppress(subprocess.TimeoutExpired):
                program.wait(_GRACE_S)
        if program.poll() is None:
            _end(program)
        raise
    if status < 0:  # Popen gives the number of a signal as a negative status
        status = _SIGNAL_BASE - status
    return status, was_ended


def _end(program: subprocess.Popen[bytes]) -> int:
    program.send_signal(signal.SIGTERM)
    try:
        return program.wait(_GRACE_S)
    except subprocess.TimeoutExpired:
        program.kill()
        return program.wait()


def _read_events(recorded: Path) -> list[_Events]:
    """Read the events of each process, in order of start; lines cut off by a kill are skipped."""
    by_process = []
    for file in recorded.glob("*.jsonl"):
        events = []
        for line in file.read_text(errors="replace").splitlines():
            with suppress(ValueError):
                events.append(json.loads(line))
        if events:
            by_process.append(events)
    return sorted(
        by_process,
        key=lambda events: (events[0]["at_ns"], events[0]["pid"]),
    )


def _has_event(events: _Events, kind: str) -> bool:
    return any(event["event"] == kind for event in events)


def _keep_processes(
    by_process: list[_Events],
    recorded: Path,
    folder: Path,
    redaction: Redaction,
) -> tuple[CapturedProcess, ...]:
    """Keep the traces of all processes but forked workers, such as those of a DataLoader."""
    forked = [events for events in by_process if events[0]["event"] == "forked"]
    # a forked child that imports torch anew is a process of its own, not a worker
    workers = [events for events in forked if not _has_event(events, "torch")]
    is_alone = sum(_has_event(events, "trace") for events in by_process) == 1
    processes = []
    for events in by_process:
        if events not in workers:
            pid = events[0]["pid"]
            forked_count = sum(worker[0]["parent"] == pid for worker in workers)
            processes.append(
                _keep_process(
                    events=events,
                    recorded=recorded,
                    folder=folder,
                    redaction=redaction,
                    forked_count=forked_count,
                    is_alone=is_alone,
                )
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
    pid = first["pid"]
    rank = None
    if first.get("rank") is not None:
        rank = int(first["rank"])
    process_suffix = _process_suffix(pid, rank, is_alone=is_alone)
    command = " ".join(redaction.arguments(first.get("arguments", ())))
    of_kind: dict[str, _Events] = defaultdict(list)
    for event in events:
        of_kind[event["event"]].append(event)
    errors = [redaction.text(event["message"]) for event in of_kind["failed"]]
    traces = []
    # passes that a training program made first, such as an evaluation, belong to its start-up
    restart_count = len(of_kind["restarted"])
    if restart_count:
        restarted = events.index(of_kind["restarted"][-1])
        for event in events[:restarted]:
            if event["event"] == "trace":
                event["part"] = "start-up"
        of_kind["attribution"] = [
            event for event in events[restarted:] if event["event"] == "attribution"
        ]
    # without steps there is no start-up: what was recorded is the window
    has_window = any(event["part"] == "window" for event in of_kind["trace"])
    part_counts: Counter[str] = Counter()
    for event in of_kind["trace"]:
        part = event["part"] if has_window else "window"
        part_counts[part] += 1
        number = part_counts[part]
        number_suffix = f"-{number}" if number > 1 else ""
        stem = "trace" if part == "window" else part
        name = f"{stem}{process_suffix}{number_suffix}.json.gz"
        try:
            trace = _keep_trace(recorded / event["file"], folder / name, redaction)
        except ProfileError as error:
            errors.append(redaction.text(str(error)))
            continue
        steady = find_steady_part(trace)
        steps_alone = trace if steady is None else cut_out(trace, steady)
        traces.append(
            CapturedTrace(
                trace=name,
                pid=pid,
                rank=rank,
                command=command,
                device=event["device"],
                end_reason=event["end_reason"],
                part=part,
                recorded_ns=trace.window_ns,
                steady=steady,
                time=time_spent(steps_alone),
            )
        )
    attributions: tuple[StepAttribution, ...] = ()
    for event in of_kind["attribution"]:
        source_folders = _source_folders(first.get("arguments", ()))
        attributions = read_attributions(event["times"], source_folders, redaction.text)
    return CapturedProcess(
        pid=pid,
        parent=first["parent"],
        torch_version=next((event["version"] for event in of_kind["torch"]), None),
        has_recorded=bool(of_kind["recording"]),
        forked_count=forked_count,
        traces=tuple(traces),
        errors=tuple(errors),
        attributions=attributions,
    )


def _source_folders(arguments: Sequence[str]) -> list[Path]:
    """Folders that a program imports from first: that of its script, and the current one."""
    folders = [Path.cwd()]
    for argument in arguments:
        if argument.endswith(".py"):
            folders.insert(0, Path(argument).resolve().parent)
            break
    return folders


def _process_suffix(pid: int, rank: int | None, *, is_alone: bool) -> str:
    """Tell apart the file names of several processes."""
    if is_alone:
        return ""
    if rank is not None:
        return f"-rank{rank}"
    return f"-{pid}"


def _kernels(events: Iterable[JsonObject]) -> tuple[CapturedKernel, ...]:
    """Return each kernel that was compiled or taken from Triton's cache once, sorted by name."""
    by_hash: dict[str, JsonObject] = {}
    for event in events:
        if event["event"] != "kernel":
            continue
        # the event of the process that compiled it has the compile times
        if event["hash"] not in by_hash or not event["was_cached"]:
            by_hash[event["hash"]] = event
    by_name = sorted(
        by_hash.values(),
        key=lambda event: (event["name"], event["hash"]),
    )
    return tuple(map(_kernel, by_name))


def _kernel(event: JsonObject) -> CapturedKernel:
    names = [field.name for field in fields(CapturedKernel) if field.name in event]
    kernel = CapturedKernel(**{name: event[name] for name in names})
    code = Path(event["code"])
    try:
        if code.suffix == ".cubin":
            resources = nvidia_resources(code.read_bytes(), event["name"])
        else:
            resources = amd_resources(code.read_text())
    except (OSError, ToolchainError, ValueError):
        return kernel  # for example, the program deleted its cache
    return replace(
        kernel,
        registers=resources["registers"],
        spill_bytes=resources["local_bytes"],
        spilled_registers=resources.get("spilled_registers"),
    )


def _keep_trace(recorded: Path, target: Path, redaction: Redaction) -> Trace:
    """Compress a trace into its place, redacted, and return it."""
    try:
        content = recorded.read_bytes()
        if redaction.kept_kinds != EVERYTHING:
            redacted = redact_trace(content, recorded.name, redaction)
            if redacted is not None:
                content, _ = redacted
        trace = Trace.read(content, recorded.name)
        if trace is None:
            raise ProfileError(f"{recorded.name}: torch wrote no trace")
        atomic_write(target, compress(content))
    except OSError as error:
        raise ProfilingError(f"{target}: cannot be written: {reason_of(error)}") from None
    return trace

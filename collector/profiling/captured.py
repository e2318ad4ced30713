"""What the processes of a profiled program recorded: traces, kernels and times of a step."""

import json
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from enum import StrEnum
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

Events = list[JsonObject]
"""What one process recorded, in order."""
_STATE_EVENTS = ("recording", "restarted", "paused", "complete")
"""Events that say how far the recording of a process is."""


class ProfilingError(CollectorError):
    """The program cannot be started, or the recording cannot be written."""


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
    cpu_ns: int
    """Processor time of all threads of the process while the whole trace was recorded."""

    @property
    def step_cpu_ns(self) -> float | None:
        """Mean processor time of a step, which other programs change less than its length."""
        if self.steady is None or not self.recorded_ns:
            return None
        used_processors = self.cpu_ns / self.recorded_ns
        return used_processors * statistics.fmean(self.steady.step_ns)


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


def read_events(recorded: Path) -> list[Events]:
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


class RecordingState(StrEnum):
    """How far the recording of a running program is."""

    RECORDING = "recording"
    PAUSED = "paused"
    """The time to record is over, and no step was seen yet."""
    COMPLETE = "complete"


def recording_state(by_process: Sequence[Events]) -> RecordingState:
    """The state of the process that has most left to record."""
    states: set[str] = set()
    for events in by_process:
        kinds = [event["event"] for event in events if event["event"] in _STATE_EVENTS]
        if kinds:
            states.add(kinds[-1])
    if states == {"complete"}:
        return RecordingState.COMPLETE
    if states and states <= {"complete", "paused"}:
        return RecordingState.PAUSED
    return RecordingState.RECORDING


def _has_event(events: Events, kind: str) -> bool:
    return any(event["event"] == kind for event in events)


def keep_processes(
    by_process: list[Events],
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
    events: Events,
    recorded: Path,
    folder: Path,
    redaction: Redaction,
    forked_count: int,
    *,
    is_alone: bool,
) -> CapturedProcess:
    """Keep the traces of one process, and what went wrong in it."""
    first = events[0]
    pid = first["pid"]
    rank = None
    if first.get("rank") is not None:
        rank = int(first["rank"])
    process_suffix = _process_suffix(pid, rank, is_alone=is_alone)
    command = " ".join(redaction.arguments(first.get("arguments", ())))
    of_kind: dict[str, Events] = defaultdict(list)
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
        part = "window"
        if has_window:
            part = event["part"]
        part_counts[part] += 1
        number = part_counts[part]
        number_suffix = ""
        if number > 1:
            number_suffix = f"-{number}"
        stem = "trace" if part == "window" else part
        name = f"{stem}{process_suffix}{number_suffix}.json.gz"
        try:
            trace = _keep_trace(recorded / event["file"], folder / name, redaction)
        except ProfileError as error:
            errors.append(redaction.text(str(error)))
            continue
        steady = find_steady_part(trace)
        steps_alone = trace
        if steady is not None:
            steps_alone = cut_out(trace, steady)
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
                cpu_ns=event["cpu_ns"],
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


def kernels_of(events: Iterable[JsonObject]) -> tuple[CapturedKernel, ...]:
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
    """A kernel with the registers and spills that its machine code declares."""
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

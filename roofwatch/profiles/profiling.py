"""What a profiled program spent its time on: the report of `roofwatch profile`, as values and in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

from roofwatch.collector.compile.captured_kernels import CapturedKernel
from roofwatch.collector.profiling.profile_program import Capture, CapturedProcess, CapturedTrace
from roofwatch.collector.profiling.time_spent import TimeSpent, read_time_spent
from roofwatch.collector.record.metrics import format_ns

_MOSTLY_IDLE = 0.5
"""Of the window: a GPU that is busy for less waits for the program more than it works."""
_SIGNAL_BASE = 128

_MAX_NAME = 80


@dataclass(frozen=True)
class ProcessTime:
    """One trace, and whose it is."""

    trace: str
    pid: int
    rank: int | None
    command: str
    ended_because: str
    time: TimeSpent


@dataclass(frozen=True)
class ProfileReport:
    folder: str
    exit_status: int
    summary: str
    notes: tuple[str, ...]
    """What is missing from the profile, and why."""
    traces: tuple[ProcessTime, ...]
    """The one that says the most comes first."""
    kernels: tuple[CapturedKernel, ...]

    @property
    def leading(self) -> ProcessTime | None:
        return self.traces[0] if self.traces else None


def folder_for(command: Sequence[str]) -> Path:
    """Where a profile goes if nobody says: a folder named after the time and the program."""
    scripts = [word for word in command if word.endswith(".py")]
    modules = [after for before, after in pairwise(command) if before == "-m"]
    name = Path((scripts or modules or list(command))[0]).stem
    return Path("roofwatch-profiles") / f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{name}"


def report_of(capture: Capture, folder: Path) -> ProfileReport:
    """Read the traces of a profile.

    Raises:
        ProfileError: a trace cannot be read.
    """
    traces = sorted(_traces(capture, folder), key=lambda trace: _weight(trace.time), reverse=True)
    return ProfileReport(
        folder=str(folder),
        exit_status=capture.exit_status,
        summary=_summary(traces, capture.processes),
        notes=tuple(_notes(capture)),
        traces=tuple(traces),
        kernels=capture.kernels,
    )


def _traces(capture: Capture, folder: Path) -> Iterator[ProcessTime]:
    for process in capture.processes:
        for trace in process.traces:
            time = read_time_spent(folder / trace.file)
            yield ProcessTime(trace.file, process.pid, process.rank, process.command, trace.because, time)


def _weight(time: TimeSpent) -> tuple[int, int]:
    return sum(device.busy_ns for device in time.devices), time.host_inside_ns


def _summary(traces: Sequence[ProcessTime], processes: Sequence[CapturedProcess]) -> str:
    if not traces:
        return _why_there_is_nothing(processes)
    leading = traces[0]
    others = f" {len(traces) - 1} more trace(s) were written beside it." if len(traces) > 1 else ""
    return (_of_devices(leading.time) if leading.time.devices else _of_host(leading.time)) + others


def _of_devices(time: TimeSpent) -> str:
    busiest = max(time.devices, key=lambda device: device.busy_ns)
    said = [
        f"In the {format_ns(time.window_ns)} that were recorded, GPU {busiest.device} was busy for "
        f"{busiest.busy_share:.0%} of the time."
    ]
    if time.kernels:
        first = time.kernels[0]
        said.append(
            f"The kernel that took the most is {short_name(first.name)}: {_share(first.share)} of the busy time, in "
            f"{first.count} launches of {format_ns(first.mean_ns)}."
        )
    if busiest.transfer_ns:
        said.append(f"Copies and fills took {busiest.transfer_ns / busiest.busy_ns:.0%}.")
    if busiest.busy_share < _MOSTLY_IDLE:
        said.append(
            "For the rest the GPU waited for the program, so faster kernels will gain little before the program sends "
            "work sooner."
        )
    if time.gaps:
        said.append(_of_gap(time))
    return " ".join(said)


def _of_gap(time: TimeSpent) -> str:
    gap = time.gaps[0]
    if gap.host and gap.host_inside_ns >= gap.length_ns / 2:
        meanwhile = f"was mostly in {short_name(gap.host[0][0])}"
    else:
        meanwhile = "was mostly outside of PyTorch: Python, loading data, or waiting"
    return f"Its longest wait was {format_ns(gap.length_ns)}, in which the host {meanwhile}."


def _of_host(time: TimeSpent) -> str:
    if not time.operators or not time.window_ns:
        return "The trace holds no operator of PyTorch: the program did nothing with it while it was recorded."
    inside = time.host_inside_ns / time.window_ns
    first = time.operators[0]
    said = [
        f"In the {format_ns(time.window_ns)} that were recorded no GPU was used, and the busiest thread was inside of "
        f"PyTorch's operators for {inside:.0%} of the time.",
        f"The one that took the most is {short_name(first.name)}: {_share(first.share)} of the time, in {first.count} "
        f"call(s) of {format_ns(first.mean_ns)}.",
    ]
    mark = next((mark for mark in time.marks if (mark.share or 0) > max(inside, _MOSTLY_IDLE)), None)
    if mark is not None:
        said.append(f"{short_name(mark.name)}, which the program marked, covers {_share(mark.share)} of it.")
    elif inside < _MOSTLY_IDLE:
        said.append(
            "Most of the time passed outside of PyTorch: in Python itself, loading data, or waiting; faster operators "
            "will gain little."
        )
    return " ".join(said)


def _why_there_is_nothing(processes: Sequence[CapturedProcess]) -> str:
    if not processes:
        return (
            "Nothing was recorded: no Python of this program took the profiler in. It is no Python program, or runs "
            "Python in isolation (-I, -E or -S); leave those options out."
        )
    if not any(process.torch_version for process in processes):
        return "Nothing was recorded: the program never imported torch."
    if any(process.has_recorded for process in processes):
        return "Nothing is left of the recording: the program was killed before it could be written."
    return "Nothing was recorded: the program ended before the recording began; let it begin earlier."


def _notes(capture: Capture) -> Iterator[str]:
    if capture.was_ended:
        yield "The program was ended when its time was up (--max-seconds)."
    elif capture.exit_status:
        is_there = any(process.traces for process in capture.processes)
        until_then = "; what it did until then is in the profile" if is_there else ""
        yield f"The program {_ended(capture.exit_status)}{until_then}."
    for process in capture.processes:
        if process.has_recorded and not process.traces and not process.troubles:
            yield f"Process {process.pid} was killed before its trace could be written: what it did is lost."
        if process.forked_count:
            yield (
                f"{process.forked_count} process(es) were forked from process {process.pid}, such as workers of a "
                "DataLoader: what they do themselves is not in the trace, waiting for them is."
            )
        for trace in process.traces:
            yield from _of_end(process, trace)
        for trouble in process.troubles:
            yield f"Process {process.pid}: {trouble}"


def _ended(exit_status: int) -> str:
    if exit_status > _SIGNAL_BASE:
        return f"was ended by signal {exit_status - _SIGNAL_BASE}"
    return f"ended with status {exit_status}"


def _of_end(process: CapturedProcess, trace: CapturedTrace) -> Iterator[str]:
    if trace.because == "the window ended":
        yield f"{trace.file} ends where the window did (--for); the program went on after it."
    elif trace.because not in {"the program ended", "the program ended at once", "the steps were done"}:
        yield f"{trace.file} of process {process.pid} ends where {trace.because}."


def _share(share: float | None) -> str:
    return "" if share is None else f"{share:.0%}"


def short_name(name: str) -> str:
    """A kernel's name, cut at 80 characters."""
    return name if len(name) <= _MAX_NAME else f"{name[: _MAX_NAME - 1]}…"

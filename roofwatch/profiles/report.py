"""The report of `roofwatch profile`: where a program spent its time, as values, sentences and
tables.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

from rich.table import Table

from roofwatch.ci.messages import short_name
from roofwatch.collector.profiling.profile_program import (
    CapturedKernel,
    CapturedProcess,
    CapturedProgram,
    CapturedTrace,
)
from roofwatch.collector.profiling.time_spent import IdleGap, TimeRow, TimeSpent
from roofwatch.model.metrics import format_bytes, format_ns
from roofwatch.terminal import console, make_table

_MOSTLY_IDLE = 0.5
"""Busy share below which the GPU waits for the program more than it works."""
_SIGNAL_BASE = 128
"""A program that signal n ended has the status 128 + n, as in a shell."""
_EXPECTED_ENDS = {"the program ended", "the program ended at once", "the steps were done"}
"""Ends of a recording that need no note."""


@dataclass(frozen=True)
class ProfileReport:
    folder: str
    exit_status: int
    summary: str
    notes: tuple[str, ...]
    """What is missing from the profile, and why."""
    traces: tuple[CapturedTrace, ...]
    """The trace with the most work comes first."""
    kernels: tuple[CapturedKernel, ...]


def folder_for(command: Sequence[str]) -> Path:
    """Name a new folder after the time and the program."""
    scripts = [word for word in command if word.endswith(".py")]
    modules = [module for option, module in pairwise(command) if option == "-m"]
    candidates = scripts or modules or list(command)
    name = Path(candidates[0]).stem
    return Path("roofwatch-profiles") / f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{name}"


def report_of(capture: CapturedProgram, folder: Path) -> ProfileReport:
    """Rank the traces of a profile by their work, and summarise the first."""
    traces = [trace for process in capture.processes for trace in process.traces]
    traces.sort(
        key=lambda trace: (_busy_ns(trace.time), trace.time.host_inside_ns),
        reverse=True,
    )
    return ProfileReport(
        folder=str(folder),
        exit_status=capture.exit_status,
        summary=" ".join(_summary(traces, capture.processes)),
        notes=tuple(_notes(capture)),
        traces=tuple(traces),
        kernels=capture.kernels,
    )


def percent(share: float | None) -> str:
    if share is None:
        return ""
    return f"{share:.1%}"


def text_or_none(write: Callable[[float], str], value: float | None) -> str | None:
    """The cell of a value that may be missing."""
    if value is None:
        return None
    return write(value)


def _busy_ns(time: TimeSpent) -> int:
    return sum(device.busy_ns for device in time.devices)


def _summary(
    traces: Sequence[CapturedTrace], processes: Sequence[CapturedProcess]
) -> Iterator[str]:
    if not traces:
        yield _why_nothing_was_recorded(processes)
        return
    time = traces[0].time
    if time.devices:
        yield from _device_sentences(time)
    else:
        yield from _host_sentences(time)
    if len(traces) > 1:
        yield f"{len(traces) - 1} more trace(s) were written."


def _device_sentences(time: TimeSpent) -> Iterator[str]:
    busiest = max(time.devices, key=lambda device: device.busy_ns)
    yield (
        f"GPU {busiest.device} was busy for {busiest.busy_share:.0%} of the recorded "
        f"{format_ns(time.window_ns)}."
    )
    if time.kernels:
        first = time.kernels[0]
        yield (
            f"The kernel with the most time is {short_name(first.name)}: {_percent(first.share)} "
            f"of the busy time, in "
            f"{first.count} launches of {format_ns(first.mean_ns)}."
        )
    if busiest.transfer_ns:
        yield f"Copies and fills took {busiest.transfer_ns / busiest.busy_ns:.0%}."
    if busiest.busy_share < _MOSTLY_IDLE:
        yield (
            "The GPU mostly waited for the program, so faster kernels will gain little until "
            "work is issued sooner."
        )
    if time.gaps:
        gap = time.gaps[0]
        host = "outside PyTorch: Python, loading data, or waiting"
        if gap.host and gap.host_inside_ns >= gap.length_ns / 2:
            host = f"in {short_name(gap.host[0][0])}"
        yield (
            f"Its longest idle time was {format_ns(gap.length_ns)}; meanwhile the host was "
            f"mostly {host}."
        )


def _host_sentences(time: TimeSpent) -> Iterator[str]:
    if not time.operators or not time.window_ns:
        yield (
            "The trace has no PyTorch operator: the program did nothing with PyTorch during the "
            "recording."
        )
        return
    inside_share = time.host_inside_ns / time.window_ns
    first = time.operators[0]
    yield (
        f"No GPU was used in the recorded {format_ns(time.window_ns)}. The busiest thread spent "
        f"{inside_share:.0%} of the "
        "time in PyTorch operators."
    )
    yield (
        f"The operator with the most time is {short_name(first.name)}: {_percent(first.share)} of "
        f"the time, in "
        f"{first.count} call(s) of {format_ns(first.mean_ns)}."
    )
    # an annotation that covers more than the operators tells where the rest went
    covering_share = max(inside_share, _MOSTLY_IDLE)
    covering_marks = [mark for mark in time.marks if (mark.share or 0) > covering_share]
    if covering_marks:
        mark = covering_marks[0]
        yield f"The annotation {short_name(mark.name)} covers {_percent(mark.share)} of it."
    elif inside_share < _MOSTLY_IDLE:
        yield (
            "Most of the time passed outside PyTorch: in Python, loading data, or waiting; faster "
            "operators will gain "
            "little."
        )


def _why_nothing_was_recorded(processes: Sequence[CapturedProcess]) -> str:
    if not processes:
        return (
            "Nothing was recorded: the profiler was not loaded. The program is not a Python "
            "program, or runs Python "
            "in isolation (-I, -E or -S); remove those options."
        )
    if not any(process.torch_version for process in processes):
        return "Nothing was recorded: the program never imported torch."
    if any(process.has_recorded for process in processes):
        return "The recording is lost: the program was killed before it could be written."
    return "Nothing was recorded: the program ended before the recording began; start it earlier."


def _notes(capture: CapturedProgram) -> Iterator[str]:
    if capture.was_ended:
        yield "The program was ended after --max-seconds."
    # a program that was ended has a status, but no fault
    elif capture.exit_status:
        consequence = ""
        if any(process.traces for process in capture.processes):
            consequence = "; the profile shows what it did until then"
        if capture.exit_status > _SIGNAL_BASE:
            signal_number = capture.exit_status - _SIGNAL_BASE
            yield f"The program was ended by signal {signal_number}{consequence}."
        else:
            yield f"The program ended with status {capture.exit_status}{consequence}."
    for process in capture.processes:
        if process.has_recorded and not process.traces and not process.errors:
            yield f"Process {process.pid} was killed before its trace could be written."
        if process.forked_count:
            yield (
                f"{process.forked_count} process(es) were forked from process {process.pid}, for "
                f"example DataLoader "
                "workers: the trace shows waiting for them, but not their work."
            )
        for trace in process.traces:
            if trace.end_reason == "the window ended":
                yield f"{trace.trace} ends after --for seconds; the program went on."
            elif trace.end_reason not in _EXPECTED_ENDS:
                yield f"{trace.trace} of process {process.pid} ends early: {trace.end_reason}."
        for error in process.errors:
            yield f"Process {process.pid}: {error}"


def _percent(share: float | None) -> str:
    if share is None:
        return ""
    return f"{share:.0%}"


# --- tables


def print_report(report: ProfileReport) -> None:
    """Print to standard error: standard output belongs to the program."""
    output = console(to_stderr=True)
    output.print()
    for table in _tables(report):
        output.print(table)
    for text in (report.summary, *report.notes):
        output.print(text, soft_wrap=True)
    if report.traces:
        files = ", ".join(f"{report.folder}/{trace.trace}" for trace in report.traces)
        output.print(f"Written: {files}; open it in https://ui.perfetto.dev", soft_wrap=True)


def _tables(report: ProfileReport) -> Iterator[Table]:
    """The first trace in full, and a row for each of several traces."""
    if report.traces:
        time = report.traces[0].time
        if len(report.traces) > 1:
            yield _traces(report)
        if time.devices:
            yield _devices(time)
        if time.kernels:
            yield _time_rows(
                "kernel",
                "launches",
                "share of busy",
                time.kernels,
                time.kernel_names,
            )
        if time.transfers:
            yield _time_rows(
                "copies and fills",
                "count",
                "share of busy",
                time.transfers,
                len(time.transfers),
            )
        if time.gaps:
            yield _gaps(time)
        if time.operators:
            yield _time_rows(
                "on the host",
                "calls",
                "share of time",
                time.operators,
                time.operator_names,
            )
        if time.marks:
            yield _time_rows(
                "annotations",
                "count",
                "share of time",
                time.marks,
                len(time.marks),
            )
    if report.kernels:
        yield _compiled(report.kernels)


def _traces(report: ProfileReport) -> Table:
    rows = []
    for trace in report.traces:
        time = trace.time
        busy_shares = [device.busy_share for device in time.devices]
        inside_share = time.host_inside_ns / time.window_ns if time.window_ns else None
        cells = (
            trace.trace,
            trace.pid if trace.rank is None else f"rank {trace.rank}",
            short_name(trace.command),
            format_ns(time.window_ns),
            percent(max(busy_shares, default=None)),
            percent(inside_share),
        )
        rows.append(cells)
    return make_table(
        ("trace", "process", "command", "recorded", "GPU busy", "in operators"),
        rows,
        left_column_count=3,
    )


def _devices(time: TimeSpent) -> Table:
    columns = (
        "GPU",
        "busy",
        "idle",
        "busy share",
        "kernels",
        "in kernels",
        "copies and fills",
        "launch delay",
    )
    rows = [
        (
            device.device,
            format_ns(device.busy_ns),
            format_ns(device.window_ns - device.busy_ns),
            percent(device.busy_share),
            device.kernel_count,
            format_ns(device.kernel_ns),
            format_ns(device.transfer_ns),
            text_or_none(format_ns, time.median_launch_delay_ns),
        )
        for device in time.devices
    ]
    return make_table(columns, rows, left_column_count=1)


def _time_rows(
    kind: str,
    count: str,
    share: str,
    rows: Sequence[TimeRow],
    name_count: int,
) -> Table:
    title = None
    if name_count > len(rows):
        title = f"the first {len(rows)} of {name_count} names"
    cells = [
        (
            short_name(row.name),
            row.count,
            format_ns(row.total_ns),
            percent(row.share),
            format_ns(row.mean_ns),
            row.registers,
        )
        for row in rows
    ]
    return make_table(
        (kind, count, "total", share, "mean", "registers"),
        cells,
        title=title,
        left_column_count=1,
        omit_empty=True,
    )


def _gaps(time: TimeSpent) -> Table:
    columns = ("longest idle times", "host meanwhile", "until", "at", "length")
    rows = [
        (
            f"GPU {gap.device}",
            ", ".join(_host_work(gap)),
            short_name(gap.before),
            format_ns(gap.after_start_ns),
            format_ns(gap.length_ns),
        )
        for gap in time.gaps
    ]
    return make_table(columns, rows, left_column_count=3)


def _host_work(gap: IdleGap) -> Iterator[str]:
    for name, ns in gap.host:
        yield f"{short_name(name)} {format_ns(ns)}"
    outside_ns = gap.length_ns - gap.host_inside_ns
    if outside_ns > gap.length_ns / 10:
        yield f"outside PyTorch {format_ns(outside_ns)}"


def _compiled(kernels: Sequence[CapturedKernel]) -> Table:
    columns = (
        "Triton kernel",
        "target",
        "warps",
        "stages",
        "registers",
        "spills",
        "shared",
        "compiled in",
    )
    rows = [
        (
            short_name(kernel.name),
            f"{kernel.backend} {kernel.arch}",
            kernel.warps,
            kernel.stages,
            kernel.registers,
            _spills(kernel),
            text_or_none(format_bytes, kernel.shared_bytes),
            "cached" if kernel.was_cached else format_ns(sum(kernel.compile_ns.values())),
        )
        for kernel in kernels
    ]
    return make_table(columns, rows, left_column_count=1)


def _spills(kernel: CapturedKernel) -> str | None:
    if kernel.spilled_registers is not None:
        return str(kernel.spilled_registers)
    if not kernel.spill_bytes:
        return None
    return f"{kernel.spill_bytes} B"

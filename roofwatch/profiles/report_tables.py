"""Tables of `roofwatch profile`."""

from collections.abc import Iterator, Sequence

from rich.table import Table

from roofwatch.ci.messages import short_name
from roofwatch.collector.profiling.attribution import AttributedTime, StepAttribution
from roofwatch.collector.profiling.captured import CapturedKernel
from roofwatch.collector.profiling.time_spent import IdleGap, TimeRow, TimeSpent
from roofwatch.console.terminal import console, make_table
from roofwatch.model.metrics import format_bytes, format_ns
from roofwatch.profiles.report import ProfileReport, percent, text_or_none

_MIN_SHARE = 0.005
"""Modules, functions and lines with less of a step are counted, not listed."""


def print_report(report: ProfileReport, *, top: int | None) -> None:
    """Print to standard error: standard output belongs to the program.

    Args:
        report: What to print.
        top: Rows of each table; None: all.
    """
    output = console(to_stderr=True)
    output.print()
    for table in _tables(report, top):
        output.print(table)
    for text in (report.summary, *report.notes):
        output.print(text, soft_wrap=True)
    if report.traces:
        files = ", ".join(f"{report.folder}/{trace.trace}" for trace in report.traces)
        output.print(f"Written: {files}; open it in https://ui.perfetto.dev", soft_wrap=True)


def _tables(report: ProfileReport, top: int | None) -> Iterator[Table]:
    """The first trace in full, and a row for each of several traces."""
    if report.traces:
        # one trace is described by the tables below
        if len(report.traces) > 1:
            yield _traces(report)
        for step in report.step[:1]:
            yield from _step_tables(step, top)
        yield from time_tables(report.traces[0].time, top)
    if report.kernels:
        yield _compiled(report.kernels)


def time_tables(time: TimeSpent, top: int | None) -> Iterator[Table]:
    """Where the time of one trace went."""
    if time.devices:
        yield _devices(time)
    sections = (
        ("kernel", "launches", "share of busy", time.kernels),
        ("copies and fills", "count", "share of busy", time.transfers),
    )
    for kind, count, share, rows in sections:
        if rows:
            yield _time_rows(kind, count, share, rows, top)
    if time.gaps:
        yield _gaps(time)
    if time.operators:
        yield _time_rows("on the host", "calls", "share of time", time.operators, top)
    if time.marks:
        yield _time_rows("annotations", "count", "share of time", time.marks, top)


def _step_tables(step: StepAttribution, top: int | None) -> Iterator[Table]:
    where = "of one step" if step.where == "host" else "of one step on the GPU"
    sections = (
        ("module", "class", step.modules),
        ("autograd function", "", step.functions),
        ("function", "at", step.calls),
        ("line", "in", step.lines),
    )
    for kind, detail, times in sections:
        listed_times = [time for time in times if time.inclusive_ns >= _MIN_SHARE * step.total_ns]
        listed_times = listed_times[:top]
        if kind == "module":
            # an outer module, then what is in it
            listed_times.sort(key=lambda time: time.name.split("."))
        if listed_times:
            yield _attributed(kind, detail, listed_times, len(times), step.total_ns, where)


def _attributed(
    kind: str,
    detail: str,
    times: Sequence[AttributedTime],
    total_count: int,
    step_ns: int,
    where: str,
) -> Table:
    title = f"time inside each {kind}, {where}"
    # a table that looks complete would mislead
    if total_count > len(times):
        title = f"{title}; {total_count - len(times)} more are not shown"
    rows = [
        (
            short_name(time.name),
            short_name(time.detail),
            time.call_count,
            format_ns(time.inclusive_ns),
            percent(time.inclusive_ns / step_ns),
            percent(time.backward_ns / step_ns),
            percent(time.innermost_ns / step_ns),
        )
        for time in times
    ]
    return make_table(
        (kind, detail, "calls", "inside", "share", "backward", "own"),
        rows,
        title=title,
        left_column_count=2,
        omit_empty=True,
    )


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
    top: int | None,
) -> Table:
    title = None
    listed_rows = rows[:top]
    if len(rows) > len(listed_rows):
        title = f"the first {len(listed_rows)} of {len(rows)} names; --top 0 shows all"
    cells = [
        (
            short_name(row.name),
            row.count,
            format_ns(row.total_ns),
            percent(row.share),
            format_ns(row.mean_ns),
            row.registers,
        )
        for row in listed_rows
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
    # a remainder of rounding explains nothing
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
    # an empty cell reads better than a zero in every row
    if not kernel.spill_bytes:
        return None
    return f"{kernel.spill_bytes} B"

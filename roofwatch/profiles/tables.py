"""Tables of `roofwatch profile`."""

from collections.abc import Iterator, Sequence

from rich.table import Table

from roofwatch.ci.messages import short_name
from roofwatch.collector.profiling.profile_program import CapturedKernel
from roofwatch.collector.profiling.time_spent import Gap, TimeRow, TimeSpent
from roofwatch.collector.record.metrics import format_bytes, format_ns
from roofwatch.profiles.report import ProfileReport, percent
from roofwatch.terminal import console, make_table, printable


def print_report(report: ProfileReport) -> None:
    """Print to standard error: standard output belongs to the program."""
    output = console(to_stderr=True)
    output.print()
    for table in _tables(report):
        output.print(table)
    for text in (report.summary, *report.notes):
        output.print(printable(text), soft_wrap=True)
    if report.traces:
        files = ", ".join(f"{report.folder}/{trace.trace}" for trace in report.traces)
        output.print(printable(f"Written: {files}; open it in https://ui.perfetto.dev"), soft_wrap=True)


def _tables(report: ProfileReport) -> Iterator[Table]:
    """The leading trace in full, and a row for each of several traces."""
    if report.leading is not None:
        time = report.leading.time
        if len(report.traces) > 1:
            yield _traces(report)
        if time.devices:
            yield _devices(time)
        if time.kernels:
            yield _time_rows("kernel", "launches", "share of busy", time.kernels, time.kernel_names)
        if time.transfers:
            yield _time_rows("copies and fills", "count", "share of busy", time.transfers, len(time.transfers))
        if time.gaps:
            yield _gaps(time)
        if time.operators:
            yield _time_rows("on the host", "calls", "share of time", time.operators, time.operator_names)
        if time.marks:
            yield _time_rows("annotations", "count", "share of time", time.marks, len(time.marks))
    if report.kernels:
        yield _compiled(report.kernels)


def _traces(report: ProfileReport) -> Table:
    rows = [
        (
            trace.trace,
            trace.pid if trace.rank is None else f"rank {trace.rank}",
            short_name(trace.command),
            format_ns(trace.time.window_ns),
            percent(max((device.busy_share for device in trace.time.devices), default=None)),
            percent(trace.time.host_inside_ns / trace.time.window_ns if trace.time.window_ns else None),
        )
        for trace in report.traces
    ]
    return make_table(("trace", "process", "command", "recorded", "GPU busy", "in operators"), rows, left=3)


def _devices(time: TimeSpent) -> Table:
    columns = ("GPU", "busy", "idle", "busy share", "kernels", "in kernels", "copies and fills", "launch delay")
    delay_ns = time.median_launch_delay_ns
    rows = [
        (
            device.device,
            format_ns(device.busy_ns),
            format_ns(device.window_ns - device.busy_ns),
            percent(device.busy_share),
            device.kernel_count,
            format_ns(device.kernel_ns),
            format_ns(device.transfer_ns),
            None if delay_ns is None else format_ns(delay_ns),
        )
        for device in time.devices
    ]
    return make_table(columns, rows, left=1)


def _time_rows(what: str, count: str, share: str, rows: Sequence[TimeRow], name_count: int) -> Table:
    title = f"the first {len(rows)} of {name_count} names" if name_count > len(rows) else None
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
    return make_table((what, count, "total", share, "mean", "registers"), cells, title=title, left=1, omit_empty=True)


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
    return make_table(columns, rows, left=3)


def _host_work(gap: Gap) -> Iterator[str]:
    for name, ns in gap.host:
        yield f"{short_name(name)} {format_ns(ns)}"
    outside_ns = gap.length_ns - gap.host_inside_ns
    if outside_ns > gap.length_ns / 10:
        yield f"outside PyTorch {format_ns(outside_ns)}"


def _compiled(kernels: Sequence[CapturedKernel]) -> Table:
    columns = ("Triton kernel", "target", "warps", "stages", "registers", "spills", "shared", "compiled in")
    rows = [
        (
            short_name(kernel.name),
            f"{kernel.backend} {kernel.arch}",
            kernel.warps,
            kernel.stages,
            kernel.registers,
            _spills(kernel),
            None if kernel.shared_bytes is None else format_bytes(kernel.shared_bytes),
            "cached" if kernel.was_cached else format_ns(sum(kernel.compile_ns.values())),
        )
        for kernel in kernels
    ]
    return make_table(columns, rows, left=1)


def _spills(kernel: CapturedKernel) -> str | None:
    if kernel.spilled_registers is not None:
        return str(kernel.spilled_registers)
    return f"{kernel.spill_bytes} B" if kernel.spill_bytes else None

"""Tables of a profile: where the time went on the GPU and on the host, where the GPU waited, and the Triton kernels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.table import Table

from roofwatch.collector.compile.captured_kernels import CapturedKernel
from roofwatch.collector.profiling.time_spent import TimeRow, TimeSpent
from roofwatch.collector.record.metrics import format_bytes, format_ns
from roofwatch.profiles.profiling import ProcessTime, ProfileReport, short_name
from roofwatch.terminal import console, printable

_MAX_NAME = 80


def print_report(report: ProfileReport) -> None:
    """Print on standard error: standard output is the program's."""
    shown = console(to_stderr=True)
    shown.print()
    for table in tables(report):
        shown.print(table)
    for text in (report.summary, *report.notes):
        shown.print(printable(text), soft_wrap=True)
    if report.traces:
        where = ", ".join(f"{report.folder}/{trace.trace}" for trace in report.traces)
        shown.print(printable(f"Written: {where}; it opens in https://ui.perfetto.dev"), soft_wrap=True)


def tables(report: ProfileReport) -> Iterator[Table]:
    """The trace that says the most in full, and a line for every other."""
    leading = report.leading
    if leading is not None:
        time = leading.time
        if len(report.traces) > 1:
            yield _processes(report.traces)
        if time.devices:
            yield _devices(time)
        if time.kernels:
            yield _rows("kernel", "launches", time.kernels, time.kernel_names, "share of busy")
        if time.transfers:
            yield _rows("copies and fills", "count", time.transfers, len(time.transfers), "share of busy")
        if time.gaps:
            yield _gaps(time)
        if time.operators:
            yield _rows("on the host", "calls", time.operators, time.operator_names, "share of time")
        if time.marks:
            yield _rows("marked by the program", "times", time.marks, len(time.marks), "share of time")
    if report.kernels:
        yield _compiled(report.kernels)


def _processes(traces: Sequence[ProcessTime]) -> Table:
    table = _table("trace", "process", "command", "recorded", "GPU busy", "in operators", left=3)
    for trace in traces:
        time = trace.time
        busy = max((device.busy_share for device in time.devices), default=None)
        table.add_row(
            trace.trace,
            f"rank {trace.rank}" if trace.rank is not None else str(trace.pid),
            printable(trace.command[:_MAX_NAME]),
            format_ns(time.window_ns),
            "" if busy is None else f"{busy:.1%}",
            _share(time.host_inside_ns / time.window_ns if time.window_ns else None),
        )
    return table


def _devices(time: TimeSpent) -> Table:
    table = _table("GPU", "busy", "idle", "busy share", "kernels", "in kernels", "copies and fills", "launch delay")
    delay = time.launches.median_delay_ns
    for device in time.devices:
        table.add_row(
            device.device,
            format_ns(device.busy_ns),
            format_ns(device.window_ns - device.busy_ns),
            f"{device.busy_share:.1%}",
            str(device.kernel_count),
            format_ns(device.kernel_ns),
            format_ns(device.transfer_ns),
            "" if delay is None else format_ns(delay),
        )
    return table


def _rows(what: str, count: str, rows: Sequence[TimeRow], names: int, share: str) -> Table:
    title = f"the first {len(rows)} of {names} names" if names > len(rows) else None
    has_registers = any(row.registers is not None for row in rows)
    table = _table(what, count, "total", share, "mean", *(("registers",) if has_registers else ()), title=title)
    for row in rows:
        registers = (("" if row.registers is None else str(row.registers)),) if has_registers else ()
        table.add_row(
            printable(short_name(row.name)),
            str(row.count),
            format_ns(row.total_ns),
            _share(row.share),
            format_ns(row.mean_ns),
            *registers,
        )
    return table


def _gaps(time: TimeSpent) -> Table:
    table = _table("the longest waits of the GPU", "at", "length", "what the host did", "ended by", left=1)
    table.columns[3].justify = table.columns[4].justify = "left"
    for gap in time.gaps:
        host = [f"{short_name(name)} {format_ns(ns)}" for name, ns in gap.host]
        outside_ns = gap.length_ns - gap.host_inside_ns
        if outside_ns > gap.length_ns / 10:
            host.append(f"outside of PyTorch {format_ns(outside_ns)}")
        table.add_row(
            f"GPU {gap.device}",
            format_ns(gap.after_start_ns),
            format_ns(gap.length_ns),
            printable(", ".join(host)),
            printable(short_name(gap.before)),
        )
    return table


def _compiled(kernels: Sequence[CapturedKernel]) -> Table:
    table = _table("Triton kernel", "target", "warps", "stages", "registers", "spills", "shared", "compiled in")
    for kernel in kernels:
        spills = kernel.spilled_registers if kernel.spilled_registers is not None else kernel.spill_bytes
        unit = "" if kernel.spilled_registers is not None else " B"
        table.add_row(
            printable(short_name(kernel.name)),
            f"{kernel.backend} {kernel.arch}",
            _number(kernel.warps),
            _number(kernel.stages),
            _number(kernel.registers),
            "" if spills is None else f"{spills}{unit if spills else ''}",
            "" if kernel.shared_bytes is None else format_bytes(kernel.shared_bytes),
            "cached" if kernel.was_cached else format_ns(sum(kernel.compile_ns.values())),
        )
    return table


def _table(*columns: str, title: str | None = None, left: int = 1) -> Table:
    table = Table(title=title, title_justify="left")
    for at, column in enumerate(columns):
        table.add_column(column, justify="left" if at < left else "right", overflow="fold")
    return table


def _number(value: int | None) -> str:
    return "" if value is None else str(value)


def _share(share: float | None) -> str:
    return "" if share is None else f"{share:.1%}"

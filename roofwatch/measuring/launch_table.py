"""What launching costs beside the kernels: the host, the way to the device, and the gaps between kernels."""

from __future__ import annotations

from rich.table import Table
from rich.text import Text

from roofwatch.collector.record.measurement import Measurement
from roofwatch.collector.record.metrics import format_ns
from roofwatch.collector.record.record import RunRecord
from roofwatch.terminal import printable

_TIMES = ("busy", "gaps", "delay", "host")


def launches(record: RunRecord) -> Table | None:
    """One row per case and implementation that a GPU timer timed; None where none did."""
    timed = [measurement for measurement in record.measurements if measurement.host_ns is not None]
    if not timed:
        return None
    table = Table(
        title=Text("launches: time on the device, gaps between kernels, from the call to the first one, to issue it"),
        title_justify="left",
        header_style="bold",
    )
    for column in ("case", "implementation", "timer", "cache", "kernels", *_TIMES, ""):
        table.add_column(column, justify="right" if column in {"kernels", *_TIMES} else "left", overflow="fold")
    for measurement in timed:
        table.add_row(*_row(measurement))
    return table


def _row(measurement: Measurement) -> tuple[Text | str, ...]:
    busy_ns, span_ns = measurement.median_ns, measurement.span_ns
    gaps_ns = None if busy_ns is None or span_ns is None else max(0.0, span_ns - busy_ns)
    return (
        printable(measurement.case_id),
        printable(measurement.implementation),
        str(measurement.timer),
        str(measurement.cache),
        _kernels(measurement),
        *("" if value is None else format_ns(value) for value in (busy_ns, gaps_ns)),
        *("" if value is None else format_ns(value) for value in (measurement.launch_delay_ns, measurement.host_ns)),
        Text("host-bound", style="yellow") if measurement.is_host_bound else "",
    )


def _kernels(measurement: Measurement) -> str:
    counts = [block.kernel_count for block in measurement.blocks if block.kernel_count is not None]
    if not counts:
        return ""
    is_varying = any(block.is_kernel_set_varying for block in measurement.blocks) or len(set(counts)) > 1
    return f"up to {max(counts)}" if is_varying else str(counts[0])

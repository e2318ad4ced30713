"""What memory a launch takes: at its peak, by how many requests, and what of it lies idle between others'."""

from __future__ import annotations

from rich.table import Table
from rich.text import Text

from roofwatch.collector.record.metrics import format_bytes
from roofwatch.collector.record.record import RunRecord
from roofwatch.terminal import printable

_NUMBERS = ("allocated", "reserved", "allocations", "fragmentation")


def memory_of_launches(record: RunRecord) -> Table | None:
    """One row per case and implementation whose memory was counted; None where none was."""
    counted = [(measurement, measurement.memory) for measurement in record.measurements if measurement.memory]
    if not counted:
        return None
    table = Table(
        title=Text("memory of a launch: the most that tensors and allocator held, requests, share that lies idle"),
        title_justify="left",
        header_style="bold",
    )
    for column in ("case", "implementation", "cache", *_NUMBERS):
        table.add_column(column, justify="right" if column in _NUMBERS else "left", overflow="fold")
    for measurement, memory in counted:
        table.add_row(
            printable(measurement.case_id),
            printable(measurement.implementation),
            str(measurement.cache),
            format_bytes(memory.peak_allocated_bytes),
            format_bytes(memory.peak_reserved_bytes),
            f"{memory.allocation_count:,}",
            "" if memory.fragmentation is None else f"{memory.fragmentation:.1%}",
        )
    return table

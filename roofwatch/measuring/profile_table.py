"""Which kernels the calls of a case launched, and what of the device's time each took."""

from __future__ import annotations

from rich.table import Table
from rich.text import Text

from roofwatch.collector.record.metrics import format_ns
from roofwatch.collector.record.record import RunRecord
from roofwatch.terminal import printable

_SHOWN = 3
_NUMBERS = ("of a call", "in all", "mean", "share of busy")


def profiles(record: RunRecord) -> Table:
    """The longest three rows of each case and implementation; the record has the others."""
    table = Table(
        title=Text("what the calls launched, under a profiler: its times compare with no measurement's"),
        title_justify="left",
        header_style="bold",
    )
    for column in ("case", "implementation", "kind", "name", *_NUMBERS):
        table.add_column(column, justify="right" if column in _NUMBERS else "left", overflow="fold")
    for profile in record.profiles:
        for row in profile.rows[:_SHOWN]:
            table.add_row(
                printable(profile.case_id),
                printable(profile.implementation),
                row.kind,
                printable(row.name),
                f"{row.count / profile.call_count:.3g}",
                format_ns(row.total_ns),
                format_ns(row.mean_ns),
                f"{row.total_ns / profile.busy_ns:.1%}" if profile.busy_ns else "",
            )
        hidden = len(profile.rows[_SHOWN:]) + profile.left_out_count
        if hidden:
            rest_ns = sum(row.total_ns for row in profile.rows[_SHOWN:]) + profile.left_out_ns
            share = f"{rest_ns / profile.busy_ns:.1%}" if profile.busy_ns else ""
            table.add_row("", "", "", f"and {hidden} more", "", format_ns(rest_ns), "", share)
    return table

"""Read the sums and traces that `nsys stats --format csv` prints; a file may hold several reports.

Source: Nsight Systems user guide, Post-Collection Analysis Guide. The unit of a column is part of
its name.
"""

import csv
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from itertools import takewhile
from typing import Any

from roofwatch.collector.profiling.activities import (
    LAUNCH,
    ActivityKind,
    DeviceActivity,
    by_device,
)
from roofwatch.collector.profiling.nsys import plain_name
from roofwatch.collector.profiling.summary import (
    TOP_COUNT,
    busy_time,
    kernel_totals,
    to_us,
    transfer_totals_by_kind,
)
from roofwatch.model.errors import ProfileError
from roofwatch.model.files import JsonObject, decode_text
from roofwatch.model.grouping import group_by

_COLUMN = re.compile(r"(?P<name>.+?)( \((?P<unit>ns|nsec|us|usec|ms|msec|s|sec|MB)\))?")
_SCALES = {
    "n": 1,
    "u": 10**3,
    "m": 10**6,
    "s": 10**9,
    "M": 10**6,
}
"""To ns and to bytes, by the first letter of the unit."""
# Numbers without a unit.
_COUNTS = {"Instances", "Count", "Num Calls"}
# Larger numbers are damage: 2**62 ns are 146 years.
_MAX_VALUE = 2**62
_TRACE = "cuda_gpu_trace"
"""A row for each kernel, copy and fill."""
_KEY_COLUMNS = {
    "cuda_gpu_kern_sum": {"Total Time", "Instances", "Name"},
    "cuda_gpu_mem_time_sum": {"Total Time", "Count", "Operation"},
    "cuda_gpu_mem_size_sum": {"Total", "Count", "Operation"},
    "cuda_api_sum": {"Total Time", "Num Calls", "Name"},
    _TRACE: {"Start", "Duration", "GrdX", "Device", "Strm", "Name"},
}
"""Columns that identify each report, without their units."""
_OPERATION = re.compile(r"^\[?(CUDA )?(memcpy|memset)? ?|\]$", re.IGNORECASE)
"""What is left out of `[CUDA memcpy Host-to-Device]`."""
_Row = Mapping[str, Any]
"""Cells by column: times in ns, sizes in bytes."""


def read_nsys_csv(
    content: bytes,
    name: str,
    *,
    top: int | None = TOP_COUNT,
) -> JsonObject | None:
    """Summarise the reports of a file with the `top` longest kernel names; None if it has none.

    Raises:
        ProfileError: a row cannot be read.
    """
    lines = decode_text(content).splitlines()
    reports: dict[str, list[_Row]] = {}
    for header_line, report in find_reports(lines):
        reports[report] = _read_report(lines[header_line:], f"{name}: {report}")
    if not reports:
        return None
    # A trace has all that the sums have.
    if _TRACE in reports:
        return {
            "format": "nsys-csv",
            "reports": sorted(reports),
            **_traced(reports[_TRACE], top),
        }
    calls: dict[str, int] = {}
    for row in reports.get("cuda_api_sum", ()):
        calls[plain_name(row["Name"])] = row["Num Calls"]
    launch_names = sorted(filter(LAUNCH.fullmatch, calls))
    launches = {name: calls[name] for name in launch_names}
    return {
        "format": "nsys-csv",
        "reports": sorted(reports),
        "kernels": _sums_of_kernels(reports.get("cuda_gpu_kern_sum", ()), top),
        "memcpy": _sums_of_transfers(reports, "memcpy"),
        "memset": _sums_of_transfers(reports, "memset"),
        "launches": {"kernel_launches_by_name": launches},
        "devices": {},
    }


def find_reports(lines: Sequence[str]) -> Iterator[tuple[int, str]]:
    """Find the header lines of reports, and which report each starts."""
    for number, line in enumerate(lines):
        if "," not in line or "(" not in line:
            continue  # a header has a column with a unit
        cells = next(csv.reader([line]), [])
        columns: set[str] = set()
        for cell in cells:
            column, _ = _column(cell)
            columns.add(column)
        for report, key_columns in _KEY_COLUMNS.items():
            if key_columns <= columns:
                yield number, report


def _read_report(lines: Sequence[str], where: str) -> list[_Row]:
    """Cells of a report by column, in base units."""
    table = "\n".join(takewhile(str.strip, lines))  # an empty line ends a report
    try:
        header, *rows = csv.reader(io.StringIO(table), strict=True)
    except csv.Error as error:
        raise ProfileError(f"{where}: a row is truncated ({error}); export it again") from None
    columns = [_column(cell) for cell in header]
    parsed_rows: list[_Row] = []
    for row in rows:
        if len(row) != len(columns):
            raise ProfileError(
                f"{where}: a row has {len(row)} cells under {len(columns)} columns; export it again"
            )
        parsed: JsonObject = {}
        for (name, scale), cell in zip(columns, row, strict=True):
            if scale is None:
                parsed[name] = cell
            else:
                parsed[name] = _scaled(cell, scale, where)
        parsed_rows.append(parsed)
    return parsed_rows


def _scaled(cell: str, scale: int, where: str) -> int:
    """A number; 0 for an empty cell."""
    try:
        # Numbers have commas for thousands.
        number = Decimal(cell.replace(",", "") or 0) * scale
    except InvalidOperation:
        number = Decimal("NaN")
    if not number.is_finite() or abs(number) > _MAX_VALUE:
        raise ProfileError(f"{where}: {cell[:40]!r} is not a valid number; export it again")
    return round(number)


def _column(cell: str) -> tuple[str, int | None]:
    """The name of a column without its unit, and the factor of its numbers; None for text."""
    name = cell.strip()
    match = _COLUMN.fullmatch(name)
    if match is not None and match["unit"] is not None:
        unit_letter = match["unit"][0]
        return match["name"], _SCALES[unit_letter]
    if name in _COUNTS:
        return name, 1
    return name, None


def _traced(rows: Sequence[_Row], top: int | None) -> JsonObject:
    """Summarise a trace; its copies and fills have no launch configuration."""
    activities = [_activity(row) for row in rows]
    groups = group_by(activities, key=lambda activity: activity.kind)
    kernels = groups.get(ActivityKind.KERNEL, [])
    copies = groups.get(ActivityKind.MEMCPY, [])
    fills = groups.get(ActivityKind.MEMSET, [])
    devices: JsonObject = {}
    for device, members in by_device(activities).items():
        devices[device] = busy_time(members)
    return {
        "kernels": kernel_totals(kernels, top),
        "memcpy": transfer_totals_by_kind(copies),
        "memset": transfer_totals_by_kind(fills),
        "launches": {"kernel_launches_by_name": {}},
        "devices": devices,
    }


def _activity(row: _Row) -> DeviceActivity:
    """One row of a trace as a kernel, copy or fill."""
    name = row["Name"]
    kind = ActivityKind.KERNEL
    operation = _OPERATION.match(name)
    # A copy has no grid, and says what it is in its name.
    has_grid = row["GrdX"] != ""
    is_transfer = not has_grid and operation is not None and operation[2] is not None
    if operation is not None and is_transfer:
        kind = ActivityKind(operation[2].lower())
        name = _OPERATION.sub("", name.strip()) or kind.value
    launch: dict[str, list[int]] = {}
    for extent, column in (("grid", "Grd"), ("block", "Blk")):
        if row.get(f"{column}X", "").isdecimal():
            launch[extent] = [int(row[f"{column}{axis}"]) for axis in "XYZ"]
    transferred_bytes = 0
    if is_transfer:
        transferred_bytes = row.get("Bytes", 0)
    return DeviceActivity(
        kind=kind,
        name=name,
        start_ns=row["Start"],
        duration_ns=row["Duration"],
        device=row["Device"],
        stream=row["Strm"],
        bytes=transferred_bytes,
        launch=launch,
    )


def _sums_of_kernels(rows: Sequence[_Row], top: int | None) -> JsonObject:
    """Totals of all kernels, and the longest names."""
    longest_first = sorted(rows, key=lambda row: (-row["Total Time"], row["Name"]))
    total_ns = sum(row["Total Time"] for row in rows)
    longest_ns = max((row.get("Max", 0) for row in rows), default=0)
    return {
        "count": sum(row["Instances"] for row in rows),
        "distinct_names": len({row["Name"] for row in rows}),
        "sum_us": to_us(total_ns),
        "max_us": to_us(longest_ns),
        "top_by_total_time": [_kernel_sum(row) for row in longest_first[:top]],
    }


def _kernel_sum(row: _Row) -> JsonObject:
    """Totals of one kernel's name."""
    return {
        "name": row["Name"],
        "count": row["Instances"],
        "sum_us": to_us(row["Total Time"]),
        "mean_us": to_us(row["Total Time"] / max(row["Instances"], 1)),
        "min_us": to_us(row.get("Min", 0)),
        "max_us": to_us(row.get("Max", 0)),
        "first_launch": {},
    }


def _sums_of_transfers(
    reports: Mapping[str, Sequence[_Row]],
    kind: str,
) -> JsonObject:
    """Totals of copies or fills, from the reports of times and of sizes."""
    times = reports.get("cuda_gpu_mem_time_sum", ())
    sizes = reports.get("cuda_gpu_mem_size_sum", ())
    by_kind: dict[str, JsonObject] = {}
    # Both reports have the counts; each has its own sum.
    for row in (*times, *sizes):
        if kind not in row["Operation"].lower():
            continue
        operation = _OPERATION.sub("", row["Operation"].strip()) or row["Operation"]
        nothing = {
            "count": row["Count"],
            "sum_us": 0.0,
            "bytes": 0,
        }
        totals = by_kind.setdefault(operation, nothing)
        if "Total" in row:
            totals["bytes"] = row["Total"]
        else:
            totals["sum_us"] = to_us(row["Total Time"])
    all_totals = by_kind.values()
    return {
        "count": sum(totals["count"] for totals in all_totals),
        "sum_us": round(sum(totals["sum_us"] for totals in all_totals), 6),
        "bytes": sum(totals["bytes"] for totals in all_totals),
        "by_kind": dict(sorted(by_kind.items())),
    }

"""Read what `nsys stats --format csv` prints; one file may hold several reports one after the other.

Source: Nsight Systems, Post-Collection Analysis Guide. The unit of a column is part of its name.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from itertools import takewhile
from typing import Any

from roofwatch.collector.profiling.activities import (
    KERNEL,
    LAUNCH,
    MEMCPY,
    MEMSET,
    TOP_COUNT,
    Activity,
    busy_time,
    group_by_device,
    kernel_totals,
    to_us,
    transfer_totals_by_kind,
)
from roofwatch.collector.profiling.nsys import VERSION_SUFFIX
from roofwatch.collector.profiling.profile_file import ProfileError

_UNIT = re.compile(r"(.+?) \((ns|nsec|us|usec|ms|msec|s|sec|MB)\)")
_SCALES = {
    **dict.fromkeys(("ns", "nsec"), 1),
    **dict.fromkeys(("us", "usec"), 10**3),
    **dict.fromkeys(("ms", "msec", "MB"), 10**6),
    **dict.fromkeys(("s", "sec"), 10**9),
}
"""To ns and to bytes."""
_MAX_VALUE = 2**62
_KEY_COLUMNS = {
    "cuda_gpu_kern_sum": {"Total Time", "Instances", "Name"},
    "cuda_gpu_mem_time_sum": {"Total Time", "Count", "Operation"},
    "cuda_gpu_mem_size_sum": {"Total", "Count", "Operation"},
    "cuda_api_sum": {"Total Time", "Num Calls", "Name"},
    "cuda_gpu_trace": {"Start", "Duration", "CorrId", "Name"},
}
"""Columns that identify each report, without their units."""
_DEVICE_NUMBER = re.compile(r".*\((\d+)\)")
_OPERATION = re.compile(r"^\[?(CUDA )?(memcpy|memset)? ?|\]$", re.IGNORECASE)

Row = Mapping[str, str]


def read_nsys_csv(content: bytes, name: str, *, top: int | None = TOP_COUNT) -> dict[str, Any] | None:
    """Summarise the reports of a file; None if it has none.

    Args:
        content: The file.
        name: Name of the file, for errors.
        top: Number of kernel names, the longest total time first; None for all.

    Raises:
        ProfileError: a row cannot be read.
    """
    reports = _read_reports(content.decode("utf-8-sig", errors="replace"), name)
    if not reports:
        return None
    activities = [_activity(row) for row in reports.get("cuda_gpu_trace", ())]
    calls = {VERSION_SUFFIX.sub("", row["Name"]): int(row["Num Calls"]) for row in reports.get("cuda_api_sum", ())}
    if activities:
        kernels = kernel_totals([activity for activity in activities if activity.kind == KERNEL], top)
        memcpy, memset = (
            transfer_totals_by_kind([activity for activity in activities if activity.kind == kind])
            for kind in (MEMCPY, MEMSET)
        )
    else:
        kernels = _kernels_of_sums(reports.get("cuda_gpu_kern_sum", ()), top)
        memcpy, memset = (_transfers_of_sums(reports, kind) for kind in (MEMCPY, MEMSET))
    return {
        "format": "nsys-csv",
        "reports": sorted(reports),
        "kernels": kernels,
        "memcpy": memcpy,
        "memset": memset,
        "launches": {
            "kernel_launches_by_name": {name: calls[name] for name in sorted(calls) if LAUNCH.fullmatch(name)}
        },
        "devices": {device: busy_time(members) for device, members in group_by_device(activities).items()},
    }


def find_headers(lines: Sequence[str]) -> Iterator[tuple[int, str]]:
    """Find the header lines of reports, and which report each starts."""
    for at, line in enumerate(lines):
        if "," not in line or "(" not in line:
            continue
        columns = {_column(cell) for cell in next(csv.reader([line]), [])}
        for report, key_columns in _KEY_COLUMNS.items():
            if key_columns <= columns:
                yield at, report
                break


def _read_reports(text: str, name: str) -> dict[str, list[Row]]:
    """Read the rows of each report, with times in ns and sizes in bytes."""
    lines = text.splitlines()
    reports = {}
    for at, report in find_headers(lines):
        table = takewhile(str.strip, lines[at:])  # an empty line ends a report
        try:
            header, *rows = csv.reader(io.StringIO("\n".join(table)), strict=True)
        except csv.Error as error:
            raise ProfileError(f"{name}: a row of {report} is truncated ({error}); export it again") from None
        reports[report] = [_read_row(header, row, f"{name}: {report}") for row in rows]
    return reports


def _read_row(header: Sequence[str], row: Sequence[str], where: str) -> Row:
    if len(row) != len(header):
        raise ProfileError(f"{where}: a row has {len(row)} cells under {len(header)} columns; export it again")
    cells = {}
    for column, cell in zip(header, row, strict=True):
        unit, name = _UNIT.fullmatch(column), _column(column)
        is_count = name in {"Instances", "Count", "Num Calls", "Reg/Trd"} or name[:3] in {"Grd", "Blk"}
        is_number = cell and (unit or is_count)
        cells[name] = str(_scaled(cell, _SCALES[unit[2]] if unit else 1, where)) if is_number else cell
    return cells


def _scaled(cell: str, scale: int, where: str) -> int:
    try:
        number = Decimal(cell.replace(",", "")) * scale
    except InvalidOperation:
        number = Decimal("NaN")
    if not number.is_finite() or abs(number) > _MAX_VALUE:
        raise ProfileError(f"{where}: {cell[:40]!r} is not a valid number; export it again")
    return round(number)


def _column(cell: str) -> str:
    """The name of a column without its unit."""
    unit = _UNIT.fullmatch(cell.strip())
    return cell.strip() if unit is None else unit[1]


def _operation(text: str) -> str:
    """Shorten `[CUDA memcpy Host-to-Device]` to `Host-to-Device`."""
    return _OPERATION.sub("", text.strip()) or text


def _kernels_of_sums(rows: Sequence[Row], top: int | None) -> dict[str, Any]:
    def us(row: Row, column: str) -> float:
        return to_us(int(row.get(column) or 0))

    return {
        "count": sum(int(row["Instances"]) for row in rows),
        "distinct_names": len({row["Name"] for row in rows}),
        "sum_us": to_us(sum(int(row["Total Time"]) for row in rows)),
        "max_us": max((us(row, "Max") for row in rows), default=0.0),
        "top_by_total_time": [
            {
                "name": row["Name"],
                "count": int(row["Instances"]),
                "sum_us": us(row, "Total Time"),
                "mean_us": to_us(int(row["Total Time"]) / max(int(row["Instances"]), 1)),
                "min_us": us(row, "Min"),
                "max_us": us(row, "Max"),
                "first_launch": {},
            }
            for row in sorted(rows, key=lambda row: (-int(row["Total Time"]), row["Name"]))[:top]
        ],
    }


def _transfers_of_sums(reports: Mapping[str, Sequence[Row]], kind: str) -> dict[str, Any]:
    by_kind: dict[str, dict[str, Any]] = {}
    for report in ("cuda_gpu_mem_time_sum", "cuda_gpu_mem_size_sum"):
        for row in reports.get(report, ()):
            if kind in row["Operation"].lower():
                zero = {"count": int(row["Count"]), "sum_us": 0.0, "bytes": 0}
                totals = by_kind.setdefault(_operation(row["Operation"]), zero)
                if "Total" in row:
                    totals["bytes"] = int(row["Total"])
                else:
                    totals["sum_us"] = to_us(int(row["Total Time"]))
    return {
        "count": sum(totals["count"] for totals in by_kind.values()),
        "sum_us": round(sum(totals["sum_us"] for totals in by_kind.values()), 6),
        "bytes": sum(totals["bytes"] for totals in by_kind.values()),
        "by_kind": dict(sorted(by_kind.items())),
    }


def _activity(row: Row) -> Activity:
    """A row of the GPU trace."""
    is_kernel = bool(row.get("GrdX"))
    number = _DEVICE_NUMBER.fullmatch(row.get("Device", ""))
    launch: dict[str, Any] = {}
    if is_kernel:
        for name, prefix in (("grid", "Grd"), ("block", "Blk")):
            lengths = [row.get(f"{prefix}{axis}") for axis in "XYZ"]
            if None not in lengths:
                launch[name] = [int(length or 1) for length in lengths]
        launch["registers_per_thread"] = int(row.get("Reg/Trd") or 0)
        launch["static_shared_memory_bytes"] = int(row.get("StcSMem") or 0)
        launch["dynamic_shared_memory_bytes"] = int(row.get("DymSMem") or 0)
    return Activity(
        kind=KERNEL if is_kernel else MEMSET if MEMSET in row["Name"].lower() else MEMCPY,
        name=row["Name"] if is_kernel else _operation(row["Name"]),
        start_ns=int(row["Start"]),
        duration_ns=int(row["Duration"]),
        device=number[1] if number else row.get("Device", ""),
        stream=row.get("Strm", ""),
        correlation=row.get("CorrId"),
        bytes=int(row.get("Bytes") or 0),
        launch=launch,
    )

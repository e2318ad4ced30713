"""Read the sums that `nsys stats --format csv` prints; one file may hold several reports one after the other.

Source: Nsight Systems, Post-Collection Analysis Guide. The unit of a column is part of its name.
"""

import csv
import io
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from itertools import takewhile
from typing import Any

from roofwatch.collector.errors import ProfileError
from roofwatch.collector.profiling.activities import LAUNCH
from roofwatch.collector.profiling.nsys import VERSION_SUFFIX
from roofwatch.collector.profiling.summary import TOP_COUNT, to_us

_COLUMN = re.compile(r"(?P<name>.+?)( \((?P<unit>ns|nsec|us|usec|ms|msec|s|sec|MB)\))?")
_SCALES = {
    **dict.fromkeys(("ns", "nsec"), 1),
    **dict.fromkeys(("us", "usec"), 10**3),
    **dict.fromkeys(("ms", "msec", "MB"), 10**6),
    **dict.fromkeys(("s", "sec"), 10**9),
}
"""To ns and to bytes."""
_COUNTS = {"Instances", "Count", "Num Calls"}
_MAX_VALUE = 2**62
_KEY_COLUMNS = {
    "cuda_gpu_kern_sum": {"Total Time", "Instances", "Name"},
    "cuda_gpu_mem_time_sum": {"Total Time", "Count", "Operation"},
    "cuda_gpu_mem_size_sum": {"Total", "Count", "Operation"},
    "cuda_api_sum": {"Total Time", "Num Calls", "Name"},
}
"""Columns that identify each report, without their units."""
_OPERATION = re.compile(r"^\[?(CUDA )?(memcpy|memset)? ?|\]$", re.IGNORECASE)
"""What is left out of `[CUDA memcpy Host-to-Device]`."""

Row = Mapping[str, Any]
"""Cells by column: times in ns, sizes in bytes."""


def read_nsys_csv(content: bytes, name: str, *, top: int | None = TOP_COUNT) -> dict[str, Any] | None:
    """Summarise the reports of a file with the `top` longest kernel names; None if it has none.

    Raises:
        ProfileError: a row cannot be read.
    """
    lines = content.decode("utf-8-sig", errors="replace").splitlines()
    reports = {report: _read_report(lines[at:], f"{name}: {report}") for at, report in find_headers(lines)}
    if not reports:
        return None
    calls = {VERSION_SUFFIX.sub("", row["Name"]): row["Num Calls"] for row in reports.get("cuda_api_sum", ())}
    return {
        "format": "nsys-csv",
        "reports": sorted(reports),
        "kernels": _kernels(reports.get("cuda_gpu_kern_sum", ()), top),
        "memcpy": _transfers(reports, "memcpy"),
        "memset": _transfers(reports, "memset"),
        "launches": {
            "kernel_launches_by_name": {name: calls[name] for name in sorted(calls) if LAUNCH.fullmatch(name)}
        },
        "devices": {},
    }


def find_headers(lines: Sequence[str]) -> Iterator[tuple[int, str]]:
    """Find the header lines of reports, and which report each starts."""
    for at, line in enumerate(lines):
        if "," not in line or "(" not in line:
            continue
        columns = {_column(cell)[0] for cell in next(csv.reader([line]), [])}
        for report, key_columns in _KEY_COLUMNS.items():
            if key_columns <= columns:
                yield at, report
                break


def _read_report(lines: Iterable[str], where: str) -> list[Row]:
    table = "\n".join(takewhile(str.strip, lines))  # an empty line ends a report
    try:
        header, *rows = csv.reader(io.StringIO(table), strict=True)
    except csv.Error as error:
        raise ProfileError(f"{where}: a row is truncated ({error}); export it again") from None
    columns = [_column(cell) for cell in header]
    found: list[Row] = []
    for row in rows:
        if len(row) != len(columns):
            raise ProfileError(f"{where}: a row has {len(row)} cells under {len(columns)} columns; export it again")
        found.append(
            {
                name: cell if scale is None else _scaled(cell, scale, where)
                for (name, scale), cell in zip(columns, row, strict=True)
            }
        )
    return found


def _scaled(cell: str, scale: int, where: str) -> int:
    """A number; 0 for an empty cell."""
    try:
        number = Decimal(cell.replace(",", "") or 0) * scale
    except InvalidOperation:
        number = Decimal("NaN")
    if not number.is_finite() or abs(number) > _MAX_VALUE:
        raise ProfileError(f"{where}: {cell[:40]!r} is not a valid number; export it again")
    return round(number)


def _column(cell: str) -> tuple[str, int | None]:
    """The name of a column without its unit, and the factor of its numbers; None for text."""
    found = _COLUMN.fullmatch(cell.strip())
    if found is None or found["unit"] is None:
        return cell.strip(), 1 if cell.strip() in _COUNTS else None
    return found["name"], _SCALES[found["unit"]]


def _kernels(rows: Sequence[Row], top: int | None) -> dict[str, Any]:
    return {
        "count": sum(row["Instances"] for row in rows),
        "distinct_names": len({row["Name"] for row in rows}),
        "sum_us": to_us(sum(row["Total Time"] for row in rows)),
        "max_us": to_us(max((row.get("Max", 0) for row in rows), default=0)),
        "top_by_total_time": [
            {
                "name": row["Name"],
                "count": row["Instances"],
                "sum_us": to_us(row["Total Time"]),
                "mean_us": to_us(row["Total Time"] / max(row["Instances"], 1)),
                "min_us": to_us(row.get("Min", 0)),
                "max_us": to_us(row.get("Max", 0)),
                "first_launch": {},
            }
            for row in sorted(rows, key=lambda row: (-row["Total Time"], row["Name"]))[:top]
        ],
    }


def _transfers(reports: Mapping[str, Sequence[Row]], kind: str) -> dict[str, Any]:
    by_kind: dict[str, dict[str, Any]] = {}
    for report in ("cuda_gpu_mem_time_sum", "cuda_gpu_mem_size_sum"):
        for row in reports.get(report, ()):
            if kind in row["Operation"].lower():
                operation = _OPERATION.sub("", row["Operation"].strip()) or row["Operation"]
                totals = by_kind.setdefault(operation, {"count": row["Count"], "sum_us": 0.0, "bytes": 0})
                if "Total" in row:
                    totals["bytes"] = row["Total"]
                else:
                    totals["sum_us"] = to_us(row["Total Time"])
    return {
        "count": sum(totals["count"] for totals in by_kind.values()),
        "sum_us": round(sum(totals["sum_us"] for totals in by_kind.values()), 6),
        "bytes": sum(totals["bytes"] for totals in by_kind.values()),
        "by_kind": dict(sorted(by_kind.items())),
    }

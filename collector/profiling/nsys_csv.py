"""What `nsys stats --format csv` prints: sums by kernel and by kind of copy, sums of CUDA's calls, the trace of what
ran on the GPU. One file may hold several reports one after the other.

Source: Nsight Systems, Post-Collection Analysis Guide, `cuda_gpu_kern_sum`, `cuda_gpu_mem_time_sum`,
`cuda_gpu_mem_size_sum`, `cuda_api_sum`, `cuda_gpu_trace`. The unit of a column is part of its name.
"""

from __future__ import annotations

import csv
import io
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any

from roofwatch.collector.profiling.nsys import busy_times
from roofwatch.collector.profiling.profile_file import TOP_COUNT, Interval, ProfileError, longest, to_us

_UNIT = re.compile(r"(.+?) \((ns|nsec|us|usec|ms|msec|s|sec|MB)\)")
_SCALES = {
    **dict.fromkeys(("ns", "nsec"), 1),
    **dict.fromkeys(("us", "usec"), 10**3),
    **dict.fromkeys(("ms", "msec"), 10**6),
    **dict.fromkeys(("s", "sec"), 10**9),
    "MB": 10**6,
}
"""To ns, and to bytes."""
_MOST = 2**62
"""Of ns and of bytes: more than any device has."""
_REPORTS = {
    "cuda_gpu_kern_sum": {"Total Time", "Instances", "Name"},
    "cuda_gpu_mem_time_sum": {"Total Time", "Count", "Operation"},
    "cuda_gpu_mem_size_sum": {"Total", "Count", "Operation"},
    "cuda_api_sum": {"Total Time", "Num Calls", "Name"},
    "cuda_gpu_trace": {"Start", "Duration", "CorrId", "Name"},
}
"""By name, the columns that tell a report, without their units."""
_LAUNCH = re.compile(r"(cuda|cu)\w*Launch\w*Kernel\w*")
_VERSION_SUFFIX = re.compile(r"(_v\d+|_ptsz|_ptds)+$")
_DEVICE_NUMBER = re.compile(r".*\((\d+)\)")

Row = Mapping[str, str]


def read_nsys_csv(content: bytes, name: str, *, top: int | None = TOP_COUNT) -> dict[str, Any] | None:
    """What the reports say; None if there is none.

    Args:
        content: Of the file.
        name: Of the file, for errors.
        top: Names of kernels that are told, the longest first; None for all.

    Raises:
        ProfileError: a row cannot be read.
    """
    reports = _reports(content.decode("utf-8-sig", errors="replace"), name)
    if not reports:
        return None
    trace = [_Activity(row, name) for row in reports.get("cuda_gpu_trace", ())]
    moved = {
        kind: _transfers_of_trace(trace, kind) if trace else _transfers_of_sums(reports, kind, name)
        for kind in ("memcpy", "memset")
    }
    return {
        "format": "nsys-csv",
        "reports": sorted(reports),
        "kernels": (
            _kernels_of_trace(trace, top)
            if trace
            else _kernels_of_sums(reports.get("cuda_gpu_kern_sum", ()), name, top)
        ),
        **moved,
        "launches": _launches(reports.get("cuda_api_sum", ()), name),
        "devices": _devices(trace),
    }


def find_headers(lines: Sequence[str]) -> Iterator[tuple[int, str]]:
    """The lines that have the columns of a report, and which report it is."""
    for at, line in enumerate(lines):
        if "," not in line or "(" not in line:
            continue
        columns = {_column(cell) for cell in next(csv.reader([line]), [])}
        report = next((report for report, wanted in _REPORTS.items() if wanted <= columns), None)
        if report is not None:
            yield at, report


def _reports(text: str, name: str) -> dict[str, list[Row]]:
    """The rows of each report, times in ns and sizes in bytes."""
    lines = text.splitlines()
    found = {}
    for at, report in find_headers(lines):
        table = list(_table(lines[at:]))
        try:
            header, *rows = csv.reader(io.StringIO("\n".join(table)), strict=True)
        except csv.Error as error:
            raise ProfileError(f"{name}: a row of {report} is cut short ({error}); export it again") from None
        found[report] = [_row(header, row, f"{name}: {report}") for row in rows]
    return found


def _table(lines: Sequence[str]) -> Iterator[str]:
    """From the columns on to the next empty line, which ends a report."""
    for line in lines:
        if not line.strip():
            return
        yield line


def _row(header: Sequence[str], row: Sequence[str], where: str) -> Row:
    if len(row) != len(header):
        raise ProfileError(f"{where}: a row has {len(row)} cells under {len(header)} columns; export it again")
    cells = {}
    for column, cell in zip(header, row, strict=True):
        unit = _UNIT.fullmatch(column)
        cells[_column(column)] = cell if unit is None or not cell else str(_scaled(cell, _SCALES[unit[2]], where))
    return cells


def _scaled(cell: str, scale: int, where: str) -> int:
    try:
        number = Decimal(cell.replace(",", "")) * scale
    except InvalidOperation:
        number = Decimal("NaN")
    if not number.is_finite() or abs(number) > _MOST:
        raise ProfileError(f"{where}: {cell[:40]!r} is no number that can stand there; export it again")
    return round(number)


def _column(cell: str) -> str:
    unit = _UNIT.fullmatch(cell.strip())
    return cell.strip() if unit is None else unit[1]


def _count(cell: str, where: str) -> int:
    return _scaled(cell, 1, where)


# --- sums


def _kernels_of_sums(rows: Sequence[Row], where: str, top: int | None) -> dict[str, Any]:
    ordered = sorted(rows, key=lambda row: (-int(row["Total Time"]), row["Name"]))
    counts = [_count(row["Instances"], where) for row in ordered]
    return {
        "count": sum(counts),
        "distinct_names": len({row["Name"] for row in rows}),
        "sum_us": to_us(sum(int(row["Total Time"]) for row in rows)),
        "max_us": to_us(max((int(row.get("Max") or 0) for row in rows), default=0)),
        "top_by_total_time": [
            {
                "name": row["Name"],
                "count": count,
                "sum_us": to_us(int(row["Total Time"])),
                "mean_us": to_us(int(row["Total Time"]) / max(count, 1)),
                "min_us": to_us(int(row.get("Min") or 0)),
                "max_us": to_us(int(row.get("Max") or 0)),
                "first_launch": {},
            }
            for row, count in list(zip(ordered, counts, strict=True))[:top]
        ],
    }


def _transfers_of_sums(reports: Mapping[str, Sequence[Row]], kind: str, where: str) -> dict[str, Any]:
    by_kind: dict[str, dict[str, Any]] = {}
    for row in reports.get("cuda_gpu_mem_time_sum", ()):
        if kind in row["Operation"].lower():
            sums = {"count": _count(row["Count"], where), "sum_us": to_us(int(row["Total Time"])), "bytes": 0}
            by_kind[_operation(row["Operation"])] = sums
    for row in reports.get("cuda_gpu_mem_size_sum", ()):
        if kind in row["Operation"].lower():
            sums = by_kind.setdefault(
                _operation(row["Operation"]), {"count": _count(row["Count"], where), "sum_us": 0.0, "bytes": 0}
            )
            sums["bytes"] = int(row["Total"])
    return _with_totals(by_kind)


def _with_totals(by_kind: dict[str, dict[str, Any]]) -> dict[str, Any]:
    return {
        "count": sum(sums["count"] for sums in by_kind.values()),
        "sum_us": round(sum(sums["sum_us"] for sums in by_kind.values()), 6),
        "bytes": sum(sums["bytes"] for sums in by_kind.values()),
        "by_kind": dict(sorted(by_kind.items())),
    }


def _operation(text: str) -> str:
    """`Host-to-Device` of `[CUDA memcpy Host-to-Device]`."""
    return re.sub(r"^\[?(CUDA )?(memcpy|memset)? ?|\]$", "", text.strip(), flags=re.IGNORECASE) or text


def _launches(rows: Sequence[Row], where: str) -> dict[str, Any]:
    calls = {_VERSION_SUFFIX.sub("", row["Name"]): _count(row["Num Calls"], where) for row in rows}
    return {"kernel_launches_by_name": {name: calls[name] for name in sorted(calls) if _LAUNCH.fullmatch(name)}}


# --- the trace


class _Activity:
    """A row of the trace: a kernel, a copy or a fill."""

    def __init__(self, row: Row, where: str) -> None:
        self.name = row["Name"]
        self.start_ns = int(row["Start"])
        self.duration_ns = int(row["Duration"])
        self.bytes = int(row.get("Bytes") or 0)
        number = _DEVICE_NUMBER.fullmatch(row.get("Device", ""))
        self.device = number[1] if number else row.get("Device", "")
        self.is_kernel = bool(row.get("GrdX"))
        self._row = row
        self._where = where

    @property
    def launch(self) -> dict[str, Any]:
        def dims(prefix: str) -> list[int]:
            return [_count(self._row[f"{prefix}{axis}"], self._where) for axis in "XYZ"]

        shape = {"grid": "Grd", "block": "Blk"}
        return {
            **{
                name: dims(prefix)
                for name, prefix in shape.items()
                if {f"{prefix}{axis}" for axis in "XYZ"} <= self._row.keys()
            },
            "registers_per_thread": _count(self._row.get("Reg/Trd") or "0", self._where),
            "static_shared_memory_bytes": int(self._row.get("StcSMem") or 0),
            "dynamic_shared_memory_bytes": int(self._row.get("DymSMem") or 0),
            "stream": self._row.get("Strm", ""),
            "device": self.device,
        }


def _kernels_of_trace(trace: Sequence[_Activity], top: int | None) -> dict[str, Any]:
    kernels = sorted((activity for activity in trace if activity.is_kernel), key=lambda kernel: kernel.start_ns)
    durations: dict[str, list[int]] = defaultdict(list)
    first: dict[str, _Activity] = {}
    for kernel in kernels:
        durations[kernel.name].append(kernel.duration_ns)
        first.setdefault(kernel.name, kernel)
    return {
        "count": len(kernels),
        "distinct_names": len(durations),
        "sum_us": to_us(sum(kernel.duration_ns for kernel in kernels)),
        "max_us": to_us(max((kernel.duration_ns for kernel in kernels), default=0)),
        "top_by_total_time": [
            times | {"first_launch": first[times["name"]].launch} for times in longest(durations)[:top]
        ],
    }


def _transfers_of_trace(trace: Sequence[_Activity], kind: str) -> dict[str, Any]:
    by_kind: dict[str, dict[str, Any]] = {}
    for activity in trace:
        if not activity.is_kernel and kind in activity.name.lower():
            sums = by_kind.setdefault(_operation(activity.name), {"count": 0, "sum_us": 0.0, "bytes": 0})
            sums["count"] += 1
            sums["sum_us"] = round(sums["sum_us"] + to_us(activity.duration_ns), 6)
            sums["bytes"] += activity.bytes
    return _with_totals(by_kind)


def _devices(trace: Sequence[_Activity]) -> dict[str, Any]:
    by_device: dict[str, list[Interval]] = defaultdict(list)
    for activity in trace:
        by_device[activity.device].append((activity.start_ns, activity.start_ns + activity.duration_ns))
    return {device: busy_times(intervals) for device, intervals in sorted(by_device.items())}

"""Read files of Nsight Systems: its SQLite export, and the sums that `nsys stats --format csv`
prints.

Source: Nsight Systems user guide, SQLite schema reference and Post-Collection Analysis Guide. Times
of the export are in ns; names are IDs into `StringIds`. The unit of a column of CSV is part of its
name.
"""

import csv
import io
import re
import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from decimal import Decimal, InvalidOperation
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import Any

from roofwatch.collector.profiling.activities import (
    GRAPH_LAUNCH,
    LAUNCH,
    ActivityKind,
    DeviceActivity,
    HostEvent,
    group_by,
    launch_delays_ns,
)
from roofwatch.collector.profiling.summary import (
    TOP_COUNT,
    busy_time,
    delay_totals,
    kernel_totals,
    to_us,
    transfer_totals_by_kind,
)
from roofwatch.model.errors import ProfileError
from roofwatch.model.files import decode_text

MAGIC = b"SQLite format 3\x00"
_VERSION = re.compile(r"(_v\d+|_ptsz|_ptds)+$")
"""Version suffix of a CUDA API function's name."""
_TIMES = ("start", "end - start", "deviceId")
_LAUNCH_COLUMNS = (
    *(f"{extent}{axis}" for extent in ("grid", "block") for axis in "XYZ"),
    "registersPerThread",
    "staticSharedMemory",
    "dynamicSharedMemory",
    "streamId",
)
_GPU_COLUMNS = ("id", "name", "totalMemory", "computeMajor", "computeMinor", "smCount", "chipName")
_METADATA_TABLES = ("EXPORT_META_DATA", "META_DATA_EXPORT")
"""The first is the name in schema 2."""
_MARKS_OF_AN_EXPORT = frozenset(
    {*_METADATA_TABLES, "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME"}
)
_REQUIRED_COLUMNS = frozenset({"start", "end", "deviceId", "demangledName", "id", "value", "name"})
"""Others were added or removed by versions of the schema, and are unknown where they are missing.
"""
_EXPORT_VERSIONS = ("EXPORT_PRODUCT_VERSION", "EXPORT_SCHEMA_VERSION")


def read_nsys(path: Path, *, top: int | None = TOP_COUNT) -> dict[str, Any] | None:
    """Summarise an export with the `top` longest kernel names; None if the database is not an
    export.

    Raises:
        ProfileError: the database is corrupt, or its schema is unknown.
    """
    # Immutable: an export on a read-only disk can have no lock file.
    database = f"{path.resolve().as_uri()}?mode=ro&immutable=1"
    try:
        with closing(sqlite3.connect(database, uri=True)) as connection:
            # Names of kernels may hold bytes that are no text.
            connection.text_factory = partial(str, encoding="utf-8", errors="replace")
            return _Export(connection).summary(top)
    # TypeError: text in a column of numbers.
    except (sqlite3.DatabaseError, UnicodeDecodeError, TypeError) as error:
        raise ProfileError(
            f"{path}: not a whole sqlite export of a known version ({error}); export it again "
            f"with nsys export"
        ) from None


class _Export:
    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        rows = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        self._tables = {name for (name,) in rows}

    def summary(self, top: int | None) -> dict[str, Any] | None:
        if "StringIds" not in self._tables or self._tables.isdisjoint(_MARKS_OF_AN_EXPORT):
            return None
        names = {key: str(value) for key, value in self._rows("StringIds", "id", "value")}
        kernels = self._kernels(names)
        totals = kernel_totals(kernels, top)
        # The short name is a fact of the kernel, not of its launch.
        for row in totals["top_by_total_time"]:
            row["short_name"] = row["first_launch"].pop("short_name")
        kinds = dict(self._rows("ENUM_CUDA_MEMCPY_OPER", "id", "name"))
        copies = self._transfers(table="MEMCPY", kind_column="copyKind", kinds=kinds)
        fills = self._transfers(table="MEMSET", kind_column="memKind", kinds={})
        by_device = group_by([*kernels, *copies, *fills], "device")
        return {
            "format": "nsys-sqlite",
            "tables": len(self._tables),
            "export": self._versions(),
            "gpus": self._gpus(),
            "kernels": totals,
            "memcpy": transfer_totals_by_kind(copies),
            "memset": transfer_totals_by_kind(fills),
            "launches": _launches(self._calls(names), kernels),
            "devices": {device: busy_time(members) for device, members in by_device.items()},
            "nvtx_events": len(self._rows("NVTX_EVENTS", "1")),
        }

    def _versions(self) -> dict[str, str]:
        settings: dict[str, Any] = {}
        for table in _METADATA_TABLES:
            settings |= dict(self._rows(table, "name", "value"))
        versions: dict[str, str] = {}
        for name in _EXPORT_VERSIONS:
            version = settings.get(name)
            if isinstance(version, str):
                versions[name] = version
        return versions

    def _kernels(self, names: dict[Any, str]) -> list[DeviceActivity]:
        columns = (
            *_TIMES,
            "demangledName",
            "shortName",
            "globalPid",
            "correlationId",
            *_LAUNCH_COLUMNS,
        )
        rows = self._rows("CUPTI_ACTIVITY_KIND_KERNEL", *columns)
        kernels: list[DeviceActivity] = []
        for start_ns, duration_ns, device, name_id, short_id, process, id_, *launch in rows:
            kernel = DeviceActivity(
                kind=ActivityKind.KERNEL,
                name=names.get(name_id, str(name_id)),
                start_ns=start_ns,
                duration_ns=duration_ns,
                device=str(device),
                stream=launch[9],
                correlation=(_process(process), id_),
                # In the order of `_LAUNCH_COLUMNS`.
                launch={
                    "short_name": names.get(short_id),
                    "grid": launch[:3],
                    "block": launch[3:6],
                    "registers_per_thread": launch[6],
                    "static_shared_memory_bytes": launch[7],
                    "dynamic_shared_memory_bytes": launch[8],
                },
            )
            kernels.append(kernel)
        return kernels

    def _transfers(
        self, table: str, kind_column: str, kinds: dict[Any, str]
    ) -> list[DeviceActivity]:
        rows = self._rows(f"CUPTI_ACTIVITY_KIND_{table}", *_TIMES, "bytes", kind_column)
        return [
            DeviceActivity(
                kind=ActivityKind(table.lower()),
                name=str(kinds.get(kind, kind)),
                start_ns=start_ns,
                duration_ns=duration_ns,
                device=str(device),
                bytes=byte_count,
            )
            for start_ns, duration_ns, device, byte_count, kind in rows
        ]

    def _calls(self, names: dict[Any, str]) -> list[HostEvent]:
        rows = self._rows(
            "CUPTI_ACTIVITY_KIND_RUNTIME",
            "start",
            "end",
            "globalTid",
            "correlationId",
            "nameId",
        )
        return [
            HostEvent(
                name=_VERSION.sub("", names.get(name_id, "")),
                start_ns=start_ns,
                end_ns=end_ns,
                correlation=(_process(thread), correlation),
            )
            for start_ns, end_ns, thread, correlation, name_id in rows
        ]

    def _gpus(self) -> list[dict[str, Any]]:
        if "TARGET_INFO_GPU" not in self._tables:
            return []
        cursor = self._connection.execute("SELECT * FROM TARGET_INFO_GPU")
        columns = [column[0] for column in cursor.description]
        gpus: list[dict[str, Any]] = []
        for row in cursor:
            cells = dict(zip(columns, row, strict=True))
            gpu = {name: cell for name, cell in cells.items() if name in _GPU_COLUMNS}
            # JSON has no bytes.
            gpu = {name: cell for name, cell in gpu.items() if not isinstance(cell, bytes)}
            gpus.append(gpu)
        return gpus

    def _rows(self, table: str, *columns: str) -> list[tuple[Any, ...]]:
        """Read columns of a table; the export lacks the tables of what was not recorded."""
        if table not in self._tables:
            return []
        in_table = {row[1] for row in self._connection.execute(f'PRAGMA table_info("{table}")')}
        selected: list[str] = []
        for column in columns:
            # `end - start` is no name; a required column that is missing is an error of SQLite.
            is_expression = not column.isidentifier()
            if is_expression or column in in_table or column in _REQUIRED_COLUMNS:
                selected.append(column)
            else:
                selected.append(f"NULL AS {column}")
        query = f'SELECT {", ".join(selected)} FROM "{table}"'  # noqa: S608  constants
        return self._connection.execute(query).fetchall()


def _launches(calls: Sequence[HostEvent], kernels: Sequence[DeviceActivity]) -> dict[str, Any]:
    launches = [call for call in calls if LAUNCH.fullmatch(call.name)]
    graph_launches = [call for call in calls if GRAPH_LAUNCH.fullmatch(call.name)]
    delays_ns = launch_delays_ns(launches, kernels)
    by_name = Counter(call.name for call in launches)
    # Several rows may be of one launch; they share its correlation.
    distinct_launches = {call.correlation for call in launches}
    return {
        "runtime_rows": len(calls),
        "kernel_launch_rows": len(launches),
        "kernel_launches": len(distinct_launches),
        "kernel_launches_by_name": dict(sorted(by_name.items())),
        "graph_launch_rows": len(graph_launches),
        "kernels_without_a_launch_call": len(kernels) - len(delays_ns),
        "delay_call_start_to_kernel_start": delay_totals(delays_ns),
    }


def _process(global_id: object) -> int:
    """The process of a serialised global ID; correlation IDs are unique within a process."""
    if not isinstance(global_id, int):
        return -1
    # The lowest 24 bits are the thread.
    return global_id >> 24


# --- sums as CSV; one file may hold several reports one after the other

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
) -> dict[str, Any] | None:
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
        calls[_VERSION.sub("", row["Name"])] = row["Num Calls"]
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
        parsed: dict[str, Any] = {}
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


def _traced(rows: Sequence[_Row], top: int | None) -> dict[str, Any]:
    """Summarise a trace; its copies and fills have no launch configuration."""
    activities = [_activity(row) for row in rows]
    by_kind: dict[ActivityKind, list[DeviceActivity]] = {kind: [] for kind in ActivityKind}
    for activity in activities:
        by_kind[activity.kind].append(activity)
    by_device = group_by(activities, "device")
    return {
        "kernels": kernel_totals(by_kind[ActivityKind.KERNEL], top),
        "memcpy": transfer_totals_by_kind(by_kind[ActivityKind.MEMCPY]),
        "memset": transfer_totals_by_kind(by_kind[ActivityKind.MEMSET]),
        "launches": {"kernel_launches_by_name": {}},
        "devices": {device: busy_time(members) for device, members in by_device.items()},
    }


def _activity(row: _Row) -> DeviceActivity:
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
    return DeviceActivity(
        kind=kind,
        name=name,
        start_ns=row["Start"],
        duration_ns=row["Duration"],
        device=row["Device"],
        stream=row["Strm"],
        bytes=row.get("Bytes", 0) if is_transfer else 0,
        launch=launch,
    )


def _sums_of_kernels(rows: Sequence[_Row], top: int | None) -> dict[str, Any]:
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


def _kernel_sum(row: _Row) -> dict[str, Any]:
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
) -> dict[str, Any]:
    times = reports.get("cuda_gpu_mem_time_sum", ())
    sizes = reports.get("cuda_gpu_mem_size_sum", ())
    by_kind: dict[str, dict[str, Any]] = {}
    # Both reports have the counts; each has its own sum.
    for row in (*times, *sizes):
        if kind not in row["Operation"].lower():
            continue
        operation = _OPERATION.sub("", row["Operation"].strip()) or row["Operation"]
        nothing = {"count": row["Count"], "sum_us": 0.0, "bytes": 0}
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

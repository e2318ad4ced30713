"""The sqlite export of Nsight Systems: kernels, copies, launches and how busy each device was.

Source: Nsight Systems user guide, SQLite schema reference; times are in ns, names are numbers into `StringIds`.
"""

from __future__ import annotations

import re
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

from roofwatch.collector.profiling.profile_file import (
    TOP_COUNT,
    Duration,
    Interval,
    ProfileError,
    delays,
    length_ns,
    longest,
    to_us,
    union,
)

MAGIC = b"SQLite format 3\x00"

_LAUNCH = re.compile(r"(cuda|cu)\w*Launch\w*Kernel\w*")
_GRAPH_LAUNCH = re.compile(r"(cuda|cu)\w*GraphLaunch\w*")
_VERSION_SUFFIX = re.compile(r"(_v\d+|_ptsz|_ptds)+$")
_WHEN = ("start", "end", "deviceId")
_LAUNCH_COLUMNS = (
    *(f"{what}{axis}" for what in ("grid", "block") for axis in "XYZ"),
    *("registersPerThread", "staticSharedMemory", "dynamicSharedMemory", "streamId"),
)
_GPU_COLUMNS = ("id", "name", "totalMemory", "computeMajor", "computeMinor", "smCount", "chipName")


def read_nsys(path: Path, *, top: int | None = TOP_COUNT) -> dict[str, Any] | None:
    """What the export says; None if the database is none of Nsight Systems'.

    Args:
        path: The file.
        top: Names of kernels that are told, the longest first; None for all.

    Raises:
        ProfileError: the database is corrupt, or of a schema that is not known here.
    """
    try:
        connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True)
        try:
            return _summary(connection, str(path), top)
        finally:
            connection.close()
    except (sqlite3.DatabaseError, UnicodeDecodeError) as error:  # the second of a column's name
        raise ProfileError(f"{path}: not a whole sqlite export ({error}); export it again with nsys export") from None


def _summary(connection: sqlite3.Connection, name: str, top: int | None) -> dict[str, Any] | None:
    connection.row_factory = sqlite3.Row
    connection.text_factory = partial(str, encoding="utf-8", errors="replace")
    tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if not {"StringIds", "META_DATA_EXPORT"} <= tables:
        return None
    rows = _Rows(connection, tables, name)
    names = {row["id"]: str(row["value"]) for row in rows.of("StringIds", also=("id", "value"))}
    kernels = rows.of(
        "CUPTI_ACTIVITY_KIND_KERNEL",
        whole=(*_WHEN, *_LAUNCH_COLUMNS),
        also=("demangledName", "shortName", "globalPid", "correlationId"),
    )
    copies = rows.of("CUPTI_ACTIVITY_KIND_MEMCPY", whole=(*_WHEN, "bytes"), also=("copyKind",))
    fills = rows.of("CUPTI_ACTIVITY_KIND_MEMSET", whole=(*_WHEN, "bytes"), also=("memKind",))
    calls = rows.of("CUPTI_ACTIVITY_KIND_RUNTIME", whole=("start",), also=("globalTid", "correlationId", "nameId"))
    kinds = {row["id"]: str(row["name"]) for row in rows.of("ENUM_CUDA_MEMCPY_OPER", also=("id", "name"))}
    export = {row["name"]: row["value"] for row in rows.of("META_DATA_EXPORT", also=("name", "value"))}
    return {
        "format": "nsys-sqlite",
        "tables": len(tables),
        "export": {
            name: export[name]
            for name in ("EXPORT_PRODUCT_VERSION", "EXPORT_SCHEMA_VERSION")
            if isinstance(export.get(name), str)
        },
        "gpus": [_present(row, _GPU_COLUMNS) for row in rows.of("TARGET_INFO_GPU")],
        "kernels": _kernels(kernels, names, top),
        "memcpy": _transfers(copies, lambda row: kinds.get(row["copyKind"], str(row["copyKind"]))),
        "memset": _transfers(fills, lambda row: str(row["memKind"])),
        "launches": _launches(calls, kernels, names),
        "devices": _devices([*kernels, *copies, *fills]),
        "nvtx_events": rows.count("NVTX_EVENTS"),
    }


class _Rows:
    """Tables that an export may lack: what was not recorded has none."""

    def __init__(self, connection: sqlite3.Connection, tables: set[str], name: str) -> None:
        self._connection = connection
        self._tables = tables
        self._name = name

    def of(self, table: str, *, whole: tuple[str, ...] = (), also: tuple[str, ...] = ()) -> list[sqlite3.Row]:
        """The rows of a table; none if it is not there.

        Args:
            table: Its name.
            whole: Columns that hold whole numbers: sqlite lets any hold anything.
            also: Other columns that it has.

        Raises:
            ProfileError: it is there and lacks one of these.
        """
        if table not in self._tables:
            return []
        rows = self._connection.execute(f'SELECT * FROM "{table}"').fetchall()  # noqa: S608  names of this module
        there = set(rows[0].keys()) if rows else {*whole, *also}
        lacking = [column for column in (*whole, *also) if column not in there] or self._not_whole(table, whole)
        if lacking:
            raise ProfileError(
                f"{self._name}: its table {table} has no {lacking[0]} as it is known here: damaged, or exported by a "
                "version that writes it otherwise; export it again with nsys export"
            )
        return rows

    def _not_whole(self, table: str, columns: tuple[str, ...]) -> list[str]:
        """Those that hold something else in any row; asked of sqlite, which looks through millions of rows."""
        if not columns:
            return []
        asked = ", ".join(f"max(typeof(\"{column}\") <> 'integer')" for column in columns)
        found = self._connection.execute(f'SELECT {asked} FROM "{table}"').fetchone()  # noqa: S608  as above
        return [column for column, is_other in zip(columns, found, strict=True) if is_other]

    def count(self, table: str) -> int:
        if table not in self._tables:
            return 0
        count: int = self._connection.execute(f'SELECT count(*) FROM "{table}"').fetchone()[0]  # noqa: S608  as above
        return count


def _kernels(kernels: list[sqlite3.Row], names: dict[int, str], top: int | None) -> dict[str, Any]:
    by_name: dict[str, list[sqlite3.Row]] = defaultdict(list)
    for row in kernels:
        by_name[names.get(row["demangledName"], str(row["demangledName"]))].append(row)
    durations = {name: [_duration_ns(row) for row in members] for name, members in by_name.items()}
    return {
        "count": len(kernels),
        "distinct_names": len(by_name),
        "sum_us": to_us(sum(map(_duration_ns, kernels))),
        "max_us": to_us(max(map(_duration_ns, kernels), default=0)),
        "top_by_total_time": [
            {
                **times,
                "short_name": names.get(by_name[times["name"]][0]["shortName"]),
                "first_launch": _first_launch(by_name[times["name"]]),
            }
            for times in longest(durations)[:top]
        ],
    }


def _first_launch(rows: Iterable[sqlite3.Row]) -> dict[str, Any]:
    first = min(rows, key=lambda row: row["start"])
    return {
        "grid": [first[f"grid{axis}"] for axis in "XYZ"],
        "block": [first[f"block{axis}"] for axis in "XYZ"],
        "registers_per_thread": first["registersPerThread"],
        "static_shared_memory_bytes": first["staticSharedMemory"],
        "dynamic_shared_memory_bytes": first["dynamicSharedMemory"],
        "stream": first["streamId"],
        "device": first["deviceId"],
    }


def _transfers(rows: list[sqlite3.Row], kind_of: Any) -> dict[str, Any]:
    by_kind: dict[str, list[sqlite3.Row]] = defaultdict(list)
    for row in rows:
        by_kind[kind_of(row)].append(row)
    return _sums(rows) | {"by_kind": {kind: _sums(members) for kind, members in sorted(by_kind.items())}}


def _sums(rows: list[sqlite3.Row]) -> dict[str, Any]:
    return {
        "count": len(rows),
        "sum_us": to_us(sum(map(_duration_ns, rows))),
        "bytes": sum(row["bytes"] for row in rows),
    }


def _launches(calls: list[sqlite3.Row], kernels: list[sqlite3.Row], names: dict[int, str]) -> dict[str, Any]:
    called = [(row, _VERSION_SUFFIX.sub("", names.get(row["nameId"], ""))) for row in calls]
    launches = [(row, name) for row, name in called if _LAUNCH.fullmatch(name)]
    # correlation ids count up in each process by itself
    started_ns: dict[tuple[int, int], int] = {}
    for row, _ in launches:
        started_ns.setdefault((_process(row["globalTid"]), row["correlationId"]), row["start"])
    pairs: list[Duration] = []
    for kernel in kernels:
        start_ns = started_ns.get((_process(kernel["globalPid"]), kernel["correlationId"]))
        if start_ns is not None:
            pairs.append(kernel["start"] - start_ns)
    return {
        "runtime_rows": len(calls),
        "kernel_launch_rows": len(launches),
        "kernel_launches": len(started_ns),
        "kernel_launches_by_name": dict(sorted(Counter(name for _, name in launches).items())),
        "graph_launch_rows": sum(_GRAPH_LAUNCH.fullmatch(name) is not None for _, name in called),
        "kernels_without_a_launch_call": len(kernels) - len(pairs),
        "delay_call_start_to_kernel_start": delays(pairs),
    }


def _process(serialised: object) -> int:
    """The part of a global id that names the process: its upper bits."""
    return serialised >> 24 if isinstance(serialised, int) else -1


def _devices(rows: Iterable[sqlite3.Row]) -> dict[str, Any]:
    by_device: dict[int, list[Interval]] = defaultdict(list)
    for row in rows:
        by_device[row["deviceId"]].append((row["start"], row["end"]))
    return {str(device): busy_times(intervals) for device, intervals in sorted(by_device.items())}


def busy_times(intervals: list[Interval]) -> dict[str, Any]:
    """How long a device was busy and idle, of what ran on it."""
    apart = union(intervals)
    span_ns, busy_ns = apart[-1][1] - apart[0][0], length_ns(apart)
    return {
        "activities": len(intervals),
        "span_us": to_us(span_ns),
        "busy_us": to_us(busy_ns),
        "idle_us": to_us(span_ns - busy_ns),
        "busy_fraction": round(busy_ns / span_ns, 6) if span_ns else None,
    }


def _duration_ns(row: sqlite3.Row) -> int:
    duration: int = row["end"] - row["start"]
    return duration


def _present(row: sqlite3.Row, columns: Iterable[str]) -> dict[str, Any]:
    known = set(row.keys())
    return {column: row[column] for column in columns if column in known and not isinstance(row[column], bytes)}

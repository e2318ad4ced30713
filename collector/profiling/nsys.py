"""Read the SQLite export of Nsight Systems.

Source: Nsight Systems user guide, SQLite schema reference. Times are in ns; names are IDs into `StringIds`.
"""

from __future__ import annotations

import re
import sqlite3
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

from roofwatch.collector.profiling.activities import (
    GRAPH_LAUNCH,
    KERNEL,
    LAUNCH,
    MEMCPY,
    MEMSET,
    TOP_COUNT,
    Activity,
    HostEvent,
    busy_time,
    delay_totals,
    group_by_device,
    join_launches,
    kernel_totals,
    transfer_totals_by_kind,
)
from roofwatch.collector.profiling.profile_file import ProfileError

MAGIC = b"SQLite format 3\x00"
VERSION_SUFFIX = re.compile(r"(_v\d+|_ptsz|_ptds)+$")
"""Of the names of CUDA API functions."""
_TIMES = ("start", "end", "deviceId")
_LAUNCH_COLUMNS = (
    *(f"{what}{axis}" for what in ("grid", "block") for axis in "XYZ"),
    *("registersPerThread", "staticSharedMemory", "dynamicSharedMemory", "streamId"),
)
_GPU_COLUMNS = ("id", "name", "totalMemory", "computeMajor", "computeMinor", "smCount", "chipName")
_EXPORT_VERSIONS = ("EXPORT_PRODUCT_VERSION", "EXPORT_SCHEMA_VERSION")


def read_nsys(path: Path, *, top: int | None = TOP_COUNT) -> dict[str, Any] | None:
    """Summarise an export; None if the database is not one.

    Args:
        path: The file.
        top: Number of kernel names, the longest total time first; None for all.

    Raises:
        ProfileError: the database is corrupt, or its schema is unknown.
    """
    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True)) as connection:
            return _Export(connection, str(path)).summary(top)
    except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
        raise ProfileError(f"{path}: not a whole sqlite export ({error}); export it again with nsys export") from None


class _Export:
    def __init__(self, connection: sqlite3.Connection, name: str) -> None:
        connection.row_factory = sqlite3.Row
        connection.text_factory = partial(str, encoding="utf-8", errors="replace")
        self._connection = connection
        self._name = name
        self._tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        self._names: dict[Any, str] = {}

    def summary(self, top: int | None) -> dict[str, Any] | None:
        if not {"StringIds", "META_DATA_EXPORT"} <= self._tables:
            return None
        self._names = {row["id"]: str(row["value"]) for row in self._rows("StringIds", others=("id", "value"))}
        export = {row["name"]: row["value"] for row in self._rows("META_DATA_EXPORT", others=("name", "value"))}
        kernel_rows = self._rows(
            "CUPTI_ACTIVITY_KIND_KERNEL",
            integers=(*_TIMES, *_LAUNCH_COLUMNS),
            others=("demangledName", "shortName", "globalPid", "correlationId"),
        )
        kernels = [self._kernel(row) for row in kernel_rows]
        copies, fills = self._copies(), self._fills()
        short_names = {
            kernel.name: self._names.get(row["shortName"])
            for kernel, row in reversed(list(zip(kernels, kernel_rows, strict=True)))
        }
        totals = kernel_totals(kernels, top)
        for row in totals["top_by_total_time"]:
            row["short_name"] = short_names[row["name"]]
        activities = [*kernels, *copies, *fills]
        return {
            "format": "nsys-sqlite",
            "tables": len(self._tables),
            "export": {name: export[name] for name in _EXPORT_VERSIONS if isinstance(export.get(name), str)},
            "gpus": [_present(dict(row), _GPU_COLUMNS) for row in self._rows("TARGET_INFO_GPU")],
            "kernels": totals,
            "memcpy": transfer_totals_by_kind(copies),
            "memset": transfer_totals_by_kind(fills),
            "launches": _launches(self._calls(), kernels),
            "devices": {device: busy_time(members) for device, members in group_by_device(activities).items()},
            "nvtx_events": len(self._rows("NVTX_EVENTS")),
        }

    def _kernel(self, row: sqlite3.Row) -> Activity:
        launch = {
            "grid": [row[f"grid{axis}"] for axis in "XYZ"],
            "block": [row[f"block{axis}"] for axis in "XYZ"],
            "registers_per_thread": row["registersPerThread"],
            "static_shared_memory_bytes": row["staticSharedMemory"],
            "dynamic_shared_memory_bytes": row["dynamicSharedMemory"],
        }
        name = self._names.get(row["demangledName"], str(row["demangledName"]))
        correlation = (_process(row["globalPid"]), row["correlationId"])
        return _activity(row, KERNEL, name)._replace(stream=row["streamId"], correlation=correlation, launch=launch)

    def _copies(self) -> list[Activity]:
        kinds = {row["id"]: str(row["name"]) for row in self._rows("ENUM_CUDA_MEMCPY_OPER", others=("id", "name"))}
        rows = self._rows("CUPTI_ACTIVITY_KIND_MEMCPY", integers=(*_TIMES, "bytes"), others=("copyKind",))
        names = [kinds.get(row["copyKind"], str(row["copyKind"])) for row in rows]
        return [_activity(row, MEMCPY, name, row["bytes"]) for row, name in zip(rows, names, strict=True)]

    def _fills(self) -> list[Activity]:
        rows = self._rows("CUPTI_ACTIVITY_KIND_MEMSET", integers=(*_TIMES, "bytes"), others=("memKind",))
        return [_activity(row, MEMSET, str(row["memKind"]), row["bytes"]) for row in rows]

    def _calls(self) -> list[HostEvent]:
        rows = self._rows(
            "CUPTI_ACTIVITY_KIND_RUNTIME",
            integers=("start", "end"),
            others=("globalTid", "correlationId", "nameId"),
        )
        return [
            HostEvent(
                name=VERSION_SUFFIX.sub("", self._names.get(row["nameId"], "")),
                start_ns=row["start"],
                end_ns=row["end"],
                correlation=(_process(row["globalTid"]), row["correlationId"]),
            )
            for row in rows
        ]

    def _rows(self, table: str, *, integers: Sequence[str] = (), others: Sequence[str] = ()) -> list[sqlite3.Row]:
        """Read a table; an export lacks the tables of what was not recorded.

        Raises:
            ProfileError: a column is missing, or one of `integers` holds other values.
        """
        if table not in self._tables:
            return []
        rows = self._connection.execute(f'SELECT * FROM "{table}"').fetchall()  # noqa: S608  names of this module
        columns = rows[0].keys() if rows else [*integers, *others]
        invalid = [column for column in (*integers, *others) if column not in columns] or [
            column for column in integers if any(not isinstance(row[column], int) for row in rows)
        ]
        if invalid:
            raise ProfileError(
                f"{self._name}: table {table} has no valid column {invalid[0]}: damaged, or written by an unsupported "
                "version of Nsight Systems; export it again with nsys export"
            )
        return rows


def _activity(row: sqlite3.Row, kind: str, name: str, byte_count: int = 0) -> Activity:
    return Activity(
        kind=kind,
        name=name,
        start_ns=row["start"],
        duration_ns=row["end"] - row["start"],
        device=str(row["deviceId"]),
        stream=None,
        correlation=None,
        bytes=byte_count,
        launch={},
    )


def _launches(calls: Sequence[HostEvent], kernels: Sequence[Activity]) -> dict[str, Any]:
    launches = [call for call in calls if LAUNCH.fullmatch(call.name)]
    pairs = join_launches(launches, kernels)
    return {
        "runtime_rows": len(calls),
        "kernel_launch_rows": len(launches),
        "kernel_launches": len({call.correlation for call in launches}),
        "kernel_launches_by_name": dict(sorted(Counter(call.name for call in launches).items())),
        "graph_launch_rows": sum(GRAPH_LAUNCH.fullmatch(call.name) is not None for call in calls),
        "kernels_without_a_launch_call": len(kernels) - len(pairs),
        "delay_call_start_to_kernel_start": delay_totals([kernel.start_ns - call.start_ns for kernel, call in pairs]),
    }


def _process(global_id: object) -> int:
    """The process of a serialised global ID; correlation IDs are unique within a process."""
    return global_id >> 24 if isinstance(global_id, int) else -1


def _present(row: Mapping[str, Any], columns: Iterable[str]) -> dict[str, Any]:
    return {column: row[column] for column in columns if column in row and not isinstance(row[column], bytes)}

"""Read the SQLite export of Nsight Systems.

Source: Nsight Systems user guide, SQLite schema reference. Times are in ns; names are IDs into
`StringIds`.
"""

import re
import sqlite3
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

from roofwatch.collector.profiling.activities import (
    GRAPH_LAUNCH,
    LAUNCH,
    ActivityKind,
    DeviceActivity,
    HostEvent,
    by_device,
    launch_delays_ns,
)
from roofwatch.collector.profiling.summary import (
    TOP_COUNT,
    busy_time,
    delay_totals,
    kernel_totals,
    transfer_totals_by_kind,
)
from roofwatch.model.errors import ProfileError
from roofwatch.model.files import JsonObject

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


def read_nsys(path: Path, *, top: int | None = TOP_COUNT) -> JsonObject | None:
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

    def summary(self, top: int | None) -> JsonObject | None:
        """Summarise the export; None if the database is none."""
        if "StringIds" not in self._tables or self._tables.isdisjoint(_MARKS_OF_AN_EXPORT):
            return None
        names = {key: str(value) for key, value in self._rows("StringIds", "id", "value")}
        kernels = self._kernels(names)
        totals = kernel_totals(kernels, top)
        # The short name is a fact of the kernel, not of its launch.
        for row in totals["top_by_total_time"]:
            row["short_name"] = row["first_launch"].pop("short_name")
        kinds = dict(self._rows("ENUM_CUDA_MEMCPY_OPER", "id", "name"))
        copies = self._transfers(
            table="MEMCPY",
            kind_column="copyKind",
            kinds=kinds,
        )
        fills = self._transfers(
            table="MEMSET",
            kind_column="memKind",
            kinds={},
        )
        devices: JsonObject = {}
        for device, members in by_device([*kernels, *copies, *fills]).items():
            devices[device] = busy_time(members)
        return {
            "format": "nsys-sqlite",
            "tables": len(self._tables),
            "export": self._versions(),
            "gpus": self._gpus(),
            "kernels": totals,
            "memcpy": transfer_totals_by_kind(copies),
            "memset": transfer_totals_by_kind(fills),
            "launches": _launches(self._calls(names), kernels),
            "devices": devices,
            "nvtx_events": len(self._rows("NVTX_EVENTS", "1")),
        }

    def _versions(self) -> dict[str, str]:
        """Versions of what was recorded with, from the tables of settings."""
        settings: JsonObject = {}
        for table in _METADATA_TABLES:
            settings |= dict(self._rows(table, "name", "value"))
        versions: dict[str, str] = {}
        for name in _EXPORT_VERSIONS:
            version = settings.get(name)
            if isinstance(version, str):
                versions[name] = version
        return versions

    def _kernels(self, names: dict[Any, str]) -> list[DeviceActivity]:
        """Kernels with their launch configuration."""
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
        self,
        table: str,
        kind_column: str,
        kinds: dict[Any, str],
    ) -> list[DeviceActivity]:
        """Copies or fills; kinds are numbers with names in another table."""
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
        """Calls of the CUDA runtime."""
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
                name=plain_name(names.get(name_id, "")),
                start_ns=start_ns,
                end_ns=end_ns,
                correlation=(_process(thread), correlation),
            )
            for start_ns, end_ns, thread, correlation, name_id in rows
        ]

    def _gpus(self) -> list[JsonObject]:
        """Facts of the GPUs of the machine."""
        if "TARGET_INFO_GPU" not in self._tables:
            return []
        cursor = self._connection.execute("SELECT * FROM TARGET_INFO_GPU")
        columns = [column[0] for column in cursor.description]
        gpus: list[JsonObject] = []
        for row in cursor:
            gpu: JsonObject = {}
            for name, cell in zip(columns, row, strict=True):
                # JSON has no bytes.
                if name in _GPU_COLUMNS and not isinstance(cell, bytes):
                    gpu[name] = cell
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


def _launches(calls: Sequence[HostEvent], kernels: Sequence[DeviceActivity]) -> JsonObject:
    """Numbers of launches, and how long kernels waited after their call."""
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


def plain_name(api_name: str) -> str:
    """The name of a CUDA API function without the suffix of its version."""
    return _VERSION.sub("", api_name)


def _process(global_id: object) -> int:
    """The process of a serialised global ID; correlation IDs are unique within a process."""
    if not isinstance(global_id, int):
        return -1
    # The lowest 24 bits are the thread.
    return global_id >> 24

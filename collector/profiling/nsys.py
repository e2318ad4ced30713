"""Read the SQLite export of Nsight Systems.

Source: Nsight Systems user guide, SQLite schema reference. Times are in ns; names are IDs into `StringIds`.
"""

import re
import sqlite3
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

from roofwatch.collector.errors import ProfileError
from roofwatch.collector.profiling.activities import (
    GRAPH_LAUNCH,
    LAUNCH,
    Activity,
    ActivityKind,
    HostEvent,
    group_by,
    launch_delays_ns,
)
from roofwatch.collector.profiling.summary import (
    TOP_COUNT,
    busy_time,
    delay_totals,
    kernel_totals,
    transfer_totals_by_kind,
)

MAGIC = b"SQLite format 3\x00"
_VERSION = re.compile(r"(_v\d+|_ptsz|_ptds)+$")
"""Version suffix of a CUDA API function's name."""
_TIMES = ("start", "end - start", "deviceId")
_LAUNCH_COLUMNS = (
    *(f"{what}{axis}" for what in ("grid", "block") for axis in "XYZ"),
    *("registersPerThread", "staticSharedMemory", "dynamicSharedMemory", "streamId"),
)
_GPU_COLUMNS = ("id", "name", "totalMemory", "computeMajor", "computeMinor", "smCount", "chipName")
_EXPORT_VERSIONS = ("EXPORT_PRODUCT_VERSION", "EXPORT_SCHEMA_VERSION")


def read_nsys(path: Path, *, top: int | None = TOP_COUNT) -> dict[str, Any] | None:
    """Summarise an export with the `top` longest kernel names; None if the database is not an export.

    Raises:
        ProfileError: the database is corrupt, or its schema is unknown.
    """
    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True)) as connection:
            connection.text_factory = partial(str, encoding="utf-8", errors="replace")
            return _Export(connection).summary(top)
    except (sqlite3.DatabaseError, UnicodeDecodeError, TypeError) as error:  # TypeError: text in a column of numbers
        raise ProfileError(
            f"{path}: not a whole sqlite export of a known version ({error}); export it again with nsys export"
        ) from None


class _Export:
    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}

    def summary(self, top: int | None) -> dict[str, Any] | None:
        if not {"StringIds", "META_DATA_EXPORT"} <= self._tables:
            return None
        names = {key: str(value) for key, value in self._rows("StringIds", "id", "value")}
        settings = dict(self._rows("META_DATA_EXPORT", "name", "value"))
        kernels = self._kernels(names)
        totals = kernel_totals(kernels, top)
        for row in totals["top_by_total_time"]:
            row["short_name"] = row["first_launch"].pop("short_name")
        kinds = dict(self._rows("ENUM_CUDA_MEMCPY_OPER", "id", "name"))
        copies = self._transfers("MEMCPY", "copyKind", kinds)
        fills = self._transfers("MEMSET", "memKind", {})
        by_device = group_by([*kernels, *copies, *fills], "device")
        return {
            "format": "nsys-sqlite",
            "tables": len(self._tables),
            "export": {name: settings[name] for name in _EXPORT_VERSIONS if isinstance(settings.get(name), str)},
            "gpus": self._gpus(),
            "kernels": totals,
            "memcpy": transfer_totals_by_kind(copies),
            "memset": transfer_totals_by_kind(fills),
            "launches": _launches(self._calls(names), kernels),
            "devices": {device: busy_time(members) for device, members in by_device.items()},
            "nvtx_events": len(self._rows("NVTX_EVENTS", "1")),
        }

    def _kernels(self, names: dict[Any, str]) -> list[Activity]:
        columns = (*_TIMES, "demangledName", "shortName", "globalPid", "correlationId", *_LAUNCH_COLUMNS)
        rows = self._rows("CUPTI_ACTIVITY_KIND_KERNEL", *columns)
        return [
            Activity(
                kind=ActivityKind.KERNEL,
                name=names.get(name_id, str(name_id)),
                start_ns=start_ns,
                duration_ns=duration_ns,
                device=str(device),
                stream=launch[9],
                correlation=(_process(process), correlation),
                launch={
                    "short_name": names.get(short_id),
                    "grid": launch[:3],
                    "block": launch[3:6],
                    "registers_per_thread": launch[6],
                    "static_shared_memory_bytes": launch[7],
                    "dynamic_shared_memory_bytes": launch[8],
                },
            )
            for start_ns, duration_ns, device, name_id, short_id, process, correlation, *launch in rows
        ]

    def _transfers(self, table: str, kind_column: str, kinds: dict[Any, str]) -> list[Activity]:
        rows = self._rows(f"CUPTI_ACTIVITY_KIND_{table}", *_TIMES, "bytes", kind_column)
        return [
            Activity(
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
        rows = self._rows("CUPTI_ACTIVITY_KIND_RUNTIME", "start", "end", "globalTid", "correlationId", "nameId")
        return [
            HostEvent(_VERSION.sub("", names.get(name_id, "")), start_ns, end_ns, (_process(thread), correlation))
            for start_ns, end_ns, thread, correlation, name_id in rows
        ]

    def _gpus(self) -> list[dict[str, Any]]:
        if "TARGET_INFO_GPU" not in self._tables:
            return []
        found = self._connection.execute("SELECT * FROM TARGET_INFO_GPU")
        columns = [column[0] for column in found.description]
        return [
            {
                name: cell
                for name, cell in zip(columns, row, strict=True)
                if name in _GPU_COLUMNS and not isinstance(cell, bytes)
            }
            for row in found
        ]

    def _rows(self, table: str, *columns: str) -> list[tuple[Any, ...]]:
        """Read columns of a table; the export lacks the tables of what was not recorded."""
        if table not in self._tables:
            return []
        return self._connection.execute(f'SELECT {", ".join(columns)} FROM "{table}"').fetchall()  # noqa: S608  constants


def _launches(calls: Sequence[HostEvent], kernels: Sequence[Activity]) -> dict[str, Any]:
    launches = [call for call in calls if LAUNCH.fullmatch(call.name)]
    delays_ns = launch_delays_ns(launches, kernels)
    return {
        "runtime_rows": len(calls),
        "kernel_launch_rows": len(launches),
        "kernel_launches": len({call.correlation for call in launches}),
        "kernel_launches_by_name": dict(sorted(Counter(call.name for call in launches).items())),
        "graph_launch_rows": sum(GRAPH_LAUNCH.fullmatch(call.name) is not None for call in calls),
        "kernels_without_a_launch_call": len(kernels) - len(delays_ns),
        "delay_call_start_to_kernel_start": delay_totals(delays_ns),
    }


def _process(global_id: object) -> int:
    """The process of a serialised global ID; correlation IDs are unique within a process."""
    return global_id >> 24 if isinstance(global_id, int) else -1

"""Read reports and CSV files of Nsight Compute."""

from __future__ import annotations

import csv
import io
import math
import re
import struct
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from roofwatch.collector.profiling.ncu_metrics import Metric, facts, normalised, number
from roofwatch.collector.profiling.profile_file import ProfileError, read_bytes
from roofwatch.collector.redaction import Kind

MAGIC = b"NVR\x00"
_MESSAGE_TYPES = {1: "INF", 2: "OPT", 3: "WRN", 4: "ERR"}
"""What the details page calls the module's `MsgType`."""
_SCOPES = {1: "local", 2: "global"}
"""Likewise its `SpeedupType`: of what the rule looks at, or of the whole kernel."""
_LINK = re.compile(r"@(?:url:([^:@]*):[^@]*|(?:section|sass):[^:@]*:([^@]*)|source:[^@]*:([^@:]*))@")
"""To what the tool would open: a page by its words, a section or address by its name, a line of a file likewise."""
_PAYLOAD_SIZE_FIELD = 5
_VARINT, _FIXED_64, _BYTES, _FIXED_32 = 0, 1, 2, 5


def is_report_readable() -> bool:
    """Whether NVIDIA's module is installed."""
    try:
        import ncu_report
    except ImportError:
        return False
    return bool(ncu_report)


def read_ncu_report(path: Path) -> dict[str, Any]:
    """What the report says of each kernel.

    Raises:
        ProfileError: the module is not installed, or cannot read the file.
    """
    try:
        import ncu_report
    except ImportError:
        raise ProfileError(
            f"{path}: reading a report of Nsight Compute takes its module; install it with: pip install ncu-report, or "
            "export the report with: ncu --import FILE --page raw --csv"
        ) from None
    if not _is_whole(read_bytes(path)):
        # the module would read what is left without a word
        raise ProfileError(f"{path}: not a whole report of Nsight Compute; copy it or record it again")
    try:
        context = ncu_report.load_report(str(path))
    except Exception as error:  # noqa: BLE001  the module raises what its native part likes
        raise ProfileError(f"{path}: not a whole report of Nsight Compute ({error}); record it again") from None
    ranges = [context.range_by_idx(at) for at in range(context.num_ranges())]
    try:
        kernels = [
            _kernel(number, at, found.action_by_idx(step))
            for at, found in enumerate(ranges)
            for number, step in enumerate(range(found.num_actions()), start=_actions_before(ranges, at))
        ]
    except (TypeError, UnicodeError) as error:  # of the module, for a name that is no text
        raise ProfileError(f"{path}: a damaged report of Nsight Compute ({error}); record it again") from None
    return {"format": "ncu-rep", "read_with": "ncu_report wheel", "ranges": len(ranges), "kernels": kernels}


def _actions_before(ranges: list[Any], at: int) -> int:
    return sum(found.num_actions() for found in ranges[:at])


def _kernel(number: int, range_index: int, action: Any) -> dict[str, Any]:
    names = list(action.metric_names())
    metrics = {name: [_metric(action.metric_by_name(name))] for name in names}

    def value(name: str) -> Any:
        found = metrics.get(name)
        return None if found is None or found[0].value is None else found[0].value

    grid = [int(value(f"launch__grid_dim_{axis}") or 1) for axis in "xyz"]
    block = [int(value(f"launch__block_dim_{axis}") or 1) for axis in "xyz"]
    major = value("device__attribute_compute_capability_major")
    minor = value("device__attribute_compute_capability_minor")
    name_of_device = action.metric_by_name("device__attribute_display_name")
    return {
        "id": str(number),
        "range": range_index,
        "name": action.name(),
        "metric_names": len(names),
        "grid": grid,
        "block": block,
        "grid_size_blocks": value("launch__grid_size"),
        "block_size_threads": value("launch__block_size"),
        "device": None if name_of_device is None else name_of_device.as_string(),
        "compute_capability": None if major is None else f"{major:.0f}.{minor:.0f}",
        **facts(metrics),
        "findings": [_finding(rule) for rule in action.rule_results_as_dicts()],
    }


def _finding(rule: dict[str, Any]) -> dict[str, Any]:
    """The same of a rule as the details page has."""
    message, estimate = rule.get("rule_message", {}), rule.get("speedup_estimation", {})
    scope = _SCOPES.get(int(estimate.get("type", 0)))
    return {
        "rule": rule["rule_identifier"],
        "type": _MESSAGE_TYPES.get(int(message.get("type", 0)), ""),
        "title": message.get("title", ""),
        "message": _LINK.sub(_words_of, message.get("message", "")),
        "estimated_speedup_pct": None if scope is None else estimate["speedup"],
        "speedup_scope": scope,
    }


def _words_of(link: re.Match[str]) -> str:
    return next(filter(None, link.groups()), "")


def _metric(metric: Any) -> Metric:
    value = metric.value()
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    number = value if is_number else None
    return normalised(number, metric.unit() or "")


def _is_whole(content: bytes) -> bool:
    """Whether the last block ends where the file does.

    Source: Nsight Compute documentation, report file format: after the magic a header, then blocks; a header and a
    block's head are protobuf messages after their length, and a head says how many bytes of payload follow.
    """
    at = len(MAGIC)
    try:
        at += 4 + _int32(content, at)
        while at < len(content):
            head_bytes = _int32(content, at)
            head = content[at + 4 : at + 4 + head_bytes]
            at += 4 + head_bytes + dict(_numbers(head)).get(_PAYLOAD_SIZE_FIELD, 0)
    except (struct.error, IndexError, ValueError):
        return False
    return at == len(content)


def _int32(content: bytes, at: int) -> int:
    value: int = struct.unpack_from("<i", content, at)[0]
    return value


def _numbers(message: bytes) -> Iterator[tuple[int, int]]:
    """Field number and value of a protobuf message's whole numbers."""
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        field, kind = tag >> 3, tag & 7
        if kind == _VARINT:
            value, at = _varint(message, at)
            yield field, value
        elif kind == _BYTES:
            length, at = _varint(message, at)
            at += length
        elif kind in {_FIXED_32, _FIXED_64}:
            at += 4 if kind == _FIXED_32 else 8
        else:
            raise ValueError(f"no protobuf message: a field of kind {kind}")


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, at


_LONG_COLUMNS = {"ID", "Kernel Name", "Metric Name", "Metric Value"}
_WIDE_COLUMNS = {"ID", "Kernel Name", "Block Size", "Grid Size"}
COLUMNS_OF_PROCESSES = {"Process ID": Kind.ARGUMENTS, "Process Name": Kind.ARGUMENTS, "Host Name": Kind.HOSTNAME}
"""Columns that say on which machine and by whom, with what a redacted copy takes them for."""
_DESCRIPTION = ("ID", "Kernel Name", "Context", "Stream", "Block Size", "Grid Size", "Device", "CC")
TOOL_LINE = "=="
_MAX_HEADER_LINES = 1_000


def read_ncu_csv(content: bytes, name: str) -> dict[str, Any] | None:
    """What the CSV says; None if it is no CSV of Nsight Compute.

    Raises:
        ProfileError: it is one, and a row of it cannot be read.
    """
    text = content.decode("utf-8-sig", errors="replace")
    lines = text.splitlines()
    start = find_header(lines)
    if start is None:
        return None
    body = lines[start:]
    kept = [line for line in body if not line.startswith(TOOL_LINE)]
    try:
        header, *rows = csv.reader(io.StringIO("\n".join(kept)), strict=True)
    except csv.Error as error:
        raise ProfileError(f"{name}: a row of Nsight Compute's CSV is cut short ({error}); export it again") from None
    if set(header) >= _LONG_COLUMNS:
        summary = _long(header, [row for row in rows if row], name)
        return {"lines_before_header": start, "tool_lines_between_rows": len(body) - len(kept), **summary}
    if set(header) >= _WIDE_COLUMNS:
        return {"lines_before_header": start, **_wide(header, [row for row in rows if row], name)}
    return None


def find_header(lines: Sequence[str]) -> int | None:
    """Which line has the names of the columns; None if none does. Before it stands what the program printed."""
    return next((at for at, line in enumerate(lines[:_MAX_HEADER_LINES]) if line.startswith('"ID",')), None)


def _long(header: list[str], rows: list[list[str]], name: str) -> dict[str, Any]:
    units: Counter[str] = Counter()
    without_number = rule_rows = 0
    kernels: dict[str, dict[str, str]] = {}
    metrics: dict[str, dict[str, list[Metric]]] = defaultdict(lambda: defaultdict(list))
    rules: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        cells = _cells(header, row, name)
        kernel = kernels.setdefault(cells["ID"], cells)["ID"]
        if cells["Metric Name"]:
            value, unit = number(cells["Metric Value"]), cells.get("Metric Unit", "")
            units[unit] += 1
            without_number += value is None
            metrics[kernel][cells["Metric Name"]].append(normalised(value, unit))
        elif cells.get("Rule Name"):
            rule_rows += 1
            rules[kernel].append(_rule(cells))
    return {
        "format": "ncu-csv-long",
        "columns": len(header),
        "rows": len(rows),
        "rows_shorter_than_header": sum(len(row) < len(header) for row in rows),
        "rule_rows": rule_rows,
        "metric_rows_without_a_number": without_number,
        "units_seen": dict(sorted(units.items())),
        "kernels": [
            {
                **_description(cells),
                "stream": cells.get("Stream", ""),
                "metric_names": len(metrics[kernel]),
                "rules": len(rules[kernel]),
                **facts(metrics[kernel]),
                "findings": rules[kernel],
                "all_metrics": {
                    metric: [{"value": found.value, "unit": found.unit} for found in values]
                    for metric, values in metrics[kernel].items()
                },
            }
            for kernel, cells in kernels.items()
        ],
    }


def _wide(header: list[str], rows: list[list[str]], name: str) -> dict[str, Any]:
    if not rows or rows[0][header.index("ID")]:
        raise ProfileError(f"{name}: the raw page has no row of units; export it again with --page raw --csv")
    units, *launches = rows
    described = {*COLUMNS_OF_PROCESSES, *_DESCRIPTION}
    measured = [at for at, column in enumerate(header) if column not in described]
    kernels = []
    for row in launches:
        cells = _cells(header, row, name)
        metrics = {
            header[at]: [normalised(number(cells[header[at]]), units[at] if at < len(units) else "")] for at in measured
        }
        kernels.append({**_description(cells), "metric_names": len(measured), **facts(metrics)})
    return {
        "format": "ncu-csv-wide",
        "columns": len(header),
        "kernels": kernels,
        "cells_without_a_number": sum(_are_without_number(launches, measured)),
    }


def _are_without_number(rows: Sequence[list[str]], measured: list[int]) -> Iterator[bool]:
    for row in rows:
        for at in measured:
            yield at >= len(row) or row[at].lower() in {"", "n/a", "nan"}


def _cells(header: list[str], row: list[str], name: str) -> dict[str, str]:
    """The row by column; rule columns are simply missing from the end of metric rows."""
    if len(row) > len(header):
        raise ProfileError(f"{name}: a row has {len(row)} cells under {len(header)} columns; export it again")
    cells = dict(zip(header, [*row, *[""] * (len(header) - len(row))], strict=True))
    if not cells["ID"].isdigit():
        raise ProfileError(f"{name}: a row has the ID {cells['ID'][:40]!r}, which is no number; export it again")
    return cells


def _description(cells: dict[str, str]) -> dict[str, str]:
    """What is left of it: by which columns a file is told, it has; others may be missing."""
    return {
        "id": cells["ID"],
        "name": cells["Kernel Name"],
        "grid": cells.get("Grid Size", ""),
        "block": cells.get("Block Size", ""),
        "device": cells.get("Device", ""),
        "compute_capability": cells.get("CC", ""),
    }


def _rule(cells: dict[str, str]) -> dict[str, Any]:
    return {
        "rule": cells["Rule Name"],
        "type": cells.get("Rule Type", ""),
        "message": cells.get("Rule Description", ""),
        "estimated_speedup_pct": number(cells.get("Estimated Speedup", "")),
        "speedup_scope": cells.get("Estimated Speedup Type") or None,
    }

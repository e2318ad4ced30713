"""Read files of Nsight Compute: reports (`.ncu-rep`) with NVIDIA's `ncu_report` module, and CSV.

The details page of a CSV has a row per metric, the raw page a row per kernel.
"""

import csv
import importlib.util
import io
import math
import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from roofwatch.collector.profiling.ncu_metrics import NcuMetric, facts, normalised, own_counters
from roofwatch.collector.profiling.number_text import DecimalMark, decimal_mark, number
from roofwatch.collector.redaction_patterns import Kind
from roofwatch.model.errors import ProfileError
from roofwatch.model.files import JsonObject, decode_text

MAGIC = b"NVR\x00"
_MESSAGE_TYPES = {
    1: "INF",
    2: "OPT",
    3: "WRN",
    4: "ERR",
}
"""Names of the module's `MsgType` on the details page."""
_SCOPES = {1: "local", 2: "global"}
"""Names of `SpeedupType`: an estimate for a part of the kernel, or for all of it."""
_LINK = re.compile(
    r"@(?:url:([^:@]*):[^@]*|(?:section|sass):[^:@]*:([^@]*)|source:[^@]*:([^@:]*))@"
)
_PAYLOAD_SIZE_FIELD = 5
_VARINT = 0
_BYTES = 2
_LONG_COLUMNS = {"ID", "Kernel Name", "Metric Name", "Metric Value"}
_WIDE_COLUMNS = {"ID", "Kernel Name", "Block Size", "Grid Size"}
PROCESS_COLUMNS = {
    "Process ID": Kind.ARGUMENTS,
    "Process Name": Kind.ARGUMENTS,
    "Host Name": Kind.HOSTNAME,
}
"""Columns that identify the process and the host, with their kind of redaction."""
_KERNEL_COLUMNS = {
    "ID",
    "Kernel Name",
    "Context",
    "Stream",
    "Block Size",
    "Grid Size",
    "Device",
    "CC",
}
TOOL_LINE = "=="
"""Start of the lines that ncu prints itself."""
_MAX_LINES_BEFORE_HEADER = 1_000
_MetricsByName = dict[str, list[NcuMetric]]


def require_module() -> None:
    """Check that NVIDIA's module is installed.

    Raises:
        ProfileError: it is not.
    """
    if importlib.util.find_spec("ncu_report") is None:
        raise ProfileError(
            "reading reports of Nsight Compute needs NVIDIA's module: pip install ncu-report; a "
            "report can also be "
            "exported with: ncu --import FILE --page raw --csv"
        )


def read_ncu_report(path: Path) -> JsonObject:
    """Read the metrics and rule results of each kernel.

    Raises:
        ProfileError: the module is not installed or cannot read the file.
    """
    require_module()
    if not _is_whole(path.read_bytes()):  # the module accepts truncated files
        raise ProfileError(
            f"{path}: not a whole report of Nsight Compute; copy it or record it again"
        )
    import ncu_report

    try:
        context = ncu_report.load_report(str(path))
    except Exception as error:  # noqa: BLE001  the module raises errors of its native code
        raise ProfileError(
            f"{path}: not a whole report of Nsight Compute ({error}); record it again"
        ) from None
    kernels: list[JsonObject] = []
    for range_index in range(context.num_ranges()):
        profiled_range = context.range_by_idx(range_index)
        for action_index in range(profiled_range.num_actions()):
            action = profiled_range.action_by_idx(action_index)
            kernels.append(_action_facts(len(kernels), range_index, action))
    return {
        "format": "ncu-rep",
        "read_with": "ncu_report wheel",
        "ranges": context.num_ranges(),
        "kernels": kernels,
    }


def _action_facts(number: int, range_index: int, action: Any) -> JsonObject:
    """Facts, counters and findings of one profiled kernel."""
    metrics = {name: [_metric(action.metric_by_name(name))] for name in action.metric_names()}

    def value(name: str) -> Any:
        if name not in metrics:
            return None
        return metrics[name][0].value

    major = value("device__attribute_compute_capability_major")
    minor = value("device__attribute_compute_capability_minor")
    compute_capability = None
    if major is not None and minor is not None:
        compute_capability = f"{major:.0f}.{minor:.0f}"
    device_metric = action.metric_by_name("device__attribute_display_name")
    device_name = None
    if device_metric is not None:
        device_name = device_metric.as_string()
    return {
        "id": str(number),
        "range": range_index,
        "name": action.name(),
        "metric_names": len(metrics),
        "grid": [int(value(f"launch__grid_dim_{axis}") or 1) for axis in "xyz"],
        "block": [int(value(f"launch__block_dim_{axis}") or 1) for axis in "xyz"],
        "grid_size_blocks": value("launch__grid_size"),
        "block_size_threads": value("launch__block_size"),
        "device": device_name,
        "compute_capability": compute_capability,
        **facts(metrics),
        "counters": own_counters(metrics),
        "findings": [_rule_finding(rule) for rule in action.rule_results_as_dicts()],
    }


def _rule_finding(rule: JsonObject) -> JsonObject:
    """A rule result with the fields of the details page."""
    message = rule.get("rule_message", {})
    estimate = rule.get("speedup_estimation", {})
    scope = _SCOPES.get(int(estimate.get("type", 0)))
    text = _LINK.sub(_link_text, message.get("message", ""))
    estimated_speedup_pct = None
    if scope is not None:
        estimated_speedup_pct = _finite(estimate["speedup"])
    return {
        "rule": rule["rule_identifier"],
        "type": _MESSAGE_TYPES.get(int(message.get("type", 0)), ""),
        "title": message.get("title", ""),
        "message": text,
        "estimated_speedup_pct": estimated_speedup_pct,
        "speedup_scope": scope,
    }


def _link_text(link: re.Match[str]) -> str:
    return next(filter(None, link.groups()), "")


def _metric(metric: Any) -> NcuMetric:
    return normalised(_finite(metric.value()), metric.unit() or "")


def _finite(value: Any) -> float | None:
    """The number; None for NaN, which ncu gives for a counter that it could not read."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    if not math.isfinite(value):
        return None
    return value


def _is_whole(content: bytes) -> bool:
    """Return whether the last block ends at the end of the file.

    Source: Nsight Compute documentation, report file format. After the magic comes a header, then
    blocks. A header and the head of a block are protobuf messages after their length; the head
    gives the size of the payload after it.
    """
    offset = len(MAGIC) + 4 + _int32(content, len(MAGIC))
    try:
        while offset < len(content):
            head_end = offset + 4 + _int32(content, offset)
            head = content[offset + 4 : head_end]
            offset = head_end + _payload_bytes(head)
    except (IndexError, ValueError):
        return False
    return offset == len(content)


def _int32(content: bytes, offset: int) -> int:
    return int.from_bytes(content[offset : offset + 4], "little")


def _payload_bytes(head: bytes) -> int:
    """Read the payload size from a protobuf message of integers and nested messages; 0 if it has
    none.
    """
    offset = 0
    while offset < len(head):
        tag, offset = _varint(head, offset)
        value, offset = _varint(head, offset)
        if tag == _PAYLOAD_SIZE_FIELD << 3 | _VARINT:
            return value
        wire_type = tag & 7
        if wire_type not in {_VARINT, _BYTES}:
            raise ValueError(f"unexpected protobuf wire type {wire_type}")
        if wire_type == _BYTES:
            offset += value  # the value is the length of what follows
    return 0


def _varint(message: bytes, offset: int) -> tuple[int, int]:
    """Read a variable-length integer; return it and the position after it."""
    value = 0
    shift = 0
    # all bytes but the last have the highest bit
    while message[offset] & 0x80:
        value |= (message[offset] & 0x7F) << shift
        offset += 1
        shift += 7
    return value | message[offset] << shift, offset + 1


# --- CSV


def read_ncu_csv(content: bytes, name: str) -> JsonObject | None:
    """Read a CSV file; None if Nsight Compute did not write it.

    Raises:
        ProfileError: a row cannot be read.
    """
    lines = decode_text(content).splitlines()
    start = find_header(lines)
    if start is None:
        return None
    body = [line for line in lines[start:] if not line.startswith(TOOL_LINE)]
    table = csv.reader(io.StringIO("\n".join(body)), strict=True)
    try:
        header, *rows = filter(None, table)
    except csv.Error as error:
        raise ProfileError(
            f"{name}: a row of Nsight Compute's CSV is truncated ({error}); export it again"
        ) from None
    if set(header) >= _LONG_COLUMNS:
        tool_line_count = len(lines) - start - len(body)
        summary = {
            "tool_lines_between_rows": tool_line_count,
            **_read_details_page(header, rows, name),
        }
    elif set(header) >= _WIDE_COLUMNS:
        summary = _read_raw_page(header, rows, name)
    else:
        return None
    return {"lines_before_header": start, **summary}


def find_header(lines: Sequence[str]) -> int | None:
    """Find the line with the column names; the output of the program comes before it."""
    for line_number, line in enumerate(lines[:_MAX_LINES_BEFORE_HEADER]):
        if line.startswith('"ID",'):
            return line_number
    return None


def _read_details_page(
    header: list[str],
    rows: list[list[str]],
    name: str,
) -> JsonObject:
    """Read the long form: a row for each metric and each rule of a kernel."""
    units: Counter[str] = Counter()
    without_number = 0
    kernels: dict[str, dict[str, str]] = {}
    # by kernel; several sections of a report may have the same metric
    metrics: dict[str, _MetricsByName] = defaultdict(lambda: defaultdict(list))
    rules: dict[str, list[JsonObject]] = defaultdict(list)
    cells_of_rows = [_cells(header, row, name) for row in rows]
    mark = decimal_mark((cells["Metric Value"] for cells in cells_of_rows), name)
    for cells in cells_of_rows:
        kernel = kernels.setdefault(cells["ID"], cells)["ID"]
        if cells["Metric Name"]:
            value = number(cells["Metric Value"], mark)
            unit = cells.get("Metric Unit", "")
            units[unit] += 1
            without_number += value is None
            metrics[kernel][cells["Metric Name"]].append(normalised(value, unit))
        elif cells.get("Rule Name"):
            rules[kernel].append(_row_finding(cells, mark))
    return {
        "format": "ncu-csv-long",
        "columns": len(header),
        "rows": len(rows),
        "rows_shorter_than_header": sum(len(row) < len(header) for row in rows),
        "rule_rows": sum(map(len, rules.values())),
        "metric_rows_without_a_number": without_number,
        "units_seen": dict(sorted(units.items())),
        "kernels": [
            _details_of_kernel(cells, metrics[kernel], rules[kernel])
            for kernel, cells in kernels.items()
        ],
    }


def _details_of_kernel(
    cells: dict[str, str],
    metrics: _MetricsByName,
    findings: list[JsonObject],
) -> JsonObject:
    """One kernel of the long form, with all of its metrics."""
    all_metrics = {name: list(map(asdict, values)) for name, values in metrics.items()}
    return {
        **_row_facts(cells),
        "stream": cells.get("Stream", ""),
        "metric_names": len(metrics),
        "rules": len(findings),
        **facts(metrics),
        "counters": own_counters(metrics),
        "findings": findings,
        "all_metrics": all_metrics,
    }


def _read_raw_page(
    header: list[str],
    rows: list[list[str]],
    name: str,
) -> JsonObject:
    """Read the wide form: a row for each kernel, under a row of units."""
    if not rows or rows[0][header.index("ID")]:
        raise ProfileError(
            f"{name}: the raw page has no row of units; export it again with --page raw --csv"
        )
    units = dict(zip(header, rows[0], strict=False))
    identifying_columns = PROCESS_COLUMNS.keys() | _KERNEL_COLUMNS
    metric_columns = [column for column in header if column not in identifying_columns]
    cells_of_rows = [_cells(header, row, name) for row in rows[1:]]
    numbers = (cells[column] for cells in cells_of_rows for column in metric_columns)
    mark = decimal_mark(numbers, name)
    kernels = []
    without_number = 0
    for cells in cells_of_rows:
        metrics: _MetricsByName = {}
        for column in metric_columns:
            text = cells[column]
            metrics[column] = [normalised(number(text, mark), units.get(column, ""))]
            without_number += text.lower() in {"", "n/a", "nan"}
        kernels.append(
            {
                **_row_facts(cells),
                "metric_names": len(metric_columns),
                **facts(metrics),
                "counters": own_counters(metrics),
            }
        )
    return {
        "format": "ncu-csv-wide",
        "columns": len(header),
        "kernels": kernels,
        "cells_without_a_number": without_number,
    }


def _cells(
    header: list[str],
    row: list[str],
    name: str,
) -> dict[str, str]:
    """Map columns to cells; metric rows lack the rule columns at the end."""
    if len(row) > len(header):
        raise ProfileError(
            f"{name}: a row has {len(row)} cells under {len(header)} columns; export it again"
        )
    padding = [""] * (len(header) - len(row))
    cells = dict(zip(header, row + padding, strict=True))
    if not cells["ID"].isdigit():
        raise ProfileError(
            f"{name}: a row has the ID {cells['ID'][:40]!r}, which is not a number; export it again"
        )
    return cells


def _row_facts(cells: dict[str, str]) -> dict[str, str]:
    """Describe a kernel; older versions write fewer columns."""
    return {
        "id": cells["ID"],
        "name": cells["Kernel Name"],
        "grid": cells.get("Grid Size", ""),
        "block": cells.get("Block Size", ""),
        "device": cells.get("Device", ""),
        "compute_capability": cells.get("CC", ""),
    }


def _row_finding(cells: dict[str, str], mark: DecimalMark) -> JsonObject:
    """What a rule of Nsight Compute found."""
    return {
        "rule": cells["Rule Name"],
        "type": cells.get("Rule Type", ""),
        "message": cells.get("Rule Description", ""),
        "estimated_speedup_pct": number(cells.get("Estimated Speedup", ""), mark),
        "speedup_scope": cells.get("Estimated Speedup Type") or None,
    }

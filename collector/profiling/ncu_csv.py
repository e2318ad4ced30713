"""Read CSV files of Nsight Compute: the details page has a row per metric, the raw page a row per kernel."""

import csv
import io
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

from roofwatch.collector.errors import ProfileError
from roofwatch.collector.profiling.ncu_metrics import Metric, facts, normalised, number
from roofwatch.collector.redaction_patterns import Kind

_LONG_COLUMNS = {"ID", "Kernel Name", "Metric Name", "Metric Value"}
_WIDE_COLUMNS = {"ID", "Kernel Name", "Block Size", "Grid Size"}
PROCESS_COLUMNS = {"Process ID": Kind.ARGUMENTS, "Process Name": Kind.ARGUMENTS, "Host Name": Kind.HOSTNAME}
"""Columns that identify the process and the host, with their kind of redaction."""
_KERNEL_COLUMNS = {"ID", "Kernel Name", "Context", "Stream", "Block Size", "Grid Size", "Device", "CC"}
TOOL_LINE = "=="
"""Start of the lines that ncu prints itself."""
_MAX_LINES_BEFORE_HEADER = 1_000


def read_ncu_csv(content: bytes, name: str) -> dict[str, Any] | None:
    """Read a CSV file; None if Nsight Compute did not write it.

    Raises:
        ProfileError: a row cannot be read.
    """
    lines = content.decode("utf-8-sig", errors="replace").splitlines()
    start = find_header(lines)
    if start is None:
        return None
    body = [line for line in lines[start:] if not line.startswith(TOOL_LINE)]
    try:
        header, *rows = (row for row in csv.reader(io.StringIO("\n".join(body)), strict=True) if row)
    except csv.Error as error:
        raise ProfileError(f"{name}: a row of Nsight Compute's CSV is truncated ({error}); export it again") from None
    if set(header) >= _LONG_COLUMNS:
        tool_line_count = len(lines) - start - len(body)
        summary = {"tool_lines_between_rows": tool_line_count, **_read_details_page(header, rows, name)}
    elif set(header) >= _WIDE_COLUMNS:
        summary = _read_raw_page(header, rows, name)
    else:
        return None
    return {"lines_before_header": start, **summary}


def find_header(lines: Sequence[str]) -> int | None:
    """Find the line with the column names; the output of the program comes before it."""
    return next((at for at, line in enumerate(lines[:_MAX_LINES_BEFORE_HEADER]) if line.startswith('"ID",')), None)


def _read_details_page(header: list[str], rows: list[list[str]], name: str) -> dict[str, Any]:
    units: Counter[str] = Counter()
    without_number = 0
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
            rules[kernel].append(_rule(cells))
    return {
        "format": "ncu-csv-long",
        "columns": len(header),
        "rows": len(rows),
        "rows_shorter_than_header": sum(len(row) < len(header) for row in rows),
        "rule_rows": sum(map(len, rules.values())),
        "metric_rows_without_a_number": without_number,
        "units_seen": dict(sorted(units.items())),
        "kernels": [
            {
                **_kernel(cells),
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


def _read_raw_page(header: list[str], rows: list[list[str]], name: str) -> dict[str, Any]:
    if not rows or rows[0][header.index("ID")]:
        raise ProfileError(f"{name}: the raw page has no row of units; export it again with --page raw --csv")
    units = dict(zip(header, rows[0], strict=False))
    measured = [column for column in header if column not in PROCESS_COLUMNS.keys() | _KERNEL_COLUMNS]
    kernels, without_number = [], 0
    for row in rows[1:]:
        cells = _cells(header, row, name)
        metrics = {column: [normalised(number(cells[column]), units.get(column, ""))] for column in measured}
        without_number += sum(cells[column].lower() in {"", "n/a", "nan"} for column in measured)
        kernels.append({**_kernel(cells), "metric_names": len(measured), **facts(metrics)})
    return {
        "format": "ncu-csv-wide",
        "columns": len(header),
        "kernels": kernels,
        "cells_without_a_number": without_number,
    }


def _cells(header: list[str], row: list[str], name: str) -> dict[str, str]:
    """Map columns to cells; metric rows lack the rule columns at the end."""
    if len(row) > len(header):
        raise ProfileError(f"{name}: a row has {len(row)} cells under {len(header)} columns; export it again")
    cells = dict(zip(header, [*row, *[""] * (len(header) - len(row))], strict=True))
    if not cells["ID"].isdigit():
        raise ProfileError(f"{name}: a row has the ID {cells['ID'][:40]!r}, which is not a number; export it again")
    return cells


def _kernel(cells: dict[str, str]) -> dict[str, str]:
    """Describe a kernel; older versions write fewer columns."""
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

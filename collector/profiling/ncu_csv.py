"""Nsight Compute's CSV: the details page and `--metrics` runs, a row per metric; the raw page, a row per kernel."""

from __future__ import annotations

import csv
import io
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from roofwatch.collector.profiling.ncu_metrics import Metric, facts, normalised, number
from roofwatch.collector.profiling.source import ProfileError
from roofwatch.collector.redaction import Kind

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

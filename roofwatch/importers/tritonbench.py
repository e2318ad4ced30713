"""Results of TritonBench: its JSON, and the table of one operator.

Source: meta-pytorch/tritonbench, tritonbench/utils/triton_op.py and .ci/upload
"""

import csv
import io
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from roofwatch.importers import (
    HIGHER,
    LOWER,
    UNKNOWN,
    ImportedRow,
    ImportedRun,
    Json,
    JsonImporter,
    number_of,
    read_bytes,
)
from roofwatch.model.machine import Outcome

_METRICS = {
    "latency": ("ms", LOWER),
    "walltime": ("ms", LOWER),
    "compile_time": ("ms", LOWER),
    "tflops": ("TFLOP/s", HIGHER),
    "gbps": ("GB/s", HIGHER),
    "speedup": ("ratio", HIGHER),
    "nsys_gpu_speedup": ("ratio", HIGHER),
    "mem_footprint_compression_ratio": ("ratio", HIGHER),
    "accuracy": ("passed", HIGHER),
    "pass": ("passed", HIGHER),
    "cpu_peak_mem": ("GB", LOWER),
    "gpu_peak_mem": ("GB", LOWER),
    "hw_roofline": ("TFLOP/s", UNKNOWN),
}
_MODE = r"(?P<op>.+?)(?:_(?P<mode>fwd_no_grad|fwd_bwd|fwd|bwd))?"
_KEYS = tuple(
    re.compile(rf"tritonbench_{_MODE}{rest}", re.DOTALL)
    for rest in (
        r"\[x_(?P<x>.*)-(?P<backend>[^-\]]+)\]_(?P<metric>.+)",
        r"\[x_(?P<x>.*?)-(?P<backend>[^-\]]+)-(?P<metric>[^\]]+)\]",  # until 2024
        r"\[(?P<backend>[^\]]+)\]-(?P<metric>.+)",
        r"-(?P<metric>pass)",
    )
)
_ERROR = re.compile(r"error|exception|\bOOM\b|out of memory|fail", re.IGNORECASE)
_OUT_OF_MEMORY = re.compile(r"out of memory|\bOOM\b", re.IGNORECASE)
_VARIANCE = re.compile(r"(?P<value>[-+.\deE]+) \(±(?P<spread>[.\d]+)%\)")


def _parse(document: Json, _path: Path) -> ImportedRun:
    environment = document.get("env") or document.get("environ") or {}
    rows: list[ImportedRow] = []
    for key, value in _values_by_key(document).items():
        names = _names_in(key)
        rows += _rows_of_value(
            case=names["op"] or key,
            parameters={name: names[name] for name in ("mode", "x") if names.get(name)},
            backend=names.get("backend") or "",
            name=names["metric"] or "value",
            value=value,
        )
    return ImportedRun(
        tool="TritonBench",
        tool_version=environment.get("tritonbench_commit") or environment.get("pytorch_version"),
        rows=tuple(rows),
        device=environment.get("device"),
    )


def _names_in(key: str) -> Mapping[str, str | None]:
    """Split a key into operator, mode, input, backend and metric."""
    for form in _KEYS:
        match = form.fullmatch(key)
        if match is not None:
            return match.groupdict()
    return {"op": key, "metric": "value"}


def _values_by_key(document: Json) -> Json:
    """Find the values: at the top level, below `metrics`, or below each operator."""
    if "metrics" in document:
        metrics: Json = document["metrics"]
        return metrics
    values: dict[str, Any] = {}
    for key, value in document.items():
        if isinstance(value, Mapping):
            values |= _values_by_key(value)
        elif key.startswith("tritonbench_"):
            values[key] = value
    return values


def _is_known(head: bytes, _name: str) -> bool:
    return head.lstrip().startswith(b"{") and b'"tritonbench_' in head


def _rows_of_value(
    *,
    case: str,
    parameters: Json,
    backend: str,
    name: str,
    value: object,
) -> list[ImportedRow]:
    metric = name
    statistic = ""
    if name.endswith(("-avg", "-target")):
        metric, _, statistic = name.rpartition("-")
    unit, better = _METRICS.get(metric, ("", UNKNOWN))
    if statistic == "target":
        better = UNKNOWN
    if not statistic:
        statistic = "median" if metric == "latency" else "value"
    if isinstance(value, str):
        spread = _VARIANCE.fullmatch(value)
    else:
        spread = None
    number = _number(value if spread is None else spread["value"])
    outcome = Outcome.OK
    message = None
    if number is None:
        is_error = isinstance(value, str) and _ERROR.search(value) is not None
        if metric not in _METRICS and not is_error:
            return []  # the name of a trace, a configuration
        outcome = _outcome_of(value)
        message = str(value or "no value")[:1_000]
    rows = [
        ImportedRow(
            case=case,
            metric=metric,
            value=number,
            unit=unit,
            better=better,
            statistic=statistic,
            parameters=parameters,
            implementation=backend,
            outcome=outcome,
            message=message,
        )
    ]
    if spread is not None and number is not None:
        rows.append(
            ImportedRow(
                case=case,
                metric=metric,
                value=float(spread["spread"]),
                unit="%",
                statistic="variation",
                parameters=parameters,
                implementation=backend,
            )
        )
    return rows


def _number(value: object) -> float | None:
    if isinstance(value, bool):
        return float(value)
    return number_of(value)


def _outcome_of(value: object) -> Outcome:
    if not value:
        return Outcome.UNSUPPORTED
    if _OUT_OF_MEMORY.search(str(value)):
        return Outcome.OUT_OF_MEMORY
    return Outcome.CRASHED


# --- the table of one operator


class _TableOfOperator:
    """Reads a table as CSV with semicolons, or as it is printed."""

    def sniff(self, head: bytes, name: str, /) -> float:
        first_line = head.lstrip().split(b"\n", 1)[0]
        has_metric = any(f"-{metric}".encode() in first_line for metric in _METRICS)
        is_other = first_line.startswith((b"{", b"[")) or name.endswith(".js")
        return 0.8 if has_metric and not is_other else 0.0

    def read(self, path: Path, /) -> ImportedRun:
        lines = [line for line in read_bytes(path).decode("utf-8-sig").splitlines() if line.strip()]
        headers, *body = _cells_of(lines)
        operator = _operator_of(path)
        rows: list[ImportedRow] = []
        for cells in body:
            # a table that was cut off has short rows
            if len(cells) != len(headers):
                raise ValueError(
                    f"a row has {len(cells)} cells, and the head has {len(headers)}: {cells[0]}"
                )
            for header, cell in zip(headers[1:], cells[1:], strict=True):
                # the average row has no value in columns of text
                if not cell and cells[0] == "average":
                    continue
                backend, dash, metric = header.partition("-")
                if not dash:
                    backend = ""
                    metric = header
                rows += _rows_of_value(
                    case=operator,
                    parameters={headers[0]: cells[0]},
                    backend=backend,
                    name=metric,
                    value=cell,
                )
        return ImportedRun(tool="TritonBench", rows=tuple(rows))


def _cells_of(lines: list[str]) -> list[list[str]]:
    is_printed = len(lines) > 1 and set(lines[1]) <= {"-", " "}
    if not is_printed:
        return list(csv.reader(io.StringIO("\n".join(lines)), delimiter=";"))
    starts = [match.start() for match in re.finditer("-+", lines[1])]
    # the last column may be wider than its line, and a cell stands below its line
    ends: list[int | None] = [*starts[1:], None]
    table: list[list[str]] = []
    for line in (lines[0], *lines[2:]):
        cells = [line[start:end].strip() for start, end in zip(starts, ends, strict=True)]
        table.append(cells)
    return table


def _operator_of(path: Path) -> str:
    stem = path.name.split(".", 1)[0]
    # TritonBench adds a random ending
    written = re.fullmatch(r"op_(.+)_.{8}", stem)
    if written is None:
        return stem.removeprefix("op_")
    return written[1]


TRITONBENCH = JsonImporter(_parse, _is_known)
TRITONBENCH_TABLE = _TableOfOperator()

"""Benchmarks of GPU kernels: nvbench, TritonBench, and the JSON of PyTorch's benchmark database."""

import csv
import io
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from roofwatch.importers import (
    HIGHER,
    LOWER,
    UNKNOWN,
    FileImportError,
    ImportedCommit,
    ImportedRow,
    ImportedRun,
    Json,
    JsonImporter,
    Meaning,
    number_of,
    read_bytes,
    rows_of,
    samples_of,
    with_words,
)
from roofwatch.model.machine import CaseResult, Outcome
from roofwatch.model.measurement import measured_values
from roofwatch.model.metrics import Better
from roofwatch.model.record import MAX_RECORD_BYTES, RunRecord

# --- nvbench. Source: NVIDIA/nvbench, nvbench/json_printer.cu, detail/measure_*.cu and
# python/scripts

_NVBENCH_UNITS = {
    "duration": "s",
    "percentage": "ratio",
    "item_rate": "items/s",
    "byte_rate": "B/s",
    "bytes": "B",
    "sample_size": "count",
    "frequency": "Hz",
}
"""Unit by the summary's hint. Percentages are stored as fractions."""
_NVBENCH_SPREADS = ("stdev", "ir", "iqr")
_NVBENCH_CENTRES = frozenset({"mean", "median", "min", "max", "q1", "q3"})
_NVBENCH_SAMPLES = {
    "nv/json/bin:nv/cold/sample_times": Meaning("nv/cold/time/gpu", "s", LOWER),
    "nv/json/freqs-bin:nv/cold/sample_freqs": Meaning("nv/cold/sm_clock_rate", "Hz"),
}
"""Files of little-endian float32 beside the JSON."""


def _nvbench(document: Json, path: Path) -> ImportedRun:
    version = ((document.get("meta") or {}).get("version") or {}).get("nvbench") or {}
    devices = {device["id"]: device["name"] for device in document.get("devices") or []}
    return ImportedRun(
        tool="nvbench",
        tool_version=version.get("string"),
        rows=tuple(
            row
            for benchmark in document["benchmarks"]
            for state in benchmark["states"] or []
            for row in _nvbench_rows(benchmark["name"], state, path)
        ),
        device=" and ".join(dict.fromkeys(devices.values())) or None,
    )


def _nvbench_rows(case: str, state: Json, path: Path) -> Iterator[ImportedRow]:
    parameters = {} if state.get("device") is None else {"Device": state["device"]}
    for axis in state.get("axis_values") or []:
        parameters[axis["name"]] = int(axis["value"]) if axis["type"] == "int64" else axis["value"]
    missing = (case, "nv/cold/time/gpu", None, "s", LOWER, "mean", parameters)
    if state.get("is_skipped"):
        reason = str(state.get("skip_reason") or "skipped")
        yield ImportedRow(*missing, outcome=Outcome.UNSUPPORTED, message=reason)
        return
    summaries = {
        summary.get("tag") or summary["name"]: summary for summary in state.get("summaries") or []
    }
    counts = {
        tag.removesuffix("sample_size"): int(_data(one)["value"])
        for tag, one in summaries.items()
        if tag.endswith("/sample_size")
    }
    for tag, summary in summaries.items():
        data = _data(summary)
        if tag in _NVBENCH_SAMPLES:
            samples = _sidecar(path, data["filename"], int(data["size"]))
            yield from samples_of(samples, _NVBENCH_SAMPLES[tag], case=case, parameters=parameters)
            continue
        metric, statistic = _nvbench_metric(tag)
        hint, count = summary.get("hint"), counts.get("/".join(tag.split("/")[:2]) + "/")
        unit, better = _NVBENCH_UNITS.get(hint, ""), _nvbench_better(tag, hint, statistic)
        parts = {name: metric if name == "value" else f"{metric}/{name}" for name in data}
        meanings = {name: Meaning(part, unit, better, statistic) for name, part in parts.items()}
        yield from rows_of(data, meanings.get, case=case, parameters=parameters, sample_count=count)
    if not summaries:
        yield ImportedRow(
            *missing, outcome=Outcome.CRASHED, message="the state ran and has no summary"
        )


def _data(summary: Json) -> dict[str, Any]:
    """The values by name; nvbench writes 64-bit integers as strings."""
    return {
        one["name"]: one["value"] if one["type"] == "string" else number_of(one["value"])
        for one in summary.get("data") or []
    }


def _nvbench_metric(tag: str) -> tuple[str, str]:
    """Split `nv/cold/time/gpu/stdev/relative` into the metric and `stdev/relative`."""
    parts = tag.split("/")
    for at, part in enumerate(parts):
        if at and (part in _NVBENCH_CENTRES or part in _NVBENCH_SPREADS):
            return "/".join(parts[:at]), "/".join(parts[at:])
    return tag, "value"


def _nvbench_better(tag: str, hint: str | None, statistic: str) -> Better:
    if statistic.startswith(_NVBENCH_SPREADS):
        return UNKNOWN
    if hint == "duration":
        return (
            LOWER if "/time/" in tag else UNKNOWN
        )  # the wall time is what nvbench spent on measuring
    return HIGHER if hint in ("item_rate", "byte_rate") or tag.endswith("/utilization") else UNKNOWN


def _sidecar(path: Path, name: str, count: int) -> list[float]:
    """Samples of a file beside the JSON; empty if it was not copied along.

    Only the last two parts of its name are used, so a document reads nothing outside its folder.
    """
    place = path.parent.joinpath(
        *[part for part in Path(name).parts if part not in ("/", "..")][-2:]
    )
    if not place.is_file():
        return []
    if place.resolve().parent.parent != path.parent.resolve() or place.stat().st_size != 4 * count:
        raise FileImportError(
            f"{place}: does not hold the {count} samples that {path.name} says; copy it again"
        )
    if 4 * count > MAX_RECORD_BYTES:
        raise FileImportError(f"{place}: more than {MAX_RECORD_BYTES} bytes")
    samples = np.fromfile(place, dtype="<f4").astype(np.float64)
    if not np.isfinite(samples).all():
        raise FileImportError(f"{place}: a sample is no number; copy it again")
    return [float(sample) for sample in samples]


# --- TritonBench. Source: meta-pytorch/tritonbench, tritonbench/utils/triton_op.py and .ci/upload

_TRITONBENCH_METRICS = {
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
_TRITONBENCH_KEYS = tuple(
    re.compile(rf"tritonbench_{_MODE}{rest}", re.DOTALL)
    for rest in (
        r"\[x_(?P<x>.*)-(?P<backend>[^-\]]+)\]_(?P<metric>.+)",
        r"\[x_(?P<x>.*?)-(?P<backend>[^-\]]+)-(?P<metric>[^\]]+)\]",  # until 2024
        r"\[(?P<backend>[^\]]+)\]-(?P<metric>.+)",
        r"-(?P<metric>pass)",
    )
)
_ERROR = re.compile(r"error|exception|\bOOM\b|out of memory|fail", re.IGNORECASE)
_VARIANCE = re.compile(r"(?P<value>[-+.\deE]+) \(±(?P<spread>[.\d]+)%\)")


def _tritonbench(document: Json, _path: Path) -> ImportedRun:
    environment = document.get("env") or document.get("environ") or {}
    rows = []
    for key, value in _tritonbench_metrics(document).items():
        found = next(
            (match for match in (form.fullmatch(key) for form in _TRITONBENCH_KEYS) if match), None
        )
        named = {"op": key, "metric": "value"} if found is None else found.groupdict()
        parameters = {name: named[name] for name in ("mode", "x") if named.get(name)}
        rows += _tritonbench_rows(
            named["op"], parameters, named.get("backend") or "", named["metric"], value
        )
    return ImportedRun(
        tool="TritonBench",
        tool_version=environment.get("tritonbench_commit") or environment.get("pytorch_version"),
        rows=tuple(rows),
        device=environment.get("device"),
    )


def _tritonbench_metrics(document: Json) -> Json:
    """The values by key: at the top level, below `metrics`, or below each operator."""
    if "metrics" in document:
        metrics: Json = document["metrics"]
        return metrics
    found: dict[str, Any] = {}
    for key, value in document.items():
        if isinstance(value, Mapping):
            found |= _tritonbench_metrics(value)
        elif key.startswith("tritonbench_"):
            found[key] = value
    return found


def _is_tritonbench(head: bytes, _name: str) -> bool:
    return head.lstrip().startswith(b"{") and b'"tritonbench_' in head


def _tritonbench_rows(
    case: str, parameters: Json, backend: str, name: str, value: object
) -> list[ImportedRow]:
    metric, _, statistic = (
        name.rpartition("-") if name.endswith(("-avg", "-target")) else (name, "", "")
    )
    unit, better = _TRITONBENCH_METRICS.get(metric, ("", UNKNOWN))
    statistic = statistic or ("median" if metric == "latency" else "value")
    if statistic == "target":
        better = UNKNOWN
    spread = _VARIANCE.fullmatch(value) if isinstance(value, str) else None
    number = (
        float(value) if isinstance(value, bool) else number_of(spread["value"] if spread else value)
    )
    common = (case, metric, number, unit, better, statistic, parameters)
    if number is not None:
        rows = [ImportedRow(*common, implementation=backend)]
        if spread is not None:
            share = float(spread["spread"])
            rows.append(
                ImportedRow(
                    case,
                    metric,
                    share,
                    "%",
                    UNKNOWN,
                    "variation",
                    parameters,
                    implementation=backend,
                )
            )
        return rows
    if metric not in _TRITONBENCH_METRICS and not (isinstance(value, str) and _ERROR.search(value)):
        return []  # the name of a trace, a configuration
    text = str(value or "no value")
    is_memory = re.search(r"out of memory|\bOOM\b", text, re.IGNORECASE)
    failed = (
        Outcome.UNSUPPORTED
        if not value
        else Outcome.OUT_OF_MEMORY
        if is_memory
        else Outcome.CRASHED
    )
    return [ImportedRow(*common, outcome=failed, message=text[:1_000], implementation=backend)]


class _TritonBenchTable:
    """The table of one operator: as CSV with semicolons, or as it is printed."""

    def sniff(self, head: bytes, name: str, /) -> float:
        first = head.lstrip().split(b"\n", 1)[0]
        has_metric = any(f"-{metric}".encode() in first for metric in _TRITONBENCH_METRICS)
        return (
            0.8
            if has_metric and not first.startswith((b"{", b"[")) and not name.endswith(".js")
            else 0.0
        )

    def read(self, path: Path, /) -> ImportedRun:
        lines = [line for line in read_bytes(path).decode("utf-8-sig").splitlines() if line.strip()]
        if len(lines) > 1 and set(lines[1]) <= {"-", " "}:
            spans = [match.span() for match in re.finditer("-+", lines[1])]
            # the last column may be wider than its line, and a cell stands below its line
            ends = [*(start for start, _ in spans[1:]), None]
            table = [
                [line[start:end].strip() for (start, _), end in zip(spans, ends, strict=True)]
                for line in (lines[0], *lines[2:])
            ]
        else:
            table = list(csv.reader(io.StringIO("\n".join(lines)), delimiter=";"))
        headers, *body = table
        stem = path.name.split(".", 1)[0]
        written = re.fullmatch(r"op_(.+)_.{8}", stem)  # by TritonBench, with a random ending
        operator = written[1] if written else stem.removeprefix("op_")
        rows: list[ImportedRow] = []
        for cells in body:
            if len(cells) != len(headers):
                raise ValueError(
                    f"a row has {len(cells)} cells, and the head has {len(headers)}: {cells[0]}"
                )
            for header, cell in zip(headers[1:], cells[1:], strict=True):
                backend, _, metric = header.partition("-")
                backend, metric = (backend, metric) if metric else ("", backend)
                if cell or cells[0] != "average":
                    rows += _tritonbench_rows(
                        operator, {headers[0]: cells[0]}, backend, metric, cell
                    )
        return ImportedRun(tool="TritonBench", rows=tuple(rows))


# --- PyTorch's benchmark database. Source: pytorch/test-infra,
# clickhouse_db_schema/oss_ci_benchmark_v3/schema.sql


def _pytorch(document: Any, _path: Path) -> ImportedRun:
    entries = document if isinstance(document, list) else [document]
    rows = [row for entry in entries for row in _pytorch_rows(entry)]
    commits = {row.commit for row in rows}
    first: Json = entries[0]
    info: Json = first["benchmark"].get("extra_info") or {}
    runner: Json = next(iter(first.get("runners") or []), {})
    return ImportedRun(
        tool="PyTorch benchmark database",
        tool_version=first.get("schema_version", "v3"),
        rows=tuple(rows),
        commit=rows[0].commit or ImportedCommit() if len(commits) == 1 else ImportedCommit(),
        project=first.get("repo"),
        device=runner.get("gpu_info")
        or info.get("device")
        or info.get("arch")
        or runner.get("name")
        or None,
    )


def _pytorch_rows(entry: Json) -> Iterator[ImportedRow]:
    benchmark, model, metric = entry["benchmark"], entry.get("model") or {}, entry["metric"]
    parameters = {
        key: value
        for key, value in {
            "benchmark": benchmark.get("name"),
            "mode": benchmark.get("mode"),
            "dtype": benchmark.get("dtype"),
            "type": model.get("type"),
            **(benchmark.get("extra_info") or {}),
            **(model.get("extra_info") or {}),
            **(metric.get("extra_info") or {}),
            **{
                f"input {name}": json.dumps(one, sort_keys=True)
                for name, one in (entry.get("inputs") or {}).items()
            },
        }.items()
        if value not in (None, "", {}, [])
    }
    unit, better = parameters.pop(_UNIT, ""), Better(parameters.pop(_BETTER, UNKNOWN))
    statistic = parameters.pop(_STATISTIC, None)
    timestamp = number_of(entry.get("timestamp"))
    shared: dict[str, Any] = {
        "parameters": parameters,
        "implementation": model.get("backend") or "",
        "commit": ImportedCommit(
            sha=entry.get("head_sha") or None,
            measured_at=timestamp,
            branch=entry.get("head_branch") or None,
        ),
    }
    case, values = (
        str(model.get("name") or benchmark.get("name") or "benchmark"),
        metric["benchmark_values"],
    )
    if not values:
        message = "the metric has no value"
        yield ImportedRow(
            case,
            metric["name"],
            None,
            unit,
            better,
            outcome=Outcome.CRASHED,
            message=message,
            **shared,
        )
    statistic = statistic or ("value" if len(values) == 1 else "sample")
    for value in values:
        number = number_of(value)
        failed = (
            {"outcome": Outcome.CRASHED, "message": f"its value is {value}"}
            if number is None
            else {}
        )
        yield ImportedRow(
            case, metric["name"], number, unit, better, statistic, sample_count=1, **shared | failed
        )
    target = number_of(metric.get("target_value"))
    if target is not None:
        yield ImportedRow(case, metric["name"], target, unit, UNKNOWN, "target", **shared)


_UNIT, _BETTER, _STATISTIC = "roofwatch_unit", "roofwatch_better", "roofwatch_statistic"
"""Where an export puts what the database's format has no field for."""


def to_pytorch(records: Iterable[RunRecord]) -> list[dict[str, Any]]:
    """Records as entries of PyTorch's benchmark database, one for each metric; failed results are
    left out.
    """
    entries = []
    for record in records:
        cases = {case.case_id: case for case in record.cases}
        device = record.environment.device_name
        common = {
            "timestamp": int(record.started_at.timestamp()),
            "schema_version": "v3",
            "name": record.project,
            "repo": record.project,
            "head_branch": record.commit.branch or "",
            "head_sha": record.commit.sha,
            "runners": [{"name": record.environment.runner_class, "gpu_info": device, "type": ""}],
        }
        numbers: list[tuple[CaseResult, str, float, dict[str, str]]] = []
        for measured in record.measurements:
            values = measured_values(measured, cases[measured.case_id])
            numbers += [(measured, name, value, {}) for name, value in values.items()]
        for one in record.imported:
            if one.value is not None:
                extra = {_UNIT: one.unit, _BETTER: str(one.better), _STATISTIC: one.statistic}
                numbers.append((one, one.metric, one.value, extra))
        for result, name, value, extra in numbers:
            case = cases[result.case_id]
            model = {"name": case.kernel, "type": case.family, "backend": result.implementation}
            shape = {key: str(length) for key, length in case.shape.items()}
            own = {
                "benchmark": {
                    "name": record.project,
                    "mode": case.direction,
                    "dtype": case.dtype,
                    "extra_info": {},
                },
                "model": {**model, "extra_info": shape},
                "metric": {"name": name, "benchmark_values": [value], "extra_info": extra},
            }
            entries.append(common | own)
    return entries


KERNELS = {
    "nvbench": JsonImporter(_nvbench, with_words(b'"sm_version"', b'"global_memory_size"')),
    "tritonbench": JsonImporter(_tritonbench, _is_tritonbench),
    "tritonbench-table": _TritonBenchTable(),
    "pytorch": JsonImporter(_pytorch, with_words(b'"benchmark_values"', b'"metric"')),
}

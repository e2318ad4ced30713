"""Results of nvbench.

Source: NVIDIA/nvbench, nvbench/json_printer.cu, detail/measure_*.cu and python/scripts
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from roofwatch.importers import (
    HIGHER,
    LOWER,
    UNKNOWN,
    FileImportError,
    ImportedRow,
    ImportedRun,
    Json,
    JsonImporter,
    Meaning,
    number_of,
    rows_of,
    samples_of,
    with_words,
)
from roofwatch.model.machine import Outcome
from roofwatch.model.metrics import Better
from roofwatch.model.record import MAX_RECORD_BYTES

_UNITS = {
    "duration": "s",
    "percentage": "ratio",
    "item_rate": "items/s",
    "byte_rate": "B/s",
    "bytes": "B",
    "sample_size": "count",
    "frequency": "Hz",
}
"""Unit by the summary's hint. Percentages are stored as fractions."""
_SPREADS = ("stdev", "ir", "iqr")
_CENTRES = frozenset({"mean", "median", "min", "max", "q1", "q3"})
_TIME = "nv/cold/time/gpu"
_SAMPLES = {
    "nv/json/bin:nv/cold/sample_times": Meaning(_TIME, "s", LOWER),
    "nv/json/freqs-bin:nv/cold/sample_freqs": Meaning("nv/cold/sm_clock_rate", "Hz"),
}
"""Files of little-endian float32 beside the JSON."""
_BYTES_PER_SAMPLE = 4


def _parse(document: Json, path: Path) -> ImportedRun:
    version = ((document.get("meta") or {}).get("version") or {}).get("nvbench") or {}
    devices = {device["id"]: device["name"] for device in document.get("devices") or []}
    rows: list[ImportedRow] = []
    for benchmark in document["benchmarks"]:
        for state in benchmark["states"] or []:
            rows.extend(_rows_of_state(benchmark["name"], state, path))
    return ImportedRun(
        tool="nvbench",
        tool_version=version.get("string"),
        rows=tuple(rows),
        device=" and ".join(dict.fromkeys(devices.values())) or None,
    )


def _rows_of_state(case: str, state: Json, path: Path) -> Iterator[ImportedRow]:
    parameters = _parameters(state)
    if state.get("is_skipped"):
        reason = str(state.get("skip_reason") or "skipped")
        yield _without_time(
            case=case,
            parameters=parameters,
            outcome=Outcome.UNSUPPORTED,
            message=reason,
        )
        return
    summaries = {
        summary.get("tag") or summary["name"]: summary for summary in state.get("summaries") or []
    }
    # it ran, so the missing summary is a failure
    if not summaries:
        message = "the state ran and has no summary"
        yield _without_time(
            case=case,
            parameters=parameters,
            outcome=Outcome.CRASHED,
            message=message,
        )
        return
    counts: dict[str, int] = {}
    for tag, summary in summaries.items():
        if tag.endswith("/sample_size"):
            counts[tag.removesuffix("sample_size")] = int(_data(summary)["value"])
    for tag, summary in summaries.items():
        data = _data(summary)
        # samples are in a file beside the document
        if tag in _SAMPLES:
            samples = _sidecar(path, data["filename"], int(data["size"]))
            yield from samples_of(samples, _SAMPLES[tag], case=case, parameters=parameters)
            continue
        hint = summary.get("hint")
        group = "/".join(tag.split("/")[:2])
        yield from rows_of(
            data,
            _meanings(tag, hint, data).get,
            case=case,
            parameters=parameters,
            sample_count=counts.get(f"{group}/"),
        )


def _parameters(state: Json) -> dict[str, Any]:
    parameters: dict[str, Any] = {}
    if state.get("device") is not None:
        parameters["Device"] = state["device"]
    for axis in state.get("axis_values") or []:
        is_integer = axis["type"] == "int64"
        parameters[axis["name"]] = int(axis["value"]) if is_integer else axis["value"]
    return parameters


def _without_time(
    case: str,
    parameters: Json,
    outcome: Outcome,
    message: str,
) -> ImportedRow:
    return ImportedRow(
        case=case,
        metric=_TIME,
        value=None,
        unit="s",
        better=LOWER,
        statistic="mean",
        parameters=parameters,
        outcome=outcome,
        message=message,
    )


def _data(summary: Json) -> dict[str, Any]:
    """Return the values by name; nvbench writes 64-bit integers as strings."""
    values: dict[str, Any] = {}
    for entry in summary.get("data") or []:
        is_text = entry["type"] == "string"
        values[entry["name"]] = entry["value"] if is_text else number_of(entry["value"])
    return values


def _meanings(tag: str, hint: str | None, data: Json) -> dict[str, Meaning]:
    metric, statistic = _metric_of(tag)
    unit = _UNITS.get(hint or "", "")
    better = _better(tag, hint, statistic)
    meanings: dict[str, Meaning] = {}
    for name in data:
        part = metric if name == "value" else f"{metric}/{name}"
        meanings[name] = Meaning(
            metric=part,
            unit=unit,
            better=better,
            statistic=statistic,
        )
    return meanings


def _metric_of(tag: str) -> tuple[str, str]:
    """Split `nv/cold/time/gpu/stdev/relative` into the metric and `stdev/relative`."""
    parts = tag.split("/")
    for position, part in enumerate(parts):
        if position and (part in _CENTRES or part in _SPREADS):
            return "/".join(parts[:position]), "/".join(parts[position:])
    return tag, "value"


def _better(tag: str, hint: str | None, statistic: str) -> Better:
    if statistic.startswith(_SPREADS):
        return UNKNOWN
    if hint == "duration":
        # the wall time is what nvbench spent on measuring
        return LOWER if "/time/" in tag else UNKNOWN
    is_rate = hint in ("item_rate", "byte_rate") or tag.endswith("/utilization")
    return HIGHER if is_rate else UNKNOWN


def _sidecar(path: Path, name: str, count: int) -> list[float]:
    """Read samples of a file beside the JSON; none if it was not copied along.

    Only the last two parts of its name are used, so a document reads nothing outside its folder.
    """
    parts = [part for part in Path(name).parts if part not in ("/", "..")]
    file = path.parent.joinpath(*parts[-2:])
    # many people copy the JSON alone
    if not file.is_file():
        return []
    expected_bytes = _BYTES_PER_SAMPLE * count
    is_inside = file.resolve().parent.parent == path.parent.resolve()
    # a link or a name could lead to another folder
    if not is_inside or file.stat().st_size != expected_bytes:
        raise FileImportError(
            f"{file}: does not hold the {count} samples that {path.name} says; copy it again"
        )
    if expected_bytes > MAX_RECORD_BYTES:
        raise FileImportError(f"{file}: more than {MAX_RECORD_BYTES} bytes")
    samples = np.fromfile(file, dtype="<f4").astype(np.float64)
    if not np.isfinite(samples).all():
        raise FileImportError(f"{file}: a sample is no number; copy it again")
    return [float(sample) for sample in samples]


NVBENCH = JsonImporter(_parse, with_words(b'"sm_version"', b'"global_memory_size"'))

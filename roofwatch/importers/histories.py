"""Files that hold results of many commits: asv, and the `data.js` of github-action-benchmark."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

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
    numbers_of,
    parse_json,
    read_bytes,
    rows_of,
    samples_of,
    seconds_of,
)
from roofwatch.model.machine import Outcome
from roofwatch.model.metrics import Better

# --- asv. Source: asv/results.py (a failed benchmark is null, a skipped one NaN) and the types of
# asv_runner

_ASV_TYPES = {
    "time": ("time", "seconds", LOWER),
    "timeraw": ("time", "seconds", LOWER),
    "mem": ("memory", "bytes", LOWER),
    "peakmem": ("peakmemory", "bytes", LOWER),
    "track": ("track", "unit", UNKNOWN),
}
"""Type, unit and direction by the prefix of the function's name. What `track_` returns has no
direction.
"""
_ASV_BETTER = {type_: better for type_, _, better in _ASV_TYPES.values()}
# Bounds of the 99 % interval, and quartiles.
_ASV_STATISTICS = ("ci_99_a", "ci_99_b", "q_25", "q_75")
_ASV_COUNTS = ("number", "repeat")


def _asv(document: Json, path: Path) -> ImportedRun:
    if "results" not in document:
        raise FileImportError(
            f"{path}: describes benchmarks of asv; import its folder, or the files of results"
        )
    index = _asv_index(path, document["results"])
    parameters = document.get("params") or {}
    # asv knows no GPU: the machine's name stands for it.
    machine = [parameters.get("machine"), parameters.get("cpu")]
    rows: list[ImportedRow] = []
    for name in document["results"]:
        rows.extend(_asv_rows(name, document, index.get(name) or {}))
    return ImportedRun(
        tool="asv",
        tool_version=f"results version {document['version']}",
        rows=tuple(rows),
        commit=ImportedCommit(sha=document["commit_hash"], committed_at=document["date"] / 1e3),
        device=", ".join(str(part) for part in machine if part) or None,
    )


def _asv_index(path: Path, results: Json) -> Json:
    """Read what `benchmarks.json` beside or above the results says of units and parameters; empty
    without one.
    """
    folder = path.parent
    beside = sorted(folder.glob("*benchmarks.json"))
    for file in (folder / "benchmarks.json", folder.parent / "benchmarks.json", *beside):
        if not file.is_file():
            continue
        index = parse_json(read_bytes(file), file)
        if isinstance(index, dict) and not results.keys().isdisjoint(index):
            return index
    return {}


def _asv_columns(name: str, document: Json) -> dict[str, Any]:
    """Read what is stored of a benchmark as lists by column, with an item for each combination of
    parameters.
    """
    stored = document["results"][name]
    if isinstance(stored, list):  # version 2
        return dict(zip(document["result_columns"], stored, strict=False))
    columns: dict[str, Any] = {"result": [stored]}
    if isinstance(stored, Mapping):
        columns = dict(stored)
    if not isinstance(columns.get("result"), list):
        columns["result"] = [columns.get("result")]
    count = len(columns["result"])
    for position, statistics in enumerate(columns.get("stats") or []):
        for key, number in _asv_statistics(statistics or {}):
            columns.setdefault(f"stats_{key}", [None] * count)[position] = number
    return columns


def _asv_statistics(statistics: Json) -> Iterator[tuple[str, Any]]:
    for key, value in statistics.items():
        if key == "ci_99":
            yield "ci_99_a", value[0]
            yield "ci_99_b", value[1]
        else:
            yield key, value


@dataclass(frozen=True)
class _AsvBenchmark:
    """What one number of a benchmark is."""

    name: str
    type: str
    unit: str
    better: Better

    @classmethod
    def of(cls, name: str, description: Json) -> "_AsvBenchmark":
        prefix = name.rsplit(".", 1)[-1].split("_", 1)[0]
        type_, unit, _ = _ASV_TYPES.get(prefix, ("value", "", UNKNOWN))
        type_ = description.get("type") or type_
        better = _ASV_BETTER.get(type_, UNKNOWN)
        return cls(name, type_, description.get("unit") or unit, better)

    def rows(self, values: Json, shared: Mapping[str, Any]) -> Iterator[ImportedRow]:
        """Make the rows of one combination of parameters: the result, its statistics, samples."""
        samples = values.get("samples")
        yield ImportedRow(
            case=self.name,
            metric=self.type,
            value=number_of(values.get("result")),
            unit=self.unit,
            better=self.better,
            statistic="median" if self.type == "time" else "value",
            sample_count=len(numbers_of(samples)) or values.get("stats_repeat"),
            **shared,
        )
        meanings = {
            f"stats_{key}": Meaning(
                metric=self.type,
                unit=self.unit,
                better=self.better,
                statistic=key,
            )
            for key in _ASV_STATISTICS
        }
        meanings |= {f"stats_{key}": Meaning(key, "count") for key in _ASV_COUNTS}
        yield from rows_of(values, meanings.get, case=self.name, **shared)
        time = Meaning(self.type, self.unit, self.better)
        yield from samples_of(samples, time, case=self.name, **shared)


def _asv_rows(name: str, document: Json, description: Json) -> Iterator[ImportedRow]:
    columns = _asv_columns(name, document)
    points = list(product(*(columns.get("params") or [])))
    # Null if the benchmark failed as a whole.
    results = columns.get("result") or [None] * len(points)
    if len(results) != len(points):
        raise ValueError(
            f"{name}: {len(results)} results of {len(points)} combinations of parameters"
        )
    benchmark = _AsvBenchmark.of(name, description)
    # A benchmark with another version has another definition, and its values another history.
    version = columns.get("version") or (document.get("benchmark_version") or {}).get(name)
    definition = ""
    if version is not None:
        definition = f"version {str(version)[:12]}"
    names = description.get("param_names") or []
    for position, (point, result) in enumerate(zip(points, results, strict=True)):
        values: dict[str, Any] = {"result": result}
        for key, column in columns.items():
            if key != "result" and isinstance(column, list) and position < len(column):
                values[key] = column[position]
        shared: dict[str, Any] = {
            "parameters": _asv_parameters(point, names),
            "implementation": str(document.get("env_name") or ""),
            "definition": definition,
        }
        if result is None:
            shared |= {"outcome": Outcome.CRASHED, "message": "asv recorded a failure"}
        elif math.isnan(result):
            shared |= {"outcome": Outcome.UNSUPPORTED, "message": "asv skipped it"}
        yield from benchmark.rows(values, shared)


def _asv_parameters(point: Sequence[Any], names: Sequence[str]) -> dict[str, Any]:
    parameters: dict[str, Any] = {}
    for number, value in enumerate(point):
        # An index without names is of an old version.
        if number < len(names):
            name = names[number]
        else:
            name = f"param{number + 1}"
        parameters[name] = value
    return parameters


def _is_asv(head: bytes, name: str) -> bool:
    is_index = name.endswith("benchmarks.json") and b'"param_names"' in head
    return is_index or (b'"commit_hash"' in head and b'"results"' in head)


# --- github-action-benchmark. Source: its src/write.ts, which says for which tools higher is better

_ASSIGNMENT = b"window.BENCHMARK_DATA"
_HIGHER_TOOLS = frozenset({"benchmarkjs", "pytest", "customBiggerIsBetter"})
_LOWER_TOOLS = frozenset(
    (
        "cargo",
        "go",
        "benchmarkluau",
        "googlecpp",
        "catch2",
        "julia",
        "jmh",
        "benchmarkdotnet",
        "time",
        "customSmallerIsBetter",
    )
)


class _DataJs(JsonImporter):
    """A script of one assignment; what it assigns is JSON, so nothing is run."""

    def read(self, path: Path, /) -> ImportedRun:
        document = read_bytes(path).strip()
        if document.startswith(_ASSIGNMENT):
            # `window.BENCHMARK_DATA = {...};`
            assigned = document.removeprefix(_ASSIGNMENT).lstrip()
            document = assigned.removeprefix(b"=").rstrip().removesuffix(b";")
        return self.parse(parse_json(document, path), path)


def _is_data_js(head: bytes, _name: str) -> bool:
    if head.lstrip().startswith(_ASSIGNMENT):
        return True
    return b'"lastUpdate"' in head and b'"entries"' in head


def _data_js(document: Json, _path: Path) -> ImportedRun:
    address = str(document.get("repoUrl") or "").removesuffix(".git").rstrip("/")
    repository = address.split("/")
    rows: list[ImportedRow] = []
    for suite, runs in document["entries"].items():
        for run in runs:
            rows.extend(_data_js_rows(suite, run))
    commits = {row.commit for row in rows}
    commit = ImportedCommit()
    # a file of many commits has one for each row
    if len(commits) == 1 and rows[0].commit is not None:
        commit = rows[0].commit
    return ImportedRun(
        tool="github-action-benchmark",
        rows=tuple(rows),
        commit=commit,
        project="/".join(repository[-2:]) if len(repository) > 2 else None,
    )


def _data_js_rows(suite: str, run: Json) -> Iterator[ImportedRow]:
    tool = run["tool"]
    described = run["commit"]
    measured_at = run["date"] / 1e3
    commit = ImportedCommit(
        sha=described["id"],
        committed_at=seconds_of(described.get("timestamp")) or measured_at,
        measured_at=measured_at,
        author=str((described.get("author") or {}).get("name") or ""),
        subject=next(iter(str(described.get("message") or "").splitlines()), ""),
    )
    for bench in run["benches"]:
        # older versions keep all that a line of Go's output holds behind the first unit
        unit = str(bench.get("unit") or "").partition("\t")[0].strip()
        value = number_of(bench["value"])
        message = None
        if value is None:
            message = f"its value is {json.dumps(bench['value'])[:100]}"
        yield ImportedRow(
            case=bench["name"],
            metric="value",
            value=value,
            unit=unit,
            better=_data_js_better(tool, unit),
            parameters={"suite": suite},
            outcome=Outcome.CRASHED if value is None else Outcome.OK,
            message=message,
            implementation=tool,
            commit=commit,
        )


def _data_js_better(tool: str, unit: str) -> Better:
    # Go's rate, which the action takes for a cost.
    if (tool, unit) == ("go", "MB/s") or tool in _HIGHER_TOOLS:
        return HIGHER
    if tool in _LOWER_TOOLS:
        return LOWER
    return UNKNOWN


HISTORIES = {
    "github-action-benchmark": _DataJs(_data_js, _is_data_js),
    "asv": JsonImporter(_asv, _is_asv),
}

"""Files that hold results of many commits: asv, and the `data.js` of github-action-benchmark."""

import json
import math
from collections.abc import Iterator, Mapping
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
_ASV_STATISTICS = ("ci_99_a", "ci_99_b", "q_25", "q_75")
_ASV_COUNTS = ("number", "repeat")


def _asv(document: Json, path: Path) -> ImportedRun:
    if "results" not in document:
        raise FileImportError(
            f"{path}: describes benchmarks of asv; import its folder, or the files of results"
        )
    index, parameters = _asv_index(path, document["results"]), document.get("params") or {}
    machine = [parameters.get("machine"), parameters.get("cpu")]
    return ImportedRun(
        tool="asv",
        tool_version=f"results version {document['version']}",
        rows=tuple(
            row
            for name in document["results"]
            for row in _asv_rows(name, document, index.get(name) or {})
        ),
        commit=ImportedCommit(sha=document["commit_hash"], committed_at=document["date"] / 1e3),
        device=", ".join(str(part) for part in machine if part) or None,
    )


def _asv_index(path: Path, results: Json) -> Json:
    """What `benchmarks.json` beside or above the results says of units and parameters; empty
    without one.
    """
    beside = sorted(path.parent.glob("*benchmarks.json"))
    for place in (path.parent / "benchmarks.json", path.parent.parent / "benchmarks.json", *beside):
        if place.is_file():
            index = parse_json(read_bytes(place), place)
            if isinstance(index, dict) and not results.keys().isdisjoint(index):
                return index
    return {}


def _asv_rows(name: str, document: Json, known: Json) -> Iterator[ImportedRow]:
    stored = document["results"][name]
    if isinstance(stored, list):  # version 2: columns
        found = dict(zip(document["result_columns"], stored, strict=False))
    else:
        found = dict(stored) if isinstance(stored, Mapping) else {"result": [stored]}
        if not isinstance(found.get("result"), list):
            found["result"] = [found.get("result")]
        for at, statistics in enumerate(found.get("stats") or []):
            for key, value in (statistics or {}).items():
                pair = (
                    {"ci_99_a": value[0], "ci_99_b": value[1]} if key == "ci_99" else {key: value}
                )
                for part, number in pair.items():
                    found.setdefault(f"stats_{part}", [None] * len(found["result"]))[at] = number
    points = list(product(*(found.get("params") or [])))
    results = found.get("result") or [None] * len(points)  # null if the benchmark failed as a whole
    if len(results) != len(points):
        raise ValueError(
            f"{name}: {len(results)} results of {len(points)} combinations of parameters"
        )
    prefix = name.rsplit(".", 1)[-1].split("_", 1)[0]
    type_, unit, better = _ASV_TYPES.get(prefix, ("value", "", UNKNOWN))
    type_, unit = known.get("type") or type_, known.get("unit") or unit
    better = _ASV_BETTER.get(type_, UNKNOWN)
    version = found.get("version") or (document.get("benchmark_version") or {}).get(name)
    names = known.get("param_names") or []
    for at, (point, result) in enumerate(zip(points, results, strict=True)):
        shared: dict[str, Any] = {
            "parameters": {
                names[n] if n < len(names) else f"param{n + 1}": value
                for n, value in enumerate(point)
            },
            "implementation": str(document.get("env_name") or ""),
            "definition": "" if version is None else f"version {str(version)[:12]}",
        }
        own = {
            key: values[at]
            for key, values in found.items()
            if isinstance(values, list) and at < len(values)
        }
        if result is None:
            shared |= {"outcome": Outcome.CRASHED, "message": "asv recorded a failure"}
        elif math.isnan(result):
            shared |= {"outcome": Outcome.UNSUPPORTED, "message": "asv skipped it"}
        statistic = "median" if type_ == "time" else "value"
        count = len(numbers_of(own.get("samples"))) or own.get("stats_repeat")
        yield ImportedRow(
            name, type_, number_of(result), unit, better, statistic, sample_count=count, **shared
        )
        meanings = {f"stats_{key}": Meaning(type_, unit, better, key) for key in _ASV_STATISTICS}
        meanings |= {f"stats_{key}": Meaning(key, "count") for key in _ASV_COUNTS}
        yield from rows_of(own, meanings.get, case=name, **shared)
        yield from samples_of(own.get("samples"), Meaning(type_, unit, better), case=name, **shared)


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
            document = (
                document.removeprefix(_ASSIGNMENT)
                .lstrip()
                .removeprefix(b"=")
                .rstrip()
                .removesuffix(b";")
            )
        return self.parse(parse_json(document, path), path)


def _is_data_js(head: bytes, _name: str) -> bool:
    return head.lstrip().startswith(_ASSIGNMENT) or (
        b'"lastUpdate"' in head and b'"entries"' in head
    )


def _data_js(document: Json, _path: Path) -> ImportedRun:
    repository = str(document.get("repoUrl") or "").removesuffix(".git").rstrip("/").split("/")
    rows = [
        row
        for suite, runs in document["entries"].items()
        for run in runs
        for row in _data_js_rows(suite, run)
    ]
    commits = {row.commit for row in rows}
    return ImportedRun(
        tool="github-action-benchmark",
        rows=tuple(rows),
        commit=rows[0].commit or ImportedCommit() if len(commits) == 1 else ImportedCommit(),
        project="/".join(repository[-2:]) if len(repository) > 2 else None,
    )


def _data_js_rows(suite: str, run: Json) -> Iterator[ImportedRow]:
    tool, found = run["tool"], run["commit"]
    commit = ImportedCommit(
        sha=found["id"],
        committed_at=seconds_of(found.get("timestamp")) or run["date"] / 1e3,
        measured_at=run["date"] / 1e3,
        author=str((found.get("author") or {}).get("name") or ""),
        subject=next(iter(str(found.get("message") or "").splitlines()), ""),
    )
    better = HIGHER if tool in _HIGHER_TOOLS else LOWER if tool in _LOWER_TOOLS else UNKNOWN
    for bench in run["benches"]:
        # older versions keep all that a line of Go's output holds behind the first unit
        unit = str(bench.get("unit") or "").partition("\t")[0].strip()
        value = number_of(bench["value"])
        yield ImportedRow(
            case=bench["name"],
            metric="value",
            value=value,
            unit=unit,
            better=HIGHER
            if (tool, unit) == ("go", "MB/s")
            else better,  # Go's rate; the action takes it for a cost
            parameters={"suite": suite},
            outcome=Outcome.CRASHED if value is None else Outcome.OK,
            message=None
            if value is not None
            else f"its value is {json.dumps(bench['value'])[:100]}",
            implementation=tool,
            commit=commit,
        )


HISTORIES = {
    "github-action-benchmark": _DataJs(_data_js, _is_data_js),
    "asv": JsonImporter(_asv, _is_asv),
}

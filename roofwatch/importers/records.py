"""Which importer reads a file, imported files as records,
and the mapping that `--dry-run` prints.
"""

import hashlib
import json
import re
import statistics
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from importlib.metadata import entry_points
from itertools import groupby
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from rich.table import Table

from roofwatch.collector.git import find_repository, project_of, read_commit
from roofwatch.importers import (
    FileImportError,
    ImportedCommit,
    ImportedRow,
    ImportedRun,
    Importer,
    read_bytes,
)
from roofwatch.importers.histories import HISTORIES
from roofwatch.importers.kernels import KERNELS
from roofwatch.importers.presets import PRESETS
from roofwatch.importers.programs import PROGRAMS
from roofwatch.importers.ratios import ratios_to_libraries
from roofwatch.importers.serving import SERVING
from roofwatch.importers.table_map import TableMap
from roofwatch.importers.tables import TableImporter
from roofwatch.model.errors import GitError
from roofwatch.model.machine import Environment, Outcome
from roofwatch.model.measurement import CaseRecord
from roofwatch.model.metrics import Better
from roofwatch.model.record import Commit, RunRecord, utc_now
from roofwatch.model.results import ImportedValue
from roofwatch.terminal import make_table

MAX_VALUES = 2_000_000
_HEAD_BYTES = 2**16
_GROUP = "roofwatch.importers"


def importers() -> dict[str, Importer]:
    """All importers by format, those of other packages first; of those equally likely, the first
    reads a file.
    """
    plug_ins = {point.name: point.load() for point in entry_points(group=_GROUP)}
    return {**plug_ins, **HISTORIES, **KERNELS, **SERVING, **PROGRAMS, **PRESETS}


def import_file(
    path: Path,
    format_name: str | None = None,
    *,
    table: TableMap | None = None,
    presets: Mapping[str, TableMap] | None = None,
) -> tuple[str, ImportedRun]:
    """Read a file by the importer that recognises it, or by the named one; returns the format's
    name too.

    Args:
        path: The file.
        format_name: `table` reads the columns that `table` maps.
        table: Map of the columns.
        presets: Further maps by format.

    Raises:
        FileImportError: no importer knows the file, or it is damaged.
    """
    known = importers()
    for preset, columns in (presets or {}).items():
        known[preset] = TableImporter(columns, preset)
    if table is not None:
        known["table"] = TableImporter(table, "table")
    name = format_name or _recognised(path, known)
    if name not in known:
        what = (
            f"{path}: of no known format; name it with --as"
            if name is None
            else f"--as {name}: unknown; choose one"
        )
        raise FileImportError(f"{what}: {', '.join(known)}")
    try:
        run = known[name].read(path)
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError) as error:
        kind = type(error).__name__
        raise FileImportError(
            f"{path}: not a complete {name} file ({kind}: {error}); copy it again"
        ) from None
    if not run.rows:
        raise FileImportError(f"{path}: the {name} file holds no results")
    if len(run.rows) > MAX_VALUES:
        raise FileImportError(
            f"{path}: {len(run.rows)} values; at most {MAX_VALUES} are imported from a file"
        )
    return name, replace(run, rows=tuple(_with_plausible_direction(row) for row in run.rows))


_RATE_UNIT = re.compile(
    r".*(/ ?(ns|us|µs|ms|s|sec|second|min|h)|per sec(ond)?|\bHz|flops)", re.IGNORECASE
)


def _with_plausible_direction(row: ImportedRow) -> ImportedRow:
    """The row; without a direction where tool and unit disagree, such as jmh's `ops/s`, for which
    a history says that lower is better.
    """
    is_wrong = row.better is Better.LOWER and _RATE_UNIT.fullmatch(row.unit)
    return replace(row, better=Better.UNKNOWN) if is_wrong else row


def with_controls(run: ImportedRun, patterns: Collection[str]) -> ImportedRun:
    """Mark the rows whose implementation matches a pattern as rows of a library."""
    rows = [
        replace(row, is_control=True)
        if any(fnmatchcase(row.implementation, pattern) for pattern in patterns)
        else row
        for row in run.rows
    ]
    return replace(run, rows=tuple(rows))


def known_files(paths: Sequence[Path]) -> Iterator[Path]:
    """The files, and those of each folder that an importer knows."""
    for path in paths:
        if not path.is_dir():
            yield path
            continue
        inside = [file for file in sorted(path.rglob("*")) if file.is_file() and _is_known(file)]
        if not inside:
            raise FileImportError(f"{path}: contains no file of a known format")
        yield from inside


def _is_known(path: Path) -> bool:
    return not path.name.endswith("benchmarks.json") and _recognised(path, importers()) is not None


def _recognised(path: Path, known: Mapping[str, Importer]) -> str | None:
    head = read_bytes(path)[:_HEAD_BYTES]
    certainties = {name: one.sniff(head, path.name) for name, one in known.items()}
    best = max(certainties, key=lambda name: certainties[name])
    return best if certainties[best] > 0 else None


_SHA = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")
_BACKWARD = re.compile(r"(?<![a-z])(backward|bwd)(?![a-z])", re.IGNORECASE)
_DTYPES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32", "fp64": "float64"}
_DTYPE = re.compile(
    rf"(?<![a-z0-9])({'|'.join(_DTYPES)}|bfloat16|float(?:16|32|64)|int8)(?![a-z0-9])",
    re.IGNORECASE,
)
_MAX_TEXT = 100
_MAX_NAME = 300


def turned(run: ImportedRun, given: Iterable[str]) -> ImportedRun:
    """Set the directions that a person gives, as `metric=lower` or `metric=higher`.

    Raises:
        FileImportError: one has another form, or the file has no such metric.
    """
    directions = {}
    for one in given:
        name, _, better = one.rpartition("=")
        if not name or better not in ("lower", "higher"):
            raise FileImportError(f"--direction {one}: write metric=lower or metric=higher")
        directions[name] = Better(better)
    unknown = directions.keys() - {row.metric for row in run.rows}
    if unknown:
        known = ", ".join(sorted({row.metric for row in run.rows})[:50])
        raise FileImportError(f"--direction {min(unknown)}: no such metric; the file has {known}")
    return replace(
        run,
        rows=tuple(replace(row, better=directions.get(row.metric, row.better)) for row in run.rows),
    )


def mapping(format_name: str, run: ImportedRun) -> dict[str, Any]:
    """What `--dry-run --json` prints: one row for every number."""
    return {
        "format": format_name,
        "tool_version": run.tool_version,
        "commit": run.commit.sha,
        "dirty": run.commit.is_dirty,
        "rows": [
            {
                "case": row.case,
                "parameters": _parameters(row),
                "metric": row.metric,
                "unit": row.unit,
                "direction": row.better,
                "statistic": row.statistic,
                "value": row.value,
                "sample_count": row.sample_count,
                "outcome": row.outcome,
            }
            for row in run.rows
        ],
    }


def mapping_table(file: Path, format_name: str, run: ImportedRun) -> Table:
    """One row per number; samples of one kind share a row."""
    rows = []
    for _, group in groupby(
        run.rows, lambda row: (row.case, dict(row.parameters), row.metric, row.unit, row.statistic)
    ):
        first, *others = own = list(group)
        listed = " ".join(f"{key}={value}" for key, value in first.parameters.items())
        shown = (
            f"{len(own)} values" if others else "" if first.value is None else f"{first.value:g}"
        )
        outcomes = " ".join(dict.fromkeys(str(row.outcome) for row in own))
        rows.append(
            (
                first.case,
                listed,
                first.metric,
                first.statistic,
                shown,
                first.unit,
                str(first.better),
                outcomes,
            )
        )
    commit = f"commit {run.commit.sha or 'not named'}{', dirty' if run.commit.is_dirty else ''}"
    title = (
        f"{file}: {format_name} ({run.tool} {run.tool_version or 'of unknown version'}), {commit}"
    )
    columns = ("case", "parameters", "metric", "statistic", "value", "unit", "better", "outcome")
    return make_table(columns, rows, title=title)


def _parameters(row: ImportedRow) -> dict[str, Any]:
    """The parameters, and what else tells the row from others."""
    others = {
        "implementation": row.implementation,
        "definition": row.definition,
        "commit": row.commit and row.commit.sha,
    }
    return {**row.parameters, **{name: value for name, value in others.items() if value}}


def to_records(
    run: ImportedRun, path: Path, *, project: str | None, revision: str | None, folder: Path
) -> Iterator[RunRecord]:
    """Turn a file into records, one for each commit and time. Equal content gives equal records.

    A project or revision is used in place of what the file names. The repository around the folder
    knows the order and dates of the commits; it may lack them.

    Raises:
        FileImportError: the commit or the project is not known.
    """
    repository = find_repository(folder)
    name = project or _project(run, path, repository)
    groups: dict[ImportedCommit, list[ImportedRow]] = defaultdict(list)
    for row in run.rows:
        groups[row.commit or run.commit].append(row)
    if revision is not None and len(groups) > 1:
        raise FileImportError(
            f"{path}: has results of {len(groups)} commits, so --commit cannot name one"
        )
    commits = _commits(groups, path, revision, repository)
    for told, rows in groups.items():
        commit = commits[told]
        measured_at = (
            told.measured_at if told.measured_at is not None else commit.committed_at.timestamp()
        )
        started_at = datetime.fromtimestamp(measured_at, UTC)
        cases, values = _results(rows, run.tool)
        record = RunRecord(
            run_id=uuid5(NAMESPACE_URL, "roofwatch"),
            project=name,
            commit=commit,
            started_at=started_at,
            finished_at=started_at,
            harness_version=_shortened(
                f"{run.tool} {run.tool_version or 'of unknown version'}", _MAX_NAME
            ),
            environment=_environment(run),
            cases=cases,
            imported=values,
        )
        yield record.model_copy(update={"run_id": uuid5(NAMESPACE_URL, record.content_hash)})


def _project(run: ImportedRun, path: Path, repository: Path | None) -> str:
    named = re.sub(r"[^\w./-]", "-", run.project or "").lstrip("-./")[:200]
    if not named and repository is None:
        raise FileImportError(
            f"{path}: names no project, and there is no repository here; name it with --project"
        )
    return named or project_of(repository or path)


def _commits(
    told: Iterable[ImportedCommit], path: Path, revision: str | None, repository: Path | None
) -> dict[ImportedCommit, Commit]:
    """The commits as git knows them. If it lacks any, as the file tells them all, in the order of
    their times.
    """
    wanted = {one: revision or one.sha for one in told}
    if None in wanted.values():
        raise FileImportError(
            f"{path}: names no commit; name it with --commit, or look at the file with --dry-run"
        )
    try:
        if repository is not None:
            # the work tree says nothing of what was measured earlier
            return {
                one: read_commit(repository, sha or "").model_copy(
                    update={"is_dirty": one.is_dirty, "branch": one.branch}
                )
                for one, sha in wanted.items()
            }
    except GitError:
        if revision is not None and not _SHA.fullmatch(revision):
            raise
    return {one: _by_time(one, sha or "", path) for one, sha in wanted.items()}


def _by_time(told: ImportedCommit, sha: str, path: Path) -> Commit:
    if not _SHA.fullmatch(sha):
        raise FileImportError(
            f"{path}: {sha[:50]!r} is no full sha, and no repository here knows it; use --commit"
        )
    time = told.committed_at if told.committed_at is not None else told.measured_at
    committed_at = datetime.fromtimestamp(time, UTC) if time is not None else utc_now()
    return Commit(
        sha=sha,
        first_parent_count=(
            max(0, int(committed_at.timestamp())) if told.place is None else told.place
        ),
        committed_at=committed_at,
        author=told.author[:500],
        subject=told.subject[:1_000],
        branch=told.branch,
        is_dirty=told.is_dirty,
    )


def _environment(run: ImportedRun) -> Environment:
    return Environment(
        device_kind="unknown",
        device_name=_shortened(run.device or "unknown device", _MAX_NAME),
        imported_from=run.tool,
        **dict.fromkeys(("cpu_name", "os", "python_version", "torch_version"), "unknown"),
        **dict.fromkeys(("device_memory_bytes", "core_count", "thread_count")),
    )


def _results(
    rows: Iterable[ImportedRow], tool: str
) -> tuple[tuple[CaseRecord, ...], tuple[ImportedValue, ...]]:
    """Cases and values, with ratios to libraries. Several numbers under one name, such as samples,
    become their median and quartiles.
    """
    cases: dict[str, CaseRecord] = {}
    groups: dict[tuple[Any, ...], list[ImportedRow]] = defaultdict(list)
    for row in rows:
        case = _case(row)
        cases[case.case_id] = case
        implementation = (row.implementation or tool) + (
            f" ({row.definition})" if row.definition else ""
        )
        key = (
            case.case_id,
            _shortened(implementation, _MAX_NAME),
            *map(_label, (row.metric, row.statistic, row.unit)),
        )
        groups[*key, row.better].append(row)
    names = ("case_id", "implementation", "metric", "statistic", "unit", "better")
    values = tuple(
        ImportedValue(
            **dict(zip(names, key, strict=True)),
            **_summary(own),
            is_control=own[0].is_control,
            code_hash=own[0].code_hash,
        )
        for key, own in groups.items()
    )
    return tuple(cases.values()), (*values, *ratios_to_libraries(values))


def _label(text: str) -> str:
    """Part of a metric's name; tags are made harmless."""
    return _shortened(text.replace("<", "‹").replace(">", "›"), _MAX_NAME)


def _summary(rows: Sequence[ImportedRow]) -> dict[str, Any]:
    good = [row.value for row in rows if row.outcome is Outcome.OK and row.value is not None]
    if not good:
        failed = next((row for row in rows if row.outcome is not Outcome.OK), rows[0])
        return {"outcome": failed.outcome, "message": (failed.message or "")[:4_000] or None}
    if len(good) == 1:
        count = rows[0].sample_count
        return {
            "outcome": Outcome.OK,
            "value": good[0],
            "low": rows[0].low,
            "high": rows[0].high,
            "sample_count": count if isinstance(count, int) else None,
        }
    low, middle, high = statistics.quantiles(good, n=4, method="inclusive")
    return {
        "outcome": Outcome.OK,
        "value": middle,
        "low": low,
        "high": high,
        "sample_count": len(good),
    }


def _case(row: ImportedRow) -> CaseRecord:
    kernel = _shortened(row.case.replace("/", ".") or "unnamed", _MAX_TEXT)
    shape = {
        _shortened(str(key), 50): _length(value)
        for key, value in row.parameters.items()
        if str(key)
    }
    listed = ",".join(f"{key}={value}" for key, value in shape.items())
    return CaseRecord(
        case_id=_shortened(f"{kernel}/{listed}" if listed else kernel, _MAX_NAME),
        kernel=kernel,
        family="imported",
        shape=shape,
        dtype=_dtype(row) or "unknown",
        direction="bwd" if _BACKWARD.search(row.case) else "fwd",
        flop_count=0,
        memory_bytes=0,
    )


def _dtype(row: ImportedRow) -> str | None:
    """The only type of numbers in a case's name and parameters."""
    text = f"{row.case} {json.dumps(dict(row.parameters), default=str)}"
    found = {match.lower() for match in _DTYPE.findall(text)}
    return _DTYPES.get(*found, *found) if len(found) == 1 else None


def _length(value: object) -> int | str:
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63:
        return value
    return _shortened(str(value), _MAX_TEXT) or "(empty)"


def _shortened(text: str, length: int) -> str:
    """The text on one line; the end of a longer one gives way to a hash of it."""
    line = " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())
    if len(line) <= length:
        return line
    return f"{line[: length - 9]}…{hashlib.sha256(line.encode()).hexdigest()[:8]}"

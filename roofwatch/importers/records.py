"""Imported files as records: one for each commit, device and time."""

import hashlib
import json
import re
import statistics
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from roofwatch.collector.git import find_repository, project_of
from roofwatch.importers import FileImportError, ImportedCommit, ImportedRow, ImportedRun
from roofwatch.importers.git_history import read_commits
from roofwatch.importers.ratios import judge_middles, ratios_to_libraries
from roofwatch.model.errors import GitError
from roofwatch.model.machine import Environment, Outcome
from roofwatch.model.measurement import CaseRecord
from roofwatch.model.metrics import Better
from roofwatch.model.record import Commit, RunRecord, utc_now
from roofwatch.model.results import ImportedValue

_SHA = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")
_BACKWARD = re.compile(r"(?<![a-z])(backward|bwd)(?![a-z])", re.IGNORECASE)
_DTYPES = {
    "bf16": "bfloat16",
    "fp16": "float16",
    "fp32": "float32",
    "fp64": "float64",
}
_DTYPE = re.compile(
    rf"(?<![a-z0-9])({'|'.join(_DTYPES)}|bfloat16|float(?:16|32|64)|int8)(?![a-z0-9])",
    re.IGNORECASE,
)
_MAX_TEXT = 100
_MAX_NAME = 300
_MAX_MESSAGE = 4_000
"""Limits of the record; what is longer ends with a digest."""
_ValueKey = tuple[str, str, str, str, str, Better]
"""Case id, implementation, metric, statistic, unit and direction."""


def to_records(
    run: ImportedRun,
    path: Path,
    *,
    project: str | None,
    revision: str | None,
    folder: Path,
) -> Iterator[RunRecord]:
    """Turn a file into records, one for each commit, device and time. Equal content gives equal
    records.

    A project or revision is used in place of what the file names. The repository around the folder
    knows the order and dates of the commits; it may lack them.

    Raises:
        FileImportError: the commit or the project is not known.
    """
    repository = find_repository(folder)
    project_name = project or _project(run, path, repository)
    groups: dict[tuple[ImportedCommit, str], list[ImportedRow]] = defaultdict(list)
    for row in run.rows:
        groups[row.commit or run.commit, row.device or run.device or ""].append(row)
    measured_commits = list(dict.fromkeys(commit for commit, _ in groups))
    if revision is not None and len(measured_commits) > 1:
        raise FileImportError(
            f"{path}: has results of {len(measured_commits)} commits, so --commit cannot name one"
        )
    commits = _commits(measured_commits, path, revision, repository)
    for (measured_commit, device), rows in groups.items():
        commit = commits[measured_commit]
        measured_at = measured_commit.measured_at
        # A file without a time of its own: the commit's places it in the history.
        if measured_at is None:
            measured_at = commit.committed_at.timestamp()
        yield _record(run, rows, commit, project_name, device=device, measured_at=measured_at)


def _record(
    run: ImportedRun,
    rows: Sequence[ImportedRow],
    commit: Commit,
    project: str,
    *,
    device: str,
    measured_at: float,
) -> RunRecord:
    started_at = datetime.fromtimestamp(measured_at, UTC)
    cases, values = _results(rows, run.tool)
    version = run.tool_version or "of unknown version"
    # Equal content gets an equal ID, so that importing a file twice changes nothing.
    record = RunRecord(
        run_id=uuid5(NAMESPACE_URL, "roofwatch"),
        project=project,
        commit=commit,
        started_at=started_at,
        finished_at=started_at,
        harness_version=_shortened(f"{run.tool} {version}", _MAX_NAME),
        environment=_environment(run, device),
        cases=cases,
        imported=values,
    )
    return record.model_copy(update={"run_id": uuid5(NAMESPACE_URL, record.content_hash)})


def _project(run: ImportedRun, path: Path, repository: Path | None) -> str:
    # The name of a project is part of addresses.
    from_file = re.sub(r"[^\w./-]", "-", run.project or "").lstrip("-./")[:200]
    if from_file:
        return from_file
    if repository is None:
        raise FileImportError(
            f"{path}: names no project, and there is no repository here; name it with --project"
        )
    return project_of(repository)


# --- commits


def _commits(
    measured_commits: Collection[ImportedCommit],
    path: Path,
    revision: str | None,
    repository: Path | None,
) -> dict[ImportedCommit, Commit]:
    """Read the commits from git. If it lacks any, take what the file says of them, in the order of
    their times.
    """
    revisions = {commit: revision or commit.sha for commit in measured_commits}
    names = {name for name in revisions.values() if name is not None}
    if None in revisions.values():
        raise FileImportError(
            f"{path}: names no commit; name it with --commit, or look at the file with --dry-run"
        )
    if repository is not None:
        try:
            from_git = read_commits(repository, names)
        except GitError:
            # A shallow clone lacks commits that the file names in full.
            if revision is not None and not _SHA.fullmatch(revision):
                raise
        else:
            return {
                commit: _as_measured(from_git[name or ""], commit)
                for commit, name in revisions.items()
            }
    has_order = len(names) == 1 or all(_has_order(commit) for commit in measured_commits)
    if not has_order:
        raise FileImportError(
            f"{path}: has no times for its {len(names)} commits, so their order is not known; "
            f"name the repository with --repository, or a list with --commits"
        )
    return {
        commit: _by_time(commit, name or "", path, has_repository=repository is not None)
        for commit, name in revisions.items()
    }


def _as_measured(commit: Commit, measured_commit: ImportedCommit) -> Commit:
    """Return a commit of git as it was measured: the work tree says nothing of earlier runs."""
    return commit.model_copy(
        update={"is_dirty": measured_commit.is_dirty, "branch": measured_commit.branch}
    )


def _has_order(commit: ImportedCommit) -> bool:
    return _time_of(commit) is not None or commit.position is not None


def _time_of(commit: ImportedCommit) -> float | None:
    # The clock of the measurement orders commits as well, if none was amended or rebased later.
    if commit.committed_at is not None:
        return commit.committed_at
    return commit.measured_at


def _by_time(
    commit: ImportedCommit,
    sha: str,
    path: Path,
    *,
    has_repository: bool,
) -> Commit:
    if not _SHA.fullmatch(sha):
        where = "no repository is here"
        if has_repository:
            where = "the repository does not have it"
        raise FileImportError(
            f"{path}: {sha[:50]!r} is no full SHA, and {where}; name the repository with "
            f"--repository, a list of commits with --commits, or the commit with --commit"
        )
    time = _time_of(commit)
    if time is not None:
        committed_at = datetime.fromtimestamp(time, UTC)
    else:
        committed_at = utc_now()
    position = commit.position
    if position is None:
        # The order of a history is that of its positions: seconds serve as well.
        position = max(0, int(committed_at.timestamp()))
    return Commit(
        sha=sha,
        first_parent_count=position,
        committed_at=committed_at,
        author=commit.author[:500],
        subject=commit.subject[:1_000],
        branch=commit.branch,
        is_dirty=commit.is_dirty,
    )


def _environment(run: ImportedRun, device: str) -> Environment:
    versions = {
        field: _shortened(text, _MAX_TEXT) for field, text in run.environment.items() if text
    }
    return Environment(
        device_kind="unknown",
        device_name=_shortened(device or "unknown device", _MAX_NAME),
        device_memory_bytes=None,
        driver_version=versions.get("driver_version"),
        cpu_name="unknown",
        core_count=None,
        thread_count=None,
        os="unknown",
        python_version="unknown",
        torch_version=versions.get("torch_version", "unknown"),
        triton_version=versions.get("triton_version"),
        cuda_version=versions.get("cuda_version"),
        imported_from=run.tool,
    )


# --- cases and values


def _results(
    rows: Iterable[ImportedRow], tool: str
) -> tuple[tuple[CaseRecord, ...], tuple[ImportedValue, ...]]:
    """Make cases and values, with ratios to libraries. Several numbers under one name, such as
    samples, become their median and quartiles.
    """
    cases: dict[str, CaseRecord] = {}
    case_of_key: dict[tuple[str, str], CaseRecord] = {}
    groups: dict[_ValueKey, list[ImportedRow]] = defaultdict(list)
    for row in rows:
        # Rows of a case differ in metric and implementation only.
        case_key = (row.case, repr(row.parameters))
        if case_key not in case_of_key:
            case = _case(row)
            case_of_key[case_key] = case
            cases[case.case_id] = case
        case_id = case_of_key[case_key].case_id
        groups[_value_key(row, case_id, tool)].append(row)
    values = judge_middles(_value(key, rows_of_key) for key, rows_of_key in groups.items())
    return tuple(cases.values()), (*values, *ratios_to_libraries(values))


def _value_key(row: ImportedRow, case_id: str, tool: str) -> _ValueKey:
    implementation = row.implementation or tool
    # Values of two definitions of a benchmark are two series.
    if row.definition:
        implementation += f" ({row.definition})"
    return (
        case_id,
        _shortened(implementation, _MAX_NAME),
        _label(row.metric),
        _label(row.statistic),
        _label(row.unit),
        row.better,
    )


def _value(key: _ValueKey, rows: Sequence[ImportedRow]) -> ImportedValue:
    case_id, implementation, metric, statistic, unit, better = key
    return ImportedValue(
        case_id=case_id,
        implementation=implementation,
        metric=metric,
        statistic=statistic,
        unit=unit,
        better=better,
        is_control=rows[0].is_control,
        code_hash=rows[0].code_hash,
        **_summary(rows),
    )


def _label(text: str) -> str:
    # Names are shown in Markdown and HTML.
    """Return part of a metric's name; tags are made harmless."""
    return _shortened(text.replace("<", "‹").replace(">", "›"), _MAX_NAME)


def _summary(rows: Sequence[ImportedRow]) -> dict[str, Any]:
    good_rows = [row for row in rows if row.outcome is Outcome.OK]
    numbers = [row.value for row in good_rows if row.value is not None]
    if not numbers:
        # A failure is shown only if nothing worked.
        failed = next((row for row in rows if row.outcome is not Outcome.OK), rows[0])
        message = (failed.message or "")[:_MAX_MESSAGE]
        return {"outcome": failed.outcome, "message": message or None}
    if len(numbers) == 1:
        count = rows[0].sample_count
        return {
            "outcome": Outcome.OK,
            "value": numbers[0],
            "low": rows[0].low,
            "high": rows[0].high,
            "sample_count": count if isinstance(count, int) else None,
        }
    # Several numbers of one name are its samples.
    low, middle, high = statistics.quantiles(numbers, n=4, method="inclusive")
    return {
        "outcome": Outcome.OK,
        "value": middle,
        "low": low,
        "high": high,
        "sample_count": len(numbers),
    }


def _case(row: ImportedRow) -> CaseRecord:
    # A slash separates the parts of a case ID.
    kernel = _shortened(row.case.replace("/", ".") or "unnamed", _MAX_TEXT)
    shape = _shape(row.parameters)
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


def _shape(parameters: Mapping[str, Any]) -> dict[str, int | str]:
    shape: dict[str, int | str] = {}
    for key, value in parameters.items():
        if str(key):
            shape[_shortened(str(key), 50)] = _length(value)
    return shape


def _dtype(row: ImportedRow) -> str | None:
    """Find the only type of numbers in a case's name and parameters."""
    text = f"{row.case} {json.dumps(dict(row.parameters), default=str)}"
    names = {match[0].lower() for match in _DTYPE.finditer(text)}
    # Two types in one name may be those of operand and result.
    if len(names) != 1:
        return None
    (name,) = names
    return _DTYPES.get(name, name)


def _length(value: object) -> int | str:
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63:
        return value
    return _shortened(str(value), _MAX_TEXT) or "(empty)"


def _shortened(text: str, length: int) -> str:
    """Return the text on one line; the end of a longer one gives way to a hash of it."""
    line = text
    if not text.isprintable() or "  " in text or text != text.strip():
        # Control characters and line breaks have no place in a name.
        printable = "".join(letter if letter.isprintable() else " " for letter in text)
        line = " ".join(printable.split())
    if len(line) <= length:
        return line
    return f"{line[: length - 9]}…{hashlib.sha256(line.encode()).hexdigest()[:8]}"

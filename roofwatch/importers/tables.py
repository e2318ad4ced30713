"""Tables of results: CSV, JSON records and JSON lines, read by a map of their columns."""

import csv
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from roofwatch.importers import (
    UNKNOWN,
    FileImportError,
    ImportedCommit,
    ImportedRow,
    ImportedRun,
    number_of,
    parse_json,
    read_bytes,
    seconds_of,
)
from roofwatch.model.metrics import Better

_SHA = re.compile(r"[0-9a-f]{7,64}(?![0-9a-z])")
FOLDER = "folder"
"""In place of a column: the SHA that begins the name of the file's folder."""
_LIST_KEYS = frozenset({"case", "parameters"})
_WORD_KEYS = frozenset({"metric", "unit", "better"})
_COLUMN_KEYS = frozenset(
    {"value", "low", "high", "implementation", "commit", "measured", "device", "project"}
)


@dataclass(frozen=True)
class TableMap:
    """Which columns of a table mean what. A name that is no column is the value itself."""

    case: tuple[str, ...]
    value: str
    low: str | None = None
    high: str | None = None
    parameters: tuple[str, ...] = ()
    implementation: str | None = None
    metric: str = "value"
    unit: str = ""
    better: str = "unknown"
    commit: str | None = None
    measured: str | None = None
    device: str | None = None
    project: str | None = None

    @classmethod
    def parse(cls, words: Sequence[str]) -> "TableMap":
        """Read `case=kernel,mode value=p50 unit=ms better=lower commit=folder`.

        Raises:
            FileImportError: a word has another form, or `case` or `value` is missing.
        """
        fields: dict[str, Any] = {}
        for word in " ".join(words).split():
            key, _, text = word.partition("=")
            if key not in _LIST_KEYS | _WORD_KEYS | _COLUMN_KEYS or not text:
                known = ", ".join(sorted(_LIST_KEYS | _WORD_KEYS | _COLUMN_KEYS))
                raise FileImportError(f"--map {word}: write key=column with one of {known}")
            fields[key] = tuple(text.split(",")) if key in _LIST_KEYS else text
        missing = {"case", "value"} - fields.keys()
        if missing:
            raise FileImportError(f"--map: lacks {min(missing)}=COLUMN")
        return cls(**fields)


PRESETS: Mapping[str, TableMap] = {
    "liger": TableMap(
        case=("kernel_name", "kernel_operation_mode"),
        parameters=("x_name", "x_value", "extra_benchmark_config_str"),
        value="y_value_50",
        low="y_value_20",
        high="y_value_80",
        implementation="kernel_provider",
        metric="metric_name",
        unit="metric_unit",
        better="lower",
        commit=FOLDER,
        measured="timestamp",
        device="gpu_name",
    ),
}
"""Maps of the tables that projects publish."""


@dataclass(frozen=True)
class TableImporter:
    """Reads one kind of table."""

    columns: TableMap
    tool: str
    marks: tuple[bytes, ...] = ()
    """Words of the head of a file; none: the format is never recognised, only named."""

    def sniff(self, head: bytes, _name: str, /) -> float:
        return 0.9 if self.marks and all(mark in head for mark in self.marks) else 0.0

    def read(self, path: Path, /) -> ImportedRun:
        records = list(_records(path))
        if not records:
            raise FileImportError(f"{path}: the table has no rows")
        wanted = (*self.columns.case, self.columns.value)
        missing = [column for column in wanted if column not in records[0]]
        if missing:
            listed = ", ".join(records[0])
            raise FileImportError(f"{path}: has no column {missing[0]}; it has {listed}")
        devices = {self._text(self.columns.device, record, path) for record in records}
        rows = _one_time_per_commit(
            [self._row(record, path, len(devices) > 1) for record in records]
        )
        project = self._text(self.columns.project, records[0], path) or None
        return ImportedRun(
            tool=self.tool,
            rows=rows,
            project=project,
            device=devices.pop() or None if len(devices) == 1 else None,
        )

    def _text(self, column: str | None, record: Mapping[str, Any], path: Path) -> str:
        if column is None:
            return ""
        if column == FOLDER:
            name = path.resolve().parent.name
            sha = _SHA.match(name)  # the name may go on, for example with a version
            return name if sha is None else sha[0]
        value = record.get(column, column)
        return "" if value is None else str(value)

    def _row(self, record: Mapping[str, Any], path: Path, has_devices: bool) -> ImportedRow:
        columns = self.columns
        parameters = {name: record[name] for name in columns.parameters if record.get(name)}
        if has_devices:
            parameters["device"] = self._text(columns.device, record, path)
        better = self._text(columns.better, record, path).lower()
        if better not in set(Better):
            raise FileImportError(f"{path}: {better!r} is no direction; write lower or higher")
        measured = self._text(columns.measured, record, path)
        sha = self._text(columns.commit, record, path) or None
        value = number_of(record.get(columns.value))
        return ImportedRow(
            case=" ".join(self._text(name, record, path) for name in columns.case),
            metric=self._text(columns.metric, record, path),
            value=value,
            unit=self._text(columns.unit, record, path),
            better=Better(better) if value is not None else UNKNOWN,
            parameters=parameters,
            implementation=self._text(columns.implementation, record, path),
            commit=ImportedCommit(sha=sha, measured_at=number_of(measured) or seconds_of(measured)),
            low=None if columns.low is None else number_of(record.get(columns.low)),
            high=None if columns.high is None else number_of(record.get(columns.high)),
        )


def _one_time_per_commit(rows: Sequence[ImportedRow]) -> tuple[ImportedRow, ...]:
    """Give all rows of a commit its latest time, so that they are one run."""
    latest: dict[str | None, ImportedCommit] = {}
    for commit in (row.commit for row in rows):
        known = None if commit is None else latest.get(commit.sha)
        if commit is not None and (
            known is None or (commit.measured_at or 0) > (known.measured_at or 0)
        ):
            latest[commit.sha] = commit
    return tuple(
        row if row.commit is None else replace(row, commit=latest[row.commit.sha]) for row in rows
    )


def _records(path: Path) -> Iterator[Mapping[str, Any]]:
    document = read_bytes(path)
    if document.lstrip()[:1] in (b"[", b"{"):
        parsed = parse_json(document, path)
        entries = parsed if isinstance(parsed, list) else [parsed]
        for entry in entries:
            if not isinstance(entry, Mapping):
                raise FileImportError(f"{path}: is no list of JSON objects")
            yield entry
        return
    text = document.decode("utf-8-sig")
    yield from csv.DictReader(io.StringIO(text))


TABLES = {
    name: TableImporter(
        columns, name, tuple(part.encode() for part in (*columns.case, columns.value))
    )
    for name, columns in PRESETS.items()
}

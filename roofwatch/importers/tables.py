"""Tables of results: CSV, JSON records, JSON lines and XML, read by a map of their columns."""

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from roofwatch.collector.profiling.number_text import DecimalMark
from roofwatch.importers import (
    HIGHER,
    LOWER,
    UNKNOWN,
    FileImportError,
    ImportedCommit,
    ImportedRow,
    ImportedRun,
)
from roofwatch.importers.cells import Cell, mark_of, outcome_of, read_cell, seconds_of
from roofwatch.importers.table_header import TableHeader, ValueSource
from roofwatch.importers.table_map import AUTO, TableMap
from roofwatch.importers.table_rows import Record, read_table
from roofwatch.model.errors import ProfileError
from roofwatch.model.machine import Outcome
from roofwatch.model.metrics import Better

# Which way is better follows from names: tables seldom say it.
_TIME = re.compile(r"(n|u|µ|μ|m)?s(ec(onds)?)?|seconds?|latency|time", re.IGNORECASE)
_RATE = re.compile(r".*(/s|/sec|flop/?s|flops|speedup|throughput|bandwidth|per_sec)", re.IGNORECASE)
_MEMORY = re.compile(r"[KMGT]i?B|bytes", re.IGNORECASE)
_OF_SAMPLE = re.compile(
    r"(.*[_ ])?(id|index|idx|iteration|sample|rep(eat)?|trial|rank|timestamp|time|ts|date|seed)",
    re.IGNORECASE,
)
"""Columns that differ between the samples of one value."""
# Numbers with a fraction are measured, whole ones may be parameters.
_FRACTION = re.compile(r"[-+]?(\d+\.\d*|\.\d+|\d+[eE][-+]?\d+)([eE][-+]?\d+)?%?")
# Examples in a note; a table may have thousands.
_MAX_NAMED = 3


@dataclass(frozen=True)
class TableImporter:
    """Reads one kind of table."""

    columns: TableMap
    tool: str
    marks: tuple[bytes, ...] = ()
    """Words of the head of a file; none: the format is never recognised, only named."""
    name: re.Pattern[str] | None = None
    """What the file's name must be like, if the format needs it."""

    def sniff(self, head: bytes, name: str, /) -> float:
        if self.name is not None and self.name.search(name) is None:
            return 0.0
        if self.marks and all(mark in head for mark in self.marks):
            # A format that knows the file for certain answers 1.
            return 0.9
        return 0.0

    def read(self, path: Path, /) -> ImportedRun:
        table = read_table(path, self.columns)
        if not table.records:
            listed = "; ".join(table.notes)
            reason = f" ({listed})" if listed else ""
            raise FileImportError(f"{path}: the table has no rows{reason}")
        # Records of JSON differ in their keys: all of them, in their first order.
        names: dict[str, None] = {}
        for record in table.records:
            names.update(dict.fromkeys(record))
        # Only a preset is recognised.
        header = TableHeader(
            columns=self.columns,
            names=names,
            path=path,
            tool=self.tool if self.marks else "",
        )
        reader = _TableReader(
            columns=self.columns,
            header=header,
            records=table.records,
            path=path,
        )
        rows = reader.rows()
        devices = {row.device for row in rows}
        # Rows of several devices keep their own; the run has one or none.
        device = None
        if len(devices) == 1:
            device = devices.pop() or None
        project = header.source(self.columns.project, "project").text(table.records[0])
        return ImportedRun(
            tool=self.tool,
            rows=rows,
            project=project or None,
            device=device,
            environment=reader.environment(),
            notes=(*table.notes, *reader.notes()),
        )


class _TableReader:
    """Turns the records of one file into rows, and counts what it leaves out."""

    def __init__(
        self,
        columns: TableMap,
        header: TableHeader,
        records: Sequence[Record],
        path: Path,
    ) -> None:
        self._map = columns
        self._header = header
        self._records = records
        self._values = [
            source for source in header.values() if source.implementation not in columns.skip
        ]
        # A record that failed has no number: it counts for our value rather than for a rival's.
        own_values = [source for source in self._values if source.implementation in columns.own]
        self._first_value = (own_values or self._values)[0]
        self._cases = header.cases()
        self._parameters = header.parameters()
        self._implementation = header.source(columns.implementation, "implementation")
        self._commit = header.source(columns.commit, "commit")
        self._measured = header.source(columns.measured, "measured")
        self._run = header.source(columns.run, "run")
        self._device = header.source(columns.device, "device")
        self._unless = header.source(columns.unless, "unless")
        self._mark = self._decimal_mark(path)
        self._path = path
        self._omitted: dict[str, list[str]] = defaultdict(list)
        """Values that were left out, by reason."""
        self._units: dict[tuple[str, str, str], None] = {}

    def _decimal_mark(self, path: Path) -> DecimalMark:
        # One mark for the whole file: `1,5` alone could be either.
        columns = [source.column for source in self._values]
        texts = (record.get(column) for column in columns for record in self._records)
        try:
            return mark_of(texts, str(path))
        except ProfileError as error:
            raise FileImportError(str(error)) from None

    def rows(self) -> tuple[ImportedRow, ...]:
        rows: list[tuple[str, ImportedRow]] = []
        merged: dict[tuple[object, ...], list[Record]] = defaultdict(list)
        for number, record in enumerate(self._records, start=1):
            # The column of `unless` marks what its tool does not count, such as a warm-up.
            if self._unless.text(record):
                continue
            run = self._run.text(record)
            for row in self._rows_of(record, number):
                rows.append((run, row))
                identity = (run, *_identity(row))
                merged[identity].append(record)
        self._note_merged(merged.values())
        return _one_time_per_run(rows)

    def _rows_of(self, record: Record, number: int) -> Iterator[ImportedRow]:
        case_parts = [source.text(record) for source in self._cases]
        case = " ".join(filter(None, case_parts))
        if not case:
            self._omitted["without a name of the case"].append(f"row {number}")
            return
        implementation = self._implementation.text(record)
        commit = ImportedCommit(
            sha=self._commit.text(record).lower() or None,
            measured_at=seconds_of(self._measured.text(record)),
        )
        parameters: dict[str, Any] = {}
        for name in self._parameters:
            value = record.get(name)
            # A parameter that the case does not have is left empty.
            if value not in (None, "", []):
                parameters[name] = value
        for source in self._sources(record):
            name = source.implementation or implementation
            fields = self._fields(record, source, number)
            if fields is not None:
                yield ImportedRow(
                    case=case,
                    parameters=parameters,
                    implementation=name,
                    commit=commit,
                    device=self._device.text(record),
                    is_control=self._is_control(name),
                    **fields,
                )

    def _sources(self, record: Record) -> Iterator[ValueSource]:
        """List the numbers of a record. One that failed and has none still tells its first."""
        present = False
        for source in self._values:
            if source.column in record or source.is_computed:
                present = True
                yield source
        if not present:
            yield self._first_value

    def _is_control(self, implementation: str) -> bool:
        # The map may name our implementations; all others are then controls.
        if self._map.own and implementation:
            return implementation not in self._map.own
        return any(fnmatchcase(implementation, pattern) for pattern in self._map.controls)

    def _fields(self, record: Record, source: ValueSource, number: int) -> dict[str, Any] | None:
        """Read the fields of a row that are of one value; None if the record has none of it."""
        cell = self._cell(record, source.column)
        if cell.unreadable:
            example = f"{cell.unreadable[:50]!r} in row {number}"
            self._omitted[f"of {source.column} that are no numbers"].append(example)
            return None
        failure = _failure(record, source.status)
        if failure is None and cell.outcome is not None:
            # Some tools write `OOM` where the number would be.
            failure = (cell.outcome, f"{source.column} is {record.get(source.column)}")
        if failure is None and cell.number is None:
            return None
        metric = source.metric.text(record)
        unit = self._unit(record, source, cell)
        better = self._better(source.better.text(record).lower(), metric=metric, unit=unit)
        if failure is None and _is_placeholder(cell.number, unit):
            example = f"{cell.number:g} in row {number}"
            self._omitted[f"of {source.column} that no measurement gives"].append(example)
            return None
        outcome, message = failure or (Outcome.OK, None)
        low, high = self._spread(record, source, cell)
        return {
            "metric": metric,
            "unit": unit,
            "value": cell.number if failure is None else None,
            "better": better,
            "low": low,
            "high": high,
            "outcome": outcome,
            "message": message,
        }

    def _cell(self, record: Record, column: str) -> Cell:
        if column in record:
            return read_cell(record[column], self._mark)
        # A map may compute a value of two columns: `end-start`, `bytes/seconds`.
        for operator in ("-", "/"):
            first, _, second = column.partition(operator)
            left_cell = read_cell(record.get(first), self._mark)
            right_cell = read_cell(record.get(second), self._mark)
            if left_cell.number is None or right_cell.number is None:
                continue
            if operator == "-":
                return Cell(number=left_cell.number - right_cell.number)
            if right_cell.number:
                return Cell(number=left_cell.number / right_cell.number)
        return Cell()

    def _unit(self, record: Record, source: ValueSource, cell: Cell) -> str:
        """Take the unit of the cell, else of the header, else of the map."""
        mapped = source.unit.text(record)
        unit = cell.unit or source.unit_of_header or mapped
        if mapped and unit != mapped:
            self._units[source.column, unit, mapped] = None
        return unit

    def _spread(
        self,
        record: Record,
        source: ValueSource,
        cell: Cell,
    ) -> tuple[float | None, float | None]:
        if source.low is None or source.high is None or cell.number is None:
            return None, None
        low = read_cell(record.get(source.low), self._mark).number
        high = read_cell(record.get(source.high), self._mark).number
        # An interval that does not contain its value is of something else.
        if low is None or high is None or not low <= cell.number <= high:
            return None, None
        return low, high

    def _better(self, text: str, *, metric: str, unit: str) -> Better:
        if text == AUTO:
            return direction_of(metric, unit)
        if text not in set(Better):
            raise FileImportError(f"{self._path}: {text!r} is no direction; write lower or higher")
        return Better(text)

    def environment(self) -> Mapping[str, str]:
        """Read the versions that the file has, from its first record."""
        columns = self._map
        sources = {
            "driver_version": columns.driver,
            "torch_version": columns.torch,
            "triton_version": columns.triton,
            "cuda_version": columns.cuda,
        }
        versions: dict[str, str] = {}
        for field, name in sources.items():
            text = self._header.source(name, field).text(self._records[0])
            if text:
                versions[field] = text
        return versions

    # --- notes

    def _note_merged(self, groups: Collection[Sequence[Record]]) -> None:
        """Note the rows that the map does not tell apart, although another column does."""
        ignored = {source.column for source in self._values} | set(self._map.skip)
        # Only groups of several records are merged.
        columns: Counter[str] = Counter()
        count = 0
        for records in groups:
            if len(records) == 1:
                continue
            count += len(records)
            for name, value in records[0].items():
                if name in ignored or not _is_setting(name, value):
                    continue
                if any(record.get(name) != value for record in records):
                    columns[name] += 1
        self._merged_count = count
        self._merged_columns = [name for name, _ in columns.most_common(_MAX_NAMED)]

    def notes(self) -> tuple[str, ...]:
        """Say what was left out, and where the file and its map disagree."""
        notes: list[str] = []
        for reason, examples in self._omitted.items():
            if len(examples) == 1:
                values = "1 value"
            else:
                values = f"{len(examples)} values"
            listed = ", ".join(examples[:_MAX_NAMED])
            notes.append(f"omitted: {values} {reason}: {listed}")
        for column, unit, mapped in self._units:
            notes.append(f"{column} is in {unit}, as the file says, not in {mapped}")
        # rows that differ in a column nobody mapped may be other cases
        if self._merged_columns:
            listed = ", ".join(self._merged_columns)
            notes.append(
                f"{self._merged_count} rows share their case with others and are taken as samples "
                f"of one value, although they differ in {listed}"
            )
        return tuple(notes)


def _identity(row: ImportedRow) -> tuple[object, ...]:
    parameters = tuple((name, str(value)) for name, value in row.parameters.items())
    sha = None
    if row.commit is not None:
        sha = row.commit.sha
    return sha, row.device, row.case, parameters, row.implementation, row.metric, row.unit


def _is_setting(name: str, value: object) -> bool:
    """Whether a column may be a parameter: a name or a count, and no time or number of a sample."""
    if _OF_SAMPLE.fullmatch(name):
        return False
    # Counts are often parameters, and seldom results.
    if isinstance(value, bool | int):
        return True
    return isinstance(value, str) and _FRACTION.fullmatch(value) is None


def _failure(record: Record, status_column: str | None) -> tuple[Outcome, str] | None:
    """Read the failure that a record's status tells; None if it worked."""
    if status_column is None:
        return None
    value = record.get(status_column)
    text = "" if value is None else str(value).strip()
    if not text or outcome_of(text) is Outcome.OK:
        return None
    reason = str(record.get(f"{status_column}.message") or "").strip()
    outcome = outcome_of(text) or Outcome.CRASHED
    by_reason = outcome_of(reason)
    # `error` says less than its reason, such as `out of memory`.
    if outcome is Outcome.CRASHED and by_reason not in (None, Outcome.OK):
        outcome = by_reason or outcome
    message = f"its {status_column} is {text}"
    if reason:
        message += f": {reason}"
    return outcome, message[:1_000]


def _is_placeholder(number: float | None, unit: str) -> bool:
    """Whether a number stands for none: no time or rate is 0 or below, and no size below 0."""
    if number is None:
        return False
    # Tools write 0 or -1 where they could not measure.
    if _TIME.fullmatch(unit) or _RATE.fullmatch(unit):
        return number <= 0
    return number < 0 and _MEMORY.fullmatch(unit) is not None


def _one_time_per_run(rows: Sequence[tuple[str, ImportedRow]]) -> tuple[ImportedRow, ...]:
    """Give all rows of a run the latest of their times: a commit and a device are one run, unless
    a column tells several apart.
    """
    latest: dict[tuple[str | None, str, str], ImportedCommit] = {}
    for run, row in rows:
        commit = row.commit or ImportedCommit()
        previous = latest.get((commit.sha, run, row.device))
        # a run ends with its last value
        is_later = previous is None or (commit.measured_at or 0) > (previous.measured_at or 0)
        if is_later:
            latest[commit.sha, run, row.device] = commit
    with_time: list[ImportedRow] = []
    for run, row in rows:
        sha = None
        if row.commit is not None:
            sha = row.commit.sha
        with_time.append(replace(row, commit=latest[sha, run, row.device]))
    return tuple(with_time)


def direction_of(metric: str, unit: str) -> Better:
    """Tell the better direction by the names of a metric and its unit."""
    # Rates first: `tokens per second` contains the name of a time.
    if _RATE.fullmatch(unit) or _RATE.fullmatch(metric):
        return HIGHER
    if _TIME.fullmatch(unit) or _TIME.fullmatch(metric) or _MEMORY.fullmatch(unit):
        return LOWER
    return UNKNOWN

"""Tables of results: CSV, JSON records, JSON lines and XML, read by a map of their columns."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
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
    number_of,
    seconds_of,
)
from roofwatch.importers.table_map import (
    AUTO,
    FILE,
    FOLDER,
    OTHERS,
    WORD,
    TableMap,
    Value,
)
from roofwatch.importers.table_rows import Record, read_records
from roofwatch.model.machine import Outcome
from roofwatch.model.metrics import Better

_SHA = re.compile(r"[0-9a-f]{7,64}(?![0-9a-z])")
_TIME = re.compile(r"(n|u|µ|m)?s(ec(onds)?)?|seconds?|latency|time", re.IGNORECASE)
_RATE = re.compile(r".*(/s|/sec|flop/?s|flops|speedup|throughput|bandwidth|per_sec)", re.IGNORECASE)
_MEMORY = re.compile(r"[KMGT]i?B|bytes", re.IGNORECASE)


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
        return 0.9 if self.marks and all(mark in head for mark in self.marks) else 0.0

    def read(self, path: Path, /) -> ImportedRun:
        records = read_records(path, self.columns)
        if not records:
            raise FileImportError(f"{path}: the table has no rows")
        self._check_columns(records, path)
        if self.columns.unless is not None:
            records = [one for one in records if one.get(self.columns.unless) in (None, "")]
        devices = {self._text(self.columns.device, record, path) for record in records}
        rows: list[tuple[str, ImportedRow]] = []
        for record in records:
            run = self._text(self.columns.run, record, path)
            rows += [(run, row) for row in self._rows(record, path, has_devices=len(devices) > 1)]
        project = self._text(self.columns.project, records[0], path) if records else ""
        return ImportedRun(
            tool=self.tool,
            rows=_one_time_per_run(rows),
            project=project or None,
            device=devices.pop() or None if len(devices) == 1 else None,
        )

    def _check_columns(self, records: Sequence[Record], path: Path) -> None:
        """Refuse a file without the columns of the case, and without any value."""
        known = dict.fromkeys(column for record in records for column in record)
        columns = [
            column for value in self.columns.values for _, column, _ in value.implementations(known)
        ]
        has_value = any(_is_known(column, known) for column in columns)
        missing = [name for name in self.columns.case if name not in (FILE, FOLDER, *known)]
        # a case may have words that are no columns
        missing = missing if len(missing) == len(self.columns.case) else []
        if not has_value:
            missing.append(self.columns.value[0])
        if missing and FILE not in missing:
            listed = ", ".join(list(known)[:50])
            raise FileImportError(f"{path}: has no column {missing[0]}; it has {listed}")

    def _text(self, column: str | None, record: Record, path: Path) -> str:
        if column is None:
            return ""
        if column == FOLDER:
            name = path.resolve().parent.name
            sha = _SHA.match(name)  # the name may go on, for example with a version
            return name if sha is None else sha[0]
        if column == FILE:
            return path.name.split(".")[0]
        if column.startswith(WORD):
            return column[len(WORD) :]
        value = record.get(column, column)
        return "" if value is None else str(value)

    def _rows(self, record: Record, path: Path, *, has_devices: bool) -> Iterator[ImportedRow]:
        columns = self.columns
        measured = self._text(columns.measured, record, path)
        shared = ImportedRow(
            case=" ".join(filter(None, (self._text(name, record, path) for name in columns.case))),
            metric="",
            value=None,
            parameters=self._parameters(record, path, has_devices=has_devices),
            implementation=self._text(columns.implementation, record, path),
            commit=ImportedCommit(
                sha=self._text(columns.commit, record, path) or None,
                measured_at=number_of(measured) or seconds_of(measured),
            ),
        )
        for value in columns.values:
            for implementation, column, matched in value.implementations(record):
                name = implementation or shared.implementation
                if name in columns.skip:
                    continue
                row = self._row(record, path, value, column=column, matched=matched)
                if row is not None:
                    yield replace(
                        shared,
                        implementation=name,
                        is_control=name in columns.controls,
                        **row,
                    )

    def _row(
        self, record: Record, path: Path, value: Value, *, column: str, matched: str
    ) -> dict[str, Any] | None:
        """The fields of a row that are of one value; None if the record has none of it."""
        number = number_of(record.get(column))
        if number is None:
            number = _difference(column, record)
        status = self._text(self.columns.status, record, path).lower() or "ok"
        is_failed = status not in ("ok", self.columns.status or "ok")
        if number is None and not is_failed:
            return None
        metric, unit = self._text(value.metric, record, path), self._text(value.unit, record, path)
        better = self._better(value, record, path, metric=metric, unit=unit)
        low, high = (
            None if name is None else number_of(record.get(name.replace("*", matched)))
            for name in (value.low, value.high)
        )
        is_skipped = is_failed and status == "skipped"
        outcome = Outcome.UNSUPPORTED if is_skipped else Outcome.CRASHED
        return {
            "metric": metric,
            "unit": unit,
            "value": None if is_failed else number,
            "better": better,
            "low": low,
            "high": high,
            "outcome": outcome if is_failed else Outcome.OK,
            "message": f"its status is {status}" if is_failed else None,
        }

    def _better(
        self, value: Value, record: Record, path: Path, *, metric: str, unit: str
    ) -> Better:
        text = self._text(value.better, record, path).lower()
        if text == AUTO:
            return direction_of(metric, unit)
        if text not in set(Better):
            raise FileImportError(f"{path}: {text!r} is no direction; write lower or higher")
        return Better(text)

    def _parameters(self, record: Record, path: Path, *, has_devices: bool) -> dict[str, Any]:
        columns = self.columns
        names: Sequence[str] = columns.parameters
        if OTHERS in names:
            taken = {*columns.case, *columns.value, *columns.low, *columns.high, *columns.skip}
            single = (columns.implementation, columns.commit, columns.measured, columns.device)
            taken |= {name for name in (*single, columns.run, columns.status) if name is not None}
            names = [name for name in record if name and name not in taken]
        parameters = {
            name: record[name] for name in names if record.get(name) not in (None, "", [])
        }
        if has_devices:
            parameters["device"] = self._text(columns.device, record, path)
        return parameters


def _one_time_per_run(rows: Sequence[tuple[str, ImportedRow]]) -> tuple[ImportedRow, ...]:
    """Give all rows of a commit, or of a run of it, their latest time: they are one run."""
    latest: dict[tuple[str | None, str], ImportedCommit] = {}
    for run, row in rows:
        commit = row.commit or ImportedCommit()
        known = latest.get((commit.sha, run))
        if known is None or (commit.measured_at or 0) > (known.measured_at or 0):
            latest[commit.sha, run] = commit
    return tuple(
        replace(row, commit=latest[(row.commit or ImportedCommit()).sha, run]) for run, row in rows
    )


def direction_of(metric: str, unit: str) -> Better:
    """Tell the better direction by the names of a metric and its unit."""
    if _RATE.fullmatch(unit) or _RATE.fullmatch(metric):
        return HIGHER
    if _TIME.fullmatch(unit) or _TIME.fullmatch(metric) or _MEMORY.fullmatch(unit):
        return LOWER
    return UNKNOWN


def _is_known(column: str, known: Mapping[str, Any]) -> bool:
    end, _, begin = column.partition("-")
    return column in known or (end in known and begin in known)


def _difference(column: str, record: Mapping[str, Any]) -> float | None:
    """The value of `A-B`, if these are two columns."""
    end, _, begin = column.partition("-")
    later, earlier = number_of(record.get(end)), number_of(record.get(begin))
    return None if later is None or earlier is None else later - earlier

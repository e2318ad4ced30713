"""Which columns of a file a map means, and the units that the header names."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from roofwatch.importers import FileImportError
from roofwatch.importers.table_map import FILE, FOLDER, WORD, TableMap, Value

_SHA = re.compile(r"[0-9a-f]{7,64}(?![0-9a-z])")
_WITH_UNIT = re.compile(r"(?P<name>.*\S)\s*[(\[](?P<unit>[^()\[\]]+)[)\]]")
"""`time (us)`, `bandwidth [GB/s]`."""
_UNIT = re.compile(
    r"[numµμ]?s(ec(onds?)?)?|(?:[KMGTP]i?)?(B|FLOP|flop|it|item|op)s?(/s(ec)?)?|%|ratio"
)
_OR = "|"
"""Between alternative columns; the first that the file has counts."""


@dataclass(frozen=True)
class Source:
    """Where a text of each record comes from: a word, or the first column that has a text."""

    columns: tuple[str, ...] = ()
    word: str = ""

    def text(self, record: Mapping[str, Any]) -> str:
        for column in self.columns:
            value = record.get(column)
            if value not in (None, ""):
                return str(value)
        return self.word


@dataclass(frozen=True)
class ValueSource:
    """Where one number of each record comes from."""

    value: Value
    column: str
    implementation: str
    """If the column names it."""
    low: str | None
    high: str | None
    metric: Source
    unit: Source
    unit_of_header: str
    better: Source
    status: str | None
    is_computed: bool
    """From two columns."""


class TableHeader:
    """The columns of a file."""

    def __init__(
        self,
        columns: TableMap,
        names: Iterable[str],
        path: Path,
        *,
        tool: str,
    ) -> None:
        self._map = columns
        self._names = dict.fromkeys(names)
        self._path = path
        self._tool = tool

    @property
    def _is_preset(self) -> bool:
        """Whether columns may be missing, as in other versions of a project's files."""
        return self._tool != ""

    @cached_property
    def _plain_names(self) -> dict[str, str]:
        plain: dict[str, str] = {}
        for name in self._names:
            without_unit, _ = split_unit(name)
            # the first of two names that differ only in case or spaces counts
            plain.setdefault(_plain(name), name)
            plain.setdefault(_plain(without_unit), name)
        return plain

    def find(self, name: str) -> str | None:
        """Find a column by its name, also with a unit in brackets behind it."""
        return next(iter(self._find_all(name)), None)

    def _find_all(self, name: str) -> tuple[str, ...]:
        columns: list[str] = []
        for alternative in name.split(_OR):
            if alternative in self._names:
                columns.append(alternative)
            elif _plain(alternative) in self._plain_names:
                columns.append(self._plain_names[_plain(alternative)])
        return tuple(columns)

    def source(self, name: str | None, key: str) -> Source:
        """Tell where the text of a key comes from.

        Raises:
            FileImportError: the file has no such column, and the map is not a preset.
        """
        if name is None:
            return Source()
        # results of a commit often lie in a folder with its sha
        if name == FOLDER:
            folder = self._path.resolve().parent.name
            sha = _SHA.match(folder)  # the name may go on, for example with a version
            return Source(word=folder if sha is None else sha[0])
        if name == FILE:
            return Source(word=self._path.name.split(".")[0])
        if name.startswith(WORD):
            return Source(word=name.removeprefix(WORD))
        columns = self._find_all(name)
        # a person who wrote the map has mistyped, or meant a word
        if not columns and not self._is_preset:
            raise self._missing(name, f"; for the word itself, write {key}={WORD}{name}")
        return Source(columns=columns)

    def word_source(self, name: str) -> Source:
        """Tell where a text comes from; a name that is no column is the word itself."""
        if name in self._names:
            return Source(columns=(name,))
        return Source(word=name.removeprefix(WORD))

    def cases(self) -> list[Source]:
        """Tell what a case is named by. Of a map that a person writes, words may be among it."""
        names = self._map.case
        columns = [name for name in names if name in (FILE, FOLDER) or self.find(name) is not None]
        if not columns:
            raise self._missing(names[0], "")
        # a preset names columns only; a version of the file may lack some
        if self._is_preset:
            return [self.source(name, "case") for name in columns]
        words = set(names) - set(columns)
        return [Source(word=name) if name in words else self.source(name, "case") for name in names]

    def values(self) -> list[ValueSource]:
        """Tell which columns hold numbers.

        Raises:
            FileImportError: none does.
        """
        sources: list[ValueSource] = []
        for value in self._map.values:
            # one entry of the map may name many columns
            if "*" in value.column:
                for column, matched in value.matches(self._names):
                    sources.append(self._value_source(value, column, matched))
                continue
            name = self._number_column(value.column)
            if name is not None:
                sources.append(self._value_source(value, name, ""))
        if not sources:
            raise self._missing(self._map.value[0], "")
        return sources

    def _number_column(self, name: str) -> str | None:
        """Find a column, or the two of a difference or quotient."""
        column = self.find(name)
        if column is not None:
            return column
        # `end-start`, `bytes/seconds`; a name may have such a sign itself
        for operator in ("-", "/"):
            first, _, second = name.partition(operator)
            if second and self.find(first) and self.find(second):
                return f"{self.find(first)}{operator}{self.find(second)}"
        return None

    def _value_source(self, value: Value, column: str, matched: str) -> ValueSource:
        def beside(name: str | None) -> str | None:
            if name is None:
                return None
            return self.find(name.replace("*", matched))

        return ValueSource(
            value=value,
            column=column,
            implementation=matched.strip(" _-"),
            low=beside(value.low),
            high=beside(value.high),
            metric=self.word_source(value.metric),
            unit=self.word_source(value.unit),
            unit_of_header=split_unit(column)[1],
            better=self.word_source(value.better),
            status=beside(self._map.status),
            is_computed=column not in self._names,
        )

    def parameters(self) -> list[str]:
        """List the columns that tell the rows of a case apart."""
        # a table for which nobody listed the parameters
        if "*" in self._map.parameters:
            return self._all_others()
        columns: list[str] = []
        for name in self._map.parameters:
            column = self.find(name)
            if column is not None:
                columns.append(column)
            elif not self._is_preset:
                raise self._missing(name, "")
        return columns

    def _all_others(self) -> list[str]:
        """List all columns that have no other meaning."""
        columns = self._map
        names = {
            *columns.case,
            *columns.value,
            *columns.low,
            *columns.high,
            *columns.skip,
            *columns.metric,
            *columns.unit,
            *columns.better,
        }
        single = (
            columns.implementation,
            columns.commit,
            columns.measured,
            columns.device,
            columns.run,
            columns.status,
            columns.unless,
            columns.project,
        )
        names |= {name for name in single if name is not None}
        # a word is no column, so it takes none
        taken = {self.find(name) for name in names if not name.startswith(WORD)}
        taken |= {source.column for source in self.values()}
        return [name for name in self._names if name and name not in taken]

    def _missing(self, name: str, advice: str) -> FileImportError:
        listed = ", ".join(list(self._names)[:50])
        return FileImportError(f"{self._path}: has no column {name}; it has {listed}{advice}")


def split_unit(name: str) -> tuple[str, str]:
    """Split `time (us)` into the name and its unit, if the brackets hold one."""
    match = _WITH_UNIT.fullmatch(name)
    if match is None or not _UNIT.fullmatch(match["unit"].strip()):
        return name, ""
    return match["name"], match["unit"].strip()


def _plain(name: str) -> str:
    return " ".join(name.split()).lower()

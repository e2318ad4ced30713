"""Which columns of a table mean what, as a person or a preset says."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from roofwatch.importers import FileImportError

FOLDER = "folder"
"""In place of a column: the SHA that begins the name of the file's folder."""
FILE = "file"
"""In place of a column: the name of the file without its ending."""
WORD = "="
"""Before a word that is not a column, although a column may have its name."""
OTHERS = "*"
"""As the parameters: all columns that have no other meaning."""
AUTO = "auto"
"""As the direction: by the metric's name and its unit."""
_LISTS = frozenset(
    {"case", "parameters", "value", "low", "high", "metric", "unit", "better", "skip", "controls"}
)


@dataclass(frozen=True)
class Value:
    """One kind of number in a record. A name that is no column is the word itself."""

    column: str
    """`A-B` is a difference of two columns. A `*` stands for the implementation's name."""
    low: str | None
    high: str | None
    metric: str
    unit: str
    better: str

    def implementations(self, record: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
        """Find the columns that a `*` matches: implementation, its column, and what it matched."""
        if "*" not in self.column:
            yield "", self.column, ""
            return
        start, _, end = self.column.partition("*")
        pattern = re.compile(f"{re.escape(start)}(.*){re.escape(end)}")
        for column in record:
            match = pattern.fullmatch(column)
            if match is not None:
                yield match[1].strip(" _-"), column, match[1]


@dataclass(frozen=True)
class TableMap:
    """Which columns of a table mean what. A name that is no column is the word itself."""

    case: tuple[str, ...]
    value: tuple[str, ...]
    low: tuple[str, ...] = ()
    high: tuple[str, ...] = ()
    metric: tuple[str, ...] = ("value",)
    unit: tuple[str, ...] = ("",)
    better: tuple[str, ...] = ("unknown",)
    parameters: tuple[str, ...] = ()
    implementation: str | None = None
    commit: str | None = None
    measured: str | None = None
    run: str | None = None
    """Tells the runs of one commit apart; without it, all rows of a commit are one run."""
    device: str | None = None
    project: str | None = None
    status: str | None = None
    """Anything but `ok` in this column is a failure."""
    unless: str | None = None
    """Rows with a value in this column are left out, for example those of pull requests."""
    skip: tuple[str, ...] = ()
    """Columns that are no parameters, and implementations that are left out."""
    controls: tuple[str, ...] = ()
    """Implementations that are libraries."""
    rows: str = ""
    """Of JSON: path to the list of records, such as `summary.history`. What encloses a record is
    part of it.
    """
    zip: str = ""
    """Column with a list: each record becomes one for each item, also of equally long lists."""
    tree: str = ""
    """Of JSON: key of a node's children; the column `path` has the names from the root on."""
    beside: str = ""
    """A JSON file in the same folder, whose keys begin with its name: `meta.commit`."""

    @classmethod
    def parse(cls, words: Sequence[str]) -> "TableMap":
        """Read `case=kernel,mode value=p50 unit=ms better=lower commit=folder`.

        Raises:
            FileImportError: a word has another form, or `case` or `value` is missing.
        """
        given: dict[str, str] = {}
        for word in " ".join(words).split():
            key, _, text = word.partition("=")
            if not text:
                raise FileImportError(f"--map {word}: write key=column")
            given[key] = text
        return cls.of(given, name="--map")

    @classmethod
    def of(cls, given: Mapping[str, str | Sequence[str]], *, name: str) -> "TableMap":
        """Make a map from its keys; lists may be text with commas.

        Raises:
            FileImportError: a key is unknown, or `case` or `value` is missing; the message begins
            with the name.
        """
        known = {field.name for field in fields(cls)}
        entries: dict[str, Any] = {}
        for key, text in given.items():
            if key not in known:
                listed = ", ".join(sorted(known))
                raise FileImportError(
                    f"{name} {key}: unknown; write key=column with one of {listed}"
                )
            if key in _LISTS:
                entries[key] = tuple(text.split(",") if isinstance(text, str) else text)
            else:
                entries[key] = text if isinstance(text, str) else ",".join(text)
        missing = {"case", "value"} - entries.keys()
        if missing:
            raise FileImportError(f"{name}: lacks {min(missing)}=COLUMN")
        return cls(**entries)

    @property
    def values(self) -> list[Value]:
        """What each of the values is; a list that is too short repeats its last item."""

        def item(items: tuple[str, ...], position: int) -> str:
            return items[min(position, len(items) - 1)]

        return [
            Value(
                column=column,
                low=item(self.low, position) if self.low else None,
                high=item(self.high, position) if self.high else None,
                metric=item(self.metric, position),
                unit=item(self.unit, position),
                better=item(self.better, position),
            )
            for position, column in enumerate(self.value)
        ]

"""Which columns of a table mean what, as a person or a preset says."""

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
    {
        "case",
        "parameters",
        "value",
        "low",
        "high",
        "metric",
        "unit",
        "better",
        "skip",
        "controls",
        "own",
    }
)


@dataclass(frozen=True)
class Value:
    """One kind of number in a record. A name that is no column is the word itself."""

    column: str
    """`A-B` is a difference of two columns, `A/B` a quotient. A `*` stands for the implementation's
    name.
    """
    low: str | None
    high: str | None
    metric: str
    unit: str
    better: str

    def matches(self, columns: Iterable[str]) -> Iterator[tuple[str, str]]:
        """Find the columns that a `*` matches, and what it matched."""
        start, _, end = self.column.partition("*")
        pattern = re.compile(f"{re.escape(start)}(.*){re.escape(end)}")
        for column in columns:
            match = pattern.fullmatch(column)
            if match is not None:
                yield column, match[1]


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
    """Says `ok`, or which failure; a `*` in it is the implementation's name."""
    unless: str | None = None
    """Rows with a value in this column are left out, for example those of pull requests."""
    skip: tuple[str, ...] = ()
    """Columns that are no parameters, and implementations that are left out."""
    controls: tuple[str, ...] = ()
    """Implementations that are libraries."""
    own: tuple[str, ...] = ()
    """Implementations of the project: all others are libraries."""
    driver: str | None = None
    torch: str | None = None
    triton: str | None = None
    cuda: str | None = None
    """Versions, if the file has them."""
    rows: str = ""
    """Of JSON: path to the list of records, such as `summary.history`. What encloses a record is
    part of it.
    """
    zip: str = ""
    """Column with a list: each record becomes one for each item, also of equally long lists."""
    tree: str = ""
    """Of JSON: key of a node's children; the column `path` has the names from the root on."""
    beside: str = ""
    """A JSON file in the same folder, if there is one. Its keys begin with its name: `meta.commit`.
    """

    @classmethod
    def parse(cls, words: Sequence[str]) -> "TableMap":
        """Read `case=kernel,mode value=p50 unit=ms commit=folder`; a name with spaces in quotes.

        Raises:
            FileImportError: a word has another form, or `case` or `value` is missing.
        """
        entries_of_map: dict[str, str] = {}
        try:
            entries = shlex.split(" ".join(words))
        except ValueError as error:
            raise FileImportError(f"--map: {error}") from None
        for word in entries:
            key, _, text = word.partition("=")
            if not text:
                raise FileImportError(f"--map {word}: write key=column")
            entries_of_map[key] = text
        return cls.of(entries_of_map, name="--map")

    @classmethod
    def of(cls, entries_of_map: Mapping[str, str | Sequence[str]], *, name: str) -> "TableMap":
        """Make a map from its keys; lists may be text with commas.

        Raises:
            FileImportError: a key is unknown, or `case` or `value` is missing; the message begins
            with the name.
        """
        keys = {field.name for field in fields(cls)}
        entries: dict[str, Any] = {}
        for key, text in entries_of_map.items():
            # a misspelt key would be ignored
            if key not in keys:
                listed = ", ".join(sorted(keys))
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

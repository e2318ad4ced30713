"""What an importer of another tool's result files returns, and how it reads a file.

An importer is an object with `sniff(head, name) -> float` and `read(path) -> ImportedRun`. Other
packages add theirs by an entry point of the group `roofwatch.importers`.
"""

import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from roofwatch.model.errors import CollectorError
from roofwatch.model.files import TooLargeError, decode_text, is_utf16, read_document
from roofwatch.model.machine import Outcome as Outcome  # importers take it from here
from roofwatch.model.metrics import Better
from roofwatch.model.record import MAX_DEPTH, MAX_RECORD_BYTES, is_deeper

Json = Mapping[str, Any]
LOWER = Better.LOWER
HIGHER = Better.HIGHER
UNKNOWN = Better.UNKNOWN


class FileImportError(CollectorError):
    """A file cannot be imported; nothing of it was."""


@dataclass(frozen=True)
class ImportedCommit:
    """What a file says about the measured commit; empty where it says nothing."""

    sha: str | None = None
    committed_at: float | None = None
    """Seconds since 1970."""
    measured_at: float | None = None
    branch: str | None = None
    author: str = ""
    subject: str = ""
    is_dirty: bool = False
    position: int | None = None
    """Position on the branch, if a list of all commits gives it."""


@dataclass(frozen=True)
class ImportedRow:
    """One number of a file, or a failure without one."""

    case: str
    metric: str
    value: float | None
    """In `unit`; of a failure, what the file has in its place."""
    unit: str = ""
    better: Better = UNKNOWN
    statistic: str = "value"
    parameters: Mapping[str, Any] = field(default_factory=dict)
    sample_count: int | None = None
    outcome: Outcome = Outcome.OK
    message: str | None = None
    implementation: str = ""
    """What was measured, if the file tells several apart; the tool's name if empty."""
    definition: str = ""
    """What the metric means, where versions of a tool differ. Part of the series' identity."""
    commit: ImportedCommit | None = None
    """If it is another than the file's."""
    low: float | None = None
    """Lower end of the spread that the file gives."""
    high: float | None = None
    is_control: bool = False
    """A row of a library, beside the code of the project."""
    code_hash: str | None = None
    """`CodeIdentity.text` of the kernel, if a repository was given."""
    device: str = ""
    """If a file has results of several."""


@dataclass(frozen=True)
class ImportedRun:
    """The content of one file."""

    tool: str
    """Name of the tool that measured."""
    rows: tuple[ImportedRow, ...]
    tool_version: str | None = None
    commit: ImportedCommit = ImportedCommit()
    project: str | None = None
    device: str | None = None
    """Model of the device, or name of the machine."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Versions that the file has: `driver_version`, `torch_version`, `triton_version` and
    `cuda_version`.
    """
    notes: tuple[str, ...] = ()
    """What of the file was left out, and why."""


class Importer(Protocol):
    """Reads files of one format."""

    def sniff(self, head: bytes, name: str, /) -> float:
        """How likely a file is of this format, from 0 to 1, given its first 64 KiB, decompressed,
        and its name.
        """

    def read(self, path: Path, /) -> ImportedRun:
        """Read a file whole.

        Raises:
            FileImportError: it is truncated, or of another format.
        """


@dataclass(frozen=True)
class JsonImporter:
    """An importer of JSON documents."""

    parse: Callable[[Any, Path], ImportedRun]
    is_known: Callable[[bytes, str], bool]
    """Whether it reads a file with this head and name."""

    def sniff(self, head: bytes, name: str, /) -> float:
        return 0.9 if self.is_known(head, name) else 0.0

    def read(self, path: Path, /) -> ImportedRun:
        return self.parse(parse_json(read_bytes(path), path), path)


def with_words(*words: bytes) -> Callable[[bytes, str], bool]:
    """Recognise files whose head holds all of these words."""
    return lambda head, _name: all(word in head for word in words)


# --- reading


def read_bytes(path: Path) -> bytes:
    """Read a file as UTF-8, compressed with gzip or not, within the size limit of records.

    Raises:
        FileImportError: it is too large, damaged or cannot be read.
    """
    try:
        with path.open("rb") as file:
            document = read_document(file, max_bytes=MAX_RECORD_BYTES)
            # PowerShell writes UTF-16 when it redirects
            if is_utf16(document):
                return decode_text(document).encode()
            return document
    except TooLargeError as error:
        raise FileImportError(f"{path}: {error}, the maximum size") from None
    except ValueError as error:
        raise FileImportError(f"{path}: {error}; copy it again") from None
    except OSError as error:
        raise FileImportError(f"{path}: cannot be read: {error.strerror}") from None


def parse_json(document: bytes, path: Path) -> Any:
    """Parse one JSON document, or one a line. NaN and infinity are read, because several tools
    write them.

    Raises:
        FileImportError: it is truncated, no JSON, or nested too deeply.
    """
    try:
        text = document.decode("utf-8-sig")
        # several tools write one document per line
        try:
            parsed = json.loads(text)
        except json.JSONDecodeError as error:
            lines = [line for line in text.splitlines() if line.strip()]
            if error.msg != "Extra data" or len(lines) < 2:
                raise
            parsed = [json.loads(line) for line in lines]
    except (ValueError, RecursionError) as error:
        raise FileImportError(
            f"{path}: not a complete JSON document ({error}); copy it again"
        ) from None
    # deep nesting would end in a recursion error later
    if is_deeper(parsed, MAX_DEPTH):
        raise FileImportError(f"{path}: more than {MAX_DEPTH} nested arrays and objects")
    return parsed


def number_of(value: object) -> float | None:
    """A JSON number, or a string that holds one; None for anything else,
    and for NaN and infinity.
    """
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def numbers_of(values: object) -> list[float]:
    """The numbers of a list; strings and what is no number are left out."""
    if not isinstance(values, list):
        return []
    numbers: list[float] = []
    for value in values:
        number = None if isinstance(value, str) else number_of(value)
        if number is not None:
            numbers.append(number)
    return numbers


def seconds_of(text: object) -> float | None:
    """A date in ISO 8601 as seconds since 1970; without a zone, in UTC."""
    try:
        time = datetime.fromisoformat(str(text))
    except ValueError:
        return None
    return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()


class Meaning(NamedTuple):
    """What the numbers under one key of a file are."""

    metric: str
    unit: str = ""
    better: Better = UNKNOWN
    statistic: str = "value"


def rows_of(
    values: Json,
    meaning: Callable[[str], Meaning | None],
    **shared: Any,
) -> Iterator[ImportedRow]:
    """A row for each number in an object; keys without a meaning and strings are left out."""
    for key, value in values.items():
        meaning_of_key = meaning(key)
        if isinstance(value, str) or meaning_of_key is None:
            continue
        number = number_of(value)
        if number is not None:
            yield ImportedRow(value=number, **meaning_of_key._asdict(), **shared)


def samples_of(values: object, meaning: Meaning, **shared: Any) -> Iterator[ImportedRow]:
    """A row for each number in a list of samples."""
    for number in numbers_of(values):
        yield ImportedRow(
            value=number,
            **meaning._replace(statistic="sample")._asdict(),
            sample_count=1,
            **shared,
        )

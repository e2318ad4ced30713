"""Redact the files of profilers: traces, CSV files, and the SQLite export of Nsight Systems.

Measurements stay the same. Free text is removed unless it is known to be harmless.
"""

import csv
import io
import json
import re
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from roofwatch.collector.profiling.ncu_files import PROCESS_COLUMNS, TOOL_LINE, find_header
from roofwatch.collector.profiling.nsys_csv import find_reports
from roofwatch.collector.profiling.trace import decode_trace, scan_trace
from roofwatch.collector.redaction import Redaction, RedactionError
from roofwatch.collector.redaction_patterns import SECRET_OPTION, Kind
from roofwatch.model.errors import ProfileError
from roofwatch.model.files import decode_text, reason_of

_CACHED_TEXTS = 2**16
"""Few of the texts of a file are distinct."""


@dataclass(frozen=True)
class Redacted:
    """What was changed in a file."""

    format: str
    texts_changed: int
    removed: tuple[str, ...]
    """Fields, columns or tables that were emptied."""


# --- traces

_HARMLESS_FIELDS = frozenset(
    {
        "schemaVersion",
        "deviceProperties",
        "distributedInfo",
        "displayTimeUnit",
        "baseTimeNanoseconds",
        "traceName",
        "traceEvents",
        "cuda_runtime_version",
        "cuda_driver_version",
        "cupti_version",
        "hip_runtime_version",
        "hip_driver_version",
        "record_shapes",
        "profile_memory",
        "with_stack",
        "with_flops",
        "with_modules",
        "trace_id",
        "DISABLE_CUPTI_LAZY_REINIT",
        "PT_PROFILER_JOB_NAME",
        "PT_PROFILER_JOB_VERSION",
        "is_cuda_profiling",
    }
)
"""Top-level fields that Kineto and torch.profiler write themselves."""
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
_NAME_FIELD = re.compile(r'"(?:host_?name|user_?name|nodename)"\s*:\s*"[^"\\]+"', re.IGNORECASE)
_MAX_SEPARATOR = 100
_EMPTY_VALUES = {"{": "{}", "[": "[]"}
"""What replaces a removed value, by its first character."""


def redact_trace(content: bytes, name: str, redaction: Redaction) -> tuple[bytes, Redacted] | None:
    """Redact a Chrome trace text by text, so that numbers and their order are kept; None if the
    content is not one.

    Raises:
        ProfileError: the trace is truncated.
    """
    text = decode_trace(content)
    document = scan_trace(
        text=text,
        name=name,
        visit=lambda _: None,
    )
    if document is None:
        return None
    other_spans = [span for span in document.spans if span[0] != "traceEvents"]
    header = [text[start:end] for _, start, end in other_spans]
    strings = set(_STRING.findall(text))
    # names of users and hosts are learned from all texts of the file, then removed everywhere
    learned_from = "\n".join([*header, *_NAME_FIELD.findall(text), *strings])
    parts: list[str] = []
    removed: list[str] = []
    copied_until = 0
    for field, start, end in document.spans:
        if _is_removed(field, text[start], redaction):
            removed.append(field)
            parts.append(text[copied_until:start])
            parts.append(_EMPTY_VALUES.get(text[start], '"<removed>"'))
            copied_until = end
    parts.append(text[copied_until:])
    redacted, changed_count = _redact_strings(
        "".join(parts), redaction.with_known_names(learned_from)
    )
    return _encode(redacted), Redacted(
        format="kineto-chrome-trace",
        texts_changed=changed_count,
        removed=tuple(removed),
    )


def _is_removed(field: str, first_character: str, redaction: Redaction) -> bool:
    if field in {"host_name", "hostname"}:
        return not redaction.keeps(Kind.HOSTNAME)
    is_harmless = field in _HARMLESS_FIELDS or first_character not in '{["'  # numbers stay
    return not is_harmless and not redaction.keeps(Kind.METADATA)


def _redact_strings(document: str, redaction: Redaction) -> tuple[str, int]:
    """Redact the strings of JSON text in place; return how many changed too."""
    previous = ""
    previous_end = 0
    changed_count = 0

    @lru_cache(_CACHED_TEXTS)
    def redact(literal: str, previous: str, is_argument: bool) -> str:
        """Redact a string; `previous` is its key in an object, or the option that it is an argument
        of.
        """
        try:
            text: str = json.loads(literal, strict=False)
        except ValueError:
            text = literal[1:-1]
        if is_argument:
            redacted = redaction.arguments([previous, text])[1]
        elif previous:
            redacted = redaction.value(previous, text)
        else:
            redacted = redaction.text(text)
        if redacted == text:
            return literal  # as it was written, with its escapes
        return json.dumps(redacted, ensure_ascii=False)

    def replace(match: re.Match[str]) -> str:
        """Redact a string of a JSON document, by the name or option before it."""
        nonlocal previous, previous_end, changed_count
        separator = document[previous_end : match.start()][:_MAX_SEPARATOR].strip()
        is_argument = separator == "," and SECRET_OPTION.fullmatch(previous) is not None
        name = ""
        if is_argument or separator == ":":
            name = previous
        redacted = redact(match[0], name, is_argument)
        previous = match[0][1:-1]
        previous_end = match.end()
        changed_count += redacted != match[0]
        return redacted

    return _STRING.sub(replace, document), changed_count


# --- CSV files


def redact_csv(content: bytes, redaction: Redaction) -> tuple[bytes, Redacted] | None:
    """Redact a CSV of Nsight Compute or Nsight Systems: cells, and the output of program and tool
    outside the tables.

    Returns:
        None if the content is neither.
    """
    text = decode_text(content)
    lines = text.splitlines()
    ncu_header = find_header(lines)
    is_ncu = ncu_header is not None
    if ncu_header is None:
        headers = {number for number, _ in find_reports(lines)}
    else:
        headers = {ncu_header}
    if not headers:
        return None
    redaction = redaction.with_known_names(text)
    redacted_lines: list[str] = []
    changed_count = 0
    columns: list[str] = []
    for number, line in _logical_lines(lines, min(headers)):
        redacted = line
        if number in headers:
            columns = next(csv.reader([line]))
        elif not line.strip():
            if not is_ncu:
                columns = []  # an empty line ends a report of Nsight Systems
        elif line.startswith(TOOL_LINE):
            redacted = redaction.text(line)
        elif columns:
            redacted = _redact_row(columns, line, redaction)
        elif redaction.keeps(Kind.METADATA):
            redacted = redaction.text(line)
        else:
            redacted = ""  # output of the program
        redacted_lines.append(redacted)
        changed_count += redacted != line
    removed = tuple(column for column in columns if _is_emptied(column, redaction))
    found_format = "ncu-csv" if is_ncu else "nsys-csv"
    return _encode("\n".join(redacted_lines) + "\n"), Redacted(
        format=found_format,
        texts_changed=changed_count,
        removed=removed,
    )


def _logical_lines(lines: list[str], first_header: int) -> Iterator[tuple[int, str]]:
    """Lines with their positions; rows with line breaks inside a cell are joined."""
    pending = ""
    for number, line in enumerate(lines):
        if pending:
            pending = f"{pending}\n{line}"
        else:
            pending = line
        # an odd number of quotes: a cell goes on in the next line
        if number < first_header or pending.count('"') % 2 == 0:
            yield number, pending
            pending = ""
    if pending:
        yield len(lines), pending


def _redact_row(columns: list[str], line: str, redaction: Redaction) -> str:
    """Redact the cells of a row by their column; an unchanged row keeps its bytes."""
    cells = next(csv.reader(io.StringIO(line)))
    redacted: list[str] = []
    for column, cell in zip(columns, cells, strict=False):
        if _is_emptied(column, redaction):
            redacted.append("")
        else:
            redacted.append(redaction.text(cell))
    if redacted == cells:
        return line
    row = io.StringIO()
    csv.writer(
        row,
        quoting=csv.QUOTE_ALL,
        lineterminator="",
    ).writerow(redacted)
    return row.getvalue()


def _is_emptied(column: str, redaction: Redaction) -> bool:
    return column in PROCESS_COLUMNS and not redaction.keeps(PROCESS_COLUMNS[column])


def _encode(text: str) -> bytes:
    return text.encode("utf-8", errors="replace")


# --- SQLite export of Nsight Systems. Source: its user guide, SQLite schema

_KEPT_TABLES = re.compile(
    r"ENUM_.*|StringIds|CUPTI_ACTIVITY_KIND_.*|CUDA_.*|CUDNN_EVENTS|CUBLAS_EVENTS|NVTX_EVENTS"
    r"|OSRT_API|GPU_METRICS"
    r"|TARGET_INFO_(GPU|GPU_METRICS|CUDA_.*|SESSION_START_TIME|SYSTEM_ENV)"
    r"|GPU_CONTEXT_SWITCH_EVENTS|.*_CALLCHAINS"
    r"|COMPOSITE_EVENTS|SCHED_EVENTS|PROFILER_OVERHEAD|ANALYSIS_DETAILS|DIAGNOSTIC_EVENT"
    r"|META_DATA_(CAPTURE|EXPORT)"
    r"|sqlite_.*"
)
_KIND_OF_TABLE = {
    **dict.fromkeys(("PROCESSES", "ThreadNames", "ProcessStreams"), Kind.ARGUMENTS),
    "ANALYSIS_FILE": Kind.PATHS,
}
"""Kinds of the tables that are emptied; other tables are `metadata`."""
_NAME_COLUMNS = {
    "nameId",
    "demangledName",
    "shortName",
    "mangledName",
    "textId",
    "jsonTextId",
    "symbol",
    "module",
}
"""Columns that refer to `StringIds`."""
_SETTINGS_TABLES = ("TARGET_INFO_SYSTEM_ENV", "META_DATA_CAPTURE", "META_DATA_EXPORT")
_HARMLESS_SETTING = re.compile(
    r"Cpu\w+|Cuda\w+|Nv\w+|Has\w+|Is\w+|Supports?\w*|Hardware\w+|Software\w+|Os\w+|dpti\w+"
    r"|LinuxParanoidLevel|SocInfo"
    r"|EXPORT_(PRODUCT|SCHEMA|PLATFORM|ARCH|CONFIG|TIME)\w*"
    r"|\w*(COLLECT|RATE|FREQ|TRIGGER|DURATION|VERSION|PERIOD)\w*"
    r"|CAPTURE_EVENT_TYPE|DEVICE_TYPE|[A-Z_]+_OPTIONS:\w+"
)


def redact_nsys(source: Path, target: Path, redaction: Redaction) -> Redacted:
    """Write a copy with the tables of measurements, and of their strings those that are in use.

    Raises:
        ProfileError: the database is corrupt.
        RedactionError: it is not an export, or the copy cannot be written.
    """
    temporary = target.with_name(f".{target.name}.tmp")
    source_uri = f"{source.resolve().as_uri()}?mode=ro&immutable=1"
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with closing(sqlite3.connect(source_uri, uri=True)) as original:
            original.execute("VACUUM INTO ?", (str(temporary),))
        with closing(sqlite3.connect(temporary, isolation_level=None)) as copy:
            redacted = _redact_database(copy, redaction)
            copy.execute("VACUUM")  # unused pages would still hold what was removed
        temporary.replace(target)
    except sqlite3.DatabaseError as error:
        raise ProfileError(
            f"{source}: not a whole sqlite export ({error}); export it again with nsys export"
        ) from None
    except OSError as error:
        raise RedactionError(f"{target}: cannot be written: {reason_of(error)}") from None
    finally:
        temporary.unlink(missing_ok=True)
    return redacted


def _redact_database(copy: sqlite3.Connection, redaction: Redaction) -> Redacted:
    """Empty tables that hold settings or sources, and redact the texts of the others."""
    table_names = copy.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
    tables = {name for (name,) in table_names}
    if "StringIds" not in tables:
        raise RedactionError("the SQLite database is not an export of Nsight Systems")
    redaction = redaction.with_known_names("\n".join(_all_texts(copy, tables)))
    emptied = {table for table in tables if _is_table_emptied(table, redaction)}
    _add_functions(copy, redaction)
    copy.executescript("PRAGMA secure_delete = ON; BEGIN")
    for table in emptied:
        copy.execute(f'DELETE FROM "{table}"')  # noqa: S608  names of the database, here and below
    # emptied tables are listed by name, so only later changes are counted
    changes_before = copy.total_changes
    if not redaction.keeps(Kind.ENVIRONMENT):
        for table in tables.intersection(_SETTINGS_TABLES):
            empty = f"UPDATE \"{table}\" SET value = '' WHERE NOT is_harmless(name)"  # noqa: S608
            copy.execute(empty)
    _redact_columns(copy, tables - emptied)
    copy.execute("COMMIT")
    changed_count = copy.total_changes - changes_before
    return Redacted(
        format="nsys-sqlite",
        texts_changed=changed_count,
        removed=tuple(sorted(emptied)),
    )


def _is_table_emptied(table: str, redaction: Redaction) -> bool:
    if _KEPT_TABLES.fullmatch(table):
        return False
    return not redaction.keeps(_KIND_OF_TABLE.get(table, Kind.METADATA))


def _add_functions(copy: sqlite3.Connection, redaction: Redaction) -> None:
    """Define the functions that the statements of SQL below call."""

    @lru_cache(_CACHED_TEXTS)
    def redact(value: str | bytes) -> str | None:
        if not isinstance(value, str):
            return None  # the payload of a mark of NVTX, in the program's own format
        return redaction.text(value)

    def is_harmless(name: str) -> bool:
        return _HARMLESS_SETTING.fullmatch(name) is not None

    copy.create_function("redact", 1, redact)
    copy.create_function("is_harmless", 1, is_harmless)


def _redact_columns(copy: sqlite3.Connection, tables: Iterable[str]) -> None:
    """Empty the strings that no table refers to any more, and redact all other texts."""
    columns: list[tuple[str, str]] = []
    for table in sorted(tables):
        for _, column, *_ in copy.execute(f'PRAGMA table_info("{table}")').fetchall():
            columns.append((table, column.replace('"', '""')))
    references = [
        f'SELECT "{column}" FROM "{table}" WHERE "{column}" IS NOT NULL'  # noqa: S608
        for table, column in columns
        if column in _NAME_COLUMNS and table != "StringIds"
    ]
    used_ids = " UNION ".join(references)
    copy.execute(f"UPDATE StringIds SET value = '' WHERE id NOT IN ({used_ids})")  # noqa: S608
    for table, column in columns:
        copy.execute(
            f'UPDATE "{table}" SET "{column}" = redact("{column}") '  # noqa: S608
            f"WHERE typeof(\"{column}\") IN ('text', 'blob') AND \"{column}\" IS NOT "
            f'redact("{column}")'
        )


def _all_texts(copy: sqlite3.Connection, tables: Iterable[str]) -> Iterator[str]:
    """All texts of the database, from which names of users and hosts are learned; settings as
    `name=value` too.
    """
    for table in sorted(tables):
        query = f'SELECT * FROM "{table}"'  # noqa: S608  names of the database
        for columns in copy.execute(query):
            texts = [value for value in columns if isinstance(value, str)]
            yield from texts
            if table in _SETTINGS_TABLES and len(texts) >= 2:
                yield f"{texts[-2]}={texts[-1]}"

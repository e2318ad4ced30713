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
from roofwatch.collector.profiling.nsys import find_reports
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


def redact_trace(content: bytes, name: str, redaction: Redaction) -> tuple[bytes, Redacted] | None:
    """Redact a Chrome trace text by text, so that numbers and their order are kept; None if the
    content is not one.

    Raises:
        ProfileError: the trace is truncated.
    """
    text = decode_trace(content)
    document = scan_trace(text, name, lambda _: None)
    if document is None:
        return None
    header = [text[start:end] for field, start, end in document.spans if field != "traceEvents"]
    known = "\n".join((*header, *_NAME_FIELD.findall(text), *set(_STRING.findall(text))))
    parts, removed, at = [], [], 0
    for field, start, end in document.spans:
        if _is_removed(field, text[start], redaction):
            removed.append(field)
            parts += [text[at:start], {"{": "{}", "[": "[]"}.get(text[start], '"<removed>"')]
            at = end
    kept, changed_count = _redact_strings(
        "".join((*parts, text[at:])), redaction.with_known_names(known)
    )
    return _encode(kept), Redacted("kineto-chrome-trace", changed_count, tuple(removed))


def _is_removed(field: str, first_character: str, redaction: Redaction) -> bool:
    if field in {"host_name", "hostname"}:
        return not redaction.keeps(Kind.HOSTNAME)
    is_harmless = field in _HARMLESS_FIELDS or first_character not in '{["'  # numbers stay
    return not is_harmless and not redaction.keeps(Kind.METADATA)


def _redact_strings(document: str, redaction: Redaction) -> tuple[str, int]:
    """Redact the strings of JSON text in place; return how many changed too."""
    previous, previous_end, changed_count = "", 0, 0

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
        else:
            redacted = redaction.value(previous, text) if previous else redaction.text(text)
        return literal if redacted == text else json.dumps(redacted, ensure_ascii=False)

    def replace(match: re.Match[str]) -> str:
        nonlocal previous, previous_end, changed_count
        separator = document[previous_end : match.start()][:_MAX_SEPARATOR].strip()
        is_argument = separator == "," and SECRET_OPTION.fullmatch(previous) is not None
        redacted = redact(
            match[0], previous if is_argument or separator == ":" else "", is_argument
        )
        previous, previous_end = match[0][1:-1], match.end()
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
    headers = {at for at, _ in find_reports(lines)} if ncu_header is None else {ncu_header}
    if not headers:
        return None
    redaction = redaction.with_known_names(text)
    redacted_lines, changed_count = [], 0
    columns: list[str] = []
    for at, line in _logical_lines(lines, min(headers)):
        redacted = line
        if at in headers:
            columns = next(csv.reader([line]))
        elif not line.strip():
            columns = columns if is_ncu else []  # an empty line ends a report of Nsight Systems
        elif line.startswith(TOOL_LINE):
            redacted = redaction.text(line)
        elif columns:
            redacted = _redact_row(columns, line, redaction)
        else:
            redacted = redaction.text(line) if redaction.keeps(Kind.METADATA) else ""
        redacted_lines.append(redacted)
        changed_count += redacted != line
    removed = tuple(column for column in columns if _is_emptied(column, redaction))
    found_format = "ncu-csv" if is_ncu else "nsys-csv"
    return _encode("\n".join(redacted_lines) + "\n"), Redacted(found_format, changed_count, removed)


def _logical_lines(lines: list[str], first_header: int) -> Iterator[tuple[int, str]]:
    """Lines with their positions; rows with line breaks inside a cell are joined."""
    pending = ""
    for at, line in enumerate(lines):
        pending = f"{pending}\n{line}" if pending else line
        if at < first_header or pending.count('"') % 2 == 0:
            yield at, pending
            pending = ""
    if pending:
        yield len(lines), pending


def _redact_row(columns: list[str], line: str, redaction: Redaction) -> str:
    cells = next(csv.reader(io.StringIO(line)))
    named = zip(columns, cells, strict=False)
    redacted = [
        "" if _is_emptied(column, redaction) else redaction.text(cell) for column, cell in named
    ]
    if redacted == cells:
        return line
    row = io.StringIO()
    csv.writer(row, quoting=csv.QUOTE_ALL, lineterminator="").writerow(redacted)
    return row.getvalue()


def _is_emptied(column: str, redaction: Redaction) -> bool:
    return column in PROCESS_COLUMNS and not redaction.keeps(PROCESS_COLUMNS[column])


def _encode(text: str) -> bytes:
    return text.encode("utf-8", errors="replace")


# --- SQLite export of Nsight Systems. Source: its user guide, SQLite schema

_KEPT_TABLES = re.compile(
    r"ENUM_.*|StringIds|CUPTI_ACTIVITY_KIND_.*|CUDA_.*|CUDNN_EVENTS|CUBLAS_EVENTS|NVTX_EVENTS|OSRT_API|GPU_METRICS"
    r"|TARGET_INFO_(GPU|GPU_METRICS|CUDA_.*|SESSION_START_TIME|SYSTEM_ENV)|GPU_CONTEXT_SWITCH_EVENTS|.*_CALLCHAINS"
    r"|COMPOSITE_EVENTS|SCHED_EVENTS|PROFILER_OVERHEAD|ANALYSIS_DETAILS|DIAGNOSTIC_EVENT|META_DATA_(CAPTURE|EXPORT)"
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
    r"Cpu\w+|Cuda\w+|Nv\w+|Has\w+|Is\w+|Supports?\w*|Hardware\w+|Software\w+|Os\w+|dpti\w+|LinuxParanoidLevel|SocInfo"
    r"|EXPORT_(PRODUCT|SCHEMA|PLATFORM|ARCH|CONFIG|TIME)\w*|\w*(COLLECT|RATE|FREQ|TRIGGER|DURATION|VERSION|PERIOD)\w*"
    r"|CAPTURE_EVENT_TYPE|DEVICE_TYPE|[A-Z_]+_OPTIONS:\w+"
)


def redact_nsys(source: Path, target: Path, redaction: Redaction) -> Redacted:
    """Write a copy with the tables of measurements, and of their strings those that are in use.

    Raises:
        ProfileError: the database is corrupt.
        RedactionError: it is not an export, or the copy cannot be written.
    """
    temporary = target.with_name(f".{target.name}.tmp")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with closing(
            sqlite3.connect(f"{source.resolve().as_uri()}?mode=ro&immutable=1", uri=True)
        ) as original:
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
    tables = {
        name for (name,) in copy.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
    }
    if "StringIds" not in tables:
        raise RedactionError("the SQLite database is not an export of Nsight Systems")
    redaction = redaction.with_known_names("\n".join(_all_texts(copy, tables)))
    is_kept = _KEPT_TABLES.fullmatch
    emptied = {
        one
        for one in tables
        if not is_kept(one) and not redaction.keeps(_KIND_OF_TABLE.get(one, Kind.METADATA))
    }

    @lru_cache(_CACHED_TEXTS)
    def redact(value: str | bytes) -> str | None:
        return (
            redaction.text(value) if isinstance(value, str) else None
        )  # blobs are payloads of NVTX

    copy.create_function("redact", 1, redact)
    copy.create_function(
        "is_harmless", 1, lambda name: _HARMLESS_SETTING.fullmatch(name) is not None
    )
    copy.executescript("PRAGMA secure_delete = ON; BEGIN")
    for table in emptied:
        copy.execute(f'DELETE FROM "{table}"')  # noqa: S608  names of the database, here and below
    before = copy.total_changes
    for table in () if redaction.keeps(Kind.ENVIRONMENT) else tables.intersection(_SETTINGS_TABLES):
        copy.execute(f"UPDATE \"{table}\" SET value = '' WHERE NOT is_harmless(name)")  # noqa: S608
    columns = [
        (table, column.replace('"', '""'))
        for table in sorted(tables - emptied)
        for _, column, *_ in copy.execute(f'PRAGMA table_info("{table}")').fetchall()
    ]
    used = " UNION ".join(
        f'SELECT "{column}" FROM "{table}" WHERE "{column}" IS NOT NULL'  # noqa: S608
        for table, column in columns
        if column in _NAME_COLUMNS and table != "StringIds"
    )
    copy.execute(f"UPDATE StringIds SET value = '' WHERE id NOT IN ({used})")  # noqa: S608
    for table, column in columns:
        copy.execute(
            f'UPDATE "{table}" SET "{column}" = redact("{column}") '  # noqa: S608
            f"WHERE typeof(\"{column}\") IN ('text', 'blob') AND \"{column}\" IS NOT "
            f'redact("{column}")'
        )
    copy.execute("COMMIT")
    return Redacted("nsys-sqlite", copy.total_changes - before, tuple(sorted(emptied)))


def _all_texts(copy: sqlite3.Connection, tables: Iterable[str]) -> Iterator[str]:
    """All texts of the database, from which names of users and hosts are learned; settings as
    `name=value` too.
    """
    for table in sorted(tables):
        for columns in copy.execute(f'SELECT * FROM "{table}"'):  # noqa: S608  names of the database
            texts = [value for value in columns if isinstance(value, str)]
            yield from texts
            if table in _SETTINGS_TABLES and len(texts) >= 2:
                yield f"{texts[-2]}={texts[-1]}"

"""Redact the SQLite export of Nsight Systems.

Tables of measurements stay, all others are emptied, and strings that no remaining table refers to are blanked. The copy
is vacuumed, because unused pages would still hold what was removed. Source: Nsight Systems user guide, SQLite schema.
"""

import re
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

from roofwatch.collector.errors import ProfileError
from roofwatch.collector.outbox.files import reason_of
from roofwatch.collector.redaction import Kind, Redaction, RedactionError

_KEPT_TABLES = re.compile(
    r"ENUM_.*|StringIds|CUPTI_ACTIVITY_KIND_.*|CUDA_.*|CUDNN_EVENTS|CUBLAS_EVENTS|NVTX_EVENTS|OSRT_API|GPU_METRICS"
    r"|TARGET_INFO_(GPU|GPU_METRICS|CUDA_.*|SESSION_START_TIME|SYSTEM_ENV)|GPU_CONTEXT_SWITCH_EVENTS|.*_CALLCHAINS"
    r"|COMPOSITE_EVENTS|SCHED_EVENTS|PROFILER_OVERHEAD|ANALYSIS_DETAILS|DIAGNOSTIC_EVENT|META_DATA_(CAPTURE|EXPORT)"
    r"|sqlite_.*"
)
_KIND_OF_TABLE = {
    "PROCESSES": Kind.ARGUMENTS,
    "ThreadNames": Kind.ARGUMENTS,
    "ProcessStreams": Kind.ARGUMENTS,
    "ANALYSIS_FILE": Kind.PATHS,
}
"""Kinds of the tables that are emptied; other tables are `metadata`."""
_NAME_COLUMNS = ("nameId", "demangledName", "shortName", "mangledName", "textId", "jsonTextId", "symbol", "module")
"""Columns that refer to `StringIds`."""
_SETTINGS_TABLES = {"TARGET_INFO_SYSTEM_ENV", "META_DATA_CAPTURE", "META_DATA_EXPORT"}
_HARMLESS_SETTING = re.compile(
    r"Cpu\w+|Cuda\w+|Nv\w+|Has\w+|Is\w+|Supports?\w*|Hardware\w+|Software\w+|Os\w+|dpti\w+|LinuxParanoidLevel|SocInfo"
    r"|EXPORT_(PRODUCT|SCHEMA|PLATFORM|ARCH|CONFIG|TIME)\w*|\w*(COLLECT|RATE|FREQ|TRIGGER|DURATION|VERSION|PERIOD)\w*"
    r"|CAPTURE_EVENT_TYPE|DEVICE_TYPE|[A-Z_]+_OPTIONS:\w+"
)


def redact_nsys(source: Path, target: Path, redaction: Redaction) -> tuple[int, tuple[str, ...]]:
    """Write a redacted copy; return the number of changed texts and the emptied tables.

    Raises:
        ProfileError: the database is corrupt.
        RedactionError: it is not an export, or the copy cannot be written.
    """
    temporary = target.with_name(f".{target.name}.tmp")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with closing(sqlite3.connect(f"{source.resolve().as_uri()}?mode=ro&immutable=1", uri=True)) as original:
            original.execute("VACUUM INTO ?", (str(temporary),))
        with closing(sqlite3.connect(temporary, isolation_level=None)) as copy:
            redacted = _redact(copy, redaction)
            copy.execute("VACUUM")
        temporary.replace(target)
    except sqlite3.DatabaseError as error:
        raise ProfileError(f"{source}: not a whole sqlite export ({error}); export it again with nsys export") from None
    except OSError as error:
        raise RedactionError(f"{target}: cannot be written: {reason_of(error)}") from None
    finally:
        temporary.unlink(missing_ok=True)
    return redacted


def _redact(copy: sqlite3.Connection, redaction: Redaction) -> tuple[int, tuple[str, ...]]:
    copy.execute("PRAGMA secure_delete = ON")
    tables = {row[0] for row in copy.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if "StringIds" not in tables:
        raise RedactionError("the SQLite database is not an export of Nsight Systems")
    redaction = redaction.with_known_names("\n".join(_all_texts(copy, tables)))
    copy.execute("BEGIN")
    kept = {
        table
        for table in tables
        if _KEPT_TABLES.fullmatch(table) or redaction.keeps(_KIND_OF_TABLE.get(table, Kind.METADATA))
    }
    for table in tables - kept:
        copy.execute(f'DELETE FROM "{table}"')  # noqa: S608  names of the database
    changed_count = 0 if redaction.keeps(Kind.ENVIRONMENT) else _blank_settings(copy, kept & _SETTINGS_TABLES)
    changed_count += _blank_unused_strings(copy, kept)
    changed_count += sum(_redact_table(copy, table, redaction) for table in sorted(kept))
    copy.execute("COMMIT")
    return changed_count, tuple(sorted(tables - kept))


def _all_texts(copy: sqlite3.Connection, tables: Iterable[str]) -> Iterable[str]:
    """All texts of the database, from which names of users and hosts are learned; settings as `name=value` too."""
    for table in sorted(tables):
        for columns in copy.execute(f'SELECT * FROM "{table}"'):  # noqa: S608  names of the database
            texts = [value for value in columns if isinstance(value, str)]
            yield from texts
            if table in _SETTINGS_TABLES and len(texts) >= 2:
                yield f"{texts[-2]}={texts[-1]}"


def _blank_settings(copy: sqlite3.Connection, tables: Iterable[str]) -> int:
    changed_count = 0
    for table in tables:
        for row_id, name in copy.execute(f'SELECT rowid, name FROM "{table}"').fetchall():  # noqa: S608  as above
            if not _HARMLESS_SETTING.fullmatch(name):
                copy.execute(f"UPDATE \"{table}\" SET value = '' WHERE rowid = ?", (row_id,))  # noqa: S608  as above
                changed_count += 1
    return changed_count


def _blank_unused_strings(copy: sqlite3.Connection, tables: set[str]) -> int:
    used = {
        row[0]
        for table in sorted(tables - {"StringIds"})
        for column in set(_columns(copy, table)).intersection(_NAME_COLUMNS)
        for row in copy.execute(f'SELECT "{column}" FROM "{table}"')  # noqa: S608  as above
    }
    unused = [(row[0],) for row in copy.execute("SELECT id FROM StringIds") if row[0] not in used]
    copy.executemany("UPDATE StringIds SET value = '' WHERE id = ?", unused)
    return len(unused)


def _redact_table(copy: sqlite3.Connection, table: str, redaction: Redaction) -> int:
    """Redact the texts of a table and drop its blobs, for example NVTX payloads."""
    changed_count = 0
    for column in _columns(copy, table):
        quoted = column.replace('"', '""')
        values = copy.execute(
            f'SELECT DISTINCT "{quoted}" FROM "{table}" WHERE typeof("{quoted}") IN (\'text\', \'blob\')'  # noqa: S608  as above
        ).fetchall()
        for (value,) in values:
            redacted = redaction.text(value) if isinstance(value, str) else None
            if redacted != value:
                copy.execute(f'UPDATE "{table}" SET "{quoted}" = ? WHERE "{quoted}" = ?', (redacted, value))  # noqa: S608  as above
                changed_count += 1
    return changed_count


def _columns(copy: sqlite3.Connection, table: str) -> list[str]:
    return [row[1] for row in copy.execute(f'PRAGMA table_info("{table}")')]

"""The sqlite export of Nsight Systems without what must not leave the machine.

Tables that are known to hold measurements stay, every other is emptied; of the shared texts those stay that a kept
table refers to. The copy is packed anew, so that nothing removed is left in unused pages.

Source: Nsight Systems user guide, SQLite schema reference.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

from roofwatch.collector.outbox.files import reason_of
from roofwatch.collector.profiling.profile_file import ProfileError
from roofwatch.collector.redaction import Kind, Redaction, RedactionError

_KEPT_TABLES = re.compile(
    r"ENUM_.*|StringIds|CUPTI_ACTIVITY_KIND_.*|CUDA_.*|CUDNN_EVENTS|CUBLAS_EVENTS|NVTX_EVENTS|OSRT_API|GPU_METRICS"
    r"|TARGET_INFO_(GPU|GPU_METRICS|CUDA_.*|SESSION_START_TIME|SYSTEM_ENV)|GPU_CONTEXT_SWITCH_EVENTS|.*_CALLCHAINS"
    r"|COMPOSITE_EVENTS|SCHED_EVENTS|PROFILER_OVERHEAD|ANALYSIS_DETAILS|DIAGNOSTIC_EVENT|META_DATA_(CAPTURE|EXPORT)"
)
_NAME_COLUMNS = ("nameId", "demangledName", "shortName", "mangledName", "textId", "jsonTextId", "symbol", "module")
"""Columns that refer to `StringIds`."""
_TABLES_OF_SETTINGS = ("TARGET_INFO_SYSTEM_ENV", "META_DATA_CAPTURE", "META_DATA_EXPORT")
_HARMLESS_SETTING = re.compile(
    r"Cpu\w+|Cuda\w+|Nv\w+|Has\w+|Is\w+|Supports?\w*|Hardware\w+|Software\w+|Os\w+|dpti\w+|LinuxParanoidLevel|SocInfo"
    r"|EXPORT_(PRODUCT|SCHEMA|PLATFORM|ARCH|CONFIG|TIME)\w*|\w*(COLLECT|RATE|FREQ|TRIGGER|DURATION|VERSION|PERIOD)\w*"
    r"|CAPTURE_EVENT_TYPE|DEVICE_TYPE|[A-Z_]+_OPTIONS:\w+"
)
_KIND_OF_TABLE = {
    "PROCESSES": Kind.ARGUMENTS,
    "ThreadNames": Kind.ARGUMENTS,
    "ProcessStreams": Kind.ARGUMENTS,
    "ANALYSIS_FILE": Kind.PATHS,
}
"""What keeps a table that is emptied; `metadata` keeps any other."""


def redact_export(source: Path, target: Path, redaction: Redaction) -> tuple[int, tuple[str, ...]]:
    """Write a copy; how many texts changed, and which tables were emptied.

    Raises:
        ProfileError: the database is corrupt.
        RedactionError: it is no export, or the copy cannot be written.
    """
    temporary = target.with_name(f".{target.name}.tmp")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with closing(sqlite3.connect(f"{source.resolve().as_uri()}?mode=ro&immutable=1", uri=True)) as original:
            # written without unused pages, which may hold what was deleted before
            original.execute("VACUUM INTO ?", (str(temporary),))
        with closing(sqlite3.connect(temporary, isolation_level=None)) as copy:
            done = _redact(copy, redaction)
            copy.execute("VACUUM")
        temporary.replace(target)
    except (sqlite3.DatabaseError, UnicodeDecodeError) as error:  # the second of a column's name
        raise ProfileError(f"{source}: not a whole sqlite export ({error}); export it again with nsys export") from None
    except OSError as error:
        raise RedactionError(f"{target}: cannot be written: {reason_of(error)}") from None
    finally:
        temporary.unlink(missing_ok=True)
    return done


def _redact(copy: sqlite3.Connection, redaction: Redaction) -> tuple[int, tuple[str, ...]]:
    copy.execute("PRAGMA secure_delete = ON")
    tables = {row[0] for row in copy.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if "StringIds" not in tables:
        raise RedactionError("an sqlite database, and no export of Nsight Systems: nothing in it is known")
    redaction = redaction.with_known_names("\n".join(_all_texts(copy, tables)))
    copy.execute("BEGIN")
    emptied = tuple(sorted(table for table in tables if not _is_kept(table, redaction)))
    for table in emptied:
        copy.execute(f'DELETE FROM "{table}"')  # noqa: S608  a name of the database's own
    kept = tables - set(emptied)
    changed = _blank_settings(copy, kept, redaction)
    changed += _blank_unused_names(copy, kept)
    changed += sum(_rewrite(copy, table, redaction) for table in sorted(kept))
    copy.execute("COMMIT")
    return changed, emptied


def _is_kept(table: str, redaction: Redaction) -> bool:
    if _KEPT_TABLES.fullmatch(table) or table.startswith("sqlite_"):
        return True
    return redaction.keeps(_KIND_OF_TABLE.get(table, Kind.METADATA))


def _all_texts(copy: sqlite3.Connection, tables: Iterable[str]) -> Iterable[str]:
    """What names may be learned from: settings as `name=value` too."""
    for table in sorted(tables):
        for columns in copy.execute(f'SELECT * FROM "{table}"'):  # noqa: S608  as above
            texts = [value for value in columns if isinstance(value, str)]
            yield from texts
            if table in _TABLES_OF_SETTINGS and len(texts) >= 2:
                yield f"{texts[-2]}={texts[-1]}"


def _blank_settings(copy: sqlite3.Connection, tables: set[str], redaction: Redaction) -> int:
    """Of tables of names and values: what is not known to be harmless."""
    if redaction.keeps(Kind.ENVIRONMENT):
        return 0
    changed = 0
    for table in tables & set(_TABLES_OF_SETTINGS):
        for row, name in copy.execute(f'SELECT rowid, name FROM "{table}"').fetchall():  # noqa: S608  as above
            if not _HARMLESS_SETTING.fullmatch(name):
                copy.execute(f"UPDATE \"{table}\" SET value = '' WHERE rowid = ?", (row,))  # noqa: S608  as above
                changed += 1
    return changed


def _blank_unused_names(copy: sqlite3.Connection, tables: set[str]) -> int:
    """Shared texts that no kept table refers to: command lines, environments, what the program printed."""
    references = [
        f'SELECT "{column}" FROM "{table}" WHERE "{column}" IS NOT NULL'  # noqa: S608  as above
        for table in sorted(tables - {"StringIds"})
        for column in _columns(copy, table)
        if column in _NAME_COLUMNS
    ]
    used = {row[0] for reference in references for row in copy.execute(reference)}
    unused = [(row[0],) for row in copy.execute("SELECT id FROM StringIds") if row[0] not in used]
    copy.executemany("UPDATE StringIds SET value = '' WHERE id = ?", unused)
    return len(unused)


def _rewrite(copy: sqlite3.Connection, table: str, redaction: Redaction) -> int:
    """Rewrite the texts of a table; what is kept as bytes, such as a payload of NVTX, is dropped."""
    changed = 0
    for column in _columns(copy, table):
        quoted = column.replace('"', '""')
        found = copy.execute(
            f'SELECT DISTINCT "{quoted}" FROM "{table}" WHERE typeof("{quoted}") IN (\'text\', \'blob\')'  # noqa: S608  as above
        ).fetchall()
        for (value,) in found:
            told = redaction.text(value) if isinstance(value, str) else None
            if told != value:
                copy.execute(f'UPDATE "{table}" SET "{quoted}" = ? WHERE "{quoted}" = ?', (told, value))  # noqa: S608  as above
                changed += 1
    return changed


def _columns(copy: sqlite3.Connection, table: str) -> list[str]:
    return [row[1] for row in copy.execute(f'PRAGMA table_info("{table}")')]

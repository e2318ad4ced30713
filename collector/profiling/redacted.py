"""Profiler files without what must not leave the machine. What `roofwatch read` says of them stays the same.

A trace is copied text by text: numbers and order are those of the original. What a program or a tool may have put
anywhere is taken out by what is known to be harmless, not by what is known to be secret.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path

from roofwatch.collector.outbox.files import SUFFIX, atomic_write, compress, reason_of
from roofwatch.collector.profiling import ncu_files as ncu_report_file
from roofwatch.collector.profiling import nsys, nsys_csv, redacted_export
from roofwatch.collector.profiling.chrome_trace import find_fields
from roofwatch.collector.profiling.ncu_files import COLUMNS_OF_PROCESSES, TOOL_LINE, find_header
from roofwatch.collector.profiling.profile_file import ProfileError, head_of, read_bytes
from roofwatch.collector.redaction import Kind, Redaction, RedactionError
from roofwatch.collector.redaction_patterns import is_secret_option

_HARMLESS_FIELDS = frozenset(
    {
        *(
            "schemaVersion",
            "deviceProperties",
            "distributedInfo",
            "displayTimeUnit",
            "baseTimeNanoseconds",
            "traceName",
        ),
        *("cuda_runtime_version", "cuda_driver_version", "cupti_version", "hip_runtime_version", "hip_driver_version"),
        *("record_shapes", "profile_memory", "with_stack", "with_flops", "with_modules", "trace_id"),
        *("DISABLE_CUPTI_LAZY_REINIT", "PT_PROFILER_JOB_NAME", "PT_PROFILER_JOB_VERSION", "is_cuda_profiling"),
    }
)
"""Fields beside the events that Kineto and torch.profiler write themselves."""
_HOST_FIELDS = frozenset({"host_name", "hostname"})
_TEXT = re.compile(r'"(?:[^"\\]|\\.)*"')
_NAMED = re.compile(r'"(?:host_?name|user_?name|nodename)"\s*:\s*"[^"\\]+"', re.IGNORECASE)
"""A name that an event gives away."""
_SEEN_TEXTS = 2**16
_MOST_BETWEEN = 100
"""Characters between a name and its value."""


@dataclass(frozen=True)
class Redacted:
    """What was done to a file."""

    format: str
    texts_changed: int
    removed: tuple[str, ...]
    """Fields, columns or tables that were emptied."""


def redact_profile(source: Path, target: Path, redaction: Redaction) -> Redacted:
    """Write a profiler's file anew without what is not kept; text is packed where the new name ends in `.gz`.

    Raises:
        ProfileError: the file cannot be read, is cut short, or is none that is known.
        RedactionError: nothing can be taken out of its kind, or the copy cannot be written.
    """
    head = head_of(source)
    if head.startswith(ncu_report_file.MAGIC):
        raise RedactionError(
            f"{source}: a report of Nsight Compute cannot be redacted: it holds paths, the command and maybe source in "
            "a format of NVIDIA's own; export it with ncu --import FILE --page raw --csv, and redact that"
        )
    if head.startswith(nsys.MAGIC):
        texts_changed, removed = redacted_export.redact_export(source, target, redaction)
        return Redacted("nsys-sqlite", texts_changed, removed)
    content = read_bytes(source)
    done = redact_trace(content, str(source), redaction)
    if done is None:
        done = _redact_csv(content, redaction) or _redact_statistics(content, redaction)
    if done is None:
        raise ProfileError(
            f"{source}: nothing that is known here; what can be redacted is a record, a trace of torch.profiler, a CSV "
            "of Nsight Compute, or an sqlite export or statistics as CSV of Nsight Systems"
        )
    document, said = done
    _write(target, compress(document) if target.suffix == SUFFIX else document)
    return said


def redact_trace(content: bytes, name: str, redaction: Redaction) -> tuple[bytes, Redacted] | None:
    """The document anew, and what was done; None if it is no trace.

    Raises:
        ProfileError: it is a trace, and cut short.
    """
    text = content.decode("utf-8", errors="replace").lstrip("\ufeff")
    fields = find_fields(text, name)
    if fields is None:
        return None
    between = [text[field.start : field.end] for field in fields if field.name != "traceEvents"]
    rewrite = _Texts(
        redaction.with_known_names("\n".join((*between, *_NAMED.findall(text), *set(_TEXT.findall(text)))))
    )
    if not fields:  # the array of events by itself
        return _encoded(rewrite.all_in(text)), Redacted("kineto-chrome-trace", rewrite.changed, ())
    parts: list[str] = []
    removed: list[str] = []
    at = 0
    for field in fields:
        parts.append(text[at : field.start])
        value = text[field.start : field.end]
        if _is_removed(field.name, value, redaction):
            removed.append(field.name)
            value = {"{": "{}", "[": "[]"}.get(value[0], '"<removed>"')
        else:
            value = rewrite.all_in(value)
        parts.append(value)
        at = field.end
    parts.append(text[at:])
    return _encoded("".join(parts)), Redacted("kineto-chrome-trace", rewrite.changed, tuple(removed))


def _is_removed(name: str, value: str, redaction: Redaction) -> bool:
    if name in _HOST_FIELDS:
        return not redaction.keeps(Kind.HOSTNAME)
    if name in _HARMLESS_FIELDS or name == "traceEvents" or redaction.keeps(Kind.METADATA):
        return False
    # a number that a program added is none of the machine's secrets, and is in what `roofwatch read` says
    return value.startswith(("{", "[", '"'))


class _Texts:
    """Rewrites the texts of a JSON document where they stand, so that all else stays as it was."""

    def __init__(self, redaction: Redaction) -> None:
        self.changed = 0
        remembered = lru_cache(maxsize=_SEEN_TEXTS)
        self._text: Callable[[str], str] = remembered(lambda text: _literal(text, redaction.text))
        self._value: Callable[[str, str], str] = remembered(
            lambda name, text: _literal(text, partial(redaction.value, name))
        )
        self._argument: Callable[[str, str], str] = remembered(
            lambda option, text: _literal(text, lambda word: redaction.arguments([option, word])[1])
        )
        self._before = ""
        self._end = 0

    def all_in(self, document: str) -> str:
        self._before, self._end = "", 0
        return _TEXT.sub(self._rewritten, document)

    def _rewritten(self, found: re.Match[str]) -> str:
        before = found[0]
        between = found.string[self._end : found.start()] if found.start() - self._end <= _MOST_BETWEEN else ""
        if (between := between.strip()) == ":":
            after = self._value(self._before[1:-1], before)
        elif between == "," and is_secret_option(self._before[1:-1]):
            after = self._argument(self._before[1:-1], before)
        else:
            after = self._text(before)
        self._before, self._end = before, found.end()
        self.changed += after != before
        return after


def _literal(literal: str, told: Callable[[str], str]) -> str:
    try:
        text: str = json.loads(literal, strict=False)
    except ValueError:
        text = literal[1:-1]
    after = told(text)
    return literal if after == text else json.dumps(after, ensure_ascii=False)


def _redact_csv(content: bytes, redaction: Redaction) -> tuple[bytes, Redacted] | None:
    """Nsight Compute's CSV: columns of the process are emptied, and so is what a program printed before the table."""
    text = content.decode("utf-8-sig", errors="replace")
    lines = text.splitlines()
    start = find_header(lines)
    if start is None:
        return None
    redaction = redaction.with_known_names(text)
    header = next(csv.reader([lines[start]]))
    before = [
        redaction.text(line) if line.startswith(TOOL_LINE) or redaction.keeps(Kind.METADATA) else ""
        for line in lines[:start]
    ]
    rows = list(_rows(lines[start + 1 :]))
    told = [
        redaction.text(row) if row.startswith(TOOL_LINE) or not row else _row(header, row, redaction) for row in rows
    ]
    changed = sum(old != new for old, new in zip((*lines[:start], *rows), (*before, *told), strict=True))
    emptied = tuple(
        name for name in header if name in COLUMNS_OF_PROCESSES and not redaction.keeps(COLUMNS_OF_PROCESSES[name])
    )
    document = "\n".join((*before, lines[start], *told)) + "\n"
    return _encoded(document), Redacted("ncu-csv", changed, emptied)


def _redact_statistics(content: bytes, redaction: Redaction) -> tuple[bytes, Redacted] | None:
    """The statistics of Nsight Systems: what the tool said between its reports, which names files, is emptied."""
    text = content.decode("utf-8-sig", errors="replace")
    lines = text.splitlines()
    reports = dict(nsys_csv.find_headers(lines))
    if not reports:
        return None
    redaction = redaction.with_known_names(text)
    told: list[str] = []
    header: list[str] | None = None
    for at, line in enumerate(lines):
        if at in reports:
            header = next(csv.reader([line]))
            told.append(line)
        elif not line.strip():
            header = None
            told.append(line)
        elif header is not None:
            told.append(_row(header, line, redaction))
        else:
            told.append(redaction.text(line) if redaction.keeps(Kind.METADATA) else "")
    changed = sum(old != new for old, new in zip(lines, told, strict=True))
    return _encoded("\n".join(told) + "\n"), Redacted("nsys-csv", changed, ())


def _rows(lines: list[str]) -> Iterator[str]:
    """Lines, where a row that a cell breaks counts as one."""
    pending = ""
    for line in lines:
        pending = f"{pending}\n{line}" if pending else line
        if pending.count('"') % 2 == 0:
            yield pending
            pending = ""
    if pending:
        yield pending


def _row(header: list[str], line: str, redaction: Redaction) -> str:
    cells = next(csv.reader(io.StringIO(line)))
    told = []
    for column, cell in zip(header, cells, strict=False):
        kind = COLUMNS_OF_PROCESSES.get(column)
        told.append("" if kind is not None and not redaction.keeps(kind) else redaction.text(cell))
    if told == cells:
        return line
    row = io.StringIO()
    csv.writer(row, quoting=csv.QUOTE_ALL, lineterminator="").writerow(told)
    return row.getvalue()


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", errors="replace")


def _write(path: Path, document: bytes) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic_write(path, document)
    except OSError as error:
        raise RedactionError(f"{path}: cannot be written: {reason_of(error)}") from None

"""Redact traces and CSV files of profilers; their measurements stay the same.

A trace is rewritten text by text, so numbers and their order are kept. Free text is removed unless it is known to be
harmless.
"""

import csv
import io
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from roofwatch.collector.profiling import nsys_csv
from roofwatch.collector.profiling.chrome_trace import decode_trace, scan_trace
from roofwatch.collector.profiling.ncu_csv import PROCESS_COLUMNS, TOOL_LINE, find_header
from roofwatch.collector.redaction import Kind, Redaction
from roofwatch.collector.redaction_patterns import is_secret_option

_HARMLESS_FIELDS = frozenset(
    {
        *("schemaVersion", "deviceProperties", "distributedInfo", "displayTimeUnit"),
        *("baseTimeNanoseconds", "traceName", "traceEvents"),
        *("cuda_runtime_version", "cuda_driver_version", "cupti_version", "hip_runtime_version", "hip_driver_version"),
        *("record_shapes", "profile_memory", "with_stack", "with_flops", "with_modules", "trace_id"),
        *("DISABLE_CUPTI_LAZY_REINIT", "PT_PROFILER_JOB_NAME", "PT_PROFILER_JOB_VERSION", "is_cuda_profiling"),
    }
)
"""Top-level fields that Kineto and torch.profiler write themselves."""
_HOST_FIELDS = frozenset({"host_name", "hostname"})
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
_NAME_FIELD = re.compile(r'"(?:host_?name|user_?name|nodename)"\s*:\s*"[^"\\]+"', re.IGNORECASE)
_MAX_SEPARATOR = 100


@dataclass(frozen=True)
class Redacted:
    """What was changed in a file."""

    format: str
    texts_changed: int
    removed: tuple[str, ...]
    """Fields, columns or tables that were emptied."""


def redact_trace(content: bytes, name: str, redaction: Redaction) -> tuple[bytes, Redacted] | None:
    """Redact a Chrome trace; None if the content is not one.

    Raises:
        ProfileError: the trace is truncated.
    """
    text = decode_trace(content)
    document = scan_trace(text, name, lambda _: None)
    if document is None:
        return None
    header = [text[start:end] for field, start, end in document.spans if field != "traceEvents"]
    known = "\n".join((*header, *_NAME_FIELD.findall(text), *set(_STRING.findall(text))))
    strings = _StringRedactor(redaction.with_known_names(known))
    if not document.spans:  # a bare array of events
        return _encode(strings.redact(text)), Redacted("kineto-chrome-trace", strings.changed_count, ())
    parts, removed, at = [], [], 0
    for field, start, end in document.spans:
        value = text[start:end]
        if _is_removed(field, value, redaction):
            removed.append(field)
            value = {"{": "{}", "[": "[]"}.get(value[0], '"<removed>"')
        else:
            value = strings.redact(value)
        parts += [text[at:start], value]
        at = end
    parts.append(text[at:])
    return _encode("".join(parts)), Redacted("kineto-chrome-trace", strings.changed_count, tuple(removed))


def _is_removed(field: str, value: str, redaction: Redaction) -> bool:
    if field in _HOST_FIELDS:
        return not redaction.keeps(Kind.HOSTNAME)
    if field in _HARMLESS_FIELDS or redaction.keeps(Kind.METADATA):
        return False
    return value.startswith(("{", "[", '"'))  # numbers stay


class _StringRedactor:
    """Redacts the strings of JSON text in place."""

    def __init__(self, redaction: Redaction) -> None:
        self._redaction = redaction
        self._redact_string = lru_cache(maxsize=2**16)(self._redact_one)  # few of the strings are distinct
        self._previous, self._previous_end = '""', 0
        self.changed_count = 0

    def redact(self, document: str) -> str:
        self._previous, self._previous_end = '""', 0
        return _STRING.sub(self._replace, document)

    def _replace(self, match: re.Match[str]) -> str:
        separator = match.string[self._previous_end : match.start()][:_MAX_SEPARATOR].strip()
        previous = self._previous[1:-1]
        is_value, is_argument = separator == ":", separator == "," and is_secret_option(previous)
        redacted = self._redact_string(match[0], previous if is_value else "", previous if is_argument else "")
        self._previous, self._previous_end = match[0], match.end()
        self.changed_count += redacted != match[0]
        return redacted

    def _redact_one(self, literal: str, name: str, option: str) -> str:
        """Redact a string; `name` is its key in an object, `option` a secret command-line option before it."""
        try:
            text: str = json.loads(literal, strict=False)
        except ValueError:
            text = literal[1:-1]
        if option:
            redacted = self._redaction.arguments([option, text])[1]
        else:
            redacted = self._redaction.value(name, text) if name else self._redaction.text(text)
        return literal if redacted == text else json.dumps(redacted, ensure_ascii=False)


def redact_csv(content: bytes, redaction: Redaction) -> tuple[bytes, Redacted] | None:
    """Redact a CSV of Nsight Compute or Nsight Systems: cells, and the output of program and tool outside the tables.

    Returns:
        None if the content is neither.
    """
    text = content.decode("utf-8-sig", errors="replace")
    lines = text.splitlines()
    ncu_header = find_header(lines)
    is_ncu = ncu_header is not None
    headers = {at for at, _ in nsys_csv.find_headers(lines)} if ncu_header is None else {ncu_header}
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
    removed = [
        column for column in columns if column in PROCESS_COLUMNS and not redaction.keeps(PROCESS_COLUMNS[column])
    ]
    found_format = "ncu-csv" if is_ncu else "nsys-csv"
    return _encode("\n".join(redacted_lines) + "\n"), Redacted(found_format, changed_count, tuple(removed))


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
    redacted = []
    for column, cell in zip(columns, cells, strict=False):
        kind = PROCESS_COLUMNS.get(column)
        redacted.append("" if kind is not None and not redaction.keeps(kind) else redaction.text(cell))
    if redacted == cells:
        return line
    row = io.StringIO()
    csv.writer(row, quoting=csv.QUOTE_ALL, lineterminator="").writerow(redacted)
    return row.getvalue()


def _encode(text: str) -> bytes:
    return text.encode("utf-8", errors="replace")

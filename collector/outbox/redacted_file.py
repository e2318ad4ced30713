"""Any file that roofwatch reads, copied without what must not leave the machine: what it is shows in its content."""

from __future__ import annotations

from pathlib import Path

import orjson

from roofwatch.collector.outbox.redacted_record import redact_record, without_author
from roofwatch.collector.outbox.redaction import Redaction
from roofwatch.collector.profiling.redacted import Redacted, redact_profile
from roofwatch.collector.profiling.source import head_of, is_packed, read_bytes
from roofwatch.collector.record.record import RunRecord

_MAX_PROBED_BYTES = 512 * 2**20


def redact_file(source: Path, target: Path, redaction: Redaction) -> Redacted:
    """Write a copy of a record or of a profiler's file.

    Raises:
        ProfileError: the file cannot be read, is cut short, or is none that is known.
        RecordError: it is a record that this version cannot read, or the copy of one cannot be written.
        RedactionError: nothing can be taken out of its kind, or the copy cannot be written.
    """
    record = _record(source)
    if record is None:
        return redact_profile(source, target, redaction)
    told = without_author(redact_record(record, redaction), redaction)
    told.write(target)
    return Redacted("roofwatch-record", int(told != record), ())


def _record(path: Path) -> RunRecord | None:
    head = head_of(path).lstrip()
    if not head.startswith(b"{") and not is_packed(path):
        return None
    content = read_bytes(path)
    # a trace of some size is not parsed for this: a record says what it is in its last fields too
    if b'"run_id"' not in content or b'"schema_version"' not in content or len(content) > _MAX_PROBED_BYTES:
        return None
    try:
        document = orjson.loads(content)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(document, dict) or "run_id" not in document or "traceEvents" in document:
        return None
    return RunRecord.from_json(content, name=str(path))

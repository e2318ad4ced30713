"""Files of profilers: read their bytes, summarise or redact them. The content decides the format,
never the name.
"""

from pathlib import Path

from roofwatch.collector.profiling import ncu_files, nsys, nsys_csv
from roofwatch.collector.profiling.redact import Redacted, redact_csv, redact_nsys, redact_trace
from roofwatch.collector.profiling.summary import TOP_COUNT, summarise_trace
from roofwatch.collector.profiling.trace import Trace
from roofwatch.collector.redaction import Redaction, RedactionError
from roofwatch.model.errors import ProfileError
from roofwatch.model.files import (
    SUFFIX,
    JsonObject,
    TooLargeError,
    atomic_write,
    compress,
    read_document,
    reason_of,
)

MAX_BYTES = 4 * 2**30
"""Limit for one decompressed file."""
_HEAD_BYTES = 16
_READABLE = (
    "a torch.profiler trace (Chrome format, plain or gzip), a report (.ncu-rep) or CSV of Nsight "
    "Compute, an SQLite "
    "export or CSV statistics of Nsight Systems"
)
_REDACTABLE = (
    "a record, a torch.profiler trace, a CSV of Nsight Compute, an SQLite export or CSV "
    "statistics of Nsight Systems"
)


def read_bytes(path: Path) -> bytes:
    """Read a file and decompress it if it is gzip, whatever its name.

    Raises:
        ProfileError: it is missing, unreadable, empty, truncated, or larger than `MAX_BYTES`.
    """
    try:
        with path.open("rb") as file:
            content = read_document(file, max_bytes=MAX_BYTES)
    except TooLargeError as error:
        raise ProfileError(f"{path}: {error}, the limit") from None
    except ValueError as error:
        raise ProfileError(f"{path}: not a whole file: {error}; copy it again") from None
    except OSError as error:
        raise ProfileError(f"{path}: cannot be read: {reason_of(error)}") from None
    if not content:
        raise ProfileError(f"{path}: the file is empty; record the profile again")
    return content


def head_of(path: Path) -> bytes:
    """Read the first bytes of a file without decompressing it.

    Raises:
        ProfileError: it cannot be read.
    """
    try:
        with path.open("rb") as file:
            return file.read(_HEAD_BYTES)
    except OSError as error:
        raise ProfileError(f"{path}: cannot be read: {reason_of(error)}") from None


def read_profile(path: Path, *, top: int | None = TOP_COUNT) -> JsonObject:
    """Summarise a profiler file with the `top` longest kernel names; `format` names its format.

    Raises:
        ProfileError: it cannot be read, is truncated, or has an unknown format.
    """
    if path.is_dir():
        raise ProfileError(f"{path}: is a folder; name one file in it")
    head = head_of(path)
    if head.startswith(ncu_files.MAGIC):
        return ncu_files.read_ncu_report(path)
    if head.startswith(nsys.MAGIC):
        summary = nsys.read_nsys(path, top=top)
    else:
        summary = _read_text(path, top)
    if summary is None:
        raise ProfileError(f"{path}: unknown format; roofwatch reads {_READABLE}")
    return summary


def _read_text(path: Path, top: int | None) -> JsonObject | None:
    """Read a Chrome trace or a CSV file; None if it is none of them."""
    content = read_bytes(path)
    trace = Trace.read(content, str(path))
    if trace is not None:
        return summarise_trace(trace, top=top)
    # users mix up the two kinds of JSON file: a record has commands of its own
    has_record_fields = b'"run_id"' in content and b'"schema_version"' in content
    if has_record_fields and content.lstrip().startswith(b"{"):
        raise ProfileError(
            f"{path}: is a record of roofwatch, not a profiler file: use roofwatch ingest, "
            f"roofwatch compare BASE HEAD "
            "or roofwatch diagnose CASE --record FILE"
        )
    return ncu_files.read_ncu_csv(content, str(path)) or nsys_csv.read_nsys_csv(
        content, str(path), top=top
    )


def redact_profile(source: Path, target: Path, redaction: Redaction) -> Redacted:
    """Write a copy of a profiler file without what is not kept; text is compressed if `target` ends
    in `.gz`.

    Raises:
        ProfileError: the file cannot be read, is truncated, or has an unknown format.
        RedactionError: the format cannot be redacted, or the copy cannot be written.
    """
    head = head_of(source)
    if head.startswith(ncu_files.MAGIC):
        raise RedactionError(
            f"{source}: a report of Nsight Compute cannot be redacted, its format is not "
            f"documented; export it with "
            "ncu --import FILE --page raw --csv, and redact that"
        )
    if head.startswith(nsys.MAGIC):
        return redact_nsys(source, target, redaction)
    content = read_bytes(source)
    copy = redact_trace(content, str(source), redaction) or redact_csv(content, redaction)
    if copy is None:
        raise ProfileError(f"{source}: unknown format; roofwatch redacts {_REDACTABLE}")
    document, redacted = copy
    if target.suffix == SUFFIX:
        document = compress(document)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        atomic_write(target, document)
    except OSError as error:
        raise RedactionError(f"{target}: cannot be written: {reason_of(error)}") from None
    return redacted

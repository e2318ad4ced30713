"""The content of a stored trace as what ran on its devices."""

from __future__ import annotations

import zlib

from roofwatch.collector.profiling.chrome_events import scan_trace
from roofwatch.collector.profiling.kineto import Activity, TraceSummary
from roofwatch.collector.profiling.source import ProfileError

MAX_UNPACKED_BYTES = 256 * 2**20
"""A larger one is for Perfetto: it would fill the server's memory."""
_GZIP_MAGIC = b"\x1f\x8b"
_GZIP_WINDOW = zlib.MAX_WBITS | 16


def activities_of(content: bytes, name: str) -> list[Activity]:
    """Kernels, copies and fills of a trace of torch.profiler, in the order of the file.

    Args:
        content: Of the file, packed with gzip or not.
        name: Of the file, for errors.

    Raises:
        ProfileError: it is no trace, is cut short, or unpacks to too much.
    """
    summary = TraceSummary()
    if scan_trace(_unpacked(content, name), name, summary.add) is None:
        raise ProfileError(f"{name}: is no trace of torch.profiler")
    return summary.activities


def _unpacked(content: bytes, name: str) -> bytes:
    if not content.startswith(_GZIP_MAGIC):
        return content
    unpacking = zlib.decompressobj(_GZIP_WINDOW)
    try:
        unpacked = unpacking.decompress(content, MAX_UNPACKED_BYTES)
    except zlib.error as error:
        raise ProfileError(f"{name}: is not a whole gzip file ({error})") from None
    if unpacking.unconsumed_tail:
        raise ProfileError(f"{name}: unpacks to more than {MAX_UNPACKED_BYTES // 2**20} MiB; open it in Perfetto")
    if not unpacking.eof:
        raise ProfileError(f"{name}: is not a whole gzip file; copy it again")
    return unpacked

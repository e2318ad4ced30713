"""The bytes of profiler files, compressed or not."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

from roofwatch.collector.errors import CollectorError

MAX_BYTES = 4 * 2**30
"""Limit for one decompressed file."""
_CHUNK_BYTES = 2**24
_GZIP_MAGIC = b"\x1f\x8b"


class ProfileError(CollectorError):
    """A file of unknown format, or a truncated or corrupt one."""


def read_bytes(path: Path) -> bytes:
    """Read a file and decompress it if it is gzip, whatever its name.

    Raises:
        ProfileError: it is missing, unreadable, empty, truncated, or larger than `MAX_BYTES`.
    """
    chunks, size_bytes = [], 0
    try:
        with gzip.open(path) if is_packed(path) else path.open("rb") as file:
            while chunk := file.read(_CHUNK_BYTES):
                size_bytes += len(chunk)
                if size_bytes > MAX_BYTES:
                    raise ProfileError(f"{path}: larger than the limit of {MAX_BYTES} bytes")
                chunks.append(chunk)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ProfileError(f"{path}: not a whole gzip file ({error}); copy it again") from None
    except OSError as error:
        raise _unreadable(path, error) from None
    if not chunks:
        raise ProfileError(f"{path}: the file is empty; record the profile again")
    return b"".join(chunks)


def is_packed(path: Path) -> bool:
    """Return whether the file is gzip, whatever its name."""
    return head_of(path, len(_GZIP_MAGIC)) == _GZIP_MAGIC


def head_of(path: Path, count: int = 16) -> bytes:
    """Read the first bytes of a file without decompressing it.

    Raises:
        ProfileError: it cannot be read.
    """
    try:
        with path.open("rb") as file:
            return file.read(count)
    except OSError as error:
        raise _unreadable(path, error) from None


def _unreadable(path: Path, error: OSError) -> ProfileError:
    return ProfileError(f"{path}: cannot be read: {error.strerror or error}")

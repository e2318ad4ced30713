"""The bytes of a profiler file, unpacked where it is packed."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

from roofwatch.collector.errors import CollectorError

MAX_BYTES = 4 * 2**30
"""Of one file, unpacked: more is refused before it fills the memory."""
_GZIP_MAGIC = b"\x1f\x8b"
_CHUNK_BYTES = 2**24


class ProfileError(CollectorError):
    """A file that no reader here understands, or that is cut short or corrupt."""


def read_bytes(path: Path) -> bytes:
    """The file's content, unpacked if it is gzip, whatever its name.

    Raises:
        ProfileError: it is not there, cannot be read, is empty, is cut short, or unpacks to more than `MAX_BYTES`.
    """
    try:
        content = _unpacked(path) if is_packed(path) else _whole(path)
    except OSError as error:
        raise ProfileError(f"{path}: cannot be read: {error.strerror or error}") from None
    if not content:
        raise ProfileError(f"{path}: is empty; record the profile again")
    return content


def is_packed(path: Path) -> bool:
    """Whether the file is gzip, whatever its name.

    Raises:
        OSError: it cannot be read.
    """
    with path.open("rb") as file:
        return file.read(2) == _GZIP_MAGIC


def head_of(path: Path, count: int = 16) -> bytes:
    """The first bytes as they are in the file.

    Raises:
        ProfileError: it cannot be read.
    """
    try:
        with path.open("rb") as file:
            return file.read(count)
    except OSError as error:
        raise ProfileError(f"{path}: cannot be read: {error.strerror or error}") from None


def _whole(path: Path) -> bytes:
    size = path.stat().st_size
    if size > MAX_BYTES:
        raise ProfileError(f"{path}: {size} bytes; at most {MAX_BYTES} are read")
    return path.read_bytes()


def _unpacked(path: Path) -> bytes:
    parts, total = [], 0
    try:
        with gzip.open(path) as packed:
            while part := packed.read(_CHUNK_BYTES):
                total += len(part)
                if total > MAX_BYTES:
                    raise ProfileError(f"{path}: unpacks to more than {MAX_BYTES} bytes, which is more than is read")
                parts.append(part)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ProfileError(f"{path}: is not a whole gzip file ({error}); copy it again") from None
    return b"".join(parts)

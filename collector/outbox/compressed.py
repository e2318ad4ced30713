"""Documents with or without gzip around them, told apart by their content."""

from __future__ import annotations

import gzip
import zlib
from typing import IO

SUFFIX = ".gz"

_MAGIC = b"\x1f\x8b"
_LEVEL = 6
_CHUNK_BYTES = 2**20


class TooLargeError(ValueError):
    """More comes out than may."""


def compress(document: bytes) -> bytes:
    """The same bytes for the same document, whenever they are made."""
    return gzip.compress(document, _LEVEL, mtime=0)


def read_document(file: IO[bytes], *, max_bytes: int) -> bytes:
    """Read a document, decompressed if it is compressed.

    Args:
        file: That can be read from its beginning again.
        max_bytes: How long the document may be. No more than that is ever held, whatever a small file unfolds to.

    Raises:
        TooLargeError: it is longer.
        ValueError: it is compressed, and damaged or not whole.
        OSError: it cannot be read.
    """
    is_compressed = file.read(len(_MAGIC)) == _MAGIC
    file.seek(0)
    if not is_compressed:
        return _read_at_most(file, max_bytes)
    try:
        with gzip.GzipFile(fileobj=file, mode="rb") as inside:
            return _read_at_most(inside, max_bytes)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ValueError(f"compressed, and damaged or not whole ({error})") from None


def _read_at_most(file: IO[bytes] | gzip.GzipFile, max_bytes: int) -> bytes:
    parts: list[bytes] = []
    size_bytes = 0
    while chunk := file.read(_CHUNK_BYTES):
        size_bytes += len(chunk)
        if size_bytes > max_bytes:
            raise TooLargeError(f"more than {max_bytes} bytes")
        parts.append(chunk)
    return b"".join(parts)

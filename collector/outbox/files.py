"""Files that are replaced as a whole, and documents with or without gzip."""

from __future__ import annotations

import contextlib
import errno
import gzip
import os
import secrets
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, BinaryIO

from roofwatch.collector.errors import RecordError


def reason_of(error: OSError) -> str:
    """Why a file cannot be written, in words."""
    return "no space left on the device" if error.errno == errno.ENOSPC else str(error.strerror or error)


@contextlib.contextmanager
def atomic_path(path: Path, *, mode: int = 0o666) -> Iterator[Path]:
    """Have a file written such that a reader sees the old or the new, even after a power cut.

    Args:
        path: Of the file; it is there once the block has ended without an error.
        mode: Who may read and write it, less what the user's umask takes away.

    Returns:
        Where to write, an empty file until then.

    Raises:
        OSError: it cannot be written; what was there before is unharmed and nothing half-written is left.
    """
    # its writer's alone: threads share a process id, and so do containers that share a folder
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    try:
        # made with the mode that it keeps: there is no moment in which others may read it
        os.close(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode))
        yield temporary
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    sync_folder(path.parent)


@contextlib.contextmanager
def atomic_file(path: Path, *, mode: int = 0o666) -> Iterator[BinaryIO]:
    """The same as an open file.

    Raises:
        OSError: as `atomic_path`.
    """
    with atomic_path(path, mode=mode) as temporary, temporary.open("wb") as file:
        yield file


def atomic_write(path: Path, document: bytes) -> None:
    """Replace a file's content by a document, as `atomic_file` does.

    Raises:
        OSError: it cannot be written; what was there before is unharmed and nothing half-written is left.
    """
    with atomic_file(path) as file:
        file.write(document)


def make_folder(folder: Path) -> None:
    """Make a folder that is there even after a power cut, and those above it; one that is there already stays as it is.

    Raises:
        OSError: it cannot be made, or something else has its name.
    """
    try:
        folder.mkdir()
    except FileNotFoundError:
        make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
    except FileExistsError:
        if not folder.is_dir():
            raise
        return
    with contextlib.suppress(PermissionError):  # where we may make folders and see none
        sync_folder(folder.parent)


def sync_folder(folder: Path) -> None:
    """Have what files are in a folder survive a power cut."""
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def check_writable(path: Path) -> None:
    """Find out before measuring whether a record can be written there.

    Raises:
        RecordError: the folder cannot be made or written, or the disk has no room for a small file.
    """
    try:
        make_folder(path.parent)
        with tempfile.TemporaryFile(dir=path.parent) as probe:
            probe.write(bytes(2**20))
            probe.flush()
    except OSError as error:
        raise RecordError(f"{path}: cannot be written: {reason_of(error)}; nothing was measured") from None


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

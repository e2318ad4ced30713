"""Atomic file replacement, documents with or without gzip, and the folder of caches."""

import codecs
import contextlib
import errno
import fcntl
import gzip
import os
import secrets
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from roofwatch.model.errors import RecordError

JsonObject = dict[str, Any]
"""A JSON object as Python reads and writes it."""
SUFFIX = ".gz"
GZIP_MAGIC = b"\x1f\x8b"
_COMPRESSION_LEVEL = 6
_CHUNK_BYTES = 2**20


def decode_text(document: bytes) -> str:
    """Decode UTF-8, or UTF-16 with a byte order mark as PowerShell writes it; bad bytes are
    replaced.
    """
    encoding = "utf-16" if is_utf16(document) else "utf-8-sig"
    return document.decode(encoding, errors="replace")


def is_utf16(document: bytes) -> bool:
    return document.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))


def reason_of(error: OSError) -> str:
    """Describe why a file operation failed."""
    if error.errno == errno.ENOSPC:
        return "no space left on the device"
    return str(error.strerror or error)


@contextlib.contextmanager
def atomic_path(path: Path, *, mode: int = 0o666) -> Iterator[Path]:
    """Replace a file at the end of the block; readers see the old or the new content, even after a
    power cut.

    Returns:
        A temporary file to write to. Its permissions are `mode` less the user's umask.

    Raises:
        OSError: the file cannot be written; the old content is unchanged.
    """
    # the process ID would not be unique: threads and containers may share it
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    try:
        # O_EXCL: a link that somebody put there is not followed
        os.close(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode))
        yield temporary
        # the new content must be on disk before the name points to it
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
    # an interrupt too: nothing unfinished is left
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    sync_folder(path.parent)


def atomic_write(path: Path, document: bytes) -> None:
    """Replace a file's content, as `atomic_path` does."""
    with atomic_path(path) as temporary:
        temporary.write_bytes(document)


def make_folder(folder: Path) -> None:
    """Create a folder and its parents so that they survive a power cut.

    Raises:
        OSError: it cannot be created.
    """
    if not folder.is_dir():
        make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        sync_folder(folder.parent)


def sync_folder(folder: Path) -> None:
    """Write a folder's list of files to disk."""
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def is_locked(file: IO[bytes], path: Path) -> bool:
    """Lock an open file; False if another process holds it, or has removed or replaced it."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.path.samestat(path.stat(), os.fstat(file.fileno()))
    except (BlockingIOError, FileNotFoundError):
        return False


def check_writable(path: Path) -> None:
    """Check before a run that its record can be written.

    Raises:
        RecordError: the folder cannot be created or written, or the disk is full.
    """
    try:
        make_folder(path.parent)
        with tempfile.TemporaryFile(dir=path.parent) as probe:
            # an empty file can be made on a full disk
            probe.write(bytes(2**20))
            probe.flush()
    except OSError as error:
        raise RecordError(
            f"{path}: cannot be written: {reason_of(error)}; nothing was measured"
        ) from None


class TooLargeError(ValueError):
    """A document exceeds the size limit."""


def compress(document: bytes) -> bytes:
    """Compress with gzip; equal documents give equal bytes."""
    return gzip.compress(document, _COMPRESSION_LEVEL, mtime=0)


def read_document(file: IO[bytes], *, max_bytes: int) -> bytes:
    """Read a document, compressed or not, and hold at most `max_bytes` of it in memory.

    Raises:
        TooLargeError: it is longer than `max_bytes`.
        ValueError: it is compressed and damaged.
        OSError: it cannot be read.
    """
    is_compressed = file.read(len(GZIP_MAGIC)) == GZIP_MAGIC
    file.seek(0)
    stream: IO[bytes] | gzip.GzipFile = file
    if is_compressed:
        stream = gzip.GzipFile(fileobj=file, mode="rb")
    document = bytearray()
    try:
        # a small file can unpack to more than the memory holds
        while chunk := stream.read(_CHUNK_BYTES):
            document += chunk
            if len(document) > max_bytes:
                raise TooLargeError(f"more than {max_bytes} bytes")
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ValueError(f"compressed, and damaged or incomplete ({error})") from None
    return bytes(document)


def cache_dir() -> Path:
    """Return the folder of cached compiler output."""
    chosen = os.environ.get("ROOFWATCH_CACHE_DIR")
    if chosen:
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "roofwatch"

"""Files that are there whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from roofwatch.collector.errors import RecordError


def reason_of(error: OSError) -> str:
    """Why a file cannot be written, in words."""
    return "no space left on the device" if error.errno == errno.ENOSPC else str(error.strerror or error)


@contextlib.contextmanager
def whole_path(path: Path, *, mode: int = 0o666) -> Iterator[Path]:
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
def whole_file(path: Path, *, mode: int = 0o666) -> Iterator[BinaryIO]:
    """The same as an open file.

    Raises:
        OSError: as `whole_path`.
    """
    with whole_path(path, mode=mode) as temporary, temporary.open("wb") as file:
        yield file


def write_whole(path: Path, document: bytes) -> None:
    """Replace a file's content by a document, as `whole_file` does.

    Raises:
        OSError: it cannot be written; what was there before is unharmed and nothing half-written is left.
    """
    with whole_file(path) as file:
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

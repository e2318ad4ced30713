"""A folder in memory for a test session's databases: each test has one, copied file by file, which takes ten times as
long on a disk.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

_MEMORY = Path("/dev/shm")
_PREFIX = "roofwatch-tests-"
_LEAST_FREE_BYTES = 4 * 2**30
"""A container often has 64 MiB."""


@contextlib.contextmanager
def memory_folder() -> Iterator[Path | None]:
    """A new folder, gone at the end; None where there is no room in memory. What killed sessions left is removed."""
    if not _has_room():
        yield None
        return
    for left in _MEMORY.glob(f"{_PREFIX}*"):
        _remove_if_nobody_uses(left)
    # it has another name until it is seen to be used
    unnamed = Path(tempfile.mkdtemp(dir=_MEMORY))
    with (unnamed / "used").open("w") as used:
        fcntl.flock(used, fcntl.LOCK_EX)
        folder = unnamed.rename(_MEMORY / f"{_PREFIX}{unnamed.name}")
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _has_room() -> bool:
    try:
        room = os.statvfs(_MEMORY)
    except OSError:
        return False
    return os.access(_MEMORY, os.W_OK) and room.f_bavail * room.f_frsize >= _LEAST_FREE_BYTES


def _remove_if_nobody_uses(folder: Path) -> None:
    with contextlib.suppress(OSError), (folder / "used").open("r+") as used:
        fcntl.flock(used, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder)

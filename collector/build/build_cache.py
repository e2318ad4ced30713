"""The cache of builds: a folder for each key, built once, whole or not there.

A build is made in another folder of the cache and then renamed. A lock for each key makes a second
process wait for the first, and keeps a build that is in use from being deleted.
"""

import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO

from roofwatch.collector.build.files import size_of
from roofwatch.model.files import cache_dir

MAX_BYTES = 8 * 2**30
"""A build of a large project with kernels for several GPUs takes about a gigabyte."""
_FILES = "files"
_held: dict[Path, IO[str]] = {}
"""Locks of builds that this process uses, until it ends."""


def builds_dir() -> Path:
    return cache_dir() / "builds"


def cached_build(key: str, build: Callable[[Path], None]) -> Path:
    """Return the folder of a build, after building into it if it is not in the cache.

    Raises:
        BuildError: raised by `build`; nothing is kept of the folder it was given.
    """
    folder = builds_dir() / key
    if folder in _held:
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    lock = _lock_of(folder).open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_SH)
        if not folder.exists():
            fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():  # another process may have built it in the meantime
            _build(folder, build)
            shrink()
        os.utime(folder)
        fcntl.flock(lock, fcntl.LOCK_SH)
    except BaseException:
        lock.close()
        raise
    _held[folder] = lock
    return folder


def _build(folder: Path, build: Callable[[Path], None]) -> None:
    """Build into a temporary folder, so that an interrupted build is not taken for a result."""
    with tempfile.TemporaryDirectory(prefix=".unfinished-", dir=folder.parent) as temporary:
        made = Path(temporary) / _FILES
        made.mkdir()
        build(made)
        made.rename(folder)


def _lock_of(folder: Path) -> Path:
    return folder.with_name(f".{folder.name}.lock")


def shrink(max_bytes: int = MAX_BYTES) -> None:
    """Delete the builds that were not used for longest, until the cache fits its limit; never one
    in use.
    """
    builds = [entry for entry in builds_dir().iterdir() if not entry.name.startswith(".")]
    builds.sort(key=_last_used, reverse=True)
    total_bytes = 0
    for folder in builds:
        total_bytes += size_of(folder)
        if total_bytes > max_bytes:
            _delete_unused(folder)
    _delete_abandoned()


def _last_used(folder: Path) -> float:
    try:
        return folder.stat().st_mtime
    except OSError:  # another process has deleted it
        return 0.0


def _delete_unused(folder: Path) -> None:
    with contextlib.suppress(OSError), _lock_of(folder).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder, ignore_errors=True)


_ABANDONED_S = 86_400.0
"""No build takes a day."""


def _delete_abandoned() -> None:
    """Delete what killed processes have left."""
    for folder in builds_dir().glob(".unfinished-*"):
        if time.time() - _last_used(folder) > _ABANDONED_S:
            shutil.rmtree(folder, ignore_errors=True)

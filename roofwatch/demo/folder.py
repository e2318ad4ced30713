"""The folder that holds everything the demo makes."""

from __future__ import annotations

import contextlib
import fcntl
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

_MARKER = ".roofwatch-demo"


class DemoError(Exception):
    """The demo cannot use this folder."""


@dataclass(frozen=True)
class DemoFolder:
    root: Path

    @property
    def repository(self) -> Path:
        return self.root / "repository"

    @property
    def work_trees(self) -> Path:
        return self.root / "work-trees"

    @property
    def records(self) -> Path:
        return self.root / "records"

    @property
    def database(self) -> Path:
        """Kept between demos, because the server of a killed demo may still use it."""
        return self.root / "database"

    @property
    def comment(self) -> Path:
        return self.root / "comment.md"

    @property
    def temporary(self) -> Path:
        return self.root / "tmp"

    @property
    def worker_environment(self) -> Mapping[str, str]:
        """Variables that keep caches and temporary files of the workers in the folder."""
        cache = self.root / "cache"
        return {
            "TRITON_CACHE_DIR": str(cache / "triton"),
            "TORCHINDUCTOR_CACHE_DIR": str(cache / "inductor"),
            "TMPDIR": str(self.temporary),
            "PYTHONDONTWRITEBYTECODE": "1",
        }

    def clear(self) -> None:
        for path in (self.repository, self.work_trees, self.records, self.comment, self.temporary, self.root / "cache"):
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)


@contextlib.contextmanager
def claimed(root: Path) -> Iterator[DemoFolder]:
    """Lock a folder for this process, and empty it of an earlier demo.

    Raises:
        DemoError: the folder holds other files, cannot be written, or another demo runs in it.
    """
    if root.exists() and not (root / _MARKER).exists() and (not root.is_dir() or any(root.iterdir())):
        raise DemoError(f"{root}: holds other files; choose an empty or new folder with --dir")
    try:
        root.mkdir(parents=True, exist_ok=True)
        marker = (root / _MARKER).open("a")
    except OSError as error:
        raise DemoError(f"{root}: cannot be written: {error.strerror}; choose another folder with --dir") from None
    with marker:
        try:
            fcntl.flock(marker, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DemoError(f"{root}: another demo is running in it; choose another folder with --dir") from None
        folder = DemoFolder(root)
        folder.clear()
        folder.temporary.mkdir()
        previous, tempfile.tempdir = tempfile.tempdir, str(folder.temporary)
        try:
            yield folder
        finally:
            tempfile.tempdir = previous

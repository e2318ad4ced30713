"""What an answer was made from: files, the names in folders and variables of the environment, so that a later process
can tell whether the answer still holds.

A worker watches itself. What is read while a suite is loaded or a case compiled may be kept in memory and used for
later cases, so everything that a worker has read so far counts for each of its answers.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict

from roofwatch.collector.compile.static_store import digest_of

_NOT_A_SOURCE = ("/proc/", "/dev/", "/sys/")
_COMPILED_PYTHON = ".pyc"
_IMPORTABLE = {".py", ".so", ".pyd"}
_PYTHON_ITSELF = (f"{Path(os.__file__).parent}{os.sep}", "<frozen ")
_WRITES = os.O_WRONLY | os.O_RDWR

# Where things are kept and how a terminal looks decides no code; line information is always left out of it.
_VARIABLES_WITHOUT_EFFECT = frozenset(
    {
        "COLUMNS",
        "HOME",
        "LINES",
        "OLDPWD",
        "PWD",
        "PYTEST_CURRENT_TEST",
        "ROOFWATCH_CACHE_DIR",
        "SHLVL",
        "TEMP",
        "TERM",
        "TMP",
        "TMPDIR",
        "TRITON_CACHE_DIR",
        "TRITON_DISABLE_LINE_INFO",
        "TRITON_DUMP_DIR",
        "TRITON_HOME",
        "XDG_CACHE_HOME",
        "_",
    }
)


class Sources(BaseModel):
    """What was read, and what it said.

    Args:
        files: sha256 of the content by path; None where there was no file.
        folders: By path, a digest of the names in it that Python could import.
        listings: By path, a digest of all the names in it.
        variables: Value by name; None where it was not set.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    files: dict[str, str | None] = {}
    folders: dict[str, str | None] = {}
    listings: dict[str, str | None] = {}
    variables: dict[str, str | None] = {}

    @property
    def are_unchanged(self) -> bool:
        """Whether all of it is still as it was."""
        return (
            all(os.environ.get(name) == value for name, value in self.variables.items())
            and all(names_that_python_imports(path) == names for path, names in self.folders.items())
            and all(_names_in(path) == names for path, names in self.listings.items())
            and all(digest_of_file(path) == digest for path, digest in self.files.items())
        )


def is_installed_module(path: str) -> bool:
    """Whether a file is a module or the metadata of an installed package, whose version the toolchain's digest says."""
    is_installed = any(f"{os.sep}{place}{os.sep}" in path for place in ("site-packages", "dist-packages"))
    return is_installed and (".dist-info" in path or Path(path).suffix in _IMPORTABLE)


def digest_of_file(path: str | Path) -> str | None:
    """sha256 of its content; None where there is no such file."""
    try:
        with Path(path).open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None


def names_that_python_imports(folder: str | Path) -> str | None:
    """A digest of the modules and packages that a folder holds: a new one may come before another of its name."""
    try:
        with os.scandir(folder) as entries:
            names = sorted(
                entry.name
                for entry in entries
                if Path(entry.name).stem.split(".")[0].isidentifier()
                and entry.name != "__pycache__"
                and (Path(entry.name).suffix in _IMPORTABLE or entry.is_dir())
            )
    except OSError:
        return None
    return digest_of(names)


def _names_in(folder: str) -> str | None:
    try:
        return digest_of(sorted(name for name in os.listdir(folder) if name != "__pycache__"))  # noqa: PTH208  names only
    except OSError:
        return None


class Watch:
    """Notes what this process reads from now on. There is one of it at most, as Python cannot stop watching.

    Args:
        ignored: Folders of which the toolchain's digest speaks, and those that hold what was compiled before.
        watched: A folder in one of these that is watched all the same: the bundled kernels.
    """

    current: ClassVar[Watch | None] = None

    def __init__(self, ignored: Iterable[Path], watched: Path) -> None:
        self._ignored = (*_NOT_A_SOURCE, *(f"{folder}{os.sep}" for folder in ignored))
        self._watched = f"{watched}{os.sep}"
        self._started_ns = time.time_ns()
        self._environment = dict(os.environ)
        self._files: set[str] = set()
        self._files_of_case: set[str] = set()
        self._written: set[str] = set()
        self._listings: set[str] = set()
        self._variables: set[str] = set()
        self._noting = self._files
        self._is_watching = True
        self._watch_variables()
        sys.addaudithook(self._hear)

    @classmethod
    def start(cls, ignored: Iterable[Path], watched: Path) -> Watch:
        """Watch this process."""
        assert cls.current is None, "a process is watched once"
        cls.current = cls(ignored, watched)
        return cls.current

    def begin_case(self) -> None:
        self._files_of_case.clear()

    @contextlib.contextmanager
    def for_one_case(self) -> Iterator[None]:
        """What is read within is not kept in memory, so no other case has it from here."""
        before, self._noting = self._noting, self._files_of_case
        try:
            yield
        finally:
            self._noting = before

    def sources(
        self, *, without: Iterable[str] = (), files: Iterable[str] = (), folders: Iterable[str] = ()
    ) -> Sources | None:
        """All that was read so far.

        Args:
            without: Files to leave out.
            files: More files.
            folders: From which modules were imported.

        Returns:
            None where a file was changed since the watch began: nobody knows which content was read.
        """
        self._is_watching = False
        try:
            # what this process wrote itself is no source of it
            paths = (self._files | self._files_of_case) - self._written - set(without) | set(files)
            if self.has_newer(paths):
                return None
            return Sources(
                files={path: digest_of_file(path) for path in sorted(paths)},
                folders={path: names_that_python_imports(path) for path in sorted(folders)},
                listings={path: _names_in(path) for path in sorted(self._listings)},
                variables={name: self._environment.get(name) for name in sorted(self._variables)},
            )
        finally:
            self._is_watching = True

    def has_newer(self, paths: Iterable[str]) -> bool:
        """Whether one of the files was changed since the watch began."""
        return any(_changed_ns(path) >= self._started_ns for path in paths)

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            path, _, flags = arguments
            if self._is_watching and isinstance(path, (str, bytes)):
                self._note(os.fsdecode(path), self._written if flags & _WRITES else self._noting)
        elif event in {"os.listdir", "os.scandir"} and self._is_watching:
            path = arguments[0]
            if isinstance(path, (str, bytes)) and self._is_for_the_suite(sys._getframe(1)):
                self._note(os.fsdecode(path), self._listings)

    def _watch_variables(self) -> None:
        kind: Any = type(os.environ)  # has no public name
        read = kind.__getitem__

        def read_noting(environment: Any, name: str) -> str:
            if name not in _VARIABLES_WITHOUT_EFFECT and self._is_for_the_suite(sys._getframe(1)):
                self._variables.add(name)
            return str(read(environment, name))

        kind.__getitem__ = read_noting

    def _is_for_the_suite(self, frame: FrameType | None) -> bool:
        """Whether something is read by other code than the toolchain's, the first on the stack that is not Python's."""
        while frame is not None and _is_python_itself(frame.f_code.co_filename):
            if frame.f_code.co_filename.startswith("<frozen importlib"):
                return False  # what the import system looks up is known from the modules
            frame = frame.f_back
        return frame is not None and not self._is_ignored(frame.f_code.co_filename)

    def _note(self, path: str, into: set[str]) -> None:
        full = os.path.abspath(path)  # noqa: PTH100  no links are followed, and this runs at every opened file
        if not full.endswith(_COMPILED_PYTHON) and not self._is_ignored(full) and not is_installed_module(full):
            into.add(full)

    def _is_ignored(self, path: str) -> bool:
        return path.startswith(self._ignored) and not path.startswith(self._watched)


def _is_python_itself(file: str) -> bool:
    return file.startswith(_PYTHON_ITSELF) and "-packages" not in file


def _changed_ns(path: str) -> int:
    try:
        return Path(path).stat().st_mtime_ns
    except OSError:
        return 0


def reading_for_one_case() -> contextlib.AbstractContextManager[None]:
    """Within it the watched process, if this is one, reads for the present case alone."""
    return contextlib.nullcontext() if Watch.current is None else Watch.current.for_one_case()

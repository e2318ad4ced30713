"""What an answer of a worker process was made from, so that a later process can tell whether it still holds.

The worker notes the files that it opens and the folders that it lists. What it has read may stay in its memory, so
everything read so far counts for each of its answers.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from roofwatch.collector.compile.cache import digest_of, digest_of_file
from roofwatch.collector.compile.suite_modules import SuiteModules, is_installed, project_files
from roofwatch.collector.suite import SuiteSource
from roofwatch.cuda import cache_dir
from roofwatch.install import PACKAGE_DIR
from roofwatch.spec import KernelSpec

_WRITES = os.O_WRONLY | os.O_RDWR
_CUDA_SOURCES = (".cu", ".cuh")


class Sources(BaseModel):
    """What was read, and its content then; None for what was not there.

    Args:
        files: sha256 of the content by path.
        folders: Digest of the names in it by path.
        variables: Value by name of environment variables.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    files: dict[str, str | None] = {}
    folders: dict[str, str | None] = {}
    variables: dict[str, str | None] = {}

    @property
    def are_unchanged(self) -> bool:
        return (
            all(os.environ.get(name) == value for name, value in self.variables.items())
            and all(_digest_of_names(path) == digest for path, digest in self.folders.items())
            and all(digest_of_file(path) == digest for path, digest in self.files.items())
        )


def _digest_of_names(folder: str) -> str | None:
    try:
        return digest_of(sorted(name for name in os.listdir(folder) if name != "__pycache__"))  # noqa: PTH208  names only
    except OSError:
        return None


class SuiteSources(BaseModel):
    """What the list of a suite's kernels was made from."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    sources: Sources | None
    """None: a file was changed while it was read, so the answer must not be kept."""
    codes: dict[str, str]
    """By kernel, a digest of the code that it may use."""
    host_sides: dict[str, str]
    """By kernel, the same without what Triton compiles."""


class CaseSources(BaseModel):
    """What the facts of a case were made from: its kernel's code, and files that were read besides."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    code: str
    sources: Sources | None
    """None: a file was changed while it was read."""


class SourceTracker:
    """Notes what this process reads; made before the suite is loaded, and once, since Python cannot stop it."""

    def __init__(self) -> None:
        from triton import knobs

        self._ignored = tuple(
            f"{folder}{os.sep}"
            for folder in (
                *("/proc", "/dev", "/sys", Path(os.__file__).parent),
                *(PACKAGE_DIR, (PACKAGE_DIR / "collector").resolve(), cache_dir(), knobs.cache.dir),
            )
        )
        self._bundled = f"{PACKAGE_DIR / 'kernels'}{os.sep}"
        self._modules_before = frozenset(sys.modules)
        self._environment = dict(os.environ)  # the suite may set variables itself
        self._started_ns = time.time_ns()
        self._read: set[str] = set()
        self._written: set[str] = set()
        self._listed: set[str] = set()
        sys.addaudithook(self._note)

    def suite_is_loaded(self, source: SuiteSource) -> None:
        """The modules imported so far are the suite's."""
        self._listed |= set(map(str, source.import_roots))
        self._modules_loaded = frozenset(sys.modules)

    def begin_case(self) -> None:
        """Forget CUDA sources, which each case reads again; what else was read may be in memory."""
        self._read = {path for path in self._read if not path.endswith(_CUDA_SOURCES)}

    def of_suite(self, specs: Sequence[KernelSpec]) -> SuiteSources:
        """What the list of kernels was made from."""
        digests = {spec.name: self._modules.digests(spec) for spec in specs}
        folders = self._listed | {str(Path(file).parent) for file in self._modules.files}
        files = self._files | self._modules.files
        sources = Sources(
            files={path: digest_of_file(path) for path in sorted(files)},
            folders={path: _digest_of_names(path) for path in sorted(folders)},
            variables={name: self._environment.get(name) for name in sorted(self._modules.variables)},
        )
        return SuiteSources(
            sources=None if self._has_changed(files) else sources,
            codes={name: each.code for name, each in digests.items()},
            host_sides={name: each.host for name, each in digests.items()},
        )

    def of_case(self, spec: KernelSpec) -> CaseSources:
        """What the facts of the case that was compiled last were made from; a kernel's own modules are in its code."""
        later = set(project_files(sys.modules.keys() - self._modules_before).values())
        files = (self._files | later) - self._modules.files
        sources = Sources(files={path: digest_of_file(path) for path in sorted(files)})
        code = self._modules.digests(spec).code
        return CaseSources(code=code, sources=None if self._has_changed(files | self._modules.files) else sources)

    @cached_property
    def _modules(self) -> SuiteModules:
        return SuiteModules(self._modules_loaded - self._modules_before, self._environment)

    @property
    def _files(self) -> set[str]:
        return self._read - self._written  # a compiler's intermediate files are not sources

    def _has_changed(self, files: set[str]) -> bool:
        return any(_modified_ns(path) >= self._started_ns for path in files)

    def _note(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            path, _, flags = arguments
            noted = self._written if flags & _WRITES else self._read
        elif event in {"os.listdir", "os.scandir"}:
            path, noted = arguments[0], self._listed
        else:
            return
        if isinstance(path, (str, bytes)):
            full = os.path.abspath(os.fsdecode(path))  # noqa: PTH100  follows no links, and runs for every opened file
            if self._is_source(full):
                noted.add(full)

    def _is_source(self, path: str) -> bool:
        if "__pycache__" in path:
            return False
        return path.startswith(self._bundled) or not (path.startswith(self._ignored) or is_installed(path))


def _modified_ns(path: str) -> int:
    try:
        return Path(path).stat().st_mtime_ns
    except OSError:
        return 0

"""What a suite's code is at the moment, beyond what its commit says: whether a run that was begun may go on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from roofwatch.collector.compile.sources import digest_of_file
from roofwatch.collector.compile.static_store import digest_of
from roofwatch.collector.git import find_repository, run_git
from roofwatch.collector.suite_source import SuiteSource
from roofwatch.install import PACKAGE_DIR

_CODE = frozenset({".c", ".cc", ".cpp", ".cu", ".cuh", ".h", ".hip", ".hpp", ".py", ".so"})
_OWN_SUITE = (PACKAGE_DIR / "kernels").resolve()


def digest_of_suite(source: SuiteSource) -> str:
    """A digest of the suite's files, and of all code in their repository that differs from the commit.

    Raises:
        GitError: the repository cannot be read.
    """
    path = source.path or _OWN_SUITE
    files = {path} if path.is_file() else {file for file in path.rglob("*") if file.suffix in _CODE}
    repository = find_repository(path)
    if repository is not None:
        files |= set(_changed_code(repository))
    # named as they lie to each other: the same check-out elsewhere is the same suite
    root = repository or (path if path.is_dir() else path.parent)
    return digest_of(
        source.module, sorted((_name(file.resolve(), root.resolve()), digest_of_file(file)) for file in files)
    )


def digest_of_own_suite() -> str:
    """A digest of the kernels that come with this roofwatch, wherever it is installed."""
    files = sorted(file for file in _OWN_SUITE.rglob("*") if file.suffix in _CODE)
    return digest_of(None, [(_name(file, _OWN_SUITE), digest_of_file(file)) for file in files])


def _changed_code(repository: Path) -> Iterator[Path]:
    listed = run_git(repository, "status", "--porcelain", "-z", "--untracked-files=all", "--no-renames")
    for line in filter(None, listed.split("\0")):
        file = repository / line[3:]
        if file.suffix in _CODE:
            yield file


def _name(file: Path, root: Path) -> str:
    return file.relative_to(root).as_posix() if file.is_relative_to(root) else file.as_posix()

"""Which kernels a change can touch, so that the others need not be measured.

A kernel is touched if one of the modules differs that it may use: those that declare it, and whatever they import, read
from the source (`collector.machine_code.closure`). What is no Python, such as a `.cu` file or a list of requirements,
may be read by any kernel when it is launched: where such a file changed, all count. Documents do not.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath

from collector.errors import CollectorError, GitError
from collector.git import find_repository, run_git
from collector.nursery import Nursery
from collector.protocol import DescribeSources
from collector.revision import suite_at_revision
from collector.suite_source import SuiteSource
from collector.worker import Worker
from roofwatch.arguments import suite_at

_DOCUMENTS = frozenset({".md", ".rst"})
_OF_THE_SERVICE = ".github"
_TIMEOUT_S = 60.0


@dataclass(frozen=True)
class Affected:
    """What a change can touch, and what it cannot."""

    kernels: tuple[str, ...]
    """Names, to be measured."""
    skipped: tuple[str, ...]
    """Names, for which all that they are made from is the same."""
    read_by_all: tuple[str, ...] = ()
    """Changed files for which all kernels count."""

    def matching(self, patterns: Sequence[str] | None) -> list[str]:
        """The kernels to measure of those that somebody asked for."""
        return [name for name in self.kernels if not patterns or any(fnmatchcase(name, each) for each in patterns)]

    @property
    def sentence(self) -> str:
        """What is skipped, and why."""
        if self.read_by_all:
            more = f" and {len(self.read_by_all) - 3} more" if len(self.read_by_all) > 3 else ""
            return f"every kernel counts: any of them may read {', '.join(self.read_by_all[:3])}{more}, which changed"
        if not self.skipped:
            return "every kernel is made from a module that changed"
        return f"skipped, since no module that they are made from changed: {', '.join(self.skipped)}"


def find_affected(path: Path, base: str, head: str | None) -> Affected:
    """Load both revisions of a suite, and compare what each kernel is made from.

    Args:
        path: Benchmark file or folder, in a git repository.
        base: Revision.
        head: Revision; the work tree as it is if None.

    Raises:
        GitError: there is no such revision.
        CollectorError: a suite cannot be loaded.
    """
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="roofwatch-affected-")))
        nursery = stack.enter_context(Nursery())
        there, here = (
            _closures(
                nursery,
                suite_at(path, None).source
                if revision is None
                else stack.enter_context(suite_at_revision(path, revision, folder / side)).source,
            )
            for side, revision in (("base", base), ("head", head))
        )
    read_by_all = tuple(sorted(file for file in _changed_files(path, base, head) if _may_be_read_by_all(file)))
    same = {name for name in here if here[name] == there.get(name)} if not read_by_all else set()
    # a kernel that is gone is told by comparing the records, and measured at the base for that
    names = [*here, *(name for name in there if name not in here)]
    return Affected(
        tuple(name for name in names if name not in same), tuple(name for name in names if name in same), read_by_all
    )


def _closures(nursery: Nursery, source: SuiteSource) -> dict[str, str]:
    """By kernel, a digest of the modules that it may use."""
    with Worker(nursery, source, device="cpu", is_watched=True) as worker:
        worker.start()
        found = worker.request(DescribeSources(), timeout_s=_TIMEOUT_S).suite_sources
    if found is None:
        raise CollectorError("what the suite is made from cannot be told; leave --affected out")
    return found.closures


def _changed_files(path: Path, base: str, head: str | None) -> list[str]:
    repository = find_repository(path.resolve())
    if repository is None:
        raise GitError(f"{path}: lies in no git repository, so it has no revision {base!r}")
    against = [base] if head is None else [base, head]
    listed = run_git(repository, "diff", "--name-only", "-z", "--no-renames", "--end-of-options", *against, "--")
    if head is None:
        listed += run_git(repository, "ls-files", "--others", "--exclude-standard", "-z")
    return [file for file in listed.split("\0") if file]


def _may_be_read_by_all(file: str) -> bool:
    path = PurePosixPath(file)
    is_made_by_python = "__pycache__" in path.parts
    return path.suffix not in {".py", *_DOCUMENTS} and path.parts[0] != _OF_THE_SERVICE and not is_made_by_python

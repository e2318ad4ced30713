"""A suite as it was at another commit, checked out beside the user's work tree for as long as it is needed."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from roofwatch.collector.compile.signature import SIGNATURE_SUFFIX
from roofwatch.collector.errors import GitError, SuiteError
from roofwatch.collector.git import checked_out, find_repository, project_of, read_commit
from roofwatch.collector.record.record import Commit
from roofwatch.collector.suite_source import SuiteSource


@dataclass(frozen=True)
class SuiteAt:
    """A suite at a commit."""

    source: SuiteSource
    commit: Commit
    project: str


def import_roots(repository: Path | None) -> tuple[Path, ...]:
    """Where a repository's own packages are imported from."""
    if repository is None:
        return ()
    return tuple(root for root in (repository / "src", repository) if root.is_dir())


@contextlib.contextmanager
def suite_at_revision(path: Path, revision: str, folder: Path, *, project: str | None = None) -> Iterator[SuiteAt]:
    """Check a revision out and point at the same benchmark file or folder in it; a file of signatures is today's.

    Args:
        path: In the user's work tree.
        revision: Anything that git takes for a commit.
        folder: Made for the check-out, and removed at the end.
        project: Name of the project; the repository's folder if left out.

    Raises:
        GitError: the path lies in no repository, or there is no such revision.
        SuiteError: the revision does not have the path.
    """
    path = path.resolve()
    repository = find_repository(path)
    if repository is None:
        raise GitError(f"{path}: lies in no git repository, so it has no revision {revision!r}")
    with checked_out(repository, revision, folder) as work_tree:
        then = work_tree / path.relative_to(repository.resolve())
        if path.suffix == SIGNATURE_SUFFIX:
            # how functions are launched today: what they were made of then is compiled for the same
            then.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, then)
        if not then.exists():
            raise SuiteError(f"{path.relative_to(repository.resolve())}: not there at {revision}")
        yield SuiteAt(
            SuiteSource(then, import_roots(work_tree)), read_commit(work_tree), project or project_of(repository)
        )


@contextlib.contextmanager
def own_suite_at_revision(revision: str, folder: Path) -> Iterator[SuiteAt]:
    """Check a revision of roofwatch itself out and point at the suite that comes with it: its kernels as they were,
    compiled and measured by the roofwatch of today.

    Args:
        revision: Anything that git takes for a commit.
        folder: Made for the check-out, and removed at the end.

    Raises:
        GitError: this roofwatch is not a check-out of a repository, or there is no such revision.
    """
    repository = find_repository(Path(__file__))
    if repository is None:
        raise GitError(f"{Path(__file__).parent}: lies in no git repository, so it has no revision {revision!r}")
    with checked_out(repository, revision, folder) as work_tree:
        yield SuiteAt(SuiteSource(None, (work_tree,)), read_commit(work_tree), "roofwatch")

"""The commits of a suite's repository, and the suite as it was at one of them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from pathlib import Path

from roofwatch.collector.errors import SuiteError
from roofwatch.collector.git import find_repository, run_git
from roofwatch.collector.suite import SuiteAt, own_suite_at_revision, suite_at_revision
from roofwatch.db.values import CommitRef


def repository_of(path: Path | None) -> Path:
    """The repository that a suite lies in.

    Args:
        path: Of the suite in the user's work tree; None for the suite that comes with roofwatch.

    Raises:
        SuiteError: it lies in none.
    """
    there = Path(__file__) if path is None else path.resolve()
    repository = find_repository(there)
    if repository is None:
        raise SuiteError(f"{there}: lies in no git repository, so it has no history")
    return repository


def suite_then(path: Path | None, sha: str, folder: Path) -> AbstractContextManager[SuiteAt]:
    """A suite as it was at a commit, checked out into a folder for as long as it is needed.

    Raises:
        SuiteError: the commit does not have it.
    """
    if path is None:
        return own_suite_at_revision(sha, folder)
    return suite_at_revision(path, sha, folder)


def commits_between(path: Path | None, good: str, bad: str) -> list[str]:
    """The commits after one, up to another, along first parents, the oldest first.

    Raises:
        GitError: there is no such commit.
    """
    repository = repository_of(path)
    listed = run_git(repository, "rev-list", "--first-parent", "--reverse", "--end-of-options", f"{good}..{bad}", "--")
    return listed.split()


def commit_refs(path: Path | None, good: str, shas: Sequence[str]) -> list[CommitRef]:
    """The commits that `commits_between` found after one.

    Raises:
        GitError: one of them is gone.
    """
    repository = repository_of(path)
    count = int(run_git(repository, "rev-list", "--first-parent", "--count", "--end-of-options", good, "--"))
    form = "--format=%H%x00%cI%x00%an%x00%s"
    listed = run_git(repository, "log", "--no-walk=unsorted", form, "--end-of-options", *shas, "--")
    refs = []
    for place, line in enumerate(listed.rstrip("\n").split("\n"), start=count + 1):
        sha, committed_at, author, subject = line.split("\0")
        refs.append(CommitRef(place, sha, author[:500], subject[:1_000], datetime.fromisoformat(committed_at)))
    return refs


def sha_of(path: Path | None, revision: str) -> str:
    """The full sha of a revision.

    Raises:
        GitError: there is no such commit.
    """
    return run_git(
        repository_of(path), "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}"
    ).strip()

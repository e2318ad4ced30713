"""Many commits of a repository, and every version of a file on a branch, such as one that a
continuous job rewrites.
"""

import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path, PurePosixPath

from roofwatch.collector.git import read_commit, read_file_at, run_git
from roofwatch.importers import FileImportError
from roofwatch.importers.presets import PRESETS
from roofwatch.model.errors import GitError
from roofwatch.model.record import Commit

_MAX_VERSIONS = 5_000
_MAX_TAG = 200
_AT_ONCE = 500
"""Commits named in one command."""
_FORMAT = "%H%x00%P%x00%cI%x00%an%x00%s"


def read_commits(repository: Path, revisions: Collection[str]) -> dict[str, Commit]:
    """Read commits by revision, with few calls of git.

    Raises:
        GitError: a revision is unknown.
    """
    names = sorted(revisions)
    commits: dict[str, Commit] = {}
    tags = _tags_by_commit(repository)
    for start in range(0, len(names), _AT_ONCE):
        chunk = names[start : start + _AT_ONCE]
        named = [f"{name}^{{commit}}" for name in chunk]
        arguments = ("log", "--no-walk=unsorted", f"--format={_FORMAT}", "--end-of-options")
        lines = run_git(repository, *arguments, *named).splitlines()
        if len(lines) != len(chunk):  # two names of one commit are listed once
            return {name: read_commit(repository, name) for name in names}
        for name, line in zip(chunk, lines, strict=True):
            sha, parents, committed_at, author, subject = line.split("\0")
            commits[name] = Commit(
                sha=sha,
                parents=tuple(parents.split()),
                first_parent_count=0,
                committed_at=datetime.fromisoformat(committed_at),
                author=author[:500],
                subject=subject[:1_000],
                tags=tuple(tags.get(sha, ())),
            )
    places = _places_of(repository, {commit.sha for commit in commits.values()})
    return {
        name: commit.model_copy(update={"first_parent_count": places[commit.sha]})
        for name, commit in commits.items()
    }


def _places_of(repository: Path, shas: Collection[str]) -> dict[str, int]:
    """Count the commits up to each along first parents."""
    waiting = set(shas)
    places: dict[str, int] = {}
    while waiting:
        # the newest of them has most of the others behind it
        newest = run_git(repository, "rev-list", "--max-count=1", *sorted(waiting)[:_AT_ONCE])
        line = run_git(repository, "rev-list", "--first-parent", newest.strip()).split()
        for position, sha in enumerate(line):
            if sha in waiting:
                places[sha] = len(line) - position
        waiting -= places.keys()
    return places


def _tags_by_commit(repository: Path) -> dict[str, list[str]]:
    form = "--format=%(objectname) %(*objectname) %(refname:short)"
    tags: dict[str, list[str]] = {}
    for line in run_git(repository, "for-each-ref", form, "refs/tags").splitlines():
        object_sha, annotated, name = line.split(" ", 2)
        if len(name) <= _MAX_TAG:
            tags.setdefault(annotated or object_sha, []).append(name)
    return tags


@contextmanager
def versions_of(repository: Path, location: str) -> Iterator[list[Path]]:
    """Write the versions of `BRANCH:PATH` into a temporary folder, the oldest first.

    Further files that a preset reads, such as `meta.json`, are of the same commit.

    Raises:
        FileImportError: the branch has no such file.
        GitError: there is no such branch.
    """
    branch, _, path = location.partition(":")
    if not branch or not path:
        raise FileImportError(f"--git-history {location}: write BRANCH:PATH")
    listed = run_git(
        repository,
        "log",
        "--format=%H",
        f"--max-count={_MAX_VERSIONS}",
        "--end-of-options",
        branch,
        "--",
        path,
    )
    shas = list(reversed(listed.split()))
    name = PurePosixPath(path)
    beside = {preset.columns.beside for preset in PRESETS.values()} - {"", name.name}
    with tempfile.TemporaryDirectory() as folder:
        written: list[Path] = []
        for number, sha in enumerate(shas):
            content = _read(repository, sha, path)
            if content is None:  # this commit deleted it
                continue
            # not named by the commit: it is not the measured one
            version = Path(folder) / f"version-{number:05}"
            version.mkdir()
            (version / name.name).write_bytes(content)
            for companion in beside:
                further = _read(repository, sha, str(name.parent / companion))
                if further is not None:
                    (version / companion).write_bytes(further)
            written.append(version / name.name)
        if not written:
            raise FileImportError(f"{branch}: has no file {path}")
        yield written


def _read(repository: Path, sha: str, path: str) -> bytes | None:
    try:
        return read_file_at(repository, sha, path)
    except GitError:
        return None

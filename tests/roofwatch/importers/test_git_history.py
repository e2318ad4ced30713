"""Many commits, read with few calls of git."""

from __future__ import annotations

from pathlib import Path

import pytest

from roofwatch.collector.git import read_commit
from roofwatch.importers.git_history import read_commits
from roofwatch.model.errors import GitError
from tests.git_repository import commit_file, git, make_repository


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Three commits, one of them tagged, and one on another branch."""
    repository = make_repository(tmp_path / "repository")
    for number in range(3):
        commit_file(repository, "a.txt", f"{number}", f"Change {number}")
    git(repository, "tag", "v1", "HEAD~1")
    git(repository, "tag", "--annotate", "--message", "second", "v2", "HEAD~1")
    git(repository, "checkout", "--quiet", "-b", "side", "HEAD~2")
    commit_file(repository, "b.txt", "b", "Aside")
    return repository


def test_all_commits_are_those_that_are_read_one_by_one(repository: Path) -> None:
    shas = git(repository, "rev-list", "--all").split()

    found = read_commits(repository, {*shas, shas[0][:12]} - {shas[0]})

    assert len(found) == 4
    for name, commit in found.items():
        expected = read_commit(repository, name)
        assert commit == expected.model_copy(update={"branch": None, "is_dirty": False})


def test_two_names_of_one_commit_are_both_found(repository: Path) -> None:
    assert read_commits(repository, {"main", "main~0"})["main~0"].subject == "Change 2"


def test_an_unknown_commit_is_an_error(repository: Path) -> None:
    with pytest.raises(GitError):
        read_commits(repository, {"main", "0" * 40})

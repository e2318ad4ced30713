"""Which commits a watched branch has."""

from pathlib import Path

import pytest

from roofwatch.collector.workers.fork_server import ForkServer
from roofwatch.watch.branch import Branch
from tests.git_repository import commit_file, git, make_repository

COMMIT_COUNT = 203
"""A few more than are watched."""


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = make_repository(tmp_path_factory.mktemp("long"))
    for number in range(COMMIT_COUNT):
        git(folder, "commit", "--quiet", "--allow-empty", "--message", f"Step {number}")
    git(folder, "switch", "--quiet", "--create", "feature")
    commit_file(folder, "feature.py", "FEATURE = 1", "Add a feature")
    git(folder, "switch", "--quiet", "main")
    return folder


def branch(repository: Path, commit_range: str | None = None) -> Branch:
    return Branch(
        path=repository,
        name="main",
        commit_range=commit_range,
        fork_server=ForkServer(),
    )


def test_a_commit_that_is_too_old_to_be_watched_is_found(repository: Path) -> None:
    oldest_sha, newest_sha = git(
        repository, "rev-parse", f"main~{COMMIT_COUNT - 1}", "main"
    ).split()
    watched = branch(repository)

    oldest = watched.find(oldest_sha)
    newest = watched.find(newest_sha)

    assert oldest_sha not in {commit.sha for commit in watched.commits()}
    assert oldest is not None
    assert oldest.subject == "Step 0"
    assert newest is not None
    assert newest.first_parent_count - oldest.first_parent_count == COMMIT_COUNT - 1


def test_a_commit_of_another_branch_is_not_found(repository: Path) -> None:
    assert branch(repository).find(git(repository, "rev-parse", "feature")) is None


def test_a_commit_outside_of_the_range_is_not_found(repository: Path) -> None:
    before, inside = git(repository, "rev-parse", "main~3", "main~1").split()
    watched = branch(repository, "main~2..main")

    assert watched.find(before) is None
    assert watched.find(inside) is not None

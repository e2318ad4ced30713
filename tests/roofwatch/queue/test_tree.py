"""What a client sends of a repository, and what a runner makes of it."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from roofwatch.collector.git import checked_out, read_commit
from roofwatch.model.errors import GitError
from roofwatch.queue.tree import pack_tree, unpack_tree
from tests.git_repository import commit_file, git, make_repository

PAST_BYTES = 300_000
"""Of a file in each older commit; nothing compresses it."""


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    repository = make_repository(tmp_path / "kernels")
    git(repository, "remote", "add", "origin", "https://example.org/owner/kernels.git")
    numbers = random.Random(1)
    for number in range(4):
        (repository / "weights.bin").write_bytes(numbers.randbytes(PAST_BYTES))
        commit_file(repository, "kernel.py", f"SIZE = {number}\n", f"Tune the size (#{number + 1})")
    (repository / "weights.bin").unlink()
    commit_file(repository, "kernel.py", "SIZE = 4\n", "Remove the weights (#5)")
    git(repository, "tag", "v1")
    commit_file(repository, "kernel.py", "SIZE = 5\n", "Grow (#6)")
    return repository


def unpacked(repository: Path, revisions: list[str], folder: Path) -> Path:
    content = pack_tree(repository, revisions).content
    unpack_tree(content, folder, "owner/kernels")
    return folder


def test_the_history_is_not_sent_and_records_name_commits_as_in_the_clone_that_has_it(
    repository: Path, tmp_path: Path
) -> None:
    head, base = git(repository, "rev-parse", "HEAD", "HEAD~1").split()
    (repository / "kernel.py").write_text("SIZE = 6\n")
    (repository / "new.py").write_text("NEW = True\n")

    tree = pack_tree(repository, [base])
    received = unpacked(repository, [base], tmp_path / "runner")

    assert len(tree.content) < PAST_BYTES
    assert git(received, "rev-list", "--glob=refs/queue", "--count") == "3"
    assert (received / "kernel.py").read_text() == "SIZE = 6\n"
    assert (received / "new.py").read_text() == "NEW = True\n"
    assert read_commit(received) == read_commit(repository)
    assert read_commit(received).is_dirty
    assert git(received, "diff", "--name-only", base, head) == "kernel.py"
    with checked_out(received, base, tmp_path / "base") as work_tree:
        assert (work_tree / "kernel.py").read_text() == "SIZE = 4\n"
        at_base = read_commit(work_tree)
    expected = read_commit(repository, base)
    assert at_base == expected.model_copy(update={"branch": None, "is_dirty": False})
    assert (at_base.first_parent_count, at_base.tags, len(at_base.merged)) == (5, ("v1",), 5)


def test_an_older_commit_costs_what_differs_from_the_head(repository: Path, tmp_path: Path) -> None:
    alone = pack_tree(repository, []).content
    with_neighbour = pack_tree(repository, [git(repository, "rev-parse", "HEAD~1")]).content
    with_weights = pack_tree(repository, [git(repository, "rev-parse", "HEAD~2")]).content
    assert len(with_neighbour) - len(alone) < 3_000
    assert len(with_weights) - len(alone) > PAST_BYTES


def test_what_is_no_bundle_is_refused(tmp_path: Path) -> None:
    with pytest.raises(GitError):
        unpack_tree(b"no bundle", tmp_path / "runner", "owner/kernels")

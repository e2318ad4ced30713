"""What a client sends of a repository, and what a runner makes of it."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from roofwatch.collector.build.submodules import fill_submodules
from roofwatch.collector.git import checked_out, read_commit
from roofwatch.model.errors import GitError, SuiteError
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


def test_records_name_commits_of_a_history_that_is_not_sent(
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


def test_a_command_that_reads_the_history_gets_all_of_it_with_its_tags(
    repository: Path, tmp_path: Path
) -> None:
    tree = pack_tree(repository, [], has_history=True)
    unpack_tree(tree.content, tmp_path / "runner", "owner/kernels")

    received = tmp_path / "runner"
    assert len(tree.content) > 4 * PAST_BYTES
    assert git(received, "log", "--oneline") == git(repository, "log", "--oneline")
    assert git(received, "tag", "--points-at", "HEAD~1").split() == ["v1"]
    assert read_commit(received, "HEAD~2") == read_commit(repository, "HEAD~2")


def test_a_file_that_git_ignores_is_sent_if_the_command_reads_it(
    repository: Path, tmp_path: Path
) -> None:
    (repository / ".gitignore").write_text("records/\n")
    for name in ("records", "other/records"):
        (repository / name).mkdir(parents=True)
        (repository / name / "one.json").write_text("{}")

    tree = pack_tree(repository, [], ignored_paths=[repository / "records"])
    unpack_tree(tree.content, tmp_path / "runner", "owner/kernels")

    assert (tmp_path / "runner" / "records" / "one.json").read_text() == "{}"
    assert not (tmp_path / "runner" / "other").exists()
    with pytest.raises(SuiteError, match="outside the repository"):
        pack_tree(repository, [], ignored_paths=[tmp_path])


@pytest.fixture
def with_submodule(repository: Path, tmp_path: Path) -> Path:
    """A repository whose last commit takes a newer commit of its submodule."""
    library = make_repository(tmp_path / "library")
    commit_file(library, "version.txt", "1", "Begin")
    allowed = ("-c", "protocol.file.allow=always")
    git(repository, *allowed, "submodule", "add", "--quiet", str(library), "third_party/library")
    commit_file(repository, "kernel.py", "SIZE = 7\n", "Use the library (#7)")
    newer = commit_file(library, "version.txt", "2", "Release")
    clone = repository / "third_party" / "library"
    git(clone, *allowed, "fetch", "--quiet")
    git(clone, "checkout", "--quiet", newer)
    git(repository, "add", "third_party/library")
    commit_file(repository, "kernel.py", "SIZE = 8\n", "Take the release (#8)")
    return repository


def test_files_of_submodules_are_sent_as_each_commit_has_them(
    with_submodule: Path, tmp_path: Path
) -> None:
    base = git(with_submodule, "rev-parse", "HEAD~1")

    received = unpacked(with_submodule, [base], tmp_path / "runner")

    version = Path("third_party", "library", "version.txt")
    assert (received / version).read_text() == "2"
    assert not read_commit(received).is_dirty
    with checked_out(received, base, tmp_path / "base") as work_tree:
        fill_submodules(received, base, work_tree)
        assert (work_tree / version).read_text() == "1"


def test_a_submodule_with_changes_is_refused(with_submodule: Path) -> None:
    (with_submodule / "third_party" / "library" / "version.txt").write_text("3")
    with pytest.raises(SuiteError, match="third_party/library: this submodule has changes"):
        pack_tree(with_submodule, [])


def test_content_that_only_git_lfs_has_is_refused_but_a_pointer_is_sent(
    repository: Path, tmp_path: Path
) -> None:
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"
    (repository / "weights.pt").write_text(pointer)
    commit_file(repository, ".gitattributes", "*.pt filter=lfs\n", "Keep weights in LFS (#7)")
    received = unpacked(repository, [], tmp_path / "runner")
    assert (received / "weights.pt").read_text() == pointer

    (repository / "weights.pt").write_text("numbers")
    with pytest.raises(SuiteError, match=r"weights\.pt: git LFS keeps its content"):
        pack_tree(repository, [])


def test_a_runner_with_git_lfs_asks_no_server_for_files(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"
    (repository / "weights.pt").write_text(pointer)
    commit_file(repository, ".gitattributes", "*.pt filter=lfs\n", "Keep weights in LFS (#7)")
    content = pack_tree(repository, []).content
    settings = tmp_path / "gitconfig"
    settings.write_text('[filter "lfs"]\nsmudge = false\nprocess = false\nrequired = true\n')
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(settings))

    unpack_tree(content, tmp_path / "runner", "owner/kernels")

    assert (tmp_path / "runner" / "weights.pt").read_text() == pointer

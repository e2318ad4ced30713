import subprocess
import sys
from pathlib import Path

import pytest

from roofwatch.collector.git import (
    carried_commit,
    checked_out,
    commit_of,
    find_repository,
    project_of,
    read_commit,
    run_git,
)
from roofwatch.model.errors import GitError
from tests.git_repository import commit_file, git, make_repository


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = make_repository(tmp_path / "my project")
    for number in (1, 2, 3):
        commit_file(folder, "bench_x.py", f"NUMBER = {number}\n", f"Number {number}")
    return folder


def test_a_commit_knows_its_place_on_the_branch(repository: Path) -> None:
    newest, oldest = read_commit(repository), read_commit(repository, "HEAD~2")
    assert (newest.first_parent_count, oldest.first_parent_count) == (3, 1)
    assert (newest.subject, newest.author, newest.branch) == ("Number 3", "A. Author", "main")
    assert (oldest.parents, newest.parents) == ((), (read_commit(repository, "HEAD~1").sha,))
    assert not newest.is_dirty


@pytest.mark.parametrize(
    ("subject", "number"),
    [
        ("Add split-K (#41)", 41),
        ("Merge pull request #42 from someone/branch", 42),
        ("Merge branch 'x' into 'main'\n\nFaster\n\nSee merge request group/project!43", 43),
        ('Revert "Add split-K (#41)" (#44)', 44),
        ("Speak of (#45) in the middle", None),
        ("Add it (#0)", None),
    ],
)
def test_a_commit_knows_the_pull_requests_of_its_branch(
    repository: Path, subject: str, number: int | None
) -> None:
    commit_file(repository, "bench_x.py", "NUMBER = 4\n", subject)
    commit_file(repository, "bench_x.py", "NUMBER = 5\n", "Number 5")

    merged = read_commit(repository).merged

    expected = [] if number is None else [(4, number, None)]
    assert [(item.first_parent_count, item.number, item.head_sha) for item in merged] == expected


def test_a_merge_without_a_number_names_what_it_merged(repository: Path) -> None:
    git(repository, "checkout", "--quiet", "-b", "feature")
    head_sha = commit_file(repository, "other.py", "", "A feature")
    git(repository, "checkout", "--quiet", "main")
    git(repository, "merge", "--quiet", "--no-ff", "--message", "Merge it", "feature")

    (merged,) = read_commit(repository).merged

    assert (merged.first_parent_count, merged.number, merged.head_sha) == (4, None, head_sha)


def test_an_unknown_file_makes_its_commit_dirty(repository: Path) -> None:
    stray = repository / "bench_new.py"
    stray.write_text("")
    assert commit_of(stray)[0].is_dirty
    # the file that git knows is as committed
    assert not commit_of(repository / "bench_x.py")[0].is_dirty


def test_a_changed_file_makes_the_commit_dirty(repository: Path) -> None:
    benchmark = repository / "bench_x.py"
    benchmark.write_text("NUMBER = 4\n")
    assert commit_of(benchmark)[0].is_dirty


def test_a_project_is_named_after_its_folder_in_every_work_tree(
    repository: Path, tmp_path: Path
) -> None:
    with checked_out(repository, "HEAD~1", tmp_path / "tree") as tree:
        assert commit_of(tree / "bench_x.py")[1] == commit_of(repository)[1] == "my-project"
        assert (tree / "bench_x.py").read_text() == "NUMBER = 2\n"
        assert not commit_of(tree / "bench_x.py")[0].is_dirty
    assert not (tmp_path / "tree").exists()
    assert run_git(repository, "worktree", "list").count("\n") == 1


def test_outside_a_repository_a_content_hash_replaces_the_commit(tmp_path: Path) -> None:
    file = tmp_path / "bench_x.py"
    file.write_text("A = 1\n")
    first, _ = commit_of(file)
    file.write_text("A = 2\n")
    second, _ = commit_of(file)
    assert first.sha != second.sha
    assert first.is_dirty
    assert first.subject == "(not in a git repository)"
    assert find_repository(file) is None


def test_every_file_of_a_folder_is_in_its_stand_in_commit(tmp_path: Path) -> None:
    package, linked = tmp_path / "package", tmp_path / "elsewhere"
    package.mkdir()
    linked.mkdir()
    (package / "kernels").symlink_to(linked)
    (package / "a.py").write_text("")
    shas = set()
    for content in ("A = 1\n", "A = 2\n"):
        (linked / "b.py").write_text(content)
        shas.add(commit_of(package)[0].sha)
    assert len(shas) == 2


def test_the_commit_of_the_bundled_suite_is_carried_to_a_machine_without_the_repository(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = read_commit(repository)
    file = tmp_path / "bench_x.py"
    file.write_text("")
    monkeypatch.setenv("ROOFWATCH_COMMIT", commit.model_dump_json())
    assert carried_commit() == commit
    assert commit_of(file)[0] != commit, "a file outside any repository"
    elsewhere = commit.model_copy(update={"sha": "f" * 40})
    monkeypatch.setenv("ROOFWATCH_COMMIT", elsewhere.model_dump_json())
    assert commit_of(repository)[0].sha == commit.sha, "a suite with a repository of its own"
    monkeypatch.setenv("ROOFWATCH_COMMIT", "{}")
    with pytest.raises(GitError, match="ROOFWATCH_COMMIT is not a commit as JSON"):
        carried_commit()


def test_without_git_there_is_no_repository(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_repository(repository) is None
    assert commit_of(repository / "bench_x.py")[0].is_dirty


def test_without_the_trust_of_git_there_is_no_repository(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    git = tmp_path / "git"
    git.write_text(
        "#!/bin/sh\necho 'fatal: detected dubious ownership in repository' >&2; exit 128\n"
    )
    git.chmod(0o755)
    assert find_repository(repository) is None


def test_an_unknown_revision_is_refused(repository: Path) -> None:
    with pytest.raises(GitError, match="nothing-like-it"):
        read_commit(repository, "nothing-like-it")
    with pytest.raises(GitError, match=r"--output=x"):  # a revision is never an option
        read_commit(repository, "--output=x")


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://github.com/owner/kernels.git", "owner/kernels"),
        ("https://user:token@gitlab.example:8443/group/team/kernels/", "group/team/kernels"),
        ("git@github.com:owner/kernels.git", "owner/kernels"),
        ("ssh://git@github.com/owner/kernels", "owner/kernels"),
        ("/srv/clones/kernels.git", "checkout"),
    ],
)
def test_a_project_is_named_by_its_remote_or_its_folder(
    tmp_path: Path, url: str, expected: str
) -> None:
    repository = tmp_path / "checkout"
    repository.mkdir()
    run_git(repository, "init", "-q")
    run_git(repository, "remote", "add", "origin", url)

    assert project_of(repository) == expected


def test_the_work_tree_of_a_killed_process_is_removed_by_the_next(
    repository: Path, tmp_path: Path
) -> None:
    killed, live = tmp_path / "killed" / "tree", tmp_path / "live" / "tree"
    program = f"""
import os
from pathlib import Path
from roofwatch.collector.git import checked_out
with checked_out(Path({str(repository)!r}), "HEAD", Path({str(killed)!r})):
    os._exit(9)
"""
    subprocess.run([sys.executable, "-c", program], check=False)
    assert killed.is_dir()

    with checked_out(repository, "HEAD", live), checked_out(repository, "HEAD", tmp_path / "other"):
        assert not killed.parent.exists()
        assert live.is_dir()
        assert str(killed) not in run_git(repository, "worktree", "list")

    assert run_git(repository, "worktree", "list").count("\n") == 1

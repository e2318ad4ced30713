"""The tree of a job: a git bundle of the commits that it needs, without history, and the work tree.

It costs the compressed files of the head once, and of other commits what differs from it.
"""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from roofwatch.collector.git import (
    COMMIT_NOTES,
    has_commits,
    is_shallow,
    read_commit,
    resolve_commit,
    run_git,
)
from roofwatch.model.errors import GitError, SuiteError
from roofwatch.model.queue import MAX_CONTENT_BYTES

_HEAD = "refs/queue/head"
_WORK_TREE = "refs/queue/work-tree"
_REVISION = "refs/queue/revision"
_BRANCH = "refs/queue/branch"
_OLDEST = (_HEAD, f"{_REVISION}/")
"""References of the commits that come without their parents."""
_PROJECT_HOST = "https://queue.invalid"
"""The project of a checkout is the path of its remote; nothing is fetched from it."""
_NOTE = ("notes", "--ref", COMMIT_NOTES)
_PERSON = {
    "GIT_AUTHOR_NAME": "roofwatch",
    "GIT_AUTHOR_EMAIL": "roofwatch@localhost",
    "GIT_COMMITTER_NAME": "roofwatch",
    "GIT_COMMITTER_EMAIL": "roofwatch@localhost",
}


@dataclass(frozen=True)
class Tree:
    """A repository as a client has it."""

    content: bytes
    """A git bundle."""
    head_sha: str


def pack_tree(repository: Path, revisions: Sequence[str]) -> Tree:
    """Bundle the head, the work tree with untracked files that are not ignored, and revisions.

    Older commits are left out. Notes keep what records say of a commit's place in the history.
    The repository is not changed: the objects of the work tree are in a repository of their own.

    Raises:
        GitError: git fails, nothing is committed, or the clone is shallow.
        SuiteError: the bundle is too large.
    """
    if not has_commits(repository):
        raise GitError(f"{repository}: nothing is committed yet, so there is no commit to measure")
    if is_shallow(repository):
        raise GitError(f"{repository}: the clone is shallow; run git fetch --unshallow first")
    head_sha = resolve_commit(repository, "HEAD")
    objects = run_git(
        repository, "rev-parse", "--path-format=absolute", "--git-path", "objects"
    ).strip()
    with tempfile.TemporaryDirectory(prefix="roofwatch-queue-") as name:
        packed = Path(name, "packed.git")
        run_git(repository, "init", "--quiet", "--bare", str(packed))
        (packed / "objects" / "info" / "alternates").write_text(f"{objects}\n")
        needed_shas = sorted({head_sha, *revisions})
        _write_boundary(packed, needed_shas)
        for sha in needed_shas:
            commit = read_commit(repository, sha)
            _git_as_person(packed, *_NOTE, "add", "-m", commit.model_dump_json(), sha)
        work_tree_sha = _commit_work_tree(repository, packed, head_sha)
        references = {_HEAD: head_sha, _WORK_TREE: work_tree_sha}
        for position, sha in enumerate(revisions):
            references[f"{_REVISION}/{position}"] = sha
        branch = run_git(repository, "rev-parse", "--abbrev-ref", "HEAD").strip()
        if branch != "HEAD":
            references[f"{_BRANCH}/{branch}"] = head_sha
        for reference, sha in references.items():
            run_git(packed, "update-ref", reference, sha)
        bundle = Path(name, "tree.bundle")
        named = [*references, COMMIT_NOTES]
        run_git(packed, "bundle", "create", "--quiet", str(bundle), *named)
        size_bytes = bundle.stat().st_size
        if size_bytes > MAX_CONTENT_BYTES:
            raise SuiteError(
                f"{repository}: the files of {len(needed_shas)} commits and the work tree take "
                f"{size_bytes} bytes compressed, at most {MAX_CONTENT_BYTES} can be queued; ignore "
                "large files, or measure on the machine itself"
            )
        return Tree(bundle.read_bytes(), head_sha)


def _write_boundary(repository: Path, shas: Sequence[str]) -> None:
    """Make commits the oldest ones of a bare repository, as in a shallow clone."""
    (repository / "shallow").write_text("".join(f"{sha}\n" for sha in shas))


def _git_as_person(repository: Path, *arguments: str) -> str:
    return run_git(repository, *arguments, extra_environment=_PERSON)


def _commit_work_tree(repository: Path, packed: Path, head_sha: str) -> str:
    """Commit the work tree on top of the head, into another repository."""
    environment = {
        **_PERSON,
        "GIT_DIR": str(packed),
        "GIT_WORK_TREE": str(repository),
        "GIT_INDEX_FILE": str(packed / "work-tree.index"),
    }
    run_git(repository, "read-tree", head_sha, extra_environment=environment)
    run_git(repository, "add", "--all", "--", ".", extra_environment=environment)
    tree_sha = run_git(repository, "write-tree", extra_environment=environment).strip()
    return run_git(
        repository,
        "commit-tree",
        tree_sha,
        "-p",
        head_sha,
        "-m",
        "work tree",
        extra_environment=environment,
    ).strip()


def unpack_tree(content: bytes, folder: Path, project: str) -> None:
    """Restore a repository: its head is checked out, and what its work tree changes is uncommitted.

    Raises:
        GitError: the content is no bundle of a tree.
    """
    bundle = folder.with_suffix(".bundle")
    bundle.write_bytes(content)
    try:
        run_git(folder.parent, "init", "--quiet", str(folder))
        listed = run_git(folder, "bundle", "list-heads", str(bundle)).splitlines()
        references = [line.partition(" ") for line in listed]
        oldest_shas = {sha for sha, _, name in references if name.startswith(_OLDEST)}
        _write_boundary(folder / ".git", sorted(oldest_shas))
        # git reads a bundle as a file, whatever its references claim
        run_git(
            folder,
            "-c",
            "protocol.file.allow=always",
            "-c",
            "fetch.fsckObjects=true",
            "fetch",
            "--quiet",
            "--no-tags",
            str(bundle),
            "refs/queue/*:refs/queue/*",
            f"{COMMIT_NOTES}:{COMMIT_NOTES}",
        )
    finally:
        bundle.unlink()
    head_sha = resolve_commit(folder, _HEAD)
    branch = run_git(folder, "for-each-ref", "--format=%(refname)", _BRANCH).strip()
    run_git(folder, "checkout", "--quiet", "--detach", head_sha)
    if branch:
        run_git(folder, "checkout", "--quiet", "-B", branch.removeprefix(f"{_BRANCH}/"), head_sha)
    run_git(folder, "restore", f"--source={_WORK_TREE}", "--worktree", "--", ":/")
    run_git(folder, "config", "remote.origin.url", f"{_PROJECT_HOST}/{project}")

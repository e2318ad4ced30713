"""The tree of a job: a git bundle of the commits that it needs, without history, and the work tree.

It costs the compressed files of the head once, and of other commits what differs from it. Commits
of submodules come from their clones in the work tree.
"""

import tempfile
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from roofwatch.collector.build.submodules import list_submodules
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
_SUBMODULE = "refs/queue/submodule"
_HISTORY = "refs/queue/history"
"""The head, if all of its history comes with it."""
_OLDEST = (_HEAD, f"{_REVISION}/")
"""References of the commits that come without their parents, unless the history comes."""
_LFS_POINTER = b"version https://git-lfs.github.com/spec/"
_WITHOUT_LFS = {"smudge": "cat", "process": "", "required": "false"}
"""A runner has the pointers as they are, and no server to ask for more."""
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


def pack_tree(
    repository: Path,
    revisions: Sequence[str],
    *,
    ignored_paths: Sequence[Path] = (),
    has_history: bool = False,
) -> Tree:
    """Bundle the head, the work tree with untracked files that are not ignored, and revisions.

    Notes keep what records say of a commit's place in the history. The repository is not changed:
    the objects of the work tree are in a repository of their own.

    Args:
        repository: Root of a work tree.
        revisions: SHAs of other commits.
        ignored_paths: Files and folders of the work tree that are sent although git ignores them.
        has_history: Send all older commits and their tags too.

    Raises:
        GitError: git fails, nothing is committed, or the clone is shallow.
        SuiteError: the bundle is too large, or lacks something that this work tree has.
    """
    if not has_commits(repository):
        raise GitError(f"{repository}: nothing is committed yet, so there is no commit to measure")
    if is_shallow(repository):
        raise GitError(f"{repository}: the clone is shallow; run git fetch --unshallow first")
    _refuse_large_file_storage(repository)
    head_sha = resolve_commit(repository, "HEAD")
    with tempfile.TemporaryDirectory(prefix="roofwatch-queue-") as name:
        packed = Path(name, "packed.git")
        run_git(repository, "init", "--quiet", "--bare", str(packed))
        _share_objects(packed, [repository])
        needed_shas = sorted({head_sha, *revisions})
        for sha in needed_shas:
            commit = read_commit(repository, sha)
            _git_as_person(packed, *_NOTE, "add", "-m", commit.model_dump_json(), sha)
        oldest_shas: set[str] = set()
        if not has_history:
            oldest_shas |= set(needed_shas)
        _write_boundary(packed, oldest_shas)
        work_tree_sha = _commit_work_tree(repository, packed, head_sha, ignored_paths)
        submodules = _cloned_submodules(repository, packed, [*needed_shas, work_tree_sha])
        _share_objects(packed, [repository, *(repository / path for path, _ in submodules)])
        oldest_shas |= {sha for _, sha in submodules}
        _write_boundary(packed, oldest_shas)
        references = {_HEAD: head_sha, _WORK_TREE: work_tree_sha}
        for position, sha in enumerate(revisions):
            references[f"{_REVISION}/{position}"] = sha
        for position, (_, sha) in enumerate(submodules):
            references[f"{_SUBMODULE}/{position}"] = sha
        branch = run_git(repository, "rev-parse", "--abbrev-ref", "HEAD").strip()
        if branch != "HEAD":
            references[f"{_BRANCH}/{branch}"] = head_sha
        if has_history:
            references[_HISTORY] = head_sha
            references |= _tags_of(repository, head_sha)
        for reference, sha in references.items():
            run_git(packed, "update-ref", reference, sha)
        bundle = Path(name, "tree.bundle")
        named = [*references, COMMIT_NOTES]
        run_git(packed, "bundle", "create", "--quiet", str(bundle), *named)
        size_bytes = bundle.stat().st_size
        if size_bytes > MAX_CONTENT_BYTES:
            contents = "the whole history" if has_history else f"{len(needed_shas)} commits"
            raise SuiteError(
                f"{repository}: the files of {contents} and the work tree take "
                f"{size_bytes} bytes compressed, at most {MAX_CONTENT_BYTES} can be queued; ignore "
                "large files, or measure on the machine itself"
            )
        return Tree(bundle.read_bytes(), head_sha)


def _refuse_large_file_storage(repository: Path) -> None:
    """Raise SuiteError if a file has content here that only its Git LFS server has."""
    listed = run_git(repository, "ls-files", "-z", "--", ":(top,attr:filter=lfs)")
    for name in filter(None, listed.split("\0")):
        file = repository / name
        # a pointer is all that this machine has, too
        if file.is_file() and not _is_pointer(file):
            raise SuiteError(
                f"{name}: git LFS keeps its content, which the queue does not send; commit it "
                "without LFS, or measure on the machine itself"
            )


def _is_pointer(file: Path) -> bool:
    with file.open("rb") as content:
        return content.read(len(_LFS_POINTER)) == _LFS_POINTER


def _cloned_submodules(
    repository: Path, packed: Path, commits: Sequence[str]
) -> list[tuple[str, str]]:
    """Path and commit of each submodule that some commits name and the work tree has a clone of.

    Raises:
        SuiteError: files of a clone are not committed.
    """
    named: set[tuple[str, str]] = set()
    for commit in commits:
        named.update(list_submodules(packed, commit))
    submodules: list[tuple[str, str]] = []
    for path, sha in sorted(named):
        clone = repository / path
        if not (clone / ".git").exists():
            continue
        if run_git(clone, "status", "--porcelain").strip():
            raise SuiteError(f"{path}: this submodule has changes; commit them there to send them")
        if _has_commit(clone, sha):
            submodules.append((path, sha))
    return submodules


def _has_commit(repository: Path, sha: str) -> bool:
    try:
        run_git(repository, "cat-file", "-e", f"{sha}^{{commit}}")
    except GitError:
        return False
    return True


def _tags_of(repository: Path, head_sha: str) -> dict[str, str]:
    """Commit of each tag in the history of the head, by reference."""
    listed = run_git(
        repository,
        "for-each-ref",
        f"--merged={head_sha}",
        "--format=%(refname) %(objectname) %(*objectname)",
        "refs/tags",
    )
    tags: dict[str, str] = {}
    for line in listed.splitlines():
        # an annotated tag names its commit last
        reference, *shas = line.split()
        tags[reference] = shas[-1]
    return tags


def _share_objects(repository: Path, sources: Sequence[Path]) -> None:
    """Let a repository read the objects of other repositories."""
    folders: list[str] = []
    for source in sources:
        listed = run_git(source, "rev-parse", "--path-format=absolute", "--git-path", "objects")
        folders.append(listed.strip())
    git_folder = run_git(repository, "rev-parse", "--absolute-git-dir").strip()
    alternates = Path(git_folder, "objects", "info", "alternates")
    alternates.write_text("".join(f"{folder}\n" for folder in dict.fromkeys(folders)))


def _write_boundary(git_folder: Path, shas: Collection[str]) -> None:
    """Make commits the oldest ones of a repository, as in a shallow clone."""
    if shas:
        (git_folder / "shallow").write_text("".join(f"{sha}\n" for sha in sorted(shas)))


def _git_as_person(repository: Path, *arguments: str) -> str:
    return run_git(repository, *arguments, extra_environment=_PERSON)


def _commit_work_tree(
    repository: Path, packed: Path, head_sha: str, ignored_paths: Sequence[Path]
) -> str:
    """Commit the work tree on top of the head, into another repository.

    Raises:
        SuiteError: an ignored path is outside the repository.
    """
    environment = {
        **_PERSON,
        "GIT_DIR": str(packed),
        "GIT_WORK_TREE": str(repository),
        "GIT_INDEX_FILE": str(packed / "work-tree.index"),
    }
    run_git(repository, "read-tree", head_sha, extra_environment=environment)
    run_git(repository, "add", "--all", "--", ".", extra_environment=environment)
    for path in ignored_paths:
        inside = inside_repository(path, repository).as_posix()
        run_git(repository, "add", "--force", "--", inside, extra_environment=environment)
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


def inside_repository(path: Path, repository: Path) -> Path:
    """The path of a file, relative to the repository.

    Raises:
        SuiteError: it is outside.
    """
    root = repository.resolve()
    resolved = path.resolve()
    if not resolved.is_relative_to(root):
        raise SuiteError(f"{path}: outside the repository {root}, so the runner would not have it")
    return resolved.relative_to(root)


def unpack_tree(content: bytes, folder: Path, project: str) -> None:
    """Restore a repository: its head is checked out, and what its work tree changes is uncommitted.

    Raises:
        GitError: the content is no bundle of a tree.
    """
    bundle = folder.with_suffix(".bundle")
    bundle.write_bytes(content)
    try:
        run_git(folder.parent, "init", "--quiet", str(folder))
        for key, value in _WITHOUT_LFS.items():
            run_git(folder, "config", f"filter.lfs.{key}", value)
        listed = run_git(folder, "bundle", "list-heads", str(bundle)).splitlines()
        _write_boundary(folder / ".git", _oldest_of(listed))
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
            "refs/tags/*:refs/tags/*",
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
    _clone_submodules(folder)
    run_git(folder, "config", "remote.origin.url", f"{_PROJECT_HOST}/{project}")


def _oldest_of(listed: Sequence[str]) -> set[str]:
    """The commits of a bundle that come without their parents."""
    references = [line.partition(" ") for line in listed]
    names = {name for _, _, name in references}
    oldest: tuple[str, ...] = (f"{_SUBMODULE}/",)
    if _HISTORY not in names:
        oldest += _OLDEST
    return {sha for sha, _, name in references if name.startswith(oldest)}


def _clone_submodules(folder: Path) -> None:
    """Make clones of the submodules, as a user has them, from the commits that came."""
    listed = run_git(folder, "for-each-ref", "--format=%(objectname)", _SUBMODULE)
    received_shas = set(listed.split())
    for path, sha in list_submodules(folder, _WORK_TREE):
        clone = folder / path
        # a link in the tree must not lead out of it
        if sha not in received_shas or not clone.resolve().is_relative_to(folder.resolve()):
            continue
        run_git(folder, "init", "--quiet", str(clone))
        _share_objects(clone, [folder])
        # commits of other revisions too: each is the oldest that the clone has
        _write_boundary(clone / ".git", received_shas)
        run_git(clone, "checkout", "--quiet", "--detach", sha)

"""Git: read commits and check them out in another folder. The user's work tree is never changed."""

import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from pydantic import ValidationError

from roofwatch.model.errors import GitError
from roofwatch.model.record import Commit, MergedPullRequest

_FORMAT = "%H%x00%P%x00%cI%x00%an%x00%s"
_GIT_MISSING = "git is not installed or not on PATH; install it (Debian: apt install git)"
_NO_REPOSITORY = ("not a git repository", "dubious ownership", _GIT_MISSING)

COMMIT_NOTES = "refs/notes/roofwatch"
"""Git notes of a clone without history: what `read_commit` said of a commit in the whole one."""
_LISTED_COMMITS = 100
_PULL_REQUEST_NUMBER = re.compile(
    r"\AMerge pull request #([1-9]\d{0,8}) "
    r"|\A.*\(#([1-9]\d{0,8})\)$"
    r"|^See merge request \S*!([1-9]\d{0,8})$",
    re.MULTILINE,
)
"""How GitHub and GitLab name a pull or merge request in the message of a merge or squash."""
_DEPTHS = ("--depth=100", "--depth=2000", "--unshallow")
_WAY_OUT = "name another base, or give actions/checkout `fetch-depth: 0`"
_SHALLOW = (
    "the clone is shallow and lacks older commits: run `git fetch --unshallow`, or give "
    "actions/checkout `fetch-depth: 0`"
)
_UNKNOWN_REVISION = re.compile(
    "single revision|unknown revision|(invalid|bad) (reference|revision|object)|not a valid object",
    re.IGNORECASE,
)
"""In messages of git."""
_REMOTE_PATH = re.compile(r"(?:\w+://[^/]+/|[\w.-]+@[\w.-]+:)([\w./-]+?)(?:\.git)?/?$")
"""The path in the URL of a remote repository; a local folder does not match."""


def run_git(folder: Path, *arguments: str, extra_environment: dict[str, str] | None = None) -> str:
    """Run git in a folder and return its output.

    Raises:
        GitError: git is missing or fails; the message is git's.
    """
    environment = {
        **os.environ,
        "GIT_OPTIONAL_LOCKS": "0",
        "LC_ALL": "C",
        **(extra_environment or {}),
    }
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments],
            capture_output=True,
            text=True,
            check=False,
            env=environment,
        )
    except FileNotFoundError:
        raise GitError(_GIT_MISSING) from None
    if done.returncode != 0:
        reason = done.stderr.strip() or f"exit status {done.returncode}"
        if _UNKNOWN_REVISION.search(reason) and is_shallow(folder):
            reason += f"; {_SHALLOW}"
        raise GitError(f"git {arguments[0]} in {folder}: {reason}")
    return done.stdout


def read_file_at(repository: Path, revision: str, path: str) -> bytes:
    """Read a file as it was at a revision.

    Raises:
        GitError: it did not exist.
    """
    done = subprocess.run(
        ["git", "-C", str(repository), "cat-file", "blob", f"{revision}:{path}"],
        capture_output=True,
        check=False,
    )
    if done.returncode != 0:
        raise GitError(f"git cat-file in {repository}: {done.stderr.decode().strip()}")
    return done.stdout


def is_in_commit(path: Path, revision: str) -> bool:
    """Whether a commit has a file or folder of the work tree.

    Raises:
        GitError: the path is in no repository, or there is no such revision.
    """
    repository = find_repository(path.resolve())
    if repository is None:
        raise GitError(f"{path}: is in no git repository, so it has no revision {revision!r}")
    sha = resolve_commit(repository, revision)
    name = path.resolve().relative_to(repository.resolve()).as_posix()
    return run_git(repository, "ls-tree", sha, "--", name) != ""


def is_shallow(repository: Path) -> bool:
    """Return whether a clone lacks older commits."""
    return run_git(repository, "rev-parse", "--is-shallow-repository").strip() == "true"


def resolve_commit(repository: Path, revision: str) -> str:
    """Return the SHA of a revision.

    Raises:
        GitError: it does not exist.
    """
    arguments = ("rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
    try:
        return run_git(repository, *arguments).strip()
    except GitError:
        advice = ""
        if is_shallow(repository):
            advice = f"; {_SHALLOW}"
        elif not run_git(repository, "rev-list", "--max-count=1", "--all"):
            advice = "; nothing is committed yet: git add --all && git commit -m 'First kernel'"
        raise GitError(
            f"git rev-parse in {repository}: there is no commit {revision}{advice}"
        ) from None


def find_repository(path: Path) -> Path | None:
    """Root of the work tree that contains `path`; None without one, without git, or if git
    distrusts its owner.
    """
    folder = path
    if not path.is_dir():
        folder = path.parent
    try:
        return Path(run_git(folder, "rev-parse", "--show-toplevel").strip())
    except GitError as error:
        if any(reason in str(error) for reason in _NO_REPOSITORY):
            return None
        raise


def list_files(tree: Path) -> list[str]:
    """List the files of a work tree that git does not ignore, without those of submodules; all
    files of a folder that is no work tree.
    """
    if not (tree / ".git").exists():
        return [file.relative_to(tree).as_posix() for file in tree.rglob("*") if file.is_file()]
    listed = run_git(tree, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    return [name for name in listed.split("\0") if name]


def read_commit(repository: Path, revision: str = "HEAD") -> Commit:
    """Read what a record stores of a commit; `is_dirty` is true if tracked files differ from HEAD.

    Raises:
        GitError: the commit is unknown.
    """
    line = run_git(repository, "log", "-1", f"--format={_FORMAT}", "--end-of-options", revision)
    sha, parents, committed_at, author, subject = line.rstrip("\n").split("\0")
    status = run_git(repository, "status", "--porcelain", "--untracked-files=no")
    is_dirty = bool(status.strip())
    branch = run_git(repository, "rev-parse", "--abbrev-ref", "HEAD").strip()
    branch_name = None
    if branch != "HEAD":
        branch_name = branch[:500]
    if noted := _noted_commit(repository, sha):
        return noted.model_copy(update={"is_dirty": is_dirty, "branch": branch_name})
    count = run_git(repository, "rev-list", "--first-parent", "--count", sha)
    tags = run_git(repository, "tag", "--points-at", sha).split()
    return Commit(
        sha=sha,
        parents=tuple(parents.split()),
        first_parent_count=int(count),
        committed_at=datetime.fromisoformat(committed_at),
        author=author[:500],
        subject=subject[:1_000],
        branch=branch_name,
        is_dirty=is_dirty,
        tags=tuple(tag for tag in tags if len(tag) <= 200),
        merged=tuple(_merged_pull_requests(repository, sha, int(count))),
    )


def _noted_commit(repository: Path, sha: str) -> Commit | None:
    """The commit of a shallow clone as a note describes it, with its place in the history."""
    if not is_shallow(repository):
        return None
    try:
        note = run_git(repository, "notes", "--ref", COMMIT_NOTES, "show", sha)
    except GitError:
        return None
    return Commit.model_validate_json(note)


def _merged_pull_requests(repository: Path, sha: str, count: int) -> Iterator[MergedPullRequest]:
    """List the pull requests of the newest commits of a branch, the newest first."""
    listed = run_git(
        repository,
        "log",
        "--first-parent",
        f"--max-count={_LISTED_COMMITS}",
        "--format=%P%x00%B%x01",
        "--end-of-options",
        sha,
    )
    for position, entry in enumerate(listed.split("\x01")[:-1]):
        parents, _, message = entry.strip("\n").partition("\0")
        numbered = _PULL_REQUEST_NUMBER.search(message)
        merged_shas = parents.split()[1:2]
        if numbered is None and not merged_shas:
            continue
        number: int | None = None
        if numbered is not None:
            number = int(numbered[1] or numbered[2] or numbered[3])
        yield MergedPullRequest(
            first_parent_count=count - position,
            number=number,
            head_sha=next(iter(merged_shas), None),
        )


def commit_of(path: Path) -> tuple[Commit, str]:
    """The commit of a benchmark file or folder, and its project name.

    Outside a repository, or without commits, a content hash replaces the commit. It is marked
    dirty, so the run is stored and shown, but not part of any history.
    """
    repository = find_repository(path)
    if repository is None or not has_commits(repository):
        return _stand_in_commit(path), project_name(path.resolve().parent)
    commit = read_commit(repository)
    if path.is_file():
        listed = run_git(repository, "ls-files", "--", str(path.resolve()))
        # a file that git does not track is in no commit
        if not listed.strip():
            commit = commit.model_copy(update={"is_dirty": True})
    return commit, project_of(repository)


def carried_commit() -> Commit | None:
    """The commit of the bundled suite on a machine that gets its files without `.git`: the
    environment variable ROOFWATCH_COMMIT names it, as the JSON of a record's `commit`.

    Raises:
        GitError: it is not such JSON.
    """
    carried = os.environ.get("ROOFWATCH_COMMIT")
    if not carried:
        return None
    try:
        return Commit.model_validate_json(carried)
    except ValidationError as error:
        raise GitError(
            f"ROOFWATCH_COMMIT is not a commit as JSON: {error.errors()[0]['msg']}"
        ) from None


def project_of(repository: Path) -> str:
    """Project name: the path of the remote `origin`, such as `owner/kernels`; without one, the
    repository's folder.

    It is the same in all work trees and clones.
    """
    with contextlib.suppress(GitError):
        url = run_git(repository, "config", "remote.origin.url").strip()
        if remote_path := _REMOTE_PATH.match(url):
            return re.sub(r"[^\w./-]", "-", remote_path[1]).lstrip("-./")[:200]
    printed = run_git(repository, "rev-parse", "--path-format=absolute", "--git-common-dir")
    folder = Path(printed.strip())
    if folder.name == ".git":
        folder = folder.parent
    return project_name(folder)


def project_name(folder: Path) -> str:
    return re.sub(r"[^\w.-]", "-", folder.name).lstrip("-.")[:200] or "project"


@contextlib.contextmanager
def checked_out(repository: Path, revision: str, folder: Path) -> Iterator[Path]:
    """Check out a commit into a detached work tree in `folder`; removed at the end.

    A locked file next to it shows that it is in use. Work trees that a killed process left are
    removed.

    Raises:
        GitError: the commit is unknown, or the folder exists.
    """
    _remove_abandoned(repository)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _lock_file(folder).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        run_git(repository, "worktree", "add", "--quiet", "--detach", str(folder), revision)
        try:
            yield folder
        finally:
            _remove_work_tree(repository, folder)


def _lock_file(work_tree: Path) -> Path:
    return work_tree.with_name(f"{work_tree.name}.lock")


def _remove_abandoned(repository: Path) -> None:
    """Remove work trees of processes that ended without doing so: nobody holds their lock."""
    listed = run_git(repository, "worktree", "list", "--porcelain", "-z")
    for name in re.findall(r"^worktree (.*)$", listed.replace("\0", "\n"), re.MULTILINE):
        folder = Path(name)
        with contextlib.suppress(OSError), _lock_file(folder).open() as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _remove_work_tree(repository, folder)
            folder.parent.rmdir()


def _remove_work_tree(repository: Path, folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    _lock_file(folder).unlink(missing_ok=True)
    run_git(repository, "worktree", "prune")


def merge_base(repository: Path, target: str, head: str) -> str:
    """Return the newest common commit of a branch or commit and the head; fetch what a shallow
    checkout lacks.

    Raises:
        GitError: there is none, or it cannot be fetched.
    """
    is_commit = re.fullmatch(r"[0-9a-f]{40,64}", target) is not None
    base = target
    refspec = target
    if not is_commit:
        base = f"refs/remotes/origin/{target}"
        refspec = f"+refs/heads/{target}:{base}"
    for depth in _DEPTHS:
        with contextlib.suppress(GitError):
            return run_git(repository, "merge-base", base, head).strip()
        depth_options = []
        if is_shallow(repository):
            depth_options = [depth]
        try:
            run_git(
                repository,
                "fetch",
                "--quiet",
                "--no-tags",
                *depth_options,
                "origin",
                refspec,
                head,
            )
        except GitError as error:
            raise GitError(f"{error}; {_WAY_OUT}") from None
    return run_git(repository, "merge-base", base, head).strip()


def has_commits(repository: Path) -> bool:
    try:
        run_git(repository, "rev-parse", "--verify", "--quiet", "HEAD")
    except GitError:
        return False
    return True


def _stand_in_commit(path: Path) -> Commit:
    """A commit for sources outside of git, named by their content."""
    # in a checkout of roofwatch the folders of the package are links
    if path.is_file():
        files = [path]
    else:
        folders = [path, *(child for child in path.iterdir() if child.is_symlink())]
        files = sorted(file for folder in folders for file in folder.rglob("*.py"))
    content = b"".join(file.read_bytes() for file in files)
    newest = max((file.stat().st_mtime for file in files), default=0.0)
    return Commit(
        sha=hashlib.sha1(content, usedforsecurity=False).hexdigest(),
        first_parent_count=0,
        committed_at=datetime.fromtimestamp(newest, UTC),
        subject="(not in a git repository)",
        is_dirty=True,
    )

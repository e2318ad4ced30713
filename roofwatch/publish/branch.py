"""Keep a site and its records on a branch of the repository, which only grows."""

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from roofwatch.collector.git import run_git
from roofwatch.model.errors import GitError, RecordError
from roofwatch.model.files import make_folder

RECORDS = "records"
"""Folder of the records, beside the pages."""
_REMOTE = "origin"
_IDENTITY = ("-c", "user.name=roofwatch", "-c", "user.email=roofwatch@localhost")


@contextmanager
def kept_branch(repository: Path, branch: str) -> Iterator[Path]:
    """Check a branch out for a change, then commit and push it if the change succeeds.

    Nothing is forced: a branch that moved meanwhile, or that could not be read, refuses the push.

    Raises:
        GitError: the remote cannot be read, or refuses the push.
    """
    with tempfile.TemporaryDirectory(prefix="roofwatch-") as temporary:
        tree = Path(temporary) / "tree"
        # no answer is an error; an empty answer is a new branch
        listed = run_git(repository, "ls-remote", "--heads", _REMOTE, f"refs/heads/{branch}")
        try:
            if listed:
                run_git(repository, "fetch", "--quiet", "--no-tags", _REMOTE, listed.split()[0])
                run_git(
                    repository, "worktree", "add", "--quiet", "--detach", str(tree), "FETCH_HEAD"
                )
            else:
                run_git(repository, "worktree", "add", "--quiet", "--detach", str(tree))
                run_git(tree, "checkout", "--quiet", "--orphan", f"roofwatch-new-{branch}")
                run_git(tree, "rm", "-r", "-f", "--quiet", ".")
            yield tree
            run_git(tree, "add", "--all")
            if run_git(tree, "status", "--porcelain"):
                run_git(tree, *_IDENTITY, "commit", "--quiet", "--message", "Publish results")
                run_git(tree, "push", "--quiet", _REMOTE, f"HEAD:refs/heads/{branch}")
        finally:
            # it is missing if it could not be added
            with suppress(GitError):
                run_git(repository, "worktree", "remove", "--force", str(tree))


def add_records(files: Sequence[Path], folder: Path) -> None:
    """Copy record files that a folder lacks.

    Raises:
        RecordError: it has another file of that name; nothing was copied.
    """
    new_files: list[Path] = []
    for file in files:
        published_file = folder / file.name
        if not published_file.exists():
            new_files.append(file)
        elif published_file.read_bytes() != file.read_bytes():
            raise RecordError(
                f"{file}: the branch has another record of that name; rename the file"
            )
    make_folder(folder)
    for file in new_files:
        shutil.copy(file, folder / file.name)

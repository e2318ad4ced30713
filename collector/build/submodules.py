"""Fill in the submodules of a checkout from the user's own clones of them, without a network."""

import contextlib
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

from roofwatch.collector.git import run_git
from roofwatch.model.errors import GitError

_LINK_MODE = "160000"


def fill_submodules(work_tree: Path, revision: str, folder: Path) -> None:
    """Write the files of the submodules that a revision has into its checkout.

    A submodule that the user has not cloned, or whose commit is missing in the clone, stays empty:
    many are needed by tests alone, and what needs it will say so.
    """
    if not (folder / ".gitmodules").is_file():
        return
    for name, commit in list_submodules(work_tree, revision):
        clone = work_tree / name
        if not (clone / ".git").exists():
            continue
        with contextlib.suppress(GitError):
            _extract(clone, commit, folder / name)
            fill_submodules(clone, commit, folder / name)


def list_submodules(repository: Path, revision: str) -> Iterator[tuple[str, str]]:
    """Yield path and commit of each submodule at a revision."""
    listed = run_git(repository, "ls-tree", "-r", "-z", "--full-tree", "--end-of-options", revision)
    for line in listed.split("\0"):
        description, _, name = line.partition("\t")
        if description.startswith(_LINK_MODE):
            yield name, description.split()[2]


def _extract(clone: Path, commit: str, folder: Path) -> None:
    """Write the files of a commit of a clone into a folder."""
    with tempfile.TemporaryDirectory(prefix="roofwatch-submodule-") as temporary:
        archive = Path(temporary) / "files.tar"
        run_git(clone, "archive", "--format=tar", f"--output={archive}", commit)
        folder.mkdir(parents=True, exist_ok=True)
        with tarfile.open(archive) as files:
            files.extractall(folder, filter="data")

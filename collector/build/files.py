"""The files of a tree that a build depends on: their digest, and a copy to build from."""

import contextlib
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath

from roofwatch.collector.build.submodules import fill_submodules
from roofwatch.collector.digests import digest_of, digest_of_file
from roofwatch.collector.git import checked_out, has_commits, list_files, run_git

_RECORDS = "roofwatch-records"
_TEXT = frozenset({".md", ".rst"})
"""Endings of files that no build reads."""
_WRITTEN = frozenset({".gz", ".log"})
"""Endings of what programs write; of these, only tracked files count."""


def digest_of_inputs(tree: Path, patterns: Sequence[str], suite: Path) -> str:
    """Digest the names and contents of the files that a build depends on: those that match a
    pattern; without patterns all but text and benchmark files.
    """
    contents = _contents(tree)
    names: list[str] = []
    for name in sorted(contents):
        is_input = _is_input(
            tree=tree,
            name=name,
            patterns=patterns,
            suite=suite,
        )
        if is_input:
            names.append(name)
    return digest_of([(name, contents[name]) for name in names])


def _is_input(
    tree: Path,
    name: str,
    patterns: Sequence[str],
    suite: Path,
) -> bool:
    """Whether a build may depend on a file; without patterns, on all but texts and benchmarks."""
    path = PurePosixPath(name)
    if patterns:
        return any(_matches(name, pattern) for pattern in patterns)
    if path.suffix in _TEXT or path.parts[0] in {".github", _RECORDS}:
        return False
    is_benchmark = (tree / name).is_relative_to(suite)
    # in a package, it is installed with it
    return not is_benchmark or (tree / name).with_name("__init__.py").exists()


def _matches(name: str, pattern: str) -> bool:
    """Whether a path matches; `**/` matches no folder too."""
    return fnmatchcase(name, pattern) or fnmatchcase(name, pattern.replace("**/", ""))


def _contents(tree: Path) -> dict[str, str | None]:
    """Git's hash of each tracked file that is unchanged, and a digest of each other file."""
    # A tree without git is a copy, such as an unpacked archive.
    if not (tree / ".git").exists():
        return {name: digest_of_file(tree / name) for name in list_files(tree)}
    contents: dict[str, str | None] = {}
    for line in run_git(tree, "ls-files", "--stage", "-z").split("\0"):
        description, _, name = line.partition("\t")
        if name:
            contents[name] = description
    # What a run writes into the work tree must not cause a build.
    for name in changed_files(tree):
        if name in contents or PurePosixPath(name).suffix not in _WRITTEN:
            contents[name] = digest_of_file(tree / name)
    return contents


def changed_files(tree: Path) -> list[str]:
    """List the files of a work tree that differ from its commit, and those that git does not
    know.
    """
    arguments = ("status", "--porcelain", "-z", "--untracked-files=all", "--no-renames")
    listed = run_git(tree, *arguments)
    # Two letters of status and a space come before each name.
    return [line[3:] for line in listed.split("\0") if line]


@contextlib.contextmanager
def building_copy(tree: Path) -> Iterator[Path]:
    """Copy a work tree with its changes and without ignored files, such as those of an earlier
    build. It is a work tree of the same repository, since builds ask git for their version.
    """
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="roofwatch-build-")))
        copy = folder / tree.name
        # an archive has no commits to check out
        if (tree / ".git").exists() and has_commits(tree):
            stack.enter_context(
                checked_out(
                    repository=tree,
                    revision="HEAD",
                    folder=copy,
                )
            )
            fill_submodules(
                work_tree=tree,
                revision="HEAD",
                folder=copy,
            )
            names = changed_files(tree)
        else:
            copy.mkdir()
            names = list_files(tree)
        for name in names:
            _copy_file(tree / name, copy / name)
        yield copy


def _copy_file(source: Path, target: Path) -> None:
    """Copy a file or a submodule, or delete what is gone."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target, symlinks=True, dirs_exist_ok=True)
    elif source.is_symlink() or source.exists():
        shutil.copy2(source, target, follow_symlinks=False)
    else:
        target.unlink(missing_ok=True)


def size_of(folder: Path) -> int:
    """Bytes of the files in a folder."""
    return sum(file.lstat().st_size for file in folder.rglob("*") if not file.is_dir())

"""Prepare a revision of a repository for measuring: where its code is imported from.

Every command that measures, checks or compiles a suite goes through `prepare_suite`, for the work
tree and for a checkout of another commit, so both sides of a comparison are prepared in one way.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from roofwatch.collector.build.build import Builder
from roofwatch.collector.build.configuration import read_build_settings
from roofwatch.collector.build.distributions import (
    Distribution,
    find_distributions,
    folders_with_packages,
)
from roofwatch.collector.build.environments import make_environment
from roofwatch.collector.build.imports import names_of, reached_names
from roofwatch.collector.git import list_files
from roofwatch.model.suite_source import SuiteSource


def prepare_suite(path: Path, tree: Path | None, work_tree: Path | None = None) -> SuiteSource:
    """Find where the code of a tree is imported from, and build what has to be built.

    Args:
        path: The benchmark file or folder in the tree.
        tree: Root of a work tree of git; None outside one.
        work_tree: The user's checkout of the same repository, if the tree is another one.

    Raises:
        BuildError: a distribution that the suite imports cannot be built.
        SuiteError: the build settings are invalid.
    """
    if tree is None:
        return SuiteSource(path)
    path = path.resolve()
    tree = tree.resolve()
    if work_tree is None:
        work_tree = tree
    else:
        work_tree = work_tree.resolve()
    names = list_files(tree)
    distributions = find_distributions(tree, names, path)
    named = _package_folders(distributions)
    roots = _import_roots(
        tree=tree,
        work_tree=work_tree,
        named=named,
        distributions=distributions,
    )
    settings = read_build_settings(tree, work_tree)
    # both sides of a pair usually share the packages of the caller
    if settings.isolated:
        python = make_environment(tree, distributions)
    else:
        python = None
    builds: tuple[Path, ...] = ()
    needed = _to_build(
        path=path,
        distributions=distributions,
        roots=roots,
        files=[tree / name for name in names],
    )
    # pure Python needs no build
    if needed or settings.command is not None:
        builder = Builder(
            tree=tree,
            settings=settings,
            suite=path,
            python=python,
            copies=tree == work_tree,
        )
        builds = builder.build(needed)
    return SuiteSource(
        path=path,
        import_roots=(*builds, *roots),
        tree=tree,
        builds=builds,
        distributions=tuple(sorted({distribution.name for distribution in distributions})),
        package_folders=named,
        other_folders=tuple(sorted(folders_with_packages(tree, names) - set(roots))),
        work_tree=work_tree,
        python=python,
    )


def _to_build(
    path: Path,
    distributions: Sequence[Distribution],
    roots: Sequence[Path],
    files: Sequence[Path],
) -> list[Distribution]:
    """Return the distributions that have to be built and that the suite may import: it lies in
    them, or imports a name that they have.
    """
    candidates = [distribution for distribution in distributions if distribution.is_built]
    if not candidates:
        return []
    folder = path
    if not path.is_dir():
        folder = path.parent
    names = reached_names(path, [*roots, folder], files)
    return [
        distribution
        for distribution in candidates
        if distribution.contains(path) or names & names_of(distribution, files)
    ]


def _package_folders(distributions: Sequence[Distribution]) -> tuple[Path, ...]:
    """Folders of distributions other than those that also hold their tests and tools."""
    folders: list[Path] = []
    for distribution in distributions:
        folders += [root for root in distribution.roots if root != distribution.folder]
    return tuple(folders)


def _import_roots(
    tree: Path,
    work_tree: Path,
    named: Sequence[Path],
    distributions: Sequence[Distribution],
) -> tuple[Path, ...]:
    """Folders to import from: those that a distribution names first, then `src` and the root, then
    folders of distributions that hold their packages beside their tests and tools.
    """
    of_tree = [root for root in (tree / "src", tree) if root.is_dir()]
    whole = [root for distribution in distributions for root in distribution.roots]
    roots = [*named, *_path_entries(tree, work_tree), *of_tree, *whole]
    return tuple(dict.fromkeys(root.resolve() for root in roots))


def _path_entries(tree: Path, work_tree: Path) -> list[Path]:
    """Folders of the tree that are on this interpreter's path in the user's checkout, for example
    by PYTHONPATH or by an editable installation.
    """
    entries = []
    installed = [Path(sys.prefix).resolve(), Path(sys.base_prefix).resolve()]
    for text in sys.path[1:]:  # the first is the folder of the program
        entry = Path(text).resolve()
        is_installed = any(entry.is_relative_to(prefix) for prefix in installed)
        if is_installed or "site-packages" in entry.parts or not entry.is_relative_to(work_tree):
            continue
        folder = tree / entry.relative_to(work_tree)
        if folder.is_dir():
            entries.append(folder)
    return entries

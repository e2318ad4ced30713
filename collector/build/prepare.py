"""Prepare a revision of a repository for measuring: where its code is imported from.

Every command that measures, checks or compiles a suite goes through `prepare_suite`, for the work
tree and for a checkout of another commit, so both sides of a comparison are prepared in one way.
"""

import sys
from pathlib import Path

from roofwatch.collector.build.distributions import Distribution, find_distributions
from roofwatch.collector.git import list_files
from roofwatch.model.suite_source import SuiteSource


def prepare_suite(path: Path, tree: Path | None, work_tree: Path | None = None) -> SuiteSource:
    """Find where the code of a tree is imported from.

    Args:
        path: The benchmark file or folder in the tree.
        tree: Root of a work tree of git; None outside one.
        work_tree: The user's checkout of the same repository, if the tree is another one.
    """
    if tree is None:
        return SuiteSource(path)
    work_tree = work_tree or tree
    distributions = find_distributions(tree, list_files(tree), path)
    return SuiteSource(
        path,
        import_roots=_import_roots(tree, work_tree, distributions),
        tree=tree,
        distributions=tuple(sorted({each.name for each in distributions})),
        work_tree=work_tree,
    )


def _import_roots(
    tree: Path, work_tree: Path, distributions: list[Distribution]
) -> tuple[Path, ...]:
    """Folders to import from: those that a distribution names first, then `src` and the root, then
    folders of distributions that hold their packages beside their tests and tools.
    """
    named: list[Path] = []
    whole: list[Path] = []
    for distribution in distributions:
        for root in distribution.roots:
            (whole if root == distribution.folder.resolve() else named).append(root)
    own = [root for root in (tree / "src", tree) if root.is_dir()]
    roots = [*named, *_path_entries(tree, work_tree), *own, *whole]
    return tuple({root.resolve(): root for root in roots}.values())


def _path_entries(tree: Path, work_tree: Path) -> list[Path]:
    """Folders of the tree that are on this interpreter's path in the user's checkout, for example
    by PYTHONPATH or by an editable installation.
    """
    entries = []
    installed = {Path(sys.prefix).resolve(), Path(sys.base_prefix).resolve()}
    for text in sys.path[1:]:  # the first is the folder of the program
        entry = Path(text).resolve()
        is_installed = any(entry.is_relative_to(prefix) for prefix in installed)
        if is_installed or "site-packages" in entry.parts:
            continue
        if entry.is_relative_to(work_tree.resolve()):
            folder = tree / entry.relative_to(work_tree.resolve())
            if folder.is_dir():
                entries.append(folder)
    return entries

"""Which packages a suite imports, read from its source and that of the packages of its tree."""

import ast
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from roofwatch.collector.build.distributions import Distribution

_SOURCES = frozenset({".c", ".cc", ".cpp", ".cu", ".pyx", ".rs"})
_NAME = re.compile(r"[A-Za-z_]\w*(\.\w+)*")


def reached_names(suite: Path, folders: Sequence[Path], files: Sequence[Path]) -> set[str]:
    """First parts of all modules that a suite imports, directly or through modules that lie in
    folders; `files` are those of the tree.
    """
    modules = _by_first_name(folders, files)
    waiting = [file for file in files if file.suffix == ".py" and file.is_relative_to(suite)]
    waiting = waiting or [suite]  # git may ignore it
    reached: set[str] = set()
    # Each round follows the imports of the modules that the last one found.
    while waiting:
        new = _imported_names(waiting) - reached
        reached |= new
        waiting = []
        for name in new:
            waiting += modules.get(name, [])
    return reached


def _by_first_name(folders: Sequence[Path], files: Iterable[Path]) -> dict[str, list[Path]]:
    """Python files by the first part of the names that they have as modules."""
    modules: dict[str, list[Path]] = {}
    for file in files:
        if file.suffix != ".py":
            continue
        for folder in folders:
            if file.is_relative_to(folder):
                first = file.relative_to(folder).parts[0].removesuffix(".py")
                modules.setdefault(first, []).append(file)
    return modules


def _imported_names(files: Iterable[Path]) -> set[str]:
    """First parts of the modules that files import, at the top or in functions."""
    names: set[str] = set()
    for file in files:
        try:
            tree = ast.parse(file.read_bytes())
        except (OSError, SyntaxError, ValueError, RecursionError):
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                names |= {alias.name.partition(".")[0] for alias in node.names}
            # A relative import stays in a package that was reached already.
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names.add(node.module.partition(".")[0])
    return names


def names_of(distribution: Distribution, files: Iterable[Path]) -> set[str]:
    """First parts of the modules that a distribution may install, at least: its packages, modules
    named like its sources, and what its `setup.py` names.
    """
    names = {distribution.name.replace("-", "_")}
    for file in files:
        if not distribution.contains(file):
            continue
        is_package = file.name == "__init__.py"
        is_top_package = is_package and not (file.parent.parent / "__init__.py").exists()
        if file.suffix in _SOURCES:
            # A compiled module is often named like its source.
            names.add(file.stem)
        elif is_top_package:
            names.add(file.parent.name)
        elif file.parent in distribution.roots:
            names.add(file.stem)
    return names | _names_in_setup(distribution.folder / "setup.py")


def _names_in_setup(file: Path) -> set[str]:
    """First parts of the strings in `setup.py` that look like names of modules."""
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return set()
    names: set[str] = set()
    for node in ast.walk(tree):
        if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
            continue
        # `name.of.module` may be an extension.
        if _NAME.fullmatch(node.value):
            names.add(node.value.partition(".")[0])
    return names

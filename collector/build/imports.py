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
    while waiting:
        new = _imported_names(waiting) - reached
        reached |= new
        waiting = [file for name in new for file in modules.get(name, ())]
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
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names.add(node.module.partition(".")[0])
    return names


def names_of(distribution: Distribution, files: Iterable[Path]) -> set[str]:
    """First parts of the modules that a distribution may install, at least: its packages, modules
    named like its sources, and what its `setup.py` names.
    """
    names = {distribution.name.replace("-", "_")}
    files_of_it = [file for file in files if distribution.contains(file)]
    for file in files_of_it:
        if file.suffix in _SOURCES:
            names.add(file.stem)
        elif file.name == "__init__.py" and not (file.parent.parent / "__init__.py").exists():
            names.add(file.parent.name)
        elif file.parent in distribution.roots:
            names.add(file.stem)
    return names | _names_in_setup(distribution.folder / "setup.py")


def _names_in_setup(file: Path) -> set[str]:
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return set()
    texts = [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    return {text.partition(".")[0] for text in texts if _NAME.fullmatch(text)}

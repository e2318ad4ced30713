"""Which packages a suite imports, read from its source and that of the packages of its tree."""

import ast
import re
from collections.abc import Iterable
from pathlib import Path

from roofwatch.collector.build.distributions import Distribution

_MAX_FILES = 5_000


def imported_names(files: Iterable[Path]) -> set[str]:
    """First parts of the modules that Python files import, at the top or in functions."""
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


def reached_names(suite: Path, folders: Iterable[Path]) -> set[str]:
    """First parts of all modules that a suite imports, directly or through packages in folders."""
    folders = list(folders)
    reached: set[str] = set()
    files = _python_files(suite)
    while files:
        new = imported_names(files) - reached
        reached |= new
        files = [
            file for folder in folders for name in new for file in _files_of_module(folder, name)
        ][:_MAX_FILES]
    return reached


def _files_of_module(folder: Path, name: str) -> list[Path]:
    package = folder / name
    if package.is_dir():
        return _python_files(package)
    file = folder / f"{name}.py"
    return [file] if file.is_file() else []


def _python_files(path: Path) -> list[Path]:
    return [path] if path.is_file() else list(path.rglob("*.py"))


_SOURCES = frozenset({".c", ".cc", ".cpp", ".cu", ".pyx", ".rs"})
_NAME = re.compile(r"[A-Za-z_]\w*(\.\w+)*")


def names_of(distribution: Distribution) -> set[str]:
    """First parts of the modules that a distribution may install, at least: its packages, modules
    named like its sources, and what its `setup.py` names.
    """
    names = {distribution.name.replace("-", "_")}
    for file in distribution.folder.rglob("*"):
        if file.suffix in _SOURCES:
            names.add(file.stem)
        elif file.name == "__init__.py" and not (file.parent.parent / "__init__.py").exists():
            names.add(file.parent.name)
    for root in distribution.roots:
        names |= {file.stem for file in root.glob("*.py")}
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

"""Which packages a suite imports, read from its source and that of the packages of its tree."""

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path

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


def top_level_names(folder: Path) -> Iterator[str]:
    """Modules and packages that a folder holds; not folders without `__init__.py`."""
    try:
        entries = list(folder.iterdir())
    except OSError:
        return
    for entry in entries:
        if entry.suffix in {".py", ".so"} and entry.is_file():
            yield entry.name.partition(".")[0]
        elif (entry / "__init__.py").is_file():
            yield entry.name

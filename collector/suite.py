"""Find the kernels that a suite declares: our own, or a user's file or folder. Runs in a worker process only, since it
executes the suite's code.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import traceback
from pathlib import Path
from types import ModuleType

from roofwatch.collector.compile.signature import SIGNATURE_SUFFIX
from roofwatch.collector.errors import SuiteError
from roofwatch.collector.suite_source import SuiteSource
from roofwatch.spec import KernelSpec

BENCHMARK_PATTERN = "bench_*.py"


def load_suite(source: SuiteSource) -> tuple[KernelSpec, ...]:
    """Import a suite and return its kernels in the order declared.

    Raises:
        SuiteError: no such file, it raises on import, declares no kernel, or declares a name twice.
    """
    for root in reversed(source.import_roots):
        sys.path.insert(0, str(root))
    if source.path is None:
        specs: list[KernelSpec] = _own_specs(source.import_roots)
    elif source.path.suffix == SIGNATURE_SUFFIX:
        from roofwatch.collector.compile.signature_suite import (
            signed_specs,  # brings torch along, which who lists files has no need of
        )

        sys.path.append(str(source.path.parent))
        specs = signed_specs(source.path, source.module, _import_file)
    else:
        declared = [spec for file in benchmark_files(source.path) for spec in _specs_of(_import_file(file))]
        specs = list({id(spec): spec for spec in declared}.values())  # a file may import another's kernel
        if not specs:
            raise SuiteError(
                f"{source.path}: declares no kernel; assign roofwatch.KernelSpec(...) to a name at the top level"
            )
    names = [spec.name for spec in specs]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise SuiteError(f"{source.path}: kernel {twice[0]!r} is declared twice; give each its own name")
    for spec in specs:
        if not spec.implementations:
            raise SuiteError(
                f"kernel {spec.name!r} has no implementation; add one with @{spec.name}.implementation(...)"
            )
    return tuple(specs)


def _own_specs(roots: tuple[Path, ...]) -> list[KernelSpec]:
    """The suite that comes with roofwatch, as it is in one of the roots if there are any."""
    try:
        if roots:
            _load_kernels_from(roots[0] / "kernels")
        specs: list[KernelSpec] = list(importlib.import_module("roofwatch.kernels.registry").suite())
    except Exception as error:
        raise SuiteError(f"roofwatch's own suite: {type(error).__name__}: {error}") from error
    # a module that is missing in the root may be found where roofwatch is installed, which is another commit
    strangers = [
        name
        for name, module in sys.modules.items()
        if f"{name}.".startswith("roofwatch.kernels.")
        and roots
        and not any(Path(str(module.__file__)).is_relative_to(root) for root in roots)
    ]
    if strangers:
        raise SuiteError(f"roofwatch's own suite: {min(strangers)} is missing in {roots[0]}")
    return specs


def _load_kernels_from(folder: Path) -> None:
    """Make `roofwatch.kernels` the one of another checkout; everything else of roofwatch stays as installed."""
    name = "roofwatch.kernels"
    module_spec = importlib.util.spec_from_file_location(
        name, folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    if module_spec is None or module_spec.loader is None or not folder.is_dir():
        raise ImportError(f"{folder} is missing")
    module = importlib.util.module_from_spec(module_spec)
    sys.modules[name] = module
    module_spec.loader.exec_module(module)


def benchmark_files(path: Path) -> list[Path]:
    """The files of a suite.

    Raises:
        SuiteError: there is no such file or folder, or the folder holds no benchmark file.
    """
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise SuiteError(f"{path}: no such file or folder")
    hidden_or_installed = {"site-packages", "node_modules", "__pycache__"}
    found = sorted(
        file
        for file in path.rglob(BENCHMARK_PATTERN)
        if not any(part.startswith(".") or part in hidden_or_installed for part in file.relative_to(path).parts[:-1])
    )
    if not found:
        raise SuiteError(f"{path}: no {BENCHMARK_PATTERN} in it; name the benchmark file itself")
    return found


def _import_file(file: Path) -> ModuleType:
    """Import a file by its path; as part of its package where it lies in one, so that relative imports work."""
    file = file.resolve()
    top = file.parent
    while (top / "__init__.py").exists():
        top = top.parent
    for folder in (top, file.parent):
        if str(folder) not in sys.path:
            sys.path.insert(0, str(folder))
    try:
        if top != file.parent:
            return importlib.import_module(".".join(file.relative_to(top).with_suffix("").parts))
        name = f"roofwatch_suite_{file.stem}"
        module_spec = importlib.util.spec_from_file_location(name, file)
        if module_spec is None or module_spec.loader is None:
            raise SuiteError(f"{file}: not a Python file; a benchmark file ends in .py")
        module = importlib.util.module_from_spec(module_spec)
        sys.modules[name] = module
        module_spec.loader.exec_module(module)
    except SuiteError:
        raise
    except (Exception, SystemExit) as error:
        raise SuiteError(f"{file}: {_where(error, file)}{type(error).__name__}: {error}") from error
    return module


def _where(error: BaseException, file: Path) -> str:
    if isinstance(error, SyntaxError):
        return ""  # its text names the line
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(file)]
    return f"line {lines[-1]}: " if lines else ""


def _specs_of(module: ModuleType) -> list[KernelSpec]:
    return [value for value in vars(module).values() if isinstance(value, KernelSpec)]

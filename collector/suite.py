"""Load a suite of kernels, bundled or from a benchmark file."""

import importlib
import sys
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from roofwatch.collector.digests import digest_of, digest_of_file
from roofwatch.collector.git import find_repository, run_git
from roofwatch.collector.module_file import NotPythonError, load_module
from roofwatch.collector.user_code import frame_in_user_code, short_path
from roofwatch.install import PACKAGE_DIR
from roofwatch.model.errors import SuiteError
from roofwatch.model.record import Commit
from roofwatch.model.suite_source import SuiteSource
from roofwatch.spec import KernelSpec

_INSTALLED = frozenset({"site-packages", "node_modules", "__pycache__"})
BENCHMARK_PATTERN = "bench_*.py"
CAPTURE_HEADER = (
    '"""Launches that `roofwatch static capture` recorded, '
    'one for each way that Triton compiles them."""\n'
)
"""Start of a captured benchmark file."""


def load_suite(source: SuiteSource) -> tuple[KernelSpec, ...]:
    """Import a suite and return its kernels in order of declaration.

    Raises:
        SuiteError: the file is missing, raises on import, declares no kernel, or declares a name
        twice.
    """
    # the first root ends up first on the path
    for root in reversed(source.import_roots):
        sys.path.insert(0, str(root))
    # those of editable installations know another checkout
    sys.meta_path.sort(key=lambda finder: "editable" in str(getattr(finder, "__module__", "")))
    if source.path is None:
        specs: list[KernelSpec] = _own_specs(source.import_roots)
    else:
        # By identity: a file may import another's kernel.
        declared: dict[int, KernelSpec] = {}
        # in the order of their names
        for file in benchmark_files(source.path):
            module = _import_file(file, source.builds)
            for spec in _specs_of(module):
                declared[id(spec)] = spec
        specs = list(declared.values())
        if not specs:
            raise SuiteError(
                f"{source.path}: declares no kernel; assign roofwatch.KernelSpec(...) to a name "
                f"at the top level"
            )
    names: set[str] = set()
    for spec in specs:
        if spec.name in names:
            raise SuiteError(
                f"{source.path}: kernel {spec.name!r} is declared twice; give each its own name"
            )
        names.add(spec.name)
    for spec in specs:
        if not spec.implementations:
            raise SuiteError(
                f"kernel {spec.name!r} has no implementation; add one with "
                f"@{spec.name}.implementation(...)"
            )
    return tuple(specs)


def forget_failed_imports() -> None:
    """Forget the modules of packages whose own import failed, so that they can be tried again."""
    for name in list(sys.modules):
        # a module of a package that failed is half loaded
        if any(package not in sys.modules for package in packages_around(name)):
            del sys.modules[name]


def packages_around(module: str) -> Iterator[str]:
    """The packages that a module is in, from the outermost: `a` and `a.b` of `a.b.c`."""
    parts = module.split(".")
    for count in range(1, len(parts)):
        yield ".".join(parts[:count])


def _own_specs(roots: tuple[Path, ...]) -> list[KernelSpec]:
    """The bundled suite, from one of the roots if given."""
    try:
        if roots:
            _load_kernels_from(roots[0] / "kernels")
        registry = importlib.import_module("roofwatch.kernels.registry")
        specs: list[KernelSpec] = list(registry.suite())
    except Exception as error:
        raise SuiteError(f"roofwatch's own suite: {type(error).__name__}: {error}") from error
    # A module that is missing in the root would be imported from the installed roofwatch, which
    # is another commit.
    for name, module in sorted(sys.modules.items()):
        if not roots or not f"{name}.".startswith("roofwatch.kernels."):
            continue
        file = Path(str(module.__file__))
        if not any(file.is_relative_to(root) for root in roots):
            raise SuiteError(f"roofwatch's own suite: {name} is missing in {roots[0]}")
    return specs


def _load_kernels_from(folder: Path) -> None:
    """Load `roofwatch.kernels` from another checkout; the rest of roofwatch stays as installed."""
    if not folder.is_dir():
        raise ImportError(f"{folder} is missing")
    load_module("roofwatch.kernels", folder / "__init__.py", folder=folder)


def benchmark_files(path: Path) -> list[Path]:
    """List the files of a suite.

    Raises:
        SuiteError: the path is missing, or the folder has no benchmark file.
    """
    # a file that is named may have any name
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise SuiteError(f"{path}: no such file or folder")
    files = sorted(path.rglob(BENCHMARK_PATTERN))
    files = [file for file in files if not _is_in_ignored_folder(file.relative_to(path))]
    if not files:
        raise SuiteError(f"{path}: no {BENCHMARK_PATTERN} in it; name the benchmark file itself")
    return files


def _is_in_ignored_folder(file: Path) -> bool:
    for folder_name in file.parts[:-1]:
        if folder_name.startswith(".") or folder_name in _INSTALLED:
            return True
    return False


def _import_file(file: Path, builds: tuple[Path, ...]) -> ModuleType:
    """Import a file by path, as part of its package if it has one,
    so that relative imports work.
    """
    file = file.resolve()
    top = file.parent
    # the folder above the outermost package
    while (top / "__init__.py").exists():
        top = top.parent
    # after what was built: beside the file, a package may lack its compiled part
    position = len(builds)
    for folder in (top, file.parent):
        if str(folder) not in sys.path:
            sys.path.insert(position, str(folder))
    try:
        if top != file.parent:
            # the built package lacks what is not installed
            if builds:
                _join_package(top / file.relative_to(top).parts[0])
            module_name = ".".join(file.relative_to(top).with_suffix("").parts)
            return importlib.import_module(module_name)
        return load_module(f"roofwatch_suite_{file.stem}", file)
    except SuiteError:
        raise
    except NotPythonError:
        raise SuiteError(f"{file}: not a Python file; a benchmark file ends in .py") from None
    except (Exception, SystemExit) as error:
        problem = f"{type(error).__name__}: {error}"
        raise SuiteError(f"{file}: {_where(error, file)}{problem}") from error


def _join_package(folder: Path) -> None:
    """Let a package that was built find in the tree what is not installed, such as benchmarks."""
    package = importlib.import_module(folder.name)
    if str(folder) not in package.__path__:
        package.__path__.append(str(folder))


def _where(error: BaseException, file: Path) -> str:
    """Where in a benchmark file an error comes from, as the beginning of a message."""
    if isinstance(error, SyntaxError):
        return ""  # the message has the line
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == str(file)]
    if not lines:
        return ""
    line_text = f"line {lines[0]}: "
    innermost = frame_in_user_code(error)
    if innermost is None:
        return line_text
    # the error is in the benchmark file itself
    if innermost.filename == str(file) and innermost.lineno == lines[0]:
        return line_text
    return f"{line_text}{short_path(innermost.filename)} line {innermost.lineno}: "


def _specs_of(module: ModuleType) -> list[KernelSpec]:
    return [value for value in vars(module).values() if isinstance(value, KernelSpec)]


_CODE = frozenset({".c", ".cc", ".cpp", ".cu", ".cuh", ".h", ".hip", ".hpp", ".py", ".so"})
_OWN_SUITE = (PACKAGE_DIR / "kernels").resolve()


def digest_of_suite(source: SuiteSource) -> str:
    """Digest of the suite's files and of all uncommitted code in their repository.

    Raises:
        GitError: the repository cannot be read.
    """
    path = source.path or _OWN_SUITE
    if path.is_file():
        files = {path}
    else:
        files = {file for file in path.rglob("*") if file.suffix in _CODE}
    repository = find_repository(path)
    # helpers beside the suite may have changed without a commit
    if repository is not None:
        files |= set(_changed_code(repository))
    # Relative names: the same checkout in another folder is the same suite.
    folder = path
    if not path.is_dir():
        folder = path.parent
    root = (repository or folder).resolve()
    named = [(_name(file.resolve(), root), digest_of_file(file)) for file in files]
    return digest_of(sorted(named))


def digest_of_own_suite() -> str:
    files = sorted(file for file in _OWN_SUITE.rglob("*") if file.suffix in _CODE)
    return digest_of([(_name(file, _OWN_SUITE), digest_of_file(file)) for file in files])


def _changed_code(repository: Path) -> Iterator[Path]:
    """Source files with changes that are not committed."""
    listed = run_git(
        repository, "status", "--porcelain", "-z", "--untracked-files=all", "--no-renames"
    )
    for line in filter(None, listed.split("\0")):
        file = repository / line[3:]
        if file.suffix in _CODE:
            yield file


def _name(file: Path, root: Path) -> str:
    if file.is_relative_to(root):
        return file.relative_to(root).as_posix()
    return file.as_posix()


@dataclass(frozen=True)
class SuiteAt:
    source: SuiteSource
    commit: Commit
    project: str
    is_replaced: bool = False
    """Benchmark files of the head take the place of its own."""
    has_own: bool = True
    """The commit has the benchmark file or folder."""
    declared: frozenset[tuple[str, str]] | None = None
    """Kernels and implementations of its own benchmark files; None if these are used."""

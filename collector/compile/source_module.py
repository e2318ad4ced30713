"""One module of a suite: the digest of its code, what it imports, and the files that it reads."""

import ast
import os
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

from roofwatch.collector.compile.kernel_part import part_of, part_of_implementation
from roofwatch.collector.digests import digest_of, digest_of_file
from roofwatch.collector.suite import packages_around
from roofwatch.install import PACKAGE_DIR

# A CUDA C++ extension is built at run time from files next to its module.
_CUDA_SUFFIXES = (".cu", ".cuh", ".h")
# Their versions are in the digest of the toolchain already.
_TOOLCHAIN = frozenset({"torch", "triton", "roofwatch", "__main__"})
_BUNDLED = f"{PACKAGE_DIR / 'kernels'}{os.sep}"
# A module that uses one of these may load any module: `ops` is `torch.ops`, `modules` is
# `sys.modules`.
_DYNAMIC_IMPORTS = frozenset(
    {"import_module", "__import__", "exec", "eval", "run_path", "run_module", "modules", "ops"}
)
_WITH_DOCSTRING = (ast.Module, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
# Environment variables are read by names such as `FLA_CONV_BACKEND`.
_VARIABLE_NAME = re.compile(r"[A-Z][A-Z0-9_]+")
_FILE_NAME = re.compile(r"[\w./-]{1,200}\.\w{1,8}")


@dataclass(frozen=True)
class SourceModule:
    file: Path
    code: str
    """Digest of the syntax tree without docstrings."""
    host_code: str
    """The same without the functions that Triton compiles."""
    imports: frozenset[str] = frozenset()
    """Names that may be modules, and the packages that contain them."""
    other_imports: frozenset[str] = frozenset()
    """Likewise, of imports that the part does not use."""
    imports_dynamically: bool = False
    variables: frozenset[str] = frozenset()
    """String constants that may name environment variables."""
    data: tuple[Path, ...] = ()
    """CUDA sources in the module's folder, and files whose relative path is a string constant."""


@dataclass(frozen=True)
class ModulePart:
    """What a kernel uses of a module; the whole of it without `kernels`."""

    module: str
    kernels: frozenset[str] = frozenset()
    """Variables with the kernel."""
    functions: frozenset[str] = frozenset()
    """Top-level functions that it is known to use."""
    is_of_implementation: bool = False
    """Without what other implementations use; without `kernels`, what importing the module runs."""

    @property
    def is_whole(self) -> bool:
        return not self.kernels and not self.is_of_implementation


@cache
def read_module(part: ModulePart) -> SourceModule | None:
    """Read the source of a module, or the part of it that kernels use; None if it is not part of
    the suite.
    """
    name = part.module
    file = find_module(name)
    if file is None:
        return None
    all_names: set[str] = set()
    if file.name == "__init__.py":
        package = name
    else:
        package = name.rpartition(".")[0]
    try:
        tree = ast.parse(file.read_bytes())
        if part.is_of_implementation:
            all_names.update(_imported_names(ast.walk(tree), package))
            tree = part_of_implementation(tree, part.kernels, part.functions)
        else:
            tree = part_of(tree, part.kernels, part.functions)
    except (SyntaxError, ValueError):  # an extension module, or a file that is not imported yet
        content = str(digest_of_file(file))
        return SourceModule(
            file=file,
            code=content,
            host_code=content,
        )
    nodes = list(ast.walk(tree))
    texts = _string_constants(nodes)
    imports = frozenset(_imported_names(nodes, package))
    # Docstrings may change without a new measurement; their names of files still count as data.
    _remove_docstrings(nodes)
    code = digest_of(ast.dump(tree))
    host_code = code
    # a dump takes most of the time, and few modules have functions that Triton compiles
    if _remove_compiled(nodes):
        host_code = digest_of(ast.dump(tree))
    return SourceModule(
        file=file,
        code=code,
        host_code=host_code,
        imports=imports,
        other_imports=frozenset(all_names - imports),
        imports_dynamically=bool(_identifiers(nodes) & _DYNAMIC_IMPORTS),
        variables=frozenset(filter(_VARIABLE_NAME.fullmatch, texts)),
        data=_data_files(file.parent, texts),
    )


def _identifiers(nodes: Iterable[ast.AST]) -> set[str]:
    """Return the names, attributes and imported names in some syntax nodes."""
    identifiers: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Name):
            identifiers.add(node.id)
        elif isinstance(node, ast.Attribute):
            identifiers.add(node.attr)
        elif isinstance(node, ast.ImportFrom):
            identifiers.update(alias.name for alias in node.names)
    return identifiers


def _string_constants(nodes: Iterable[ast.AST]) -> set[str]:
    texts: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            texts.add(node.value)
    return texts


def _data_files(folder: Path, texts: Iterable[str]) -> tuple[Path, ...]:
    mentioned = [folder / text for text in texts if _FILE_NAME.fullmatch(text)]
    files = {path for path in mentioned if path.is_file()}
    files |= {path for path in folder.iterdir() if path.suffix in _CUDA_SUFFIXES}
    return tuple(sorted(files))


@cache
def _find_spec(name: str) -> ModuleSpec | None:
    """Find a module without importing it."""
    if name in sys.modules:
        return sys.modules[name].__spec__
    parent = name.rpartition(".")[0]
    if not parent:
        return PathFinder.find_spec(name)
    folders = _folders_of(parent)
    if not folders:
        return None
    try:
        return PathFinder.find_spec(name, folders)
    except KeyError:  # a folder without `__init__.py` in a package that is not imported
        return None


@cache
def _folders_of(package: str) -> list[str]:
    """Folders of a package, without importing it."""
    spec = _find_spec(package)
    if spec is not None:
        return list(spec.submodule_search_locations or ())
    # A folder without `__init__.py` is found in the folders of the package around it.
    parent, _, name = package.rpartition(".")
    if not parent:
        return []
    folders = [Path(folder) / name for folder in _folders_of(parent)]
    return [str(folder) for folder in folders if folder.is_dir()]


def find_module(name: str) -> Path | None:
    """Return the file of a module without importing it; None if it is installed or not there."""
    if is_toolchain(name):
        return None
    spec = _find_spec(name)
    # A namespace package and a built-in module have no file.
    if spec is None or spec.origin is None or not spec.has_location:
        return None
    if is_installed(spec.origin):
        return None
    return Path(spec.origin)


def is_toolchain(module: str) -> bool:
    """Return whether a module belongs to Python, torch, Triton or roofwatch; the bundled kernels
    are a suite.
    """
    # The dot at the end: `roofwatch.kernels` itself is bundled too.
    is_bundled = f"{module}.".startswith("roofwatch.kernels.")
    if is_bundled:
        return False
    top = module.split(".")[0]
    return top in _TOOLCHAIN or top in sys.stdlib_module_names


def is_installed(path: str) -> bool:
    """Return whether a file belongs to an installed package other than the bundled kernels."""
    if path.startswith(_BUNDLED):
        return False
    return "/site-packages/" in path or "/dist-packages/" in path


def _imported_names(nodes: Iterable[ast.AST], package: str) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name
                yield from packages_around(alias.name)
        elif isinstance(node, ast.ImportFrom):
            source = _imported_module(node, package)
            yield source
            yield from packages_around(source)
            # Each name may be a module of the package.
            for alias in node.names:
                yield f"{source}.{alias.name}"


def _imported_module(node: ast.ImportFrom, package: str) -> str:
    parts: list[str] = []
    if node.level:
        # One dot is the package itself, each further one its parent.
        around = package.split(".")
        parts.extend(around[: len(around) - node.level + 1])
    if node.module:
        parts.append(node.module)
    return ".".join(parts)


def _remove_compiled(nodes: Iterable[ast.AST]) -> bool:
    """Empty functions that Triton compiles, but keep their decorators: they choose configurations.

    Returns whether there are any.
    """
    has_compiled = False
    for node in nodes:
        if not isinstance(node, ast.FunctionDef):
            continue
        if any(map(_is_triton_jit, node.decorator_list)):
            node.args = _without_arguments()
            node.body = [ast.Pass()]
            has_compiled = True
    return has_compiled


def _without_arguments() -> ast.arguments:
    return ast.arguments(
        posonlyargs=[],
        args=[],
        kwonlyargs=[],
        kw_defaults=[],
        defaults=[],
    )


def _is_triton_jit(decorator: ast.expr) -> bool:
    """Whether a decorator is `triton.jit`; `jit` of other libraries compiles host code."""
    if isinstance(decorator, ast.Call):
        function = decorator.func
    else:
        function = decorator
    return ast.unparse(function) in {"triton.jit", "gluon.jit"}


def _remove_docstrings(nodes: Iterable[ast.AST]) -> None:
    for node in nodes:
        if not isinstance(node, _WITH_DOCSTRING):
            continue
        if ast.get_docstring(node, clean=False) is not None:
            # a body cannot be empty
            node.body = node.body[1:] or [ast.Pass()]

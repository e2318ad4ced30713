"""The source files that each kernel of a suite may use, and digests of them: keys of cached
results.

A kernel uses its part of the modules that declare it, and all modules that these import, at the top
or in functions. It also uses CUDA sources next to these modules, and files whose path is a string
in one of them. A module that imports by a computed name may use every module of the suite.
Installed packages are excluded: the digest of the toolchain covers them.
"""

import ast
import os
import re
import sys
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

from roofwatch.collector.compile.kernel_part import part_of, part_of_implementation
from roofwatch.collector.digests import digest_of, digest_of_file
from roofwatch.collector.suite import packages_around
from roofwatch.install import PACKAGE_DIR
from roofwatch.spec import KernelSpec

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
class ProjectPackages:
    """Packages that belong to the measured project."""

    names: frozenset[str] = frozenset()
    folders: tuple[Path, ...] = ()
    """Where its own code lies."""

    def hides(self, name: str) -> bool:
        """Whether a package of the project is not found in its folders."""
        # a package of others, whose version the toolchain's digest has
        if name not in self.names:
            return False
        file = find_module(name)
        # compiled, or not installed: nobody can look at its code
        if file is None:
            return True
        return not any(file.is_relative_to(folder) for folder in self.folders)


@dataclass(frozen=True)
class SourceDigest:
    """Digests of what a kernel may use."""

    everything: str
    host: str
    """Without the functions that Triton compiles: their machine code shows what they do."""


def source_digests(
    specs: Sequence[KernelSpec],
    loaded: Iterable[str],
    project: ProjectPackages = ProjectPackages(),
) -> dict[str, SourceDigest]:
    """Digest all code and data that each kernel may use; comments and docstrings do not count.

    `loaded` names the modules that loading the suite imported. If a kernel imports a package of the
    project from elsewhere, its digest is a new one each time: the code may have changed.
    """
    suite = {name for name in loaded if _read_module(_Part(name)) is not None}
    digests: dict[str, SourceDigest] = {}
    for spec in specs:
        used = _used_modules(_parts_of(spec, suite), suite)
        if _is_hidden(used, project):
            # A random digest: a cached result would be that of code that nobody looked at.
            digests[spec.name] = SourceDigest(
                everything=uuid.uuid4().hex,
                host=uuid.uuid4().hex,
            )
        else:
            digests[spec.name] = _digest(used)
    return digests


def implementation_digests(
    specs: Sequence[KernelSpec],
    loaded: Iterable[str],
    project: ProjectPackages = ProjectPackages(),
) -> dict[str, str]:
    """Digest all code and data that each implementation may use, by `kernel/implementation`.

    Of modules that are imported and not used, what importing them runs counts: it may change how
    torch works. Otherwise as `source_digests`.
    """
    suite = {name for name in loaded if _read_module(_Part(name)) is not None}
    digests: dict[str, str] = {}
    for spec in specs:
        for name, implementation in spec.implementations.items():
            parts = _parts_of(spec, suite, implementation.launch)
            used = _used_modules(parts, suite)
            if _is_hidden(used, project):
                digest = uuid.uuid4().hex
            else:
                digest = _digest(used).everything
            digests[f"{spec.name}/{name}"] = digest
    return digests


def _is_hidden(used: Mapping[str, "_Module"], project: ProjectPackages) -> bool:
    imported: set[str] = set()
    for module in used.values():
        imported.update(name.partition(".")[0] for name in module.imports)
    return any(project.hides(name) for name in imported)


def _functions_of(spec: KernelSpec) -> list[object]:
    """Return the functions that a kernel is declared with, without its implementations; some may be
    None.
    """
    return [
        spec.inputs,
        spec.reference,
        spec.flop_count,
        spec.memory_bytes,
        spec.bus_bytes,
        spec.token_count,
    ]


def _parts_of(spec: KernelSpec, suite: set[str], launch: object = None) -> list["_Part"]:
    """Return what a kernel, or one implementation of it, uses of the modules that declare it; all
    modules if none does.
    """
    functions = _functions_of(spec)
    if launch is None:
        functions += [implementation.launch for implementation in spec.implementations.values()]
    else:
        functions.append(launch)
    defining = {str(getattr(function, "__module__", "")) for function in functions}
    parts: list[_Part] = []
    for name in suite:
        variables = _variables_with(spec, name)
        # a file may import a kernel of another
        if variables or name in defining:
            used = _top_level_names(functions, name)
            is_of_one = launch is not None and bool(variables)
            parts.append(
                _Part(
                    module=name,
                    kernels=variables,
                    functions=used,
                    is_of_implementation=is_of_one,
                )
            )
    return parts or [_Part(name) for name in suite]


def _top_level_names(functions: Iterable[object], module: str) -> frozenset[str]:
    """Names at the top of a module that functions belong to."""
    names: set[str] = set()
    for function in functions:
        if getattr(function, "__module__", "") != module:
            continue
        # Of a nested function, the top-level one around it.
        qualified_name = str(getattr(function, "__qualname__", ""))
        top_level_name = qualified_name.partition(".")[0]
        names.add(top_level_name)
    return frozenset(names)


def _variables_with(spec: KernelSpec, module: str) -> frozenset[str]:
    variables = vars(sys.modules[module])
    return frozenset(name for name, value in variables.items() if value is spec)


def _used_modules(start: Iterable["_Part"], suite: set[str]) -> dict[str, "_Module"]:
    """Return the modules that some parts use, each as a whole if another module uses it."""
    used: dict[str, _Module] = {}
    whole: set[str] = set()
    waiting = [*start]
    only_imported: dict[str, None] = {}
    while waiting or only_imported:
        if waiting:
            part = waiting.pop()
        # last, as more of a module counts if it is used
        else:
            name, _ = only_imported.popitem()
            part = _Part(name, is_of_implementation=True)
        module = _read_module(part)
        is_read_whole = part.module in whole
        is_read_in_part = part.module in used and not part.is_whole
        if module is None or is_read_whole or is_read_in_part:
            continue
        used[part.module] = module
        if part.is_whole:
            whole.add(part.module)
        names = [*module.imports, *packages_around(part.module)]
        # whatever it imports by a computed name may be any module
        if module.imports_dynamically:
            names.extend(suite)
        waiting += [_Part(name) for name in names]
        only_imported |= dict.fromkeys(module.other_imports)
    return used


def _digest(used: Mapping[str, "_Module"]) -> SourceDigest:
    """Digest the code, the data files and the environment variables of all modules."""
    # Digests do not depend on the order in which modules were found.
    modules = dict(sorted(used.items()))
    variables: dict[str, str | None] = {}
    for module in modules.values():
        variables.update({name: os.environ.get(name) for name in module.variables})
    codes = {name: module.code for name, module in modules.items()}
    host_codes = {name: module.host_code for name, module in modules.items()}
    data = {name: _data_digests(module) for name, module in modules.items()}
    return SourceDigest(
        everything=digest_of(codes, data, variables),
        host=digest_of(host_codes, data, variables),
    )


def _data_digests(module: "_Module") -> list[tuple[str, str | None]]:
    return [(file.name, _cached_digest(file)) for file in module.data]


_cached_digest = cache(digest_of_file)


# --- one module


@dataclass(frozen=True)
class _Module:
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
class _Part:
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
def _read_module(part: _Part) -> _Module | None:
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
        return _Module(
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
    return _Module(
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

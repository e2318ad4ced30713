"""Which modules of a suite each kernel uses, read from their source, and digests of the code in them.

A module uses the modules that it imports, at the top or in functions. One that loads modules by name or executes text
may use all of them. One that changes another module while it is imported counts for every kernel.
"""

from __future__ import annotations

import ast
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from roofwatch.collector.compile.cache import digest_of, digest_of_file
from roofwatch.install import PACKAGE_DIR
from roofwatch.spec import KernelSpec

_TOOLCHAIN = frozenset({"torch", "triton", "roofwatch", "__main__"})
_BUNDLED = f"{PACKAGE_DIR / 'kernels'}{os.sep}"
_REACHES_ANYTHING = frozenset(
    {"import_module", "__import__", "exec", "eval", "run_path", "run_module", "modules", "ops"}
)
_DOCUMENTED = (ast.Module, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_VARIABLE = re.compile(r"[A-Z][A-Z0-9_]+")


@dataclass(frozen=True)
class CodeDigests:
    """Digests of one module, or of several together; comments, docstrings and line numbers do not count."""

    code: str
    host: str
    """Without the bodies of functions that Triton compiles: a change of those shows in the machine code."""


@dataclass(frozen=True)
class _Module:
    file: Path
    imports: frozenset[str] = frozenset()
    """Names that may be modules, with the packages around them."""
    reaches_anything: bool = False
    changes_others: bool = False
    variables: frozenset[str] = frozenset()
    """Text constants that may name environment variables."""
    digests: CodeDigests = CodeDigests("", "")


class SuiteModules:
    """The modules that a suite brought along, without installed packages, which the toolchain's digest covers.

    Args:
        names: Names of the modules that loading the suite imported.
        environment: Variables as they were before.
    """

    def __init__(self, names: Iterable[str], environment: Mapping[str, str]) -> None:
        self._environment = environment
        self._modules = {name: _read(name, Path(file)) for name, file in sorted(project_files(names).items())}

    @property
    def files(self) -> set[str]:
        return {str(module.file) for module in self._modules.values()}

    @property
    def variables(self) -> set[str]:
        """Environment variables that the modules may read."""
        return {name for module in self._modules.values() for name in module.variables}

    def digests(self, spec: KernelSpec) -> CodeDigests:
        """Equal if the modules that a kernel may use do the same, and so do the variables that they may read."""
        used = {name: self._modules[name] for name in sorted(self._used_by(spec))}
        variables = {name: self._environment.get(name) for module in used.values() for name in module.variables}
        return CodeDigests(
            code=digest_of(variables, {name: module.digests.code for name, module in used.items()}),
            host=digest_of(variables, {name: module.digests.host for name, module in used.items()}),
        )

    def _used_by(self, spec: KernelSpec) -> set[str]:
        used: set[str] = set()
        waiting = [
            *_defining_modules(spec, self._modules),
            *(name for name, module in self._modules.items() if module.changes_others),
        ]
        while waiting:
            name = waiting.pop()
            if name in used or name not in self._modules:
                continue
            used.add(name)
            if self._modules[name].reaches_anything:
                return set(self._modules)
            waiting += [*self._modules[name].imports, *_packages_around(name)]
        return used or set(self._modules)


def project_files(names: Iterable[str]) -> dict[str, str]:
    """The files of the loaded modules among the names, without those of the toolchain and of installed packages."""
    files = {name: getattr(sys.modules.get(name), "__file__", None) for name in names if not is_toolchain(name)}
    return {name: file for name, file in files.items() if file is not None and not is_installed(file)}


def is_toolchain(module: str) -> bool:
    """Whether a module is Python's, torch's, Triton's or ours; the bundled kernels are a suite like others."""
    top = module.split(".")[0]
    is_bundled = f"{module}.".startswith("roofwatch.kernels.")
    return not is_bundled and (top in _TOOLCHAIN or top in sys.stdlib_module_names)


def is_installed(path: str) -> bool:
    """Whether a file belongs to an installed package other than the bundled kernels."""
    return not path.startswith(_BUNDLED) and ("/site-packages/" in path or "/dist-packages/" in path)


def _defining_modules(spec: KernelSpec, modules: dict[str, _Module]) -> set[str]:
    functions = [spec.inputs, spec.reference, spec.flop_count, spec.memory_bytes, spec.bus_bytes]
    functions += [implementation.launch for implementation in spec.implementations.values()]
    defining = {str(getattr(function, "__module__", "")) for function in functions}
    holding = {name for name in modules if any(value is spec for value in vars(sys.modules[name]).values())}
    return (defining | holding) & modules.keys()


# --- one module


def _read(name: str, file: Path) -> _Module:
    if file.suffix != ".py":
        digest = str(digest_of_file(file))
        return _Module(file, digests=CodeDigests(digest, digest))
    source = file.read_bytes()
    tree = ast.parse(source)
    nodes = list(ast.walk(tree))
    names = {node.id for node in nodes if isinstance(node, ast.Name)}
    names |= {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    names |= {alias.name for node in nodes if isinstance(node, ast.ImportFrom) for alias in node.names}
    texts = {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    code = digest_of(ast.dump(_WithoutDocstrings().visit(tree)))
    return _Module(
        file,
        imports=frozenset(_imports(nodes, name if file.name == "__init__.py" else name.rpartition(".")[0])),
        reaches_anything=bool(names & _REACHES_ANYTHING),
        changes_others=_changes_others(tree, nodes),
        variables=frozenset(filter(_VARIABLE.fullmatch, texts)),
        digests=CodeDigests(code, digest_of(ast.dump(_WithoutCompiledBodies().visit(tree)))),
    )


def _packages_around(name: str) -> list[str]:
    parts = name.split(".")
    return [".".join(parts[:count]) for count in range(1, len(parts))]


def _imports(nodes: Iterable[ast.AST], package: str) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from (alias.name, *_packages_around(alias.name))
        elif isinstance(node, ast.ImportFrom):
            parts = [node.module] if node.module else []
            if node.level:
                around = package.split(".")
                parts.insert(0, ".".join(around[: len(around) - node.level + 1]))
            source = ".".join(parts)
            yield from (source, *_packages_around(source), *(f"{source}.{alias.name}" for alias in node.names))


def _changes_others(tree: ast.Module, nodes: Iterable[ast.AST]) -> bool:
    """Whether a module, while it is imported, assigns to or calls something that it imported."""
    imported = {
        (alias.asname or alias.name).split(".")[0]
        for node in nodes
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for alias in node.names
    }
    statements = [statement for statement in tree.body if not isinstance(statement, _DEFINITIONS)]
    return any(
        _root(changed) in imported
        for statement in statements
        for node in ast.walk(statement)
        for changed in _changed_by(node)
    )


def _changed_by(node: ast.AST) -> Iterator[ast.expr]:
    if isinstance(node, (ast.Attribute, ast.Subscript)) and not isinstance(node.ctx, ast.Load):
        yield node
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        yield node.value.func
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in {"setattr", "delattr"}:
        yield node.args[0]


def _root(node: ast.expr) -> str | None:
    while isinstance(node, (ast.Attribute, ast.Subscript, ast.Call)):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else None


class _WithoutDocstrings(ast.NodeTransformer):
    def generic_visit(self, node: ast.AST) -> ast.AST:
        if isinstance(node, _DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            node.body = node.body[1:] or [ast.Pass()]
        return super().generic_visit(node)


class _WithoutCompiledBodies(ast.NodeTransformer):
    """The decorators, name and parameters of a jitted function are the host's; its body is not."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        if any(_is_jit(decorator) for decorator in node.decorator_list):
            node.body = [ast.Pass()]
        return self.generic_visit(node)


def _is_jit(decorator: ast.expr) -> bool:
    """`@triton.jit` or `@jit`, with arguments or without."""
    function = decorator.func if isinstance(decorator, ast.Call) else decorator
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", None)
    return name == "jit"

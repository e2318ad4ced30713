"""Which modules of a suite each of its kernels is made from, so that an edit of one leaves answers for others valid.

Read from the source: the modules that import each other, at the top or in functions. A module that loads others by
name or runs text may use anything, so everything counts for it; one that changes another module while it is imported
counts for every kernel.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from roofwatch.collector.compile.host_side import CodeDigests
from roofwatch.collector.compile.sources import digest_of_file, is_installed_module
from roofwatch.collector.compile.static_store import digest_of
from roofwatch.spec import KernelSpec

_OF_THE_TOOLCHAIN = frozenset({"torch", "triton", "roofwatch", "__main__"})
_REACHES_ANYTHING = frozenset(
    {"import_module", "__import__", "exec", "eval", "run_path", "run_module", "modules", "ops"}
)
_CHANGES_ANOTHER = frozenset({"setattr", "delattr"})


@dataclass(frozen=True)
class _Module:
    name: str
    file: Path
    imports: frozenset[str]
    """Names that may be modules, packages around them included."""
    reaches_anything: bool
    changes_others: bool
    digests: CodeDigests


class SuiteModules:
    """The modules that a suite brought along, without what the toolchain's digest covers.

    Args:
        before: Names of the modules that were there before it was loaded.
        after: And once it was.
    """

    def __init__(self, before: Iterable[str], after: Iterable[str]) -> None:
        loaded = dict(sorted(_files_of(set(after) - set(before))))
        self._files = loaded
        self._digests = {name: digest_of_file(file) for name, file in loaded.items()}
        self._own = {name: _read(name, file) for name, file in loaded.items() if not is_installed_module(str(file))}

    @property
    def files(self) -> list[str]:
        return sorted({str(file) for file in self._files.values()})

    @property
    def folders(self) -> list[str]:
        """From which they were imported."""
        return sorted({str(module.file.parent) for module in self._own.values()})

    def digest(self, spec: KernelSpec) -> str:
        """Equal where all the modules are equal that a kernel may use, wherever they lie."""
        return digest_of({name: self._digests[name] for name in self._used_by(spec)})

    def code_digests(self, spec: KernelSpec) -> CodeDigests:
        """Equal where those modules do the same, comments and places aside: all together, and on the host alone."""
        used = self._used_by(spec)
        others = {name: self._digests[name] for name in used if name not in self._own}
        own = {name: self._own[name].digests for name in used if name in self._own}
        return CodeDigests(
            code=digest_of(others, {name: digests.code for name, digests in own.items()}),
            host=digest_of(others, {name: digests.host for name, digests in own.items()}),
        )

    def _used_by(self, spec: KernelSpec) -> list[str]:
        used = self._reached_from(_homes(spec, self._own))
        return [name for name in self._files if name in used or name not in self._own]

    def _reached_from(self, homes: Iterable[str]) -> set[str]:
        reached: set[str] = set()
        waiting = [*homes, *(name for name, module in self._own.items() if module.changes_others)]
        while waiting:
            name = waiting.pop()
            if name in reached or name not in self._own:
                continue
            reached.add(name)
            if self._own[name].reaches_anything:
                return set(self._own)
            waiting += self._own[name].imports
            waiting += _packages_around(name)
        return reached or set(self._own)


def modules_since(names: Iterable[str]) -> set[str]:
    """Files of what was imported since only those were there."""
    files = {str(file) for _, file in _files_of(sys.modules.keys() - set(names))}
    return {file for file in files if not is_installed_module(file)}


def _files_of(names: Iterable[str]) -> Iterator[tuple[str, Path]]:
    for name in names:
        file = getattr(sys.modules.get(name), "__file__", None)
        if file is not None and not _is_toolchain(name):
            yield name, Path(file)


def _is_toolchain(module: str) -> bool:
    top = module.split(".")[0]
    is_own_kernel = f"{module}.".startswith("roofwatch.kernels.")
    return not is_own_kernel and (top in _OF_THE_TOOLCHAIN or top in sys.stdlib_module_names)


def _homes(spec: KernelSpec, own: dict[str, _Module]) -> set[str]:
    """Modules that declare a kernel, or define something that it is declared with."""
    functions = [spec.inputs, spec.reference, spec.flop_count, spec.memory_bytes, spec.bus_bytes]
    functions += [implementation.launch for implementation in spec.implementations.values()]
    homes = {str(getattr(function, "__module__", "")) for function in functions}
    holders = {name for name in own if any(value is spec for value in vars(sys.modules[name]).values())}
    return (homes | holders) & own.keys()


def _packages_around(name: str) -> list[str]:
    parts = name.split(".")
    return [".".join(parts[:count]) for count in range(1, len(parts))]


def _read(name: str, file: Path) -> _Module:
    if file.suffix != ".py":
        digest = str(digest_of_file(file))
        digests = CodeDigests(digest, digest)
        return _Module(name, file, frozenset(), reaches_anything=False, changes_others=False, digests=digests)
    source = file.read_bytes()
    tree = ast.parse(source)
    package = name if file.name == "__init__.py" else name.rpartition(".")[0]
    imports = set(_imports(tree, package))
    names = {
        node.id if isinstance(node, ast.Name) else node.attr
        for node in ast.walk(tree)
        if isinstance(node, (ast.Name, ast.Attribute))
    }
    imported_names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names}
    return _Module(
        name,
        file,
        frozenset(imports),
        reaches_anything=bool((names | imported_names) & _REACHES_ANYTHING),
        changes_others=_changes_others(tree.body),
        digests=CodeDigests.of(source),
    )


def _imports(tree: ast.Module, package: str) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name
                yield from _packages_around(alias.name)
        elif isinstance(node, ast.ImportFrom):
            source = node.module or ""
            if node.level:
                around = package.split(".")
                base = ".".join(around[: len(around) - node.level + 1])
                source = f"{base}.{source}" if source else base
            yield source
            yield from _packages_around(source)
            for alias in node.names:
                yield f"{source}.{alias.name}"


def _changes_others(body: Sequence[ast.stmt]) -> bool:
    """Whether a module, while it is imported, assigns to or calls something of a module that it imported."""
    imported: set[str] = set()
    for statement in body:
        for node in ast.walk(statement):
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                imported |= {(alias.asname or alias.name).split(".")[0] for alias in node.names}
    return any(
        _changes(node, imported)
        for statement in body
        if not isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
        for node in ast.walk(statement)
    )


def _changes(node: ast.AST, imported: set[str]) -> bool:
    if isinstance(node, (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Delete)):
        targets = node.targets if isinstance(node, (ast.Assign, ast.Delete)) else [node.target]
        return any(
            isinstance(target, (ast.Attribute, ast.Subscript)) and _root(target) in imported for target in targets
        )
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        return _root(node.value.func) in imported
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _CHANGES_ANOTHER


def _root(node: ast.expr) -> str | None:
    while isinstance(node, (ast.Attribute, ast.Subscript, ast.Call)):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else None

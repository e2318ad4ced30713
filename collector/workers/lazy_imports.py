"""Functions that a launcher imports when it is called, found without importing their modules: a
module that is imported late may need a GPU, or be broken.
"""

import ast
import dis
import importlib.util
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import CodeType

from roofwatch.collector.compile.source_module import find_module

# A launcher that uses more is the whole library.
_MAX_VISITED = 500
_Function = ast.FunctionDef | ast.AsyncFunctionDef
Name = tuple[str, str]
"""Module, and the name of something at its top level."""


@dataclass(frozen=True)
class WrittenFunction:
    """A function as its file has it."""

    name: str
    file: Path
    line: int
    """Of its `def`."""
    is_jitted: bool


def imported_names(code: CodeType, package: str) -> list[Name]:
    """List what a function imports from modules with `from module import name`, in its own body or
    in functions within it.
    """
    names: list[Name] = []
    module = ""
    level = 0
    instructions = list(dis.get_instructions(code))
    for position, instruction in enumerate(instructions):
        # `from a import b, c` is one IMPORT_NAME and an IMPORT_FROM for each name.
        if instruction.opname == "IMPORT_NAME":
            module = instruction.argval
            level = _level_before(instructions[:position])
        elif instruction.opname == "IMPORT_FROM":
            source = _absolute(module, level, package)
            names.append((source, instruction.argval))
    # Functions within the function are constants of its code.
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            names += imported_names(constant, package)
    return names


def written_functions(start: Name, root: Path) -> Iterator[WrittenFunction]:
    """Yield a function and those of the repository that it uses, in order of use."""
    waiting: deque[Name] = deque([start])
    seen: set[Name] = set()
    while waiting and len(seen) < _MAX_VISITED:
        module_name, name = waiting.popleft()
        if (module_name, name) in seen:
            continue
        seen.add((module_name, name))
        module = _read(module_name, root)
        if module is None:
            continue
        # The module may only pass on what it imports.
        if name in module.imported:
            waiting.append(module.imported[name])
        for statement in module.declared.get(name, ()):
            if isinstance(statement, _Function):
                is_jitted = any(_is_jit(decorator) for decorator in statement.decorator_list)
                yield WrittenFunction(
                    name=name,
                    file=module.file,
                    line=statement.lineno,
                    is_jitted=is_jitted,
                )
            waiting += _used_by(statement, module_name, module)


@dataclass(frozen=True)
class _Module:
    file: Path
    package: str
    declared: dict[str, list[ast.stmt]]
    """Top-level functions, classes and assignments by name."""
    imported: dict[str, Name]
    """Names that the module takes from others."""
    modules: dict[str, str]
    """Modules by the name that they have here."""


@cache
def _read(name: str, root: Path) -> _Module | None:
    """Read a module of the repository; None if it is elsewhere or cannot be read."""
    file = find_module(name)
    # installed packages are none of the project's sources
    if file is None or not file.resolve().is_relative_to(root):
        return None
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return None
    declared: dict[str, list[ast.stmt]] = {}
    for statement in tree.body:
        for target in _targets(statement):
            declared.setdefault(target, []).append(statement)
    # a relative import counts from the package itself
    if file.name == "__init__.py":
        package = name
    else:
        package = name.rpartition(".")[0]
    imported, modules = _imports_of(tree.body, package)
    return _Module(
        file=file,
        package=package,
        declared=declared,
        imported=imported,
        modules=modules,
    )


def _targets(statement: ast.stmt) -> list[str]:
    if isinstance(statement, (_Function, ast.ClassDef)):
        return [statement.name]
    if isinstance(statement, ast.Assign):
        return [target.id for target in statement.targets if isinstance(target, ast.Name)]
    return []


def _imports_of(statements: list[ast.stmt], package: str) -> tuple[dict[str, Name], dict[str, str]]:
    """Imported names and modules, by the name that they have here."""
    imported: dict[str, Name] = {}
    modules: dict[str, str] = {}
    for statement in statements:
        if isinstance(statement, ast.ImportFrom):
            module = _absolute(statement.module or "", statement.level, package)
            for alias in statement.names:
                imported[alias.asname or alias.name] = (module, alias.name)
        elif isinstance(statement, ast.Import):
            for alias in statement.names:
                modules[alias.asname or alias.name] = alias.name
    return imported, modules


def _used_by(statement: ast.stmt, module_name: str, module: _Module) -> Iterator[Name]:
    """Yield the names that a statement uses: of its module, and of modules that it imports."""
    # a name that the function imports hides that of the module
    inner = [node for node in ast.walk(statement) if isinstance(node, ast.stmt)]
    imported, modules = _imports_of(inner, module.package)
    imported = module.imported | imported
    modules = module.modules | modules
    for node in ast.walk(statement):
        if isinstance(node, ast.Name):
            if node.id in module.declared:
                yield module_name, node.id
            elif node.id in imported:
                yield imported[node.id]
        elif isinstance(node, ast.Attribute):
            owner = ast.unparse(node.value)
            if owner in modules:
                yield modules[owner], node.attr
            elif owner in imported:  # `from package import module`
                package, name = imported[owner]
                yield f"{package}.{name}", node.attr


def _is_jit(decorator: ast.expr) -> bool:
    """Whether a decorator is `triton.jit`, or needs a function that is."""
    if isinstance(decorator, ast.Call):
        called = decorator.func
    else:
        called = decorator
    # `triton.jit`, `triton.jit(...)`, or `jit` by itself
    function = ast.unparse(called).rpartition(".")[2]
    return function in {"jit", "autotune", "heuristics"}


def _level_before(instructions: list[dis.Instruction]) -> int:
    """Number of dots of a relative import: the constant before the list of names."""
    constants = [
        instruction.argval
        for instruction in instructions[-2:]
        if instruction.opname == "LOAD_CONST"
    ]
    if constants and isinstance(constants[0], int):
        return constants[0]
    return 0


def _absolute(module: str, level: int, package: str) -> str:
    """The full name of a module that is imported relative to a package."""
    if not level:
        return module
    try:
        return importlib.util.resolve_name("." * level + module, package)
    except ImportError:  # beyond the top
        return module

"""The part of a benchmark file that one of its kernels may use.

Only declarations of other kernels, and functions that nothing of this kernel names, are left out.
In doubt the whole file counts.
"""

import ast
from collections.abc import Iterable
from typing import TypeGuard

_LOOKS_UP_NAMES = frozenset(
    {"globals", "locals", "vars", "eval", "exec", "modules", "setattr", "__dict__"}
)
"""Identifiers with which code may use a function that it does not name."""
_Function = ast.FunctionDef | ast.AsyncFunctionDef


def part_of(tree: ast.Module, kernels: Iterable[str], functions: Iterable[str]) -> ast.Module:
    """Return the statements that the kernels assigned to some variables may use.

    Args:
        tree: The whole file.
        kernels: Variables that the kernels are assigned to.
        functions: Names of top-level functions that the kernels are known to use.
    """
    kernel_variables = set(kernels)
    if not kernel_variables or _may_look_up_names(tree):
        return tree
    optional: dict[int, str] = {}
    owners: dict[int, set[str]] = {}
    for position, statement in enumerate(tree.body):
        name = _declared_name(statement)
        if name is not None:
            optional[position] = name
            owners[position] = _kernels_of(statement)
    # A kernel that is made in a loop or a call has no statement of its own.
    if not kernel_variables <= set(optional.values()):
        return tree
    used = {position for position in range(len(tree.body)) if position not in optional}
    names = kernel_variables | set(functions)
    for position in used:
        names |= _names_in(tree.body[position])
    # What is used may use more, until nothing is added.
    while True:
        added = {
            position
            for position, name in optional.items()
            if name in names or owners[position] & names
        }
        added -= used
        if not added:
            break
        used |= added
        for position in added:
            names |= _names_in(tree.body[position])
    return _statements_of(tree, used)


def part_of_implementation(
    tree: ast.Module, kernels: Iterable[str], functions: Iterable[str]
) -> ast.Module:
    """Return the statements that one implementation may use, and those that importing the file
    runs.

    Other implementations, and imports of names that it does not use, are left out. Without a
    kernel, only what importing the file runs remains.

    Args:
        tree: The whole file.
        kernels: Variables that its kernel is assigned to.
        functions: Names of the top-level functions that it is known to use.
    """
    kernel_variables = set(kernels)
    if _may_look_up_names(tree):
        return tree
    declared: dict[int, set[str]] = {}
    for position, statement in enumerate(tree.body):
        names_of_statement = _names_of_import(statement)
        name = _declared_name(statement)
        if name is not None:
            names_of_statement.add(name)
        if names_of_statement:
            declared[position] = names_of_statement
    if not kernel_variables <= set().union(*declared.values()):
        return tree
    used: set[int] = set()
    added = {position for position in range(len(tree.body)) if position not in declared}
    names = kernel_variables | set(functions)
    added |= {position for position, bound in declared.items() if bound & names}
    while added:
        used |= added
        for position in added:
            used_names = _names_without_registration(tree.body[position])
            declares_kernel = not kernel_variables.isdisjoint(declared.get(position, ()))
            # what names the kernel elsewhere reaches all implementations
            if used_names & kernel_variables and not declares_kernel:
                return tree
            names |= used_names
        added = {position for position, bound in declared.items() if bound & names} - used
    return _statements_of(tree, used)


def _statements_of(tree: ast.Module, positions: set[int]) -> ast.Module:
    """Copy a file with the statements at some positions, in the order of the file."""
    statements = [tree.body[position] for position in sorted(positions)]
    return ast.Module(statements, tree.type_ignores)


def _names_of_import(statement: ast.stmt) -> set[str]:
    """Return the names that an import binds; none if they are not known."""
    if not isinstance(statement, (ast.Import, ast.ImportFrom)):
        return set()
    names: set[str] = set()
    for alias in statement.names:
        # whatever a module exports
        if alias.name == "*":
            return set()
        names.add(alias.asname or alias.name.partition(".")[0])
    return names


def _names_without_registration(statement: ast.stmt) -> set[str]:
    """Return the names in a statement, without the kernel that a decorator registers it for."""
    registering: set[ast.AST] = set()
    if isinstance(statement, _Function):
        for decorator in filter(_is_implementation, statement.decorator_list):
            registering.update(ast.iter_child_nodes(decorator.func))
    nodes = [node for node in ast.walk(statement) if node not in registering]
    return {node.id for node in nodes if isinstance(node, ast.Name)}


def _may_look_up_names(tree: ast.Module) -> bool:
    """Whether the module may use any of its names: `globals()`, `getattr` and the like."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Global):
            return True
        if isinstance(node, ast.Name) and node.id in _LOOKS_UP_NAMES:
            return True
        if isinstance(node, ast.Attribute) and node.attr in _LOOKS_UP_NAMES:
            return True
    return False


def _declared_name(statement: ast.stmt) -> str | None:
    """Return the name of a kernel, function or autograd function that importing the file only
    declares, or of one that is imported under a name of its own, else None.
    """
    # `from module import launch as name_function` imports for one kernel only.
    if isinstance(statement, ast.ImportFrom) and len(statement.names) == 1:
        return statement.names[0].asname
    if isinstance(statement, _Function):
        if not _only_declares(statement):
            return None
        return statement.name
    if isinstance(statement, ast.ClassDef):
        if _is_autograd_function(statement):
            return statement.name
        return None
    # any other statement may have effects, so it belongs to all kernels
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        return None
    target = statement.targets[0]
    value = statement.value
    if not isinstance(target, ast.Name) or not isinstance(value, ast.Call):
        return None
    if ast.unparse(value.func) in {"KernelSpec", "roofwatch.KernelSpec"}:
        return target.id
    return None


def _is_autograd_function(definition: ast.ClassDef) -> bool:
    """Return whether a class has nothing but the static methods of `torch.autograd.Function`."""
    bases = [ast.unparse(base) for base in definition.bases]
    if bases != ["torch.autograd.Function"]:
        return False
    # Decorators and metaclasses run when the file is imported.
    if definition.decorator_list or definition.keywords:
        return False
    return all(_is_static_method(statement) for statement in definition.body)


def _is_static_method(statement: ast.stmt) -> bool:
    """Whether a statement of a class runs nothing when it is defined."""
    if isinstance(statement, ast.Expr):
        return isinstance(statement.value, ast.Constant)
    if not isinstance(statement, ast.FunctionDef):
        return False
    decorators = [ast.unparse(decorator) for decorator in statement.decorator_list]
    return decorators == ["staticmethod"] and not statement.args.defaults


def _only_declares(function: _Function) -> bool:
    """Return whether a `def` calls nothing but `kernel.implementation` and `triton.jit`."""
    evaluated: list[ast.expr] = [*function.args.defaults]
    evaluated += [default for default in function.args.kw_defaults if default is not None]
    for decorator in function.decorator_list:
        if _is_triton_jit(decorator):
            continue
        if not _is_implementation(decorator):
            return False
        evaluated += decorator.args
        evaluated += [keyword.value for keyword in decorator.keywords]
    # A call in a default value runs when the file is imported.
    for expression in evaluated:
        for node in ast.walk(expression):
            if isinstance(node, (ast.Call, ast.NamedExpr, ast.Await)):
                return False
    return True


def _is_implementation(decorator: ast.expr) -> TypeGuard[ast.Call]:
    """Whether a decorator is `SPEC.implementation(...)`."""
    if not isinstance(decorator, ast.Call):
        return False
    method = decorator.func
    if not isinstance(method, ast.Attribute) or method.attr != "implementation":
        return False
    return isinstance(method.value, ast.Name)


def _is_triton_jit(decorator: ast.expr) -> bool:
    return ast.unparse(decorator) == "triton.jit"


def _kernels_of(statement: ast.stmt) -> set[str]:
    """Return the kernels that a function is an implementation of."""
    if not isinstance(statement, _Function):
        return set()
    kernels: set[str] = set()
    for decorator in statement.decorator_list:
        if not _is_triton_jit(decorator):
            kernels.add(ast.unparse(decorator).partition(".")[0])
    return kernels


def _names_in(statement: ast.stmt) -> set[str]:
    return {node.id for node in ast.walk(statement) if isinstance(node, ast.Name)}

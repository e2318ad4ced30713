"""Find the kernels in the source of a repository, without importing it."""

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

from roofwatch.collector.git import run_git
from roofwatch.model.errors import SuiteError
from roofwatch.model.optional import map_optional

_OTHER_DEVICES = re.compile(r"_?(ascend|npu|xpu|musa|mlu|hpu)")
"""Folders of code for devices that roofwatch does not compile for."""

_TENSOR_ATTRIBUTES = {
    "contiguous",
    "data_ptr",
    "device",
    "dtype",
    "element_size",
    "is_contiguous",
    "ndim",
    "numel",
    "reshape",
    "shape",
    "size",
    "stride",
    "view",
}
"""What only a tensor has, of all arguments of a launcher."""
_MEMORY_CALLS = ("load", "store", "atomic_add", "atomic_max", "atomic_min", "make_block_ptr")
"""Functions of Triton's language whose first argument is a pointer."""


@dataclass(frozen=True)
class JittedKernel:
    """A Triton kernel: its parameters in order, and which of them are pointers."""

    parameters: tuple[str, ...]
    pointers: frozenset[str]


@dataclass(frozen=True)
class FoundKernel:
    """A function that launches Triton kernels, an `autograd.Function`, or a function that somebody
    named.
    """

    name: str
    module: str
    function: str
    parameters: dict[str, str]
    """Required ones with their annotations; `Tensor` for one without that is used as a tensor."""
    is_differentiable: bool = False
    is_class: bool = False
    """An `autograd.Function`, which is called through `apply`."""
    language: str = "triton"
    why_left_out: str | None = None
    """Why it cannot be called with the guessed inputs."""


def find_kernels(root: Path) -> list[FoundKernel]:
    """Find kernels in the files of a repository that git does not ignore, except tests and
    benchmark files.
    """
    trees: dict[str, ast.Module] = {}
    for name in filter(_may_declare_kernels, _python_files(root)):
        tree = _parse(root / name)
        if tree is not None:
            trees[_module_of(name)] = tree
    jitted: dict[str, JittedKernel] = {}
    for tree in trees.values():
        jitted |= _jitted_kernels(tree)
    # Two functions of one name would need one variable: the last one is proposed.
    by_name: dict[str, FoundKernel] = {}
    for module, tree in trees.items():
        for kernel in _kernels_of(module, tree, jitted):
            by_name[kernel.name] = kernel
    return list(by_name.values())


def _parse(file: Path) -> ast.Module | None:
    try:
        return ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError):  # deleted, or for another Python
        return None


def find_function(root: Path, named: str) -> FoundKernel:
    """Read one function or `autograd.Function`, such as `my_ops.py::gelu`.

    Raises:
        SuiteError: the repository has no such file, or the file no such function.
    """
    name, _, function = named.partition("::")
    file = root / name
    if not file.resolve().is_relative_to(root.resolve()):
        raise SuiteError(f"{name}: outside of the repository")
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError) as error:
        raise SuiteError(f"{name}: cannot be read: {error}") from None
    module = _module_of(name)
    classes = _autograd_classes(tree)
    functions = _functions_of(tree)
    language = "triton" if any(map(_imports_triton, tree.body)) else "torch"
    jitted = _jitted_kernels(tree)
    for autograd_class in classes:
        kernel = _kernel_of_class(autograd_class, module, language, jitted)
        if kernel is not None and kernel.function == function:
            return kernel
    for candidate in functions:
        if candidate.name == function:
            kernel = _kernel_of_function(candidate, module, jitted)
            return replace(
                kernel,
                is_differentiable=calls_autograd(tree, candidate),
                language=language,
            )
    class_names = [node.name for node in tree.body if isinstance(node, ast.ClassDef)]
    # an object must be made first, which only its user knows how to do
    if function.partition(".")[0] in class_names:
        kind = "a method" if "." in function else "a class"
        raise SuiteError(
            f"{named}: {kind}; write a benchmark file whose implementation makes the object and "
            "calls it, such as the one of docs/tutorials/your-kernel.md"
        )
    names = [node.name for node in classes]
    names += [node.name for node in functions]
    raise SuiteError(f"{named}: no such function; {name} has {', '.join(names) or 'none'}")


def calls_autograd(tree: ast.Module, function: ast.FunctionDef) -> bool:
    """Whether a function uses an `autograd.Function` of its file."""
    class_names = {node.name for node in _autograd_classes(tree)}
    used = {node.id for node in ast.walk(function) if isinstance(node, ast.Name)}
    return not used.isdisjoint(class_names)


def list_kernels_in_source(root: Path) -> list[dict[str, Any]]:
    """List the kernels that benchmark files declare, then those that no benchmark file imports."""
    listed: list[dict[str, Any]] = []
    imported_names: set[str] = set()
    for name in _python_files(root):
        if not PurePosixPath(name).name.startswith("bench_"):
            continue
        tree = _parse(root / name)
        if tree is None:
            continue
        imported_names |= _imported_names(tree)
        for declared_name, implementations in _declared_in(tree).items():
            entry = {
                "name": declared_name,
                "benchmark": name,
                "implementations": implementations,
            }
            listed.append(entry)
    for kernel in find_kernels(root):
        dotted_name = f"{kernel.module}.{kernel.function}"
        # a benchmark file imports the functions that it measures
        if dotted_name not in imported_names:
            listed.append({"name": kernel.name, "benchmark": None, "found": dotted_name})
    return listed


def _imported_names(tree: ast.Module) -> set[str]:
    """Dotted names of what `from ... import ...` takes."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return names


def _declared_in(tree: ast.Module) -> dict[str, list[str]]:
    """Names of the specs of a benchmark file, with their implementations."""
    names = _spec_names(tree)
    kernels: dict[str, list[str]] = {name: [] for name in names.values()}
    # `@softmax_spec.implementation("triton", name="two_pass")`
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        variable = ast.unparse(node.func.value)
        if node.func.attr == "implementation" and variable in names:
            implementation = _implementation_name(node)
            kernels[names[variable]].append(implementation)
    return kernels


def _spec_names(tree: ast.Module) -> dict[str, str]:
    """Name of each spec by the variable that holds it: `softmax_spec = KernelSpec(...)`."""
    names: dict[str, str] = {}
    for statement in tree.body:
        if not isinstance(statement, ast.Assign) or not isinstance(statement.value, ast.Call):
            continue
        call = statement.value
        target = statement.targets[0]
        is_spec = ast.unparse(call.func).rpartition(".")[2] == "KernelSpec"
        if is_spec and isinstance(target, ast.Name):
            names[target.id] = _text_argument(call, "name") or target.id
    return names


def _implementation_name(call: ast.Call) -> str:
    """The name of an implementation; without one, its language."""
    name = _text_argument(call, "name")
    if name:
        return name
    for argument in call.args:
        if isinstance(argument, ast.Constant):
            return str(argument.value)
    return ""


def _text_argument(call: ast.Call, name: str) -> str | None:
    for keyword in call.keywords:
        if keyword.arg == name and isinstance(keyword.value, ast.Constant):
            return str(keyword.value.value)
    return None


def _imports_triton(node: ast.stmt) -> bool:
    if isinstance(node, ast.Import):
        return any(alias.name == "triton" for alias in node.names)
    return isinstance(node, ast.ImportFrom) and node.module == "triton"


def _python_files(root: Path) -> list[str]:
    listed = run_git(root, "ls-files", "-z", "--cached", "--others", "--exclude-standard", "*.py")
    return [name for name in listed.split("\0") if name]


def _autograd_classes(tree: ast.Module) -> list[ast.ClassDef]:
    return [
        node for node in tree.body if isinstance(node, ast.ClassDef) and _is_autograd_function(node)
    ]


def _functions_of(node: ast.Module | ast.ClassDef) -> list[ast.FunctionDef]:
    return [child for child in node.body if isinstance(child, ast.FunctionDef)]


def _jitted_kernels(tree: ast.Module) -> dict[str, JittedKernel]:
    """The Triton kernels of a file by name."""
    return {
        function.name: _read_jitted(function)
        for function in _functions_of(tree)
        if _is_jitted(function)
    }


def _read_jitted(function: ast.FunctionDef) -> JittedKernel:
    """A parameter is a pointer if its name says so, or if memory is accessed through it."""
    names = tuple(argument.arg for argument in function.args.args)
    pointers = {name for name in names if name.endswith("_ptr")}
    for node in ast.walk(function):
        if not isinstance(node, ast.Call) or not node.args:
            continue
        if ast.unparse(node.func).rpartition(".")[2] not in _MEMORY_CALLS:
            continue
        address = node.args[0]
        # the pointer comes first: `x_ptr + row * stride + offs`
        while isinstance(address, ast.BinOp):
            address = address.left
        if isinstance(address, ast.Name):
            pointers.add(address.id)
    return JittedKernel(parameters=names, pointers=frozenset(pointers.intersection(names)))


def _kernels_of(
    module: str,
    tree: ast.Module,
    jitted: Mapping[str, JittedKernel],
) -> Iterator[FoundKernel]:
    classes = _autograd_classes(tree)
    # without a kernel to launch, it is made of PyTorch's own operators
    language = "triton" if jitted else "torch"
    # A launcher that an autograd function calls is part of it, not a kernel of its own.
    used: set[str] = set()
    for node in classes:
        used.update(name.id for name in ast.walk(node) if isinstance(name, ast.Name))
    for node in classes:
        kernel = _kernel_of_class(node, module, language, jitted)
        if kernel is not None:
            yield kernel
    for function in _functions_of(tree):
        if function.name not in used and _launches(function, jitted):
            yield _kernel_of_function(function, module, jitted)


def _kernel_of_class(
    node: ast.ClassDef,
    module: str,
    language: str,
    jitted: Mapping[str, JittedKernel],
) -> FoundKernel | None:
    """Read an `autograd.Function`; None if it has no forward pass."""
    methods = {method.name: method for method in _functions_of(node)}
    if "forward" not in methods:
        return None
    return FoundKernel(
        name=node.name.strip("_"),
        module=module,
        function=node.name,
        # The first parameter is the context.
        parameters=_parameters(methods["forward"], jitted, skip=1),
        is_differentiable=True,
        is_class=True,
        language=language,
    )


def _kernel_of_function(
    function: ast.FunctionDef,
    module: str,
    jitted: Mapping[str, JittedKernel],
) -> FoundKernel:
    return FoundKernel(
        name=function.name.strip("_"),
        module=module,
        function=function.name,
        parameters=_parameters(function, jitted),
    )


def _launches(function: ast.FunctionDef, jitted: Mapping[str, JittedKernel]) -> bool:
    return next(_launches_in(function, jitted), None) is not None


def _launches_in(
    function: ast.FunctionDef,
    jitted: Mapping[str, JittedKernel],
) -> Iterator[tuple[ast.Call, JittedKernel]]:
    """Each `kernel[grid](...)` of a function for a jitted kernel."""
    for node in ast.walk(function):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Subscript):
            continue
        kernel = jitted.get(ast.unparse(node.func.value).rpartition(".")[2])
        if kernel is not None:
            yield node, kernel


def _is_jitted(function: ast.FunctionDef) -> bool:
    for decorator in function.decorator_list:
        name = ast.unparse(decorator).partition("(")[0]
        if name in {"triton.jit", "jit"}:
            return True
    return False


def _is_autograd_function(node: ast.ClassDef) -> bool:
    return any(ast.unparse(base).rpartition(".")[2] == "Function" for base in node.bases)


def _parameters(
    function: ast.FunctionDef,
    jitted: Mapping[str, JittedKernel],
    *,
    skip: int = 0,
) -> dict[str, str]:
    """Annotations of the required parameters by name, after the first `skip`."""
    positional = [*function.args.posonlyargs, *function.args.args]
    # defaults are those of the last parameters
    required_count = len(positional) - len(function.args.defaults)
    tensors = _names_of_tensors(function, jitted)
    annotations: dict[str, str] = {}
    for argument in positional[skip:required_count]:
        annotation = map_optional(ast.unparse, argument.annotation) or ""
        if not annotation and argument.arg in tensors:
            annotation = "Tensor"
        annotations[argument.arg] = annotation
    return annotations


def _names_of_tensors(
    function: ast.FunctionDef,
    jitted: Mapping[str, JittedKernel],
) -> set[str]:
    """Names that have what only a tensor has, or that a kernel gets as pointers."""
    names: set[str] = set()
    for node in ast.walk(function):
        if not isinstance(node, ast.Attribute) or not isinstance(node.value, ast.Name):
            continue
        if node.attr in _TENSOR_ATTRIBUTES:
            names.add(node.value.id)
    for call, kernel in _launches_in(function, jitted):
        passed = dict(zip(kernel.parameters, call.args, strict=False))
        passed |= {word.arg: word.value for word in call.keywords if word.arg is not None}
        for name in kernel.pointers & passed.keys():
            value = passed[name]
            if isinstance(value, ast.Name):
                names.add(value.id)
    return names


def _may_declare_kernels(name: str) -> bool:
    path = PurePosixPath(name)
    folders = path.parts[:-1]
    # a folder such as `01-basics` is no package
    can_be_imported = all(part.isidentifier() for part in path.with_suffix("").parts)
    if not can_be_imported or any(map(_OTHER_DEVICES.fullmatch, folders)):
        return False
    if "tests" in folders or "test" in folders:
        return False
    is_test_or_benchmark = path.stem.startswith(("test_", "bench_"))
    return not is_test_or_benchmark and not path.stem.endswith("_test") and path.stem != "conftest"


def _module_of(name: str) -> str:
    """The module of a file, imported from the root or from `src`."""
    parts = PurePosixPath(name).with_suffix("").parts
    if parts[0] == "src" and len(parts) > 1:
        parts = parts[1:]
    if parts[-1] == "__init__":
        parts = parts[:-1]
    return ".".join(parts)

"""Write a benchmark file for one function, from what its inputs look like and its reference."""

import ast
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from roofwatch.console.terminal import print_error
from roofwatch.model.errors import SuiteError
from roofwatch.proposals.found_kernels import calls_autograd

SEPARATOR = "::"
# As in "x: float32[4096, 1024]" or "lengths: int64[64] from 1 to 4096".
_INPUT = re.compile(r"(\w+)\s*:\s*(\w+)\s*\[([\d\s,_]*)\](?:\s+from\s+(-?\d+)\s+to\s+(-?\d+))?")
# As in "eps=1e-6".
_SCALAR = re.compile(r"(\w+)\s*=\s*([-+.\w]+)")
# The interpreter is thousands of times slower than a GPU.
_INTERPRETED_LENGTH = 4
_MAX_ODD_LENGTH = 4096
"""Longer lengths are varied around this one: the interpreter would take minutes."""
_SMALL_ODD_LENGTH = 33
_ITEM_BYTES = {
    "float64": 8,
    "float32": 4,
    "float16": 2,
    "bfloat16": 2,
    "int64": 8,
    "int32": 4,
    "int16": 2,
    "int8": 1,
    "uint8": 1,
    "bool": 1,
}
_FILE = '''"""Benchmark of {function}, as `--like` describes it. Add shapes and dtypes."""

from {module} import {function} as measured_function
from {reference_module} import {reference_name} as reference_function

from roofwatch import KernelSpec, cases

{name}_spec = KernelSpec(
    name="{name}",
    inputs=lambda case, make: {{
{inputs}
    }},
    reference=lambda {parameters}: reference_function({arguments}),
    cases=cases(shapes=[{shape}], dtypes=["{dtype}"], directions={directions}),
    # checked and not timed: lengths that no block divides; remove what need not be supported
    edges=cases(
        shapes={odd_shapes},
        dtypes=["{dtype}"],
        directions={directions},
        tags=["may_refuse"],
    ),
    # unknown: correct it for a share of the arithmetic peak
    flop_count=lambda case: 0,
    # the inputs, and a result like the first one
    memory_bytes=lambda case: {memory_bytes},
    interpreted_shape={interpreted_shape},
)


@{name}_spec.implementation("{language}", name="{function}")
def {name}_measured({parameters}):
    return measured_function({arguments})


@{name}_spec.implementation("torch", compile=True)
def {name}_torch({parameters}):
    return reference_function({arguments})
'''


@dataclass(frozen=True)
class _TensorInput:
    name: str
    dtype: str
    shape: tuple[int, ...]
    bounds: tuple[int, int] | None
    """Lowest and highest value of integers; other dtypes have none."""

    @property
    def is_floating(self) -> bool:
        return "float" in self.dtype


def names_function(target: str) -> bool:
    """Whether a target is a function of a file: `my_ops.py::gelu`."""
    file, separator, function = target.partition(SEPARATOR)
    return separator != "" and file.endswith(".py") and function.isidentifier()


def benchmark_of(target: str, like: str | None, reference: str | None) -> str:
    """Return the target, or the benchmark file that is written for a function of a file.

    Raises:
        SuiteError: an option is missing or is not for this target; or as `write_benchmark`.
    """
    # a benchmark file has its own inputs and reference
    if not names_function(target):
        if like is not None or reference is not None:
            raise SuiteError(
                f"--like and --reference describe a function, such as my_ops.py::gelu; "
                f"{target} is none"
            )
        return target
    if like is None or reference is None:
        raise SuiteError(
            f"{target}: say what its inputs look like and what computes the same in PyTorch, as in "
            f"--like 'x: float32[4096, 1024], lengths: int64[4096] from 1 to 1024' "
            f"--reference torch.nn.functional.gelu, or --reference my_ops.py{SEPARATOR}gelu_torch "
            f"for a function of your own; a benchmark file bench_NAME.py is written from them"
        )
    benchmark = write_benchmark(target, like, reference)
    print_error(f"wrote {benchmark}: from now on, it can be named instead of the function")
    return str(benchmark)


def write_benchmark(target: str, like: str, reference: str) -> Path:
    """Write `bench_FUNCTION.py` next to the package of a function, or `bench_FUNCTION_2.py` and so
    on if there is one with other content.

    Args:
        target: The function, as `my_ops.py::gelu`.
        like: Its inputs in order, such as `x: float32[4096, 1024], eps=1e-6`.
        reference: A function with the same arguments, in PyTorch: its dotted name, or as `target`.

    Raises:
        SuiteError: the function or the file does not exist, or the inputs cannot be read.
    """
    file_name, _, function = target.partition(SEPARATOR)
    file = Path(file_name)
    language, directions = _kind_of(file, function)
    tensors, scalars = _parse_inputs(like)
    folder, module = _module_of(file)
    reference_module, reference_name = _parse_reference(reference)
    dimensions = _name_dimensions(tensors)
    floating = [tensor.dtype for tensor in tensors if tensor.is_floating]
    inputs = [*(_made(tensor, dimensions) for tensor in tensors)]
    inputs += [f'        "{name}": {value},' for name, value in scalars.items()]
    names = ", ".join([*(tensor.name for tensor in tensors), *scalars])
    byte_counts = [_byte_count(tensor, dimensions) for tensor in (*tensors, tensors[0])]
    text = _FILE.format(
        module=module,
        function=function,
        name=function,
        reference_module=reference_module,
        reference_name=reference_name,
        inputs="\n".join(inputs),
        parameters=names,
        arguments=names,
        shape=json.dumps({name: length for length, name in dimensions.items()}),
        odd_shapes=json.dumps(_odd_shapes(dimensions)),
        dtype=floating[0] if floating else "float32",
        memory_bytes=" + ".join(byte_counts),
        interpreted_shape=json.dumps(_interpreted_shape(dimensions)),
        language=language,
        directions=json.dumps(directions),
    )
    benchmark = folder / f"bench_{function}.py"
    number = 1
    # What a person corrected in the file must not be lost.
    while benchmark.exists() and benchmark.read_text() != text:
        number += 1
        benchmark = folder / f"bench_{function}_{number}.py"
    benchmark.write_text(text)
    return benchmark


def _parse_reference(reference: str) -> tuple[str, str]:
    """Return module and name of a reference.

    Raises:
        SuiteError: it is neither a dotted name nor a function of a file that exists.
    """
    if names_function(reference):
        file_name, _, name = reference.partition(SEPARATOR)
        # the file must have the function
        _kind_of(Path(file_name), name)
        _, module = _module_of(Path(file_name))
        return module, name
    module, _, name = reference.rpartition(".")
    names = [*module.split("."), name]
    if len(names) < 2 or not all(part.isidentifier() for part in names):
        raise SuiteError(
            f"--reference {reference}: give a dotted name, such as torch.nn.functional.gelu, or a "
            f"function of a file, such as my_ops.py{SEPARATOR}gelu_torch"
        )
    return module, name


def _kind_of(file: Path, function: str) -> tuple[str, list[str]]:
    """Return `triton` if the file has jitted kernels, else `torch`, and the directions.

    Raises:
        SuiteError: the file cannot be read or has no such function.
    """
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError) as error:
        raise SuiteError(f"{file}: cannot be read: {error}") from None
    nodes = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    if function not in nodes:
        raise SuiteError(f"{file}: has no function {function}; it has {', '.join(nodes)}")
    # A backward pass of its own can be wrong by itself.
    if calls_autograd(tree, nodes[function]):
        directions = ["fwd", "bwd"]
    else:
        directions = ["fwd"]
    # A file that imports Triton launches its kernels itself.
    for node in ast.walk(tree):
        if isinstance(node, ast.Import) and any(alias.name == "triton" for alias in node.names):
            return "triton", directions
    return "torch", directions


def _parse_inputs(like: str) -> tuple[list[_TensorInput], dict[str, str]]:
    """Read tensors and scalars.

    Raises:
        SuiteError: something else is there, or no tensor.
    """
    tensors: list[_TensorInput] = []
    for name, dtype, lengths, low, high in _INPUT.findall(like):
        if dtype not in _ITEM_BYTES:
            raise SuiteError(
                f"--like: {name} has dtype {dtype!r}; known are {', '.join(_ITEM_BYTES)}"
            )
        # a guessed range would prove nothing: lengths of 0 and 1 hide what long rows do
        has_range = "int" in dtype
        if has_range != bool(low) or (has_range and int(low) > int(high)):
            raise SuiteError(
                f"--like: {name}: integers, and no other dtype, need their lowest and highest "
                f"value, such as '{name}: int64[{lengths}] from 0 to 1023'"
            )
        tensor = _TensorInput(
            name=name,
            dtype=dtype,
            shape=tuple(int(length) for length in lengths.split(",") if length.strip()),
            bounds=(int(low), int(high)) if has_range else None,
        )
        tensors.append(tensor)
    # What neither a tensor nor a scalar explains is refused, rather than ignored.
    rest = _INPUT.sub("", like)
    scalars = dict(_SCALAR.findall(rest))
    unread = _SCALAR.sub("", rest).replace(",", "").strip()
    if unread or not tensors:
        raise SuiteError(
            f"--like {like!r}: cannot read {unread or 'any tensor'}; write it as "
            "'x: float32[4096, 1024], eps=1e-6'"
        )
    return tensors, scalars


def _module_of(file: Path) -> tuple[Path, str]:
    """Return the folder that a file is imported from, and its module."""
    folder = file.parent
    parts = [file.stem]
    # A module of a package is imported by its dotted name, as its relative imports need.
    while (folder / "__init__.py").exists():
        parts.insert(0, folder.resolve().name)
        folder = folder.resolve().parent
    return folder, ".".join(parts)


def _name_dimensions(tensors: Sequence[_TensorInput]) -> dict[int, str]:
    """Name each length; equal lengths of several tensors are one dimension."""
    lengths = dict.fromkeys(length for tensor in tensors for length in tensor.shape)
    return {length: f"dim_{index}" for index, length in enumerate(lengths)}


def _interpreted_shape(dimensions: Mapping[int, str]) -> dict[str, int]:
    """Make the first of several dimensions short, for Triton's interpreter."""
    # Only the first is shortened: it counts rows or tokens, mostly, and the last is reduced.
    if len(dimensions) < 2:
        return {}
    length, name = next(iter(dimensions.items()))
    return {name: min(length, _INTERPRETED_LENGTH)}


def _odd_shapes(dimensions: Mapping[int, str]) -> list[dict[str, int]]:
    """Make shapes with few elements in each dimension, with one more than declared, and with one
    less.
    """
    shortened = _interpreted_shape(dimensions)
    shapes: list[dict[str, int]] = []
    for step in (None, 1, -1):
        shape: dict[str, int] = {}
        for length, name in dimensions.items():
            shape[name] = _odd_length(shortened.get(name, length), step)
        is_declared = shape == {name: length for length, name in dimensions.items()}
        if shape not in shapes and not is_declared:
            shapes.append(shape)
    return shapes


def _odd_length(length: int, step: int | None) -> int:
    # a length of one is broadcast, mostly
    if length <= 1:
        return length
    if step is not None:
        return min(length, _MAX_ODD_LENGTH) + step
    return _SMALL_ODD_LENGTH if length > _SMALL_ODD_LENGTH else 3


def _made(tensor: _TensorInput, dimensions: Mapping[int, str]) -> str:
    lengths = [f'case["{dimensions[length]}"]' for length in tensor.shape]
    if tensor.bounds is not None:
        how = "integers"
        low, high = tensor.bounds
        options = [
            f"low={low}",
            f"high={_end_of(high, dimensions)}",
            f'dtype="{tensor.dtype}"',
        ]
    elif tensor.is_floating:
        how = "normal"
        options = [f'dtype="{tensor.dtype}"']
    else:
        how = "mask"
        options = []
    return f'        "{tensor.name}": make.{how}({", ".join([*lengths, *options])}),'


def _byte_count(tensor: _TensorInput, dimensions: Mapping[int, str]) -> str:
    lengths = [f'case["{dimensions[length]}"]' for length in tensor.shape]
    return " * ".join([str(_ITEM_BYTES[tensor.dtype]), *lengths])


def _end_of(highest: int, dimensions: Mapping[int, str]) -> str:
    """Source of the first integer above a range: with the length that it belongs to, it is still
    right at other sizes.
    """
    # an index into a dimension, or a count of its elements
    if highest + 1 in dimensions:
        return f'case["{dimensions[highest + 1]}"]'
    if highest in dimensions:
        return f'case["{dimensions[highest]}"] + 1'
    return str(highest + 1)

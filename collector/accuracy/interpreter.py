"""Make Triton's interpreter compute as a GPU does, and test its accesses to memory.

Triton's own stores bfloat16 values as integers and computes with these, passes Python floats as
they are, has neither libdevice nor `tl.dot_scaled`, and cannot time the configurations of an
autotuner.
"""

import ast
import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import triton.language as tl
from triton.language.extra import libdevice
from triton.runtime import interpreter
from triton.runtime.autotuner import Autotuner

from roofwatch.collector.accuracy.guarded_launch import guard_memory, with_operand
from roofwatch.collector.accuracy.interpreted_dot_scaled import interpret_dot_scaled
from roofwatch.collector.accuracy.interpreted_function import answer_as_compiled
from roofwatch.collector.accuracy.interpreted_logic import ElementwiseLogic, add_logic_to
from roofwatch.collector.accuracy.interpreted_reduce import reduce_as_tree
from roofwatch.spec.case import UnsupportedError

_TORCH_DTYPES = {
    "fp32": torch.float32,
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
    "fp8e4nv": torch.float8_e4m3fn,
    "fp8e5": torch.float8_e5m2,
}
_LIBDEVICE_NAMES = {
    "rint": "round",
    "div_rn": "div",
    "rcp_rn": "reciprocal",
    "fast_dividef": "div",
    "finitef": "isfinite",
}
"""torch's names of functions that have another name in libdevice."""
_LIBDEVICE_DIFFERS = {"round", "remainder"}
"""Functions that round in another way than torch's of the same name."""
_BIT_PATTERNS = {
    1: torch.uint8,
    2: torch.uint16,
    4: torch.uint32,
}

_Builder = interpreter.InterpreterBuilder
_original_convert = interpreter._convert_float
_original_patch_language = interpreter._patch_lang
_original_implicit_conversion = interpreter._implicit_cvt
_Scope = interpreter._LangPatchScope
_original_restore = _Scope.restore
_patched_modules: dict[int, dict[str, Any]] = {}
"""Names of the modules for which the language is patched now, by identity."""


def patch_interpreter() -> None:
    """Correct the interpreter in this process."""
    # Once in a process: a second time would patch the patches.
    if interpreter._convert_float is _convert:
        return
    interpreter._convert_float = _convert
    interpreter._implicit_cvt = _convert_argument
    interpreter._patch_lang = _patch_language
    _Scope.restore = _restore_language
    interpreter.FunctionRewriter.ast_transformer = _AsCompiled()
    add_logic_to(interpreter)
    _Builder.create_dot = _product_in_float32(_Builder.create_dot)
    _Builder.get_bf16 = lambda builder, value: _cast(builder.get_fp32(value), tl.bfloat16)
    for name in ("binary_op", "ternary_op", "unary_op", "create_fma"):
        setattr(_Builder, name, _in_float32(getattr(_Builder, name)))
    interpreter.ReduceOps.apply_impl = reduce_as_tree(
        in_order=interpreter.ReduceOps.generic_reduce,
        exact=_reduce_in_float32(interpreter.ReduceOps.apply_impl),
    )
    interpreter.ScanOps.apply_impl = _reduce_in_float32(interpreter.ScanOps.apply_impl)
    interpret_dot_scaled()
    guard_memory()
    answer_as_compiled()
    # all take equally long, so the first one is chosen
    Autotuner._bench = lambda *_, **__: [0.0, 0.0, 0.0]
    Autotuner.check_disk_cache = lambda _autotuner, _key, _configs, benchmark: benchmark()
    for name, function in list(vars(libdevice).items()):
        if callable(function):
            setattr(libdevice, name, _libdevice_function(name))


class _AsCompiled(ElementwiseLogic, interpreter.ASTTransformer):  # type: ignore[misc]  # Triton is not typed
    """Makes loop variables tensors, as compiled ones are: a kernel may call `i.to(tl.int64)`."""

    def visit_Assign(self, node: ast.Assign) -> ast.Assign:  # noqa: N802
        node.value = self.visit(node.value)
        super().visit_Assign(node)
        return node

    def visit_For(self, node: ast.For) -> ast.For:  # noqa: N802  the name that `ast` calls
        self.generic_visit(node)
        # a loop over `tl.static_range` is unrolled, so its variable stays a number
        if isinstance(node.target, ast.Name) and _counts_in_a_loop(node.iter):
            name = node.target.id
            value = ast.Name(id=name, ctx=ast.Load())
            target = ast.Name(id=name, ctx=ast.Store())
            assignment = self.visit_Assign(ast.Assign(targets=[target], value=value))
            node.body.insert(0, ast.copy_location(assignment, node))
        return node


def _counts_in_a_loop(iterable: ast.expr) -> bool:
    """Whether a loop stays one in machine code: over `range`, not `static_range`."""
    if not isinstance(iterable, ast.Call):
        return False
    function = iterable.func
    # `tl.range` or `range`
    if isinstance(function, ast.Attribute):
        return function.attr == "range"
    return isinstance(function, ast.Name) and function.id == "range"


def _convert(
    data: Any,
    source: Any,
    target: Any,
    rounding_mode: Any,
) -> Any:
    """Convert bit patterns from one Triton dtype to another, rounding to nearest even.

    Conversions to float8 saturate, as on NVIDIA GPUs (PTX ISA, cvt.rn.satfinite).
    """
    source_dtype = _TORCH_DTYPES.get(source.name)
    target_dtype = _TORCH_DTYPES.get(target.name)
    # Rounding to zero, of conversions that ask for it, is right in Triton's own.
    truncates = rounding_mode == interpreter._ir.ROUNDING_MODE.RTZ
    if source_dtype is None or target_dtype is None or truncates:
        return _original_convert(data, source, target, rounding_mode)
    values = torch.from_numpy(data.reshape(-1).copy()).view(source_dtype)
    if target_dtype.itemsize == 1:
        largest = torch.finfo(target_dtype).max
        values = values.to(torch.float32).clamp(-largest, largest)
    bits = values.to(target_dtype).view(_BIT_PATTERNS[target_dtype.itemsize])
    return bits.numpy().reshape(data.shape)


def _convert_argument(argument: Any) -> Any:
    """Pass a Python float as a float32 scalar, as the compiler does."""
    if isinstance(argument, float):
        scalar = np.array([argument], np.float32)
        return tl.tensor(interpreter.TensorHandle(scalar, tl.float32), tl.float32)
    converted = _original_implicit_conversion(argument)
    return with_operand(argument, converted)


def _patch_language(function: Any) -> Any:
    """Let a module leave out `triton.language` if its function uses none of it, as `x + y`, and
    give functions of it names of their own, as in `cast = tl.cast`.

    Triton patches the language again for every function that a kernel calls, such as `tl.sum`,
    which takes a third of the interpreter's time. Until it is restored, once for a module is
    enough.
    """
    names = function.__globals__
    if id(names) in _patched_modules:
        return _Scope()
    names.setdefault("_triton_language", tl)
    scope = _original_patch_language(function)
    module = _Module(names)
    for name, value in list(names.items()):
        if tl.core.is_builtin(value) is True:
            interpreter._patch_attr(module, name, value, interpreter.interpreter_builder, scope)
    _patched_modules[id(names)] = names
    return scope


def _restore_language(scope: Any) -> None:
    """Let the next launch patch the language anew."""
    _patched_modules.clear()
    _original_restore(scope)


class _Module:
    """Has the names of a module as attributes."""

    def __init__(self, names: dict[str, Any]) -> None:
        self.__dict__ = names


def _libdevice_function(name: str) -> Callable[..., tl.tensor]:
    """Torch's elementwise function in place of one of libdevice."""
    # `fast_expf` and `exp_rn` are torch's `exp`; `sinf` is its `sin`.
    simple = name.removeprefix("fast_").removesuffix("_rn")
    torch_names = (_LIBDEVICE_NAMES.get(name, simple), simple.removesuffix("f"))
    functions = [getattr(torch, torch_name, None) for torch_name in torch_names]
    function = next(filter(None, functions), None)

    def compute(*operands: Any) -> tl.tensor:
        if function is None or name in _LIBDEVICE_DIFFERS:
            raise UnsupportedError(
                f"Triton's interpreter cannot run libdevice.{name}; check the kernel on a GPU"
            )
        tensors = [_convert_argument(operand) for operand in operands]
        inputs = [torch.from_numpy(tensor.handle.data) for tensor in tensors]
        values = function(*inputs).numpy()
        dtype = tensors[0].dtype
        # libdevice has no booleans.
        if values.dtype == np.bool_:
            dtype = tl.int32
            values = values.astype(np.int32)
        kind = dtype
        if tensors[0].type.is_block():
            kind = tl.block_type(dtype, list(values.shape))
        return tl.tensor(interpreter.TensorHandle(values, dtype), kind)

    return compute


def _cast(handle: Any, dtype: tl.dtype) -> Any:
    return interpreter.interpreter_builder.cast_impl(handle, dtype)


def _in_float32(operation: Callable[..., Any]) -> Callable[..., Any]:
    """Compute an operation on bfloat16 values in float32, and round its result."""

    @functools.wraps(operation)
    def compute(builder: Any, *operands: Any, **options: Any) -> Any:
        if not any(map(_is_bfloat16, operands)):
            return operation(builder, *operands, **options)
        wide = map(_widened, operands)
        result = operation(builder, *wide, **options)
        # A comparison has nothing to round.
        if result.data.dtype == np.bool_:
            return result
        return _cast(result, tl.bfloat16)

    return compute


def _product_in_float32(dot: Callable[..., Any]) -> Callable[..., Any]:
    """Multiply bfloat16 matrices as numbers; their products are exact in float32."""

    @functools.wraps(dot)
    def compute(builder: Any, *operands: Any) -> Any:
        # the accumulator, which has the dtype of the result, is never bfloat16
        wide = map(_widened, operands)
        return dot(builder, *wide)

    return compute


def _widened(operand: Any) -> Any:
    """Convert a bfloat16 operand to float32; other dtypes stay."""
    if not _is_bfloat16(operand):
        return operand
    return _cast(operand, tl.float32)


def _is_bfloat16(operand: Any) -> bool:
    if not isinstance(operand, interpreter.TensorHandle):
        return False
    return operand.dtype.scalar is tl.bfloat16


def _reduce_in_float32(apply: Callable[..., Any]) -> Callable[..., Any]:
    """Scan bfloat16 tensors in float32, or find their extremes, and round the results."""

    @functools.wraps(apply)
    def compute(operations: Any, tensors: tuple[Any, ...]) -> list[Any]:
        narrow = [_is_bfloat16(tensor.handle) for tensor in tensors]
        wide: list[Any] = []
        for tensor, is_narrow in zip(tensors, narrow, strict=True):
            wide_tensor = tensor
            if is_narrow:
                data = _cast(tensor.handle, tl.float32).data
                wide_tensor = operations.to_tensor(data, tl.float32)
            wide.append(wide_tensor)
        results = apply(operations, tuple(wide))
        # Of several tensors, a scan returns as many results.
        if not isinstance(results, (list, tuple)):
            results = [results]
        return [
            _narrowed(result) if is_narrow else result
            for result, is_narrow in zip(results, narrow, strict=False)
        ]

    return compute


def _narrowed(result: Any) -> Any:
    kind = tl.bfloat16
    if result.type.is_block():
        kind = tl.block_type(tl.bfloat16, result.type.shape)
    return tl.tensor(_cast(result.handle, tl.bfloat16), kind)

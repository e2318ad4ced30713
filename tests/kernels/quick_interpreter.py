"""Triton's interpreter without what it does over and over: half of its time goes into finding out what is the same in
every program of a grid. What it computes and what it checks stay the same.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import triton.language as tl
from triton.language.semantic import TritonSemantic
from triton.runtime import interpreter

_LANGUAGES = (tl, tl.core)
_init_block_type_in_triton: Any = tl.core.block_type.__init__
_NUMPY_OPERATIONS: dict[str, Callable[..., Any]] = {"add": np.add, "sub": np.subtract, "mul": np.multiply}


def interpret_quickly() -> None:
    """From now on in this process, before it runs anything."""
    in_triton = interpreter._patch_lang, interpreter._get_np_dtype
    interpreter._patch_lang = _Patches(in_triton[0]).patch
    interpreter._get_np_dtype = _numpy_dtypes(in_triton[1])
    TritonSemantic.binary_op_sanitize_overflow_impl = _check_overflow
    tl.core.block_type.__init__ = _init_block_type
    tl.core.tensor.__init__ = _init_tensor


class _Patches:
    """Has the language interpreted once in a launch, not again in each call of a function by each program."""

    def __init__(self, patch_in_triton: Callable[[Any], Any]) -> None:
        self._patch_in_triton = patch_in_triton
        self._interpreted: set[int] = set()
        self._languages: dict[Any, frozenset[int]] = {}

    def patch(self, fn: Any) -> Any:
        if fn not in self._languages:
            modules = [value for value in fn.__globals__.values() if inspect.ismodule(value)]
            self._languages[fn] = frozenset(number for number, one in enumerate(_LANGUAGES) if one in modules)
        is_launch = not self._interpreted
        if not is_launch and self._languages[fn] <= self._interpreted:
            return None  # of a call within a launch, which restores nothing
        self._interpreted |= self._languages[fn]
        scope = self._patch_in_triton(fn)
        return _Launch(scope, self._interpreted) if is_launch else scope


class _Launch:
    """What a launch restores at its end, after which nothing is interpreted any more."""

    def __init__(self, scope: Any, interpreted: set[int]) -> None:
        self._scope = scope
        self._interpreted = interpreted

    def restore(self) -> None:
        self._interpreted.clear()
        self._scope.restore()


def _numpy_dtypes(in_triton: Callable[[Any], Any]) -> Callable[[Any], Any]:
    found: dict[str, Any] = {}

    def numpy_dtype(dtype: Any) -> Any:
        scalar = dtype.scalar
        if scalar.name not in found:
            found[scalar.name] = in_triton(scalar)
        return found[scalar.name]

    return numpy_dtype


def _check_overflow(self: Any, lhs: Any, rhs: Any, binary_op: Any) -> None:
    """As in Triton, that no integer leaves its type, by NumPy instead of four operations of the language."""
    integer = lhs.type.scalar
    if integer.int_bitwidth >= 64 or not self.builder.options.sanitize_overflow:
        return
    wide = [operand.handle.data.astype(np.int64) for operand in (lhs, rhs)]
    exact = _NUMPY_OPERATIONS[binary_op.__name__](*wide)
    least, most = integer.get_int_min_value(), integer.get_int_max_value()
    assert exact.size == 0 or (least <= exact.min() and exact.max() <= most), (
        f"int{integer.int_bitwidth} overflow detected for operation {binary_op.__name__}"
    )


@cache
def _shape(lengths: tuple[int, ...]) -> tuple[Any, int, str]:
    """A block's shape, how many elements it has, and its text, as Triton makes them."""
    block = tl.core.block_type.__new__(tl.core.block_type)
    _init_block_type_in_triton(block, tl.float32, list(lengths))
    return block.shape, block.numel, str(block.shape)


def _init_block_type(self: Any, element_ty: Any, shape: Any) -> None:
    assert isinstance(shape, list | tuple | tl.core.tuple)
    lengths = tuple([one.value if isinstance(one, tl.constexpr) else one for one in shape])
    self.element_ty = element_ty
    self.shape, self.numel, text = _shape(lengths)
    self.name = f"<{text}, {element_ty}>"


@cache
def _constexpr_shape(lengths: tuple[int, ...]) -> tuple[Any, Any]:
    return tl.core.tuple([tl.constexpr(length) for length in lengths]), tl.constexpr(math.prod(lengths))


def _init_tensor(self: Any, handle: Any, type: Any) -> None:
    self.handle = handle
    self.type = type
    self.dtype = type.scalar
    self.shape, self.numel = _constexpr_shape(tuple(type.shape.values) if type.is_block() else ())

"""Products of block-scaled matrices in Triton's interpreter, which has none."""

from typing import Any

import numpy as np
import torch
import triton.language as tl
from numpy.typing import NDArray
from triton.language.semantic import TritonSemantic
from triton.runtime import interpreter

# by format: Triton's dtypes of operands that are not packed
_DTYPES = {
    "E4M3": torch.float8_e4m3fn,
    "E5M2": torch.float8_e5m2,
    "BF16": torch.bfloat16,
    "FP16": torch.float16,
}
_E2M1_MAGNITUDES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
_E2M1 = np.array([*_E2M1_MAGNITUDES, *(-number for number in _E2M1_MAGNITUDES)], np.float32)
"""Numbers by code. Source: OCP Microscaling Formats (MX) Specification 1.0, table 5."""
_E8M0_BIAS = 127
_E8M0_NAN = 255

_Semantic: Any = TritonSemantic
_original_dot_scaled = _Semantic.dot_scaled


def interpret_dot_scaled() -> None:
    """Let interpreted kernels call `tl.dot_scaled` in this process."""
    _Semantic.dot_scaled = _dot_scaled
    interpreter.InterpreterBuilder.create_dot_scaled = _create_dot_scaled


def _dot_scaled(
    semantic: Any,
    lhs: Any,
    lhs_scale: Any,
    lhs_format: Any,
    rhs: Any,
    rhs_scale: Any,
    rhs_format: Any,
    *options: Any,
) -> Any:
    """Triton's own function, with the formats as the interpreter needs them."""
    # The compiler passes constants as objects with a value, the interpreter as they are.
    return _original_dot_scaled(
        semantic,
        lhs,
        lhs_scale,
        _as_constant(lhs_format),
        rhs,
        rhs_scale,
        _as_constant(rhs_format),
        *options,
    )


def _as_constant(value: Any) -> Any:
    if isinstance(value, str):
        return tl.constexpr(value)
    return value


def _create_dot_scaled(
    _builder: Any,
    lhs: Any,
    lhs_scale: Any,
    lhs_format: Any,
    rhs: Any,
    rhs_scale: Any,
    rhs_format: Any,
    _fast_math: bool,
    lhs_k_pack: bool,
    rhs_k_pack: bool,
    acc: Any,
) -> Any:
    """Return `(lhs * lhs_scale) @ (rhs * rhs_scale) + acc` in float32.

    Scales have a row per row of lhs, or column of rhs, and a column per group of the common dim.
    """
    # two e2m1 numbers of a byte lie along K, or along the other dim
    lhs_axis = -1 if lhs_k_pack else -2
    rhs_axis = -2 if rhs_k_pack else -1
    lhs_numbers = _numbers(lhs, lhs_format.name, axis=lhs_axis)  # [M, K]
    rhs_numbers = _numbers(rhs, rhs_format.name, axis=rhs_axis)  # [K, N]
    depth = lhs_numbers.shape[-1]
    lhs_numbers = lhs_numbers * _factors(lhs_scale, depth)
    rhs_numbers = rhs_numbers * np.swapaxes(_factors(rhs_scale, depth), -1, -2)
    product = np.matmul(lhs_numbers, rhs_numbers)  # [M, N]
    return interpreter.TensorHandle(acc.data + product, tl.float32)


def _numbers(handle: Any, format_name: str, *, axis: int) -> NDArray[np.float32]:
    """Convert to float32; e2m1 has two numbers a byte along an axis, the first in the low bits."""
    if format_name == "E2M1":
        codes = np.stack([handle.data & 0xF, handle.data >> 4], axis=-1)
        last = codes.ndim - 2
        return _joined_pairs(_E2M1[codes], axis % (last + 1))
    return _as_float32(handle.data, _DTYPES[format_name])


def _joined_pairs(pairs: NDArray[np.float32], axis: int) -> NDArray[np.float32]:
    """Merge the last dim, of length two, into another one."""
    shape = list(pairs.shape[:-1])
    shape[axis] *= 2
    return np.moveaxis(pairs, -1, axis + 1).reshape(shape)


def _factors(scale: Any, depth: int) -> NDArray[np.float32]:
    """Repeat the scales along the common dim; without scales they are one."""
    if scale is None:
        return np.ones((1, 1), np.float32)
    if scale.dtype.is_fp8e4nv():
        factors = _as_float32(scale.data, torch.float8_e4m3fn)
    else:
        exponents = scale.data.astype(np.int32) - _E8M0_BIAS
        factors = np.ldexp(np.float32(1), exponents)
        factors = np.where(scale.data == _E8M0_NAN, np.float32(np.nan), factors)
    return np.repeat(factors, depth // factors.shape[-1], axis=-1)


def _as_float32(data: Any, dtype: torch.dtype) -> NDArray[np.float32]:
    values = torch.from_numpy(np.ascontiguousarray(data)).view(dtype)
    numbers: NDArray[np.float32] = values.to(torch.float32).numpy()
    return numbers

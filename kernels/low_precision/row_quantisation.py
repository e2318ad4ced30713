"""Rows of activations to 8 bits, each with a scale of its own: what quantise_int8 and quantise_fp8 share.

`scale = max |x| / highest` along each row, and `out = x / scale` rounded to the nearest level. A row that fits into one
program's registers is read once; a longer one is read twice in tiles.
"""

from typing import Any

import torch
import triton
import triton.language as tl

from roofwatch import Case, InputMaker, cases
from roofwatch.kernels.building_blocks.fp8 import as_kernels_take_it, to_e4m3
from roofwatch.kernels.building_blocks.rounding import round_half_even
from roofwatch.kernels.building_blocks.row_tiles import MAX_COLS_IN_REGISTERS, row_config
from roofwatch.kernels.errors import KernelError
from roofwatch.kernels.operands import refuse_gradients, require_operands
from roofwatch.kernels.shapes import model_cases, token_rows

SMALLEST_ABSMAX = 1e-30
"""Keeps the scale of a row of zeros above zero."""
_SMALLEST_ABSMAX = tl.constexpr(SMALLEST_ABSMAX)


@triton.jit
def _as_levels(x, DTYPE: tl.constexpr):
    if DTYPE.is_int8():
        levels = round_half_even(x).to(tl.int8)
    elif DTYPE.is_uint8():
        levels = to_e4m3(x)
    else:
        levels = tl.clamp(x, -448.0, 448.0).to(DTYPE)
    return levels


@triton.jit
def _quantise_rows_kernel(x_ptr, out_ptr, scale_ptr, x_row_stride, n_cols, HIGHEST: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    offs = tl.arange(0, BLOCK)
    mask = offs < n_cols
    x = tl.load(x_ptr + row * x_row_stride + offs, mask=mask, other=0.0).to(tl.float32)  # [BLOCK]
    absmax = tl.maximum(tl.max(tl.abs(x), axis=0), _SMALLEST_ABSMAX)
    out = _as_levels(x * (HIGHEST / absmax), out_ptr.dtype.element_ty)
    tl.store(out_ptr + row * n_cols + offs, out, mask=mask)  # [BLOCK]
    tl.store(scale_ptr + row, absmax / HIGHEST)


@triton.jit
def _quantise_long_rows_kernel(
    x_ptr, out_ptr, scale_ptr, x_row_stride, n_cols, HIGHEST: tl.constexpr, BLOCK: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * x_row_stride
    out_ptr += row * n_cols
    lane_max = tl.full((BLOCK,), _SMALLEST_ABSMAX, tl.float32)
    for start in range(0, n_cols, BLOCK):
        offs = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + offs, mask=offs < n_cols, other=0.0).to(tl.float32)  # [BLOCK]
        lane_max = tl.maximum(lane_max, tl.abs(x))
    absmax = tl.max(lane_max, axis=0)
    inverse = HIGHEST / absmax
    for start in range(0, n_cols, BLOCK):
        offs = start + tl.arange(0, BLOCK)
        mask = offs < n_cols
        x = tl.load(x_ptr + offs, mask=mask, other=0.0).to(tl.float32)  # [BLOCK]
        tl.store(out_ptr + offs, _as_levels(x * inverse, out_ptr.dtype.element_ty), mask=mask)  # [BLOCK]
    tl.store(scale_ptr + row, absmax / HIGHEST)


def quantise_rows(x: torch.Tensor, dtype: torch.dtype, highest: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Launch for operands that `require_rows` let pass.

    Args:
        x: [n_rows, n_cols].
        dtype: Of the result, `torch.int8` or `torch.float8_e4m3fn`.
        highest: The level that a row's largest magnitude is put on.

    Returns:
        [n_rows, n_cols] of `dtype`, and the scales, [n_rows, 1] float32.
    """
    n_rows, n_cols = x.shape
    out, scale = empty_result(x, dtype)
    if n_rows:  # a grid of no programs cannot be launched
        kernel = _quantise_rows_kernel if n_cols <= MAX_COLS_IN_REGISTERS else _quantise_long_rows_kernel
        with torch.cuda.device_of(x):
            launched_out = as_kernels_take_it(out) if dtype is torch.float8_e4m3fn else out
            kernel[(n_rows,)](x, launched_out, scale, x.stride(0), n_cols, HIGHEST=highest, **row_config(n_cols))
    return out, scale


def empty_result(x: torch.Tensor, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Where the levels and the scales go."""
    return x.new_empty(x.shape, dtype=dtype), x.new_empty(x.shape[0], 1, dtype=torch.float32)


def require_rows(kernel: str, x: torch.Tensor) -> None:
    """Refuse what cannot be quantised by rows.

    Raises:
        KernelError: x has another layout or dtype, no columns, or requires a gradient.
    """
    require_operands(kernel, dims=2, x=x)
    refuse_gradients(kernel, x=x)
    if not x.shape[1]:
        raise KernelError(f"{kernel}: x has shape {tuple(x.shape)}, rows without a maximum; pass at least one column")


def rows_to_quantise(case: Case, make: InputMaker) -> dict[str, Any]:
    """Activations as a normalised residual stream gives them."""
    return {"x": make.normal(case["n_rows"], case["n_cols"])}


def row_quantisation_cases() -> list[Case]:
    """Small rows, and the token rows of the models."""
    small = cases(shapes=[{"n_rows": 512, "n_cols": 4096}], dtypes=["float32", "bfloat16"], tags=["small"])
    return [*small, *model_cases(token_rows())]


def row_quantisation_edges() -> list[Case]:
    """Odd lengths, one column, no row, and the shortest row that is read twice."""
    return [
        *cases(shapes=[{"n_rows": 1, "n_cols": 63}, {"n_rows": 0, "n_cols": 63}], dtypes=["bfloat16"]),
        *cases(shapes=[{"n_rows": 3, "n_cols": 1000}, {"n_rows": 2, "n_cols": 1}], dtypes=["float16"]),
        *cases(shapes=[{"n_rows": 2, "n_cols": MAX_COLS_IN_REGISTERS + 1}], dtypes=["bfloat16"]),
    ]


def scale_of_rows(x: torch.Tensor, highest: float) -> torch.Tensor:
    """The scales in torch's operations, [n_rows, 1] float32."""
    absmax = torch.linalg.vector_norm(x, ord=torch.inf, dim=-1, keepdim=True).float()
    scale: torch.Tensor = absmax.clamp(min=SMALLEST_ABSMAX) / highest
    return scale


def row_quantisation_flop_count(case: Case) -> float:
    """Per element: magnitude and comparison for the maximum, times the inverse scale, rounding."""
    return 4 * case["n_rows"] * case["n_cols"]


def row_quantisation_memory_bytes(case: Case) -> float:
    """Reads x, writes one byte per element and four per row."""
    return case["n_rows"] * (case["n_cols"] * (case.itemsize + 1) + 4)

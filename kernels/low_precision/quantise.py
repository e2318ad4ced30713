"""Quantise rows of activations to int8 or to the 8-bit float e4m3, each row with its own scale.

`scale = max |x| / highest` along each row, and `out = x / scale` rounded to the nearest level. int8
uses -127 to 127, so the levels are symmetric; e4m3 clamps to its largest number, 448. A row that
fits into the registers of one program is read once; a longer one is read twice in tiles.

Sources: Dettmers et al., LLM.int8(): 8-bit Matrix Multiplication for Transformers at Scale, 2022
(arXiv 2208.07339), section 2.1 (absmax quantisation by rows); Micikevicius et al., FP8 Formats for
Deep Learning, 2022 (arXiv 2209.05433), section 3.
"""

from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from roofwatch import Case, InputMaker, KernelSpec, cases
from roofwatch.kernels.building_blocks.errors import KernelError
from roofwatch.kernels.building_blocks.formats import (
    E4M3_MAX,
    as_kernel_operand,
    round_half_even,
    to_e4m3,
)
from roofwatch.kernels.building_blocks.operands import require_operands
from roofwatch.kernels.building_blocks.operators import operator
from roofwatch.kernels.building_blocks.rows import MAX_COLS_IN_REGISTERS, whole_row_config
from roofwatch.kernels.building_blocks.shapes import model_cases, small_cases, token_rows

Quantised = tuple[Tensor, Tensor]
HIGHEST_LEVEL = 127
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
def _quantise_rows_kernel(
    x_ptr,
    out_ptr,
    scale_ptr,
    x_row_stride,
    n_cols,
    HIGHEST: tl.constexpr,
    IS_LONG: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    if IS_LONG:
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
            tl.store(
                out_ptr + offs, _as_levels(x * inverse, out_ptr.dtype.element_ty), mask=mask
            )  # [BLOCK]
    else:
        offs = tl.arange(0, BLOCK)
        mask = offs < n_cols
        x = tl.load(x_ptr + row * x_row_stride + offs, mask=mask, other=0.0).to(
            tl.float32
        )  # [BLOCK]
        absmax = tl.maximum(tl.max(tl.abs(x), axis=0), _SMALLEST_ABSMAX)
        out = _as_levels(x * (HIGHEST / absmax), out_ptr.dtype.element_ty)
        tl.store(out_ptr + row * n_cols + offs, out, mask=mask)  # [BLOCK]
    tl.store(scale_ptr + row, absmax / HIGHEST)


def _define_operator(
    name: str, dtype: torch.dtype, highest: float
) -> Callable[[Tensor], Quantised]:
    """Register `roofwatch::<name>` and return a launcher that checks its operand.

    Args:
        name: Of the operator.
        dtype: Of the result, `torch.int8` or `torch.float8_e4m3fn`.
        highest: The level of a row's largest magnitude.
    """

    def empty_result(x: Tensor) -> tuple[Tensor, Tensor]:
        return x.new_empty(x.shape, dtype=dtype), x.new_empty(x.shape[0], 1, dtype=torch.float32)

    @operator(name, empty_result)
    def forward(x, out, scale):
        n_rows, n_cols = x.shape
        kernel_out = as_kernel_operand(out) if dtype is torch.float8_e4m3fn else out
        config = whole_row_config(n_cols)
        _quantise_rows_kernel[(n_rows,)](
            x, kernel_out, scale, x.stride(0), n_cols, HIGHEST=highest, **config
        )

    def launch(x: Tensor) -> Quantised:
        require_operands(name, dims=2, x=x)
        if not x.shape[1]:
            raise KernelError(
                f"{name}: x has shape {tuple(x.shape)}, rows without a maximum; pass at least one "
                f"column"
            )
        return forward(x)

    return launch


def _scale_of_rows(x: Tensor, highest: float) -> Tensor:
    absmax = torch.linalg.vector_norm(x, ord=torch.inf, dim=-1, keepdim=True).float()
    scale: Tensor = absmax.clamp(min=SMALLEST_ABSMAX) / highest
    return scale


def _inputs(case: Case, make: InputMaker) -> dict[str, Any]:
    return {"x": make.normal(case["n_rows"], case["n_cols"])}


def quantise_flop_count(case: Case) -> float:
    """Count per element: magnitude and comparison for the maximum, product with the inverse scale,
    rounding.
    """
    return 4 * case["n_rows"] * case["n_cols"]


def quantise_memory_bytes(case: Case) -> float:
    """Reads x; writes one byte per element and four per row."""
    return case["n_rows"] * (case["n_cols"] * (case.itemsize + 1) + 4)


def _quantise_spec(name: str, **declared: Any) -> KernelSpec:
    small = small_cases({"n_rows": 512, "n_cols": 4096})
    return KernelSpec(
        name=name,
        family="low precision",
        inputs=_inputs,
        cases=[*small, *model_cases(token_rows())],
        edges=[
            *cases(
                shapes=[{"n_rows": 1, "n_cols": 63}, {"n_rows": 0, "n_cols": 63}],
                dtypes=["bfloat16"],
            ),
            *cases(
                shapes=[{"n_rows": 3, "n_cols": 1000}, {"n_rows": 2, "n_cols": 1}],
                dtypes=["float16"],
            ),
            # the shortest row that is read twice
            *cases(
                shapes=[{"n_rows": 2, "n_cols": MAX_COLS_IN_REGISTERS + 1}], dtypes=["bfloat16"]
            ),
        ],
        flop_count=quantise_flop_count,
        memory_bytes=quantise_memory_bytes,
        interpreted_shape={"n_rows": 3, "n_cols": 2100},
        **declared,
    )


def quantise_int8_reference(x: Tensor) -> Quantised:
    """Compute `scale = max |x| / 127` and `out = round(x / scale)`, ties to even."""
    scale = x.abs().amax(dim=-1, keepdim=True).clamp(min=SMALLEST_ABSMAX) / HIGHEST_LEVEL
    return torch.round(x / scale).to(torch.int8), scale


_quantise_int8 = _define_operator("quantise_int8", torch.int8, HIGHEST_LEVEL)
quantise_int8_spec = _quantise_spec(
    "quantise_int8",
    reference=quantise_int8_reference,
    formula="out = round(x / scale), scale = max |x| / 127 of each row",
    source="Dettmers et al., LLM.int8(), 2022 (arXiv 2208.07339), section 2.1",
)


@quantise_int8_spec.implementation("triton", directions=["fwd"], deterministic=True)
def quantise_int8(x: Tensor) -> Quantised:
    """Compute `round(x / scale)` with `scale = max |x| / 127` along each row, in float32.

    Args:
        x: [n_rows, n_cols], finite, contiguous along its last dim.

    Returns:
        Levels [n_rows, n_cols] int8 and scales [n_rows, 1] float32. Their product is close to x. A
        row of zeros has a tiny scale.
    """
    return _quantise_int8(x)


@quantise_int8_spec.implementation("torch", directions=["fwd"], compile=True)
def _quantise_int8_torch(x: Tensor) -> Quantised:
    scale = _scale_of_rows(x, HIGHEST_LEVEL)
    return (x / scale).round().to(torch.int8), scale


def quantise_fp8_reference(x: Tensor) -> Quantised:
    """Compute `scale = max |x| / 448` and the number of e4m3 nearest to `x / scale`."""
    scale = x.abs().amax(dim=-1, keepdim=True).clamp(min=SMALLEST_ABSMAX) / E4M3_MAX
    # three bits after the leading one are kept; below 2^-6 the spacing is 2^-9
    scaled = x / scale
    _, exponent = torch.frexp(scaled)
    spacing = torch.exp2((exponent - 4).clamp(min=-9).to(x.dtype))
    return torch.round(scaled / spacing) * spacing, scale


_quantise_fp8 = _define_operator("quantise_fp8", torch.float8_e4m3fn, E4M3_MAX)
quantise_fp8_spec = _quantise_spec(
    "quantise_fp8",
    reference=quantise_fp8_reference,
    formula="out = e4m3(x / scale), scale = max |x| / 448 of each row",
    source="Micikevicius et al., FP8 Formats for Deep Learning, 2022 (arXiv 2209.05433), section 3",
)


@quantise_fp8_spec.implementation("triton", directions=["fwd"], deterministic=True)
def quantise_fp8(x: Tensor) -> Quantised:
    """Compute the numbers of e4m3 nearest to `x / scale` with `scale = max |x| / 448` along each
    row, in float32.

    Args:
        x: [n_rows, n_cols], finite, contiguous along its last dim.

    Returns:
        Numbers [n_rows, n_cols] float8_e4m3fn and scales [n_rows, 1] float32. Their product is
        close to x. A row of zeros has a tiny scale.
    """
    return _quantise_fp8(x)


@quantise_fp8_spec.implementation("torch", directions=["fwd"], compile=True)
def quantise_fp8_torch(x: Tensor) -> Quantised:
    scale = _scale_of_rows(x, E4M3_MAX)
    return (x / scale).clamp(-E4M3_MAX, E4M3_MAX).to(torch.float8_e4m3fn), scale

"""Root-mean-square normalisation of rows with a weight per column, forward and backward, in Triton
and in CUDA C++.

A row that fits into registers is read once; the rest of a longer row is read twice. In the backward
pass a program, or block of threads, sums the weight gradient of several rows. The partial sums are
added in a fixed order, so the result is deterministic.

Source: Zhang and Sennrich, Root Mean Square Layer Normalization, 2019 (arXiv 1910.07467).
"""

from functools import cache
from pathlib import Path
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from roofwatch import Case, CudaKernel, InputMaker, KernelSpec, cases
from roofwatch.kernels.building_blocks.operands import require_equal, require_operands
from roofwatch.kernels.building_blocks.operators import backward_operator, operator
from roofwatch.kernels.building_blocks.rivals import fla, flag_gems, liger
from roofwatch.kernels.building_blocks.rows import (
    MAX_COLS_IN_REGISTERS,
    ONLY_NVIDIA,
    TILES_OF_LONG_ROWS,
    RowLayout,
    add_to_share,
    row_config,
    row_layout,
    sum_rows,
    whole_row_config,
)
from roofwatch.kernels.building_blocks.shapes import model_cases, small_rows, token_rows
from roofwatch.kernels.building_blocks.target import multiprocessor_count


def rms_norm_reference(x: Tensor, weight: Tensor, eps: float = 1e-6) -> Tensor:
    """Compute `x / sqrt(mean(x²) + eps) * weight` along each row."""
    return x / (x.square().mean(dim=-1, keepdim=True) + eps).sqrt() * weight


def _inputs(case: Case, make: InputMaker) -> dict[str, Any]:
    return {
        "x": make.normal(case["n_rows"], case["n_cols"]),
        "weight": make.uniform(case["n_cols"], low=0.5, high=1.5),
    }


def rms_norm_flop_count(case: Case) -> float:
    """Count per element, forward: square, add, times 1/rms, times weight. Operations per row are
    not counted.

    Backward: normed (1), times weight (1), sum of the row (2), gradients of x (3) and weight (2).
    """
    return (9 if case.is_backward else 4) * case["n_rows"] * case["n_cols"]


def rms_norm_memory_bytes(case: Case) -> float:
    """Forward reads x and weight; writes out. The saved 1/rms is not counted.

    Backward reads x, weight and the gradient of out; writes the gradients of x and weight.
    """
    n_cols = case["n_cols"]
    matrices, rows = (3, 2) if case.is_backward else (2, 1)
    return (matrices * case["n_rows"] * n_cols + rows * n_cols) * case.itemsize


rms_norm_spec = KernelSpec(
    name="rms_norm",
    family="normalisation",
    inputs=_inputs,
    reference=rms_norm_reference,
    cases=[*small_rows(), *model_cases(token_rows(), directions=["fwd", "bwd"])],
    edges=[
        *cases(
            shapes=[{"n_rows": 1, "n_cols": 63}, {"n_rows": 0, "n_cols": 63}],
            directions=["fwd", "bwd"],
        ),
        *cases(shapes=[{"n_rows": 5, "n_cols": 1000}], dtypes=["float16"], directions=["bwd"]),
        # one column: forward only, since its gradient cancels
        *cases(shapes=[{"n_rows": 2, "n_cols": 1}], dtypes=["bfloat16"]),
        # more rows than programs
        *cases(shapes=[{"n_rows": 300, "n_cols": 40}], directions=["bwd"]),
        # the longest row that is read once, and the shortest that is read twice
        *cases(
            shapes=[
                {"n_rows": 3, "n_cols": MAX_COLS_IN_REGISTERS},
                {"n_rows": 3, "n_cols": MAX_COLS_IN_REGISTERS + 1},
            ],
            dtypes=["bfloat16"],
            directions=["bwd"],
        ),
    ],
    flop_count=rms_norm_flop_count,
    memory_bytes=rms_norm_memory_bytes,
    token_count=lambda case: case["n_rows"],
    formula="out = x / sqrt(mean(x²) + eps) * weight",
    source="Zhang and Sennrich, Root Mean Square Layer Normalization, 2019 (arXiv 1910.07467)",
    interpreted_shape={"n_rows": 5, "n_cols": 4096},
)


@rms_norm_spec.implementation("torch", compile=True)
def _rms_norm_torch(x: Tensor, weight: Tensor, eps: float = 1e-6) -> Tensor:
    return torch.nn.functional.rms_norm(x, weight.shape, weight, eps)


def _require_operands(x: Tensor, weight: Tensor) -> None:
    """Refuse what neither of our implementations reads."""
    require_operands("rms_norm", x=x, weight=weight)
    require_operands("rms_norm", dims=2, x=x)
    require_equal("rms_norm", "the columns", weight=tuple(weight.shape), x=tuple(x.shape[1:]))


def _empty_out(x: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    return x.new_empty(x.shape), x.new_empty(x.shape[0], dtype=torch.float32)


def _empty_gradients(
    x: Tensor, weight: Tensor, rstd: Tensor, grad_out: Tensor
) -> tuple[Tensor, Tensor]:
    return x.new_empty(x.shape), weight.new_empty(weight.shape)


@triton.jit
def _rms_norm_kernel(
    x_ptr,
    weight_ptr,
    out_ptr,
    rstd_ptr,
    x_row_stride,
    out_row_stride,
    n_cols,
    eps,
    IS_LONG: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    if IS_LONG:
        x_ptr += row * x_row_stride
        out_ptr += row * out_row_stride
        squares = tl.zeros((BLOCK,), tl.float32)
        for start in range(0, n_cols, BLOCK):
            offs = start + tl.arange(0, BLOCK)
            x = tl.load(x_ptr + offs, mask=offs < n_cols, other=0.0).to(tl.float32)  # [BLOCK]
            squares += x * x
        rstd = tl.rsqrt(tl.sum(squares, axis=0) / n_cols + eps)
        for start in range(0, n_cols, BLOCK):
            offs = start + tl.arange(0, BLOCK)
            mask = offs < n_cols
            x = tl.load(x_ptr + offs, mask=mask, other=0.0).to(tl.float32)  # [BLOCK]
            weight = tl.load(weight_ptr + offs, mask=mask, other=0.0).to(tl.float32)  # [BLOCK]
            tl.store(
                out_ptr + offs, (x * rstd * weight).to(out_ptr.dtype.element_ty), mask=mask
            )  # [BLOCK]
    else:
        offs = tl.arange(0, BLOCK)
        mask = offs < n_cols
        x = tl.load(x_ptr + row * x_row_stride + offs, mask=mask, other=0.0).to(
            tl.float32
        )  # [BLOCK]
        weight = tl.load(weight_ptr + offs, mask=mask, other=0.0).to(tl.float32)  # [BLOCK]
        rstd = tl.rsqrt(tl.sum(x * x, axis=0) / n_cols + eps)
        out = x * rstd * weight
        tl.store(
            out_ptr + row * out_row_stride + offs, out.to(out_ptr.dtype.element_ty), mask=mask
        )  # [BLOCK]
    tl.store(rstd_ptr + row, rstd)


@triton.jit
def _rms_norm_grad_kernel(
    x_ptr,
    weight_ptr,
    rstd_ptr,
    grad_out_ptr,
    grad_x_ptr,
    grad_weight_share_ptr,
    x_row_stride,
    grad_row_stride,
    n_rows,
    n_cols,
    IS_LONG: tl.constexpr,
    BLOCK: tl.constexpr,
):
    program = tl.program_id(0)
    if IS_LONG:
        share_ptr = grad_weight_share_ptr + program.to(tl.int64) * n_cols
        for row in range(program, n_rows, tl.num_programs(0)):
            x_row_ptr = x_ptr + tl.cast(row, tl.int64) * x_row_stride
            grad_offset = tl.cast(row, tl.int64) * grad_row_stride
            rstd = tl.load(rstd_ptr + row)
            products = tl.zeros((BLOCK,), tl.float32)
            for start in range(0, n_cols, BLOCK):
                offs = start + tl.arange(0, BLOCK)
                mask = offs < n_cols
                x = tl.load(x_row_ptr + offs, mask=mask, other=0.0).to(tl.float32)  # [BLOCK]
                grad_out = tl.load(grad_out_ptr + grad_offset + offs, mask=mask, other=0.0).to(
                    tl.float32
                )  # [BLOCK]
                weight = tl.load(weight_ptr + offs, mask=mask, other=0.0).to(tl.float32)  # [BLOCK]
                products += grad_out * weight * x
            mean = tl.sum(products, axis=0) * rstd / n_cols
            for start in range(0, n_cols, BLOCK):
                offs = start + tl.arange(0, BLOCK)
                mask = offs < n_cols
                x = tl.load(x_row_ptr + offs, mask=mask, other=0.0).to(tl.float32)  # [BLOCK]
                grad_out = tl.load(grad_out_ptr + grad_offset + offs, mask=mask, other=0.0).to(
                    tl.float32
                )  # [BLOCK]
                weight = tl.load(weight_ptr + offs, mask=mask, other=0.0).to(tl.float32)  # [BLOCK]
                normed = x * rstd
                grad_x = (grad_out * weight - normed * mean) * rstd
                tl.store(
                    grad_x_ptr + grad_offset + offs,
                    grad_x.to(grad_x_ptr.dtype.element_ty),
                    mask=mask,
                )  # [BLOCK]
                add_to_share(share_ptr, offs, mask, grad_out * normed, row != program)
    else:
        offs = tl.arange(0, BLOCK)
        mask = offs < n_cols
        grad_weight = tl.zeros((BLOCK,), tl.float32)
        for row in range(program, n_rows, tl.num_programs(0)):
            x_row_ptr = x_ptr + tl.cast(row, tl.int64) * x_row_stride
            grad_offset = tl.cast(row, tl.int64) * grad_row_stride
            x = tl.load(x_row_ptr + offs, mask=mask, other=0.0).to(tl.float32)  # [BLOCK]
            grad_out = tl.load(grad_out_ptr + grad_offset + offs, mask=mask, other=0.0).to(
                tl.float32
            )  # [BLOCK]
            # reloaded from the L1 cache for each row: it would spill otherwise
            weight = tl.load(weight_ptr + offs, mask=mask, other=0.0).to(tl.float32)  # [BLOCK]
            rstd = tl.load(rstd_ptr + row)
            normed = x * rstd
            grad_normed = grad_out * weight
            grad_weight += grad_out * normed  # before the mean, to free grad_out's registers
            mean = tl.sum(grad_normed * normed, axis=0) / n_cols
            grad_x = (grad_normed - normed * mean) * rstd
            tl.store(
                grad_x_ptr + grad_offset + offs, grad_x.to(grad_x_ptr.dtype.element_ty), mask=mask
            )  # [BLOCK]
        tl.store(
            grad_weight_share_ptr + program.to(tl.int64) * n_cols + offs, grad_weight, mask=mask
        )  # [BLOCK]


@backward_operator("rms_norm", _empty_gradients)
def _triton_backward(x, weight, rstd, grad_out, grad_x, grad_weight):
    n_rows, n_cols = x.shape
    grad_out = grad_out.contiguous()  # autograd may pass an expanded scalar
    n_programs = min(n_rows, 2 * multiprocessor_count(x))
    grad_weight_shares = x.new_empty(n_programs, n_cols, dtype=torch.float32)
    # unaligned rows are loaded element by element, which takes more registers
    fits = n_cols <= (MAX_COLS_IN_REGISTERS if n_cols % 16 == 0 else MAX_COLS_IN_REGISTERS // 2)
    _rms_norm_grad_kernel[(n_programs,)](
        x,
        weight,
        rstd,
        grad_out,
        grad_x,
        grad_weight_shares,
        x.stride(0),
        grad_out.stride(0),
        n_rows,
        n_cols,
        IS_LONG=not fits,
        **(row_config(n_cols) if fits else TILES_OF_LONG_ROWS),
    )
    sum_rows(grad_weight_shares, grad_weight)


@operator("rms_norm", _empty_out, backward=_triton_backward)
def _rms_norm_op(x, weight, eps, out, rstd):
    n_rows, n_cols = x.shape
    strides = x.stride(0), out.stride(0)
    _rms_norm_kernel[(n_rows,)](
        x, weight, out, rstd, *strides, n_cols, eps, **whole_row_config(n_cols)
    )


@rms_norm_spec.implementation("triton", deterministic=True)
def rms_norm(x: Tensor, weight: Tensor, eps: float = 1e-6) -> Tensor:
    """`x / sqrt(mean(x²) + eps) * weight` along each row, computed in float32.

    Args:
        x: [n_rows, n_cols], contiguous along its last dim.
        weight: [n_cols].
        eps: Added to the mean square.

    Returns:
        [n_rows, n_cols] in x's dtype.
    """
    _require_operands(x, weight)
    return _rms_norm_op(x, weight, eps)[0]


_SOURCE = Path(__file__).with_name("rms_norm.cu")


@cache
def _cuda_kernel(
    name: str, dtype: torch.dtype, weight_dtype: torch.dtype, layout: RowLayout
) -> CudaKernel:
    return CudaKernel(
        _SOURCE,
        name,
        template=(dtype, weight_dtype, layout.length, layout.held, layout.most_threads),
    )


@backward_operator("rms_norm_cuda", _empty_gradients)
def _cuda_backward(x, weight, rstd, grad_out, grad_x, grad_weight):
    n_rows, n_cols = x.shape
    grad_out = grad_out.contiguous()  # autograd may pass an expanded scalar
    n_blocks = min(n_rows, 2 * multiprocessor_count(x))
    grad_weight_shares = x.new_empty(n_blocks, n_cols, dtype=torch.float32)
    layout = row_layout(x, weight, grad_out, grad_x, grad_weight_shares, most_threads=512)
    _cuda_kernel("rms_norm_grad_kernel", x.dtype, weight.dtype, layout).launch(
        n_blocks,
        layout.n_threads,
        (x, weight, rstd, grad_out, grad_x, grad_weight_shares, x.stride(0), n_rows, n_cols),
    )
    sum_rows(grad_weight_shares, grad_weight)


@operator("rms_norm_cuda", _empty_out, backward=_cuda_backward)
def _rms_norm_cuda_op(x, weight, eps, out, rstd):
    n_rows, n_cols = x.shape
    layout = row_layout(x, weight, out)
    _cuda_kernel("rms_norm_kernel", x.dtype, weight.dtype, layout).launch(
        n_rows, layout.n_threads, (x, weight, out, rstd, x.stride(0), n_cols, eps)
    )


@rms_norm_spec.implementation("cuda", deterministic=True, unsupported_targets=ONLY_NVIDIA)
def rms_norm_cuda(x: Tensor, weight: Tensor, eps: float = 1e-6) -> Tensor:
    """Compute the same as `rms_norm`, in CUDA C++.

    Raises:
        UnsupportedError: x is not on an NVIDIA GPU, or NVRTC is not installed.
    """
    _require_operands(x, weight)
    return _rms_norm_cuda_op(x, weight, eps)[0]


@liger(rms_norm_spec)
def _rms_norm_liger(ops: Any, x: Tensor, weight: Tensor, eps: float = 1e-6) -> Any:
    return ops.LigerRMSNormFunction.apply(x, weight, eps, 0.0, "llama", False)


@fla(rms_norm_spec, "modules.norm.layernorm")
def _rms_norm_fla(norms: Any, x: Tensor, weight: Tensor, eps: float = 1e-6) -> Any:
    return norms.rms_norm(x, weight, None, eps=eps)


@flag_gems(rms_norm_spec)
def _rms_norm_flag_gems(gems: Any, x: Tensor, weight: Tensor, eps: float = 1e-6) -> Any:
    return gems.rms_norm(x, weight.shape, weight, eps)

"""Fused residual addition and RMS normalisation, forward and backward.

The sum is stored once and not read again in the forward pass. It is rounded to its dtype before the
normalisation, so that the backward pass uses the same numbers. Short rows stay in registers; long
rows are read twice. In the backward pass a program sums the weight gradient of several rows
(rows.py).

Sources: Zhang and Sennrich, Root Mean Square Layer Normalization, 2019 (arXiv 1910.07467); the
fusion is that of vllm-project/vllm csrc/layernorm_kernels.cu, fused_add_rms_norm.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from roofwatch import Case, InputMaker, KernelSpec, cases
from roofwatch.kernels.building_blocks.operands import require_equal, require_operands
from roofwatch.kernels.building_blocks.operators import backward_operator, operator
from roofwatch.kernels.building_blocks.rivals import fla, liger
from roofwatch.kernels.building_blocks.rows import (
    MAX_COLS_IN_REGISTERS,
    MAX_ROW_BYTES_BACKWARD,
    add_to_share,
    backward_config,
    share_count,
    sum_rows,
    whole_row_config,
)
from roofwatch.kernels.building_blocks.shapes import model_cases, only, small_rows, token_rows


@triton.jit
def _add_rms_norm_kernel(
    x_ptr,
    residual_ptr,
    weight_ptr,
    out_ptr,
    sum_ptr,
    rstd_ptr,
    x_row_stride,
    residual_row_stride,
    n_cols,
    eps,
    IS_LONG: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * x_row_stride
    residual_ptr += row * residual_row_stride
    out_ptr += row * n_cols
    sum_ptr += row * n_cols
    if IS_LONG:
        squares = tl.zeros((BLOCK,), tl.float32)
        for start in range(0, n_cols, BLOCK):
            offs = start + tl.arange(0, BLOCK)
            mask = offs < n_cols
            x = tl.load(x_ptr + offs, mask=mask, other=0.0).to(tl.float32)  # [BLOCK]
            residual = tl.load(residual_ptr + offs, mask=mask, other=0.0).to(tl.float32)  # [BLOCK]
            rounded = (x + residual).to(sum_ptr.dtype.element_ty)
            tl.store(sum_ptr + offs, rounded, mask=mask)  # [BLOCK]
            squares += rounded.to(tl.float32) * rounded.to(tl.float32)
        rstd = tl.rsqrt(tl.sum(squares, axis=0) / n_cols + eps)
        for start in range(0, n_cols, BLOCK):
            offs = start + tl.arange(0, BLOCK)
            mask = offs < n_cols
            # recompute the sum: another thread may have stored it
            x = tl.load(x_ptr + offs, mask=mask, other=0.0).to(tl.float32)  # [BLOCK]
            residual = tl.load(residual_ptr + offs, mask=mask, other=0.0).to(tl.float32)  # [BLOCK]
            weight = tl.load(weight_ptr + offs, mask=mask, other=0.0).to(tl.float32)  # [BLOCK]
            out = (x + residual).to(sum_ptr.dtype.element_ty).to(tl.float32) * rstd * weight
            tl.store(out_ptr + offs, out.to(out_ptr.dtype.element_ty), mask=mask)  # [BLOCK]
    else:
        offs = tl.arange(0, BLOCK)
        mask = offs < n_cols
        x = tl.load(x_ptr + offs, mask=mask, other=0.0).to(tl.float32)  # [BLOCK]
        residual = tl.load(residual_ptr + offs, mask=mask, other=0.0).to(tl.float32)  # [BLOCK]
        rounded = (x + residual).to(sum_ptr.dtype.element_ty)
        tl.store(sum_ptr + offs, rounded, mask=mask)  # [BLOCK]
        total = rounded.to(tl.float32)
        rstd = tl.rsqrt(tl.sum(total * total, axis=0) / n_cols + eps)
        # loaded late, from cache, to save registers
        weight = tl.load(weight_ptr + offs, mask=mask, other=0.0).to(tl.float32)  # [BLOCK]
        out = total * rstd * weight
        tl.store(out_ptr + offs, out.to(out_ptr.dtype.element_ty), mask=mask)  # [BLOCK]
    tl.store(rstd_ptr + row, rstd)


@triton.jit
def _add_rms_norm_grad_kernel(
    sum_ptr,
    weight_ptr,
    rstd_ptr,
    grad_out_ptr,
    grad_sum_ptr,
    grad_ptr,
    grad_weight_share_ptr,
    n_rows,
    n_cols,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    program = tl.program_id(0).to(tl.int64)
    share_ptr = grad_weight_share_ptr + program * n_cols
    if ROWS > 1:
        first_row = program * ROWS
        for start_row in range(first_row, n_rows, tl.num_programs(0) * ROWS):
            rows = start_row + tl.arange(0, ROWS)
            row_mask = rows < n_rows
            rstd = tl.load(rstd_ptr + rows, mask=row_mask, other=0.0)[:, None]  # [ROWS, 1]
            products = tl.zeros((ROWS, BLOCK), tl.float32)
            for start in range(0, n_cols, BLOCK):
                cols = start + tl.arange(0, BLOCK)
                offs = rows[:, None] * n_cols + cols[None, :]
                mask = row_mask[:, None] & (cols < n_cols)[None, :]
                total = tl.load(sum_ptr + offs, mask=mask, other=0.0).to(
                    tl.float32
                )  # [ROWS, BLOCK]
                grad_out = tl.load(grad_out_ptr + offs, mask=mask, other=0.0).to(
                    tl.float32
                )  # [ROWS, BLOCK]
                weight = tl.load(weight_ptr + cols, mask=cols < n_cols, other=0.0).to(
                    tl.float32
                )  # [BLOCK]
                products += grad_out * weight[None, :] * total
            mean = tl.sum(products, axis=1)[:, None] * rstd / n_cols  # [ROWS, 1]
            for start in range(0, n_cols, BLOCK):
                cols = start + tl.arange(0, BLOCK)
                offs = rows[:, None] * n_cols + cols[None, :]
                mask = row_mask[:, None] & (cols < n_cols)[None, :]
                normed = (
                    tl.load(sum_ptr + offs, mask=mask, other=0.0).to(tl.float32) * rstd
                )  # [ROWS, BLOCK]
                grad_out = tl.load(grad_out_ptr + offs, mask=mask, other=0.0).to(
                    tl.float32
                )  # [ROWS, BLOCK]
                grad_sum = tl.load(grad_sum_ptr + offs, mask=mask, other=0.0).to(
                    tl.float32
                )  # [ROWS, BLOCK]
                weight = tl.load(weight_ptr + cols, mask=cols < n_cols, other=0.0).to(
                    tl.float32
                )  # [BLOCK]
                grad = grad_sum + (grad_out * weight[None, :] - normed * mean) * rstd
                tl.store(
                    grad_ptr + offs, grad.to(grad_ptr.dtype.element_ty), mask=mask
                )  # [ROWS, BLOCK]
                add_to_share(
                    share_ptr,
                    cols,
                    cols < n_cols,
                    tl.sum(grad_out * normed, axis=0),
                    start_row > first_row,
                )
    else:
        offs = tl.arange(0, BLOCK)
        mask = offs < n_cols
        grad_weight = tl.zeros((BLOCK,), tl.float32)
        next_total = tl.load(sum_ptr + program * n_cols + offs, mask=mask, other=0.0)  # [BLOCK]
        next_grad_out = tl.load(
            grad_out_ptr + program * n_cols + offs, mask=mask, other=0.0
        )  # [BLOCK]
        for row in range(program, n_rows, tl.num_programs(0)):
            total = next_total.to(tl.float32)
            grad_out = next_grad_out.to(tl.float32)
            next_row = row + tl.num_programs(0)
            next_mask = mask & (next_row < n_rows)
            next_total = tl.load(
                sum_ptr + next_row * n_cols + offs, mask=next_mask, other=0.0
            )  # [BLOCK]
            next_grad_out = tl.load(
                grad_out_ptr + next_row * n_cols + offs, mask=next_mask, other=0.0
            )  # [BLOCK]
            # reloaded from cache for each row, to save registers
            weight = tl.load(weight_ptr + offs, mask=mask, other=0.0).to(tl.float32)  # [BLOCK]
            rstd = tl.load(rstd_ptr + row)
            normed = total * rstd
            grad_normed = grad_out * weight
            mean = tl.sum(grad_normed * normed, axis=0) / n_cols
            grad_sum = tl.load(grad_sum_ptr + row * n_cols + offs, mask=mask, other=0.0).to(
                tl.float32
            )  # [BLOCK]
            grad = grad_sum + (grad_normed - normed * mean) * rstd
            tl.store(
                grad_ptr + row * n_cols + offs, grad.to(grad_ptr.dtype.element_ty), mask=mask
            )  # [BLOCK]
            grad_weight += grad_out * normed
        tl.store(share_ptr + offs, grad_weight, mask=mask)  # [BLOCK]


def _empty_gradients(
    new_residual: Tensor, weight: Tensor, rstd: Tensor, grad_out: Tensor, grad_new_residual: Tensor
) -> tuple[Tensor, Tensor]:
    return new_residual.new_empty(new_residual.shape), weight.new_empty(weight.shape)


@backward_operator("add_rms_norm", _empty_gradients)
def _add_rms_norm_backward(
    new_residual, weight, rstd, grad_out, grad_new_residual, grad_x, grad_weight
):
    n_rows, n_cols = new_residual.shape
    config = backward_config(n_cols, grad_x.element_size())
    n_shares = share_count(grad_x, 1, n_rows, config)
    grad_weight_shares = grad_x.new_empty(n_shares, n_cols, dtype=torch.float32)
    _add_rms_norm_grad_kernel[(n_shares,)](
        new_residual,
        weight,
        rstd,
        grad_out.contiguous(),  # autograd may pass an expanded scalar
        grad_new_residual.contiguous(),
        grad_x,
        grad_weight_shares,
        n_rows,
        n_cols,
        **config,
    )
    sum_rows(grad_weight_shares, grad_weight)


def _empty_results(
    x: Tensor, residual: Tensor, weight: Tensor, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    return x.new_empty(x.shape), x.new_empty(x.shape), x.new_empty(x.shape[0], dtype=torch.float32)


@operator(
    "add_rms_norm", _empty_results, backward=_add_rms_norm_backward, same_gradient={"residual": "x"}
)
def _add_rms_norm_op(x, residual, weight, eps, out, new_residual, rstd):
    n_rows, n_cols = x.shape
    _add_rms_norm_kernel[(n_rows,)](
        x,
        residual,
        weight,
        out,
        new_residual,
        rstd,
        x.stride(0),
        residual.stride(0),
        n_cols,
        eps,
        **whole_row_config(n_cols),
    )


def add_rms_norm_reference(
    x: Tensor, residual: Tensor, weight: Tensor, eps: float = 1e-6
) -> tuple[Tensor, Tensor]:
    """Compute `h = x + residual` and `h / sqrt(mean(h²) + eps) * weight` along each row."""
    h = x + residual
    return h / (h.square().mean(dim=-1, keepdim=True) + eps).sqrt() * weight, h


def _inputs(case: Case, make: InputMaker) -> dict[str, Any]:
    shape = case["n_rows"], case["n_cols"]
    return {
        "x": make.normal(*shape),
        "residual": make.normal(*shape),
        "weight": make.uniform(case["n_cols"], low=0.5, high=1.5),
    }


def add_rms_norm_flop_count(case: Case) -> float:
    """Count per element, forward: addition, square, add, times 1/rms, times weight. Operations per
    row are not counted.

    Backward: normed (1), times weight (1), sum of the row (2), gradients of the sum (4) and the
    weight (2).
    """
    return (10 if case.is_backward else 5) * case["n_rows"] * case["n_cols"]


def add_rms_norm_memory_bytes(case: Case) -> float:
    """Forward reads x, residual and weight; writes out and the sum. The saved 1/rms is not counted.

    Backward reads the sum, weight and the gradients of both outputs; writes the gradient of weight,
    and one for x and residual.
    """
    n_cols = case["n_cols"]
    return (4 * case["n_rows"] * n_cols + (2 if case.is_backward else 1) * n_cols) * case.itemsize


add_rms_norm_spec = KernelSpec(
    name="add_rms_norm",
    family="normalisation",
    inputs=_inputs,
    reference=add_rms_norm_reference,
    cases=[
        *small_rows(),
        *model_cases(token_rows()),
        *model_cases(only(token_rows(), "prefill"), directions=["bwd"]),
    ],
    edges=[
        *cases(
            shapes=[{"n_rows": 1, "n_cols": 63}, {"n_rows": 0, "n_cols": 63}],
            directions=["fwd", "bwd"],
        ),
        *cases(shapes=[{"n_rows": 5, "n_cols": 1000}], dtypes=["float16"], directions=["bwd"]),
        # the shortest rows that are read in tiles, forward and backward
        *cases(shapes=[{"n_rows": 3, "n_cols": MAX_COLS_IN_REGISTERS + 1}], dtypes=["bfloat16"]),
        *cases(
            shapes=[{"n_rows": 27, "n_cols": MAX_ROW_BYTES_BACKWARD // 4 + 1}], directions=["bwd"]
        ),
    ],
    flop_count=add_rms_norm_flop_count,
    memory_bytes=add_rms_norm_memory_bytes,
    token_count=lambda case: case["n_rows"],
    formula="h = x + residual; out = h / sqrt(mean(h²) + eps) * weight",
    source="Zhang and Sennrich, Root Mean Square Layer Normalization, 2019 (arXiv 1910.07467)",
    interpreted_shape={"n_rows": 7, "n_cols": 2100},
)


@add_rms_norm_spec.implementation("triton", deterministic=True)
def add_rms_norm(
    x: Tensor, residual: Tensor, weight: Tensor, eps: float = 1e-6
) -> tuple[Tensor, Tensor]:
    """`h = x + residual` and `h / sqrt(mean(h²) + eps) * weight` along each row, computed in
    float32.

    Args:
        x: [n_rows, n_cols], contiguous along its last dim.
        residual: [n_rows, n_cols] of x's dtype, contiguous along its last dim.
        weight: [n_cols].
        eps: Added to the mean square.

    Returns:
        The normalised sum and the sum (the next residual), each [n_rows, n_cols] in x's dtype.
    """
    require_operands("add_rms_norm", x=x, residual=residual, weight=weight)
    require_operands("add_rms_norm", dims=2, x=x)
    require_equal("add_rms_norm", "the shapes", x=tuple(x.shape), residual=tuple(residual.shape))
    require_equal("add_rms_norm", "the dtypes", x=x.dtype, residual=residual.dtype)
    require_equal("add_rms_norm", "the columns", weight=tuple(weight.shape), x=tuple(x.shape[1:]))
    out, new_residual, _ = _add_rms_norm_op(x, residual, weight, eps)
    return out, new_residual


@add_rms_norm_spec.implementation("torch", compile=True)
def add_rms_norm_torch(
    x: Tensor, residual: Tensor, weight: Tensor, eps: float = 1e-6
) -> tuple[Tensor, Tensor]:
    h = x + residual
    return torch.nn.functional.rms_norm(h, weight.shape, weight, eps), h


@liger(add_rms_norm_spec)
def _add_rms_norm_liger(
    ops: Any, x: Tensor, residual: Tensor, weight: Tensor, eps: float = 1e-6
) -> Any:
    return ops.LigerFusedAddRMSNormFunction.apply(x, residual, weight, eps)


@fla(add_rms_norm_spec, "modules.norm.layernorm")
def _add_rms_norm_fla(
    norms: Any, x: Tensor, residual: Tensor, weight: Tensor, eps: float = 1e-6
) -> Any:
    return norms.rms_norm(x, weight, None, residual=residual, eps=eps, prenorm=True)

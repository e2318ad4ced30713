"""Root-mean-square normalisation of rows with a weight per column, forward and backward.

One program holds a whole row in registers, so each operand is read once. In the backward pass a program walks over
several rows and sums their share of the weight's gradient in registers; the shares are added up afterwards in a fixed
order, so the result is the same in every run.

Source: Zhang and Sennrich, Root Mean Square Layer Normalization, 2019 (arXiv 1910.07467).
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch.autograd.function import once_differentiable

from kernels.errors import KernelError
from kernels.operands import require_equal, require_operands
from roofwatch import Case, InputMaker, KernelSpec, cases

MAX_COLS = 8192
"""A longer row would spill registers in the backward pass."""
_BACKWARD_PROGRAMS = 256


@triton.jit
def _rms_norm_kernel(
    x_ptr, weight_ptr, out_ptr, rstd_ptr, x_row_stride, out_row_stride, n_cols, eps, BLOCK: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    offs = tl.arange(0, BLOCK)
    mask = offs < n_cols
    x = tl.load(x_ptr + row * x_row_stride + offs, mask=mask, other=0.0).to(tl.float32)  # [BLOCK]
    weight = tl.load(weight_ptr + offs, mask=mask, other=0.0).to(tl.float32)  # [BLOCK]
    rstd = tl.rsqrt(tl.sum(x * x, axis=0) / n_cols + eps)
    out = x * rstd * weight
    tl.store(out_ptr + row * out_row_stride + offs, out.to(out_ptr.dtype.element_ty), mask=mask)  # [BLOCK]
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
    rows_per_program,
    BLOCK: tl.constexpr,
):
    program = tl.program_id(0)
    offs = tl.arange(0, BLOCK)
    mask = offs < n_cols
    weight = tl.load(weight_ptr + offs, mask=mask, other=0.0).to(tl.float32)  # [BLOCK]
    grad_weight = tl.zeros((BLOCK,), tl.float32)
    first_row = program * rows_per_program
    x_ptr += first_row.to(tl.int64) * x_row_stride
    grad_out_ptr += first_row.to(tl.int64) * grad_row_stride
    grad_x_ptr += first_row.to(tl.int64) * grad_row_stride
    for row in range(first_row, tl.minimum(first_row + rows_per_program, n_rows)):
        x = tl.load(x_ptr + offs, mask=mask, other=0.0).to(tl.float32)  # [BLOCK]
        grad_out = tl.load(grad_out_ptr + offs, mask=mask, other=0.0).to(tl.float32)  # [BLOCK]
        rstd = tl.load(rstd_ptr + row)
        normed = x * rstd
        grad_normed = grad_out * weight
        mean = tl.sum(grad_normed * normed, axis=0) / n_cols
        grad_x = (grad_normed - normed * mean) * rstd
        tl.store(grad_x_ptr + offs, grad_x.to(grad_x_ptr.dtype.element_ty), mask=mask)  # [BLOCK]
        grad_weight += grad_out * normed
        x_ptr += x_row_stride
        grad_out_ptr += grad_row_stride
        grad_x_ptr += grad_row_stride
    tl.store(grad_weight_share_ptr + program.to(tl.int64) * n_cols + offs, grad_weight, mask=mask)  # [BLOCK]


def rms_norm_config(n_cols: int) -> dict[str, int]:
    """The row in one block, and warps such that a thread of an NVIDIA GPU holds 16 elements of it."""
    block = triton.next_power_of_2(n_cols)
    return {"BLOCK": block, "num_warps": max(block // 512, 1)}


class _RmsNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
        n_rows, n_cols = x.shape
        out = x.new_empty(n_rows, n_cols)
        rstd = x.new_empty(n_rows, dtype=torch.float32)
        if x.numel():
            with torch.cuda.device_of(x):
                _rms_norm_kernel[(n_rows,)](
                    x, weight, out, rstd, x.stride(0), out.stride(0), n_cols, eps, **rms_norm_config(n_cols)
                )
        ctx.save_for_backward(x, weight, rstd)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_out: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, None]:
        x, weight, rstd = ctx.saved_tensors
        n_rows, n_cols = x.shape
        grad_out = grad_out.contiguous()  # autograd may hand over an expanded scalar
        grad_x = torch.empty_like(grad_out)
        if not x.numel():
            return grad_x, torch.zeros_like(weight), None
        rows_per_program = max(2, triton.cdiv(n_rows, _BACKWARD_PROGRAMS))
        n_programs = triton.cdiv(n_rows, rows_per_program)
        grad_weight_shares = x.new_empty(n_programs, n_cols, dtype=torch.float32)
        with torch.cuda.device_of(x):
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
                rows_per_program,
                **rms_norm_config(n_cols),
            )
        return grad_x, grad_weight_shares.sum(dim=0).to(weight.dtype), None


def rms_norm_reference(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    """The formula, `x / sqrt(mean(x²) + eps) * weight` along each row."""
    return x / (x.square().mean(dim=-1, keepdim=True) + eps).sqrt() * weight


def _inputs(case: Case, make: InputMaker) -> dict[str, Any]:
    return {
        "x": make.normal(case["n_rows"], case["n_cols"]),
        "weight": make.uniform(case["n_cols"], low=0.5, high=1.5),
    }


def rms_norm_flop_count(case: Case) -> float:
    """Per element, forward: square and add, times 1/rms, times weight. Backward: normed (1), times weight (1), the
    row's sum (2), x's gradient (3), the weight's (2). What is done once per row is left out.
    """
    return (9 if case.is_backward else 4) * case["n_rows"] * case["n_cols"]


def rms_norm_memory_bytes(case: Case) -> float:
    """Forward reads x and weight and writes out. Backward reads x, weight and out's gradient and writes the gradients
    of x and weight. The four bytes per row of the saved 1/rms are left out: it can be computed again.
    """
    n_cols = case["n_cols"]
    matrices, rows = (3, 2) if case.is_backward else (2, 1)
    return (matrices * case["n_rows"] * n_cols + rows * n_cols) * case.itemsize


rms_norm_spec = KernelSpec(
    name="rms_norm",
    family="normalisation",
    inputs=_inputs,
    reference=rms_norm_reference,
    cases=[
        *cases(shapes=[{"n_rows": 1024, "n_cols": 4096}], dtypes=["bfloat16"], directions=["fwd", "bwd"]),
        *cases(shapes=[{"n_rows": 63, "n_cols": 1000}], directions=["fwd", "bwd"]),
    ],
    flop_count=rms_norm_flop_count,
    memory_bytes=rms_norm_memory_bytes,
    interpreted_shape={"n_rows": 5},
)


@rms_norm_spec.implementation("triton")
def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    """`x / sqrt(mean(x²) + eps) * weight` along each row, computed in float32.

    Args:
        x: [n_rows, n_cols], contiguous along its last dim, n_cols at most `MAX_COLS`.
        weight: [n_cols].
        eps: Keeps a row of zeros finite.

    Returns:
        [n_rows, n_cols] in x's dtype.

    Raises:
        KernelError: an operand has another layout, shape or dtype.
    """
    require_operands("rms_norm", x=x, weight=weight)
    require_operands("rms_norm", dims=2, x=x)
    require_equal("rms_norm", "the columns", weight=tuple(weight.shape), x=tuple(x.shape[1:]))
    if x.shape[1] > MAX_COLS:
        raise KernelError(
            f"rms_norm: x has {x.shape[1]} columns, at most {MAX_COLS} stay in registers; "
            "call torch.nn.functional.rms_norm"
        )
    out: torch.Tensor = _RmsNorm.apply(x, weight, eps)
    return out


@rms_norm_spec.implementation("torch", compile=True)
def _rms_norm_torch(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    return torch.nn.functional.rms_norm(x, weight.shape, weight, eps)

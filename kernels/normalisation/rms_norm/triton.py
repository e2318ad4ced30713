"""Rms_norm in Triton: one program per row forward, each program over several rows backward."""

import torch
import triton
import triton.language as tl

from roofwatch.kernels.building_blocks.row_tiles import MAX_COLS_IN_REGISTERS, TILES_OF_LONG_ROWS, row_config
from roofwatch.kernels.normalisation.column_gradients import add_to_share
from roofwatch.kernels.normalisation.rms_norm.operator import rms_norm_operator
from roofwatch.kernels.normalisation.rms_norm.spec import require_rms_norm_operands, rms_norm_spec
from roofwatch.kernels.target import multiprocessor_count


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
def _rms_norm_long_kernel(
    x_ptr, weight_ptr, out_ptr, rstd_ptr, x_row_stride, out_row_stride, n_cols, eps, BLOCK: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
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
        tl.store(out_ptr + offs, (x * rstd * weight).to(out_ptr.dtype.element_ty), mask=mask)  # [BLOCK]
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
    BLOCK: tl.constexpr,
):
    program = tl.program_id(0)
    offs = tl.arange(0, BLOCK)
    mask = offs < n_cols
    grad_weight = tl.zeros((BLOCK,), tl.float32)
    for row in range(program, n_rows, tl.num_programs(0)):
        x_row_ptr = x_ptr + tl.cast(row, tl.int64) * x_row_stride
        grad_offset = tl.cast(row, tl.int64) * grad_row_stride
        x = tl.load(x_row_ptr + offs, mask=mask, other=0.0).to(tl.float32)  # [BLOCK]
        grad_out = tl.load(grad_out_ptr + grad_offset + offs, mask=mask, other=0.0).to(tl.float32)  # [BLOCK]
        # once per row, from the L1 cache: held over all rows it would spill
        weight = tl.load(weight_ptr + offs, mask=mask, other=0.0).to(tl.float32)  # [BLOCK]
        rstd = tl.load(rstd_ptr + row)
        normed = x * rstd
        grad_normed = grad_out * weight
        grad_weight += grad_out * normed  # before the mean: after it, grad_out would be one array more in registers
        mean = tl.sum(grad_normed * normed, axis=0) / n_cols
        grad_x = (grad_normed - normed * mean) * rstd
        tl.store(grad_x_ptr + grad_offset + offs, grad_x.to(grad_x_ptr.dtype.element_ty), mask=mask)  # [BLOCK]
    tl.store(grad_weight_share_ptr + program.to(tl.int64) * n_cols + offs, grad_weight, mask=mask)  # [BLOCK]


@triton.jit
def _rms_norm_long_grad_kernel(
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
    BLOCK: tl.constexpr,
):
    program = tl.program_id(0)
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
            grad_out = tl.load(grad_out_ptr + grad_offset + offs, mask=mask, other=0.0).to(tl.float32)  # [BLOCK]
            weight = tl.load(weight_ptr + offs, mask=mask, other=0.0).to(tl.float32)  # [BLOCK]
            products += grad_out * weight * x
        mean = tl.sum(products, axis=0) * rstd / n_cols
        for start in range(0, n_cols, BLOCK):
            offs = start + tl.arange(0, BLOCK)
            mask = offs < n_cols
            x = tl.load(x_row_ptr + offs, mask=mask, other=0.0).to(tl.float32)  # [BLOCK]
            grad_out = tl.load(grad_out_ptr + grad_offset + offs, mask=mask, other=0.0).to(tl.float32)  # [BLOCK]
            weight = tl.load(weight_ptr + offs, mask=mask, other=0.0).to(tl.float32)  # [BLOCK]
            normed = x * rstd
            grad_x = (grad_out * weight - normed * mean) * rstd
            tl.store(grad_x_ptr + grad_offset + offs, grad_x.to(grad_x_ptr.dtype.element_ty), mask=mask)  # [BLOCK]
            add_to_share(share_ptr, offs, mask, grad_out * normed, row != program)


def _forward(x: torch.Tensor, weight: torch.Tensor, eps: float) -> tuple[torch.Tensor, torch.Tensor]:
    n_rows, n_cols = x.shape
    out = x.new_empty(n_rows, n_cols)
    rstd = x.new_empty(n_rows, dtype=torch.float32)
    if not x.numel():
        return out, rstd.zero_()  # a grid of no programs cannot be launched
    kernel = _rms_norm_kernel if n_cols <= MAX_COLS_IN_REGISTERS else _rms_norm_long_kernel
    with torch.cuda.device_of(x):
        kernel[(n_rows,)](x, weight, out, rstd, x.stride(0), out.stride(0), n_cols, eps, **row_config(n_cols))
    return out, rstd


def _backward(
    x: torch.Tensor, weight: torch.Tensor, rstd: torch.Tensor, grad_out: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    n_rows, n_cols = x.shape
    grad_out = grad_out.contiguous()  # autograd may hand over an expanded scalar
    grad_x = x.new_empty(n_rows, n_cols)
    if not x.numel():
        return grad_x, weight.new_zeros(weight.shape)
    n_programs = min(n_rows, 2 * multiprocessor_count(x))
    grad_weight_shares = x.new_empty(n_programs, n_cols, dtype=torch.float32)
    # a row of odd length is loaded element by element, which takes registers of its own
    fits = n_cols <= (MAX_COLS_IN_REGISTERS if n_cols % 16 == 0 else MAX_COLS_IN_REGISTERS // 2)
    kernel = _rms_norm_grad_kernel if fits else _rms_norm_long_grad_kernel
    with torch.cuda.device_of(x):
        kernel[(n_programs,)](
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
            **(row_config(n_cols) if fits else TILES_OF_LONG_ROWS),
        )
    return grad_x, grad_weight_shares.sum(dim=0).to(weight.dtype)


_operator = rms_norm_operator("rms_norm", _forward, _backward)


@rms_norm_spec.implementation("triton", deterministic=True)
def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    """`x / sqrt(mean(x²) + eps) * weight` along each row, computed in float32.

    Args:
        x: [n_rows, n_cols], contiguous along its last dim.
        weight: [n_cols].
        eps: Keeps a row of zeros finite.

    Returns:
        [n_rows, n_cols] in x's dtype.

    Raises:
        KernelError: an operand has another layout, shape or dtype.
    """
    require_rms_norm_operands(x, weight)
    out, _ = _operator(x, weight, eps)
    return out

"""Softmax in Triton: one program per row."""

import torch
import triton
import triton.language as tl

from roofwatch.kernels.building_blocks.row_tiles import MAX_COLS_IN_REGISTERS, row_config
from roofwatch.kernels.operands import require_operands
from roofwatch.kernels.reduction.softmax.operator import softmax_operator
from roofwatch.kernels.reduction.softmax.spec import softmax_spec


@triton.jit
def _softmax_kernel(x_ptr, out_ptr, x_row_stride, out_row_stride, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    offs = tl.arange(0, BLOCK)
    mask = offs < n_cols
    x = tl.load(x_ptr + row * x_row_stride + offs, mask=mask, other=-float("inf")).to(tl.float32)  # [BLOCK]
    exps = tl.exp(x - tl.max(x, axis=0))
    out = exps / tl.sum(exps, axis=0)
    tl.store(out_ptr + row * out_row_stride + offs, out.to(out_ptr.dtype.element_ty), mask=mask)  # [BLOCK]


@triton.jit
def _softmax_long_kernel(x_ptr, out_ptr, x_row_stride, out_row_stride, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * x_row_stride
    out_ptr += row * out_row_stride
    lane_max = tl.full((BLOCK,), -float("inf"), tl.float32)
    lane_sum = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, n_cols, BLOCK):
        offs = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + offs, mask=offs < n_cols, other=-float("inf")).to(tl.float32)  # [BLOCK]
        new_max = tl.maximum(lane_max, x)
        # a lane that has met only -inf keeps sum 0 instead of exp(-inf + inf)
        anchor = tl.where(new_max == -float("inf"), 0.0, new_max)
        lane_sum = lane_sum * tl.exp(lane_max - anchor) + tl.exp(x - anchor)
        lane_max = new_max
    row_max = tl.max(lane_max, axis=0)
    row_sum = tl.sum(lane_sum * tl.exp(lane_max - row_max), axis=0)
    for start in range(0, n_cols, BLOCK):
        offs = start + tl.arange(0, BLOCK)
        mask = offs < n_cols
        x = tl.load(x_ptr + offs, mask=mask, other=-float("inf")).to(tl.float32)  # [BLOCK]
        out = tl.exp(x - row_max) / row_sum
        tl.store(out_ptr + offs, out.to(out_ptr.dtype.element_ty), mask=mask)  # [BLOCK]


@triton.jit
def _softmax_grad_kernel(out_ptr, grad_out_ptr, grad_x_ptr, row_stride, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    offs = row * row_stride + tl.arange(0, BLOCK)
    mask = tl.arange(0, BLOCK) < n_cols
    out = tl.load(out_ptr + offs, mask=mask, other=0.0).to(tl.float32)  # [BLOCK]
    grad_out = tl.load(grad_out_ptr + offs, mask=mask, other=0.0).to(tl.float32)  # [BLOCK]
    grad_x = out * (grad_out - tl.sum(out * grad_out, axis=0))
    tl.store(grad_x_ptr + offs, grad_x.to(grad_x_ptr.dtype.element_ty), mask=mask)  # [BLOCK]


@triton.jit
def _softmax_long_grad_kernel(out_ptr, grad_out_ptr, grad_x_ptr, row_stride, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    out_ptr += row * row_stride
    grad_out_ptr += row * row_stride
    grad_x_ptr += row * row_stride
    lane_sum = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, n_cols, BLOCK):
        offs = start + tl.arange(0, BLOCK)
        mask = offs < n_cols
        out = tl.load(out_ptr + offs, mask=mask, other=0.0).to(tl.float32)  # [BLOCK]
        lane_sum += out * tl.load(grad_out_ptr + offs, mask=mask, other=0.0).to(tl.float32)  # [BLOCK]
    row_sum = tl.sum(lane_sum, axis=0)
    for start in range(0, n_cols, BLOCK):
        offs = start + tl.arange(0, BLOCK)
        mask = offs < n_cols
        out = tl.load(out_ptr + offs, mask=mask, other=0.0).to(tl.float32)  # [BLOCK]
        grad_out = tl.load(grad_out_ptr + offs, mask=mask, other=0.0).to(tl.float32)  # [BLOCK]
        grad_x = out * (grad_out - row_sum)
        tl.store(grad_x_ptr + offs, grad_x.to(grad_x_ptr.dtype.element_ty), mask=mask)  # [BLOCK]


def _forward(x: torch.Tensor) -> torch.Tensor:
    n_rows, n_cols = x.shape
    out = x.new_empty(n_rows, n_cols)
    if not out.numel():
        return out  # a grid of no programs cannot be launched
    kernel = _softmax_kernel if n_cols <= MAX_COLS_IN_REGISTERS else _softmax_long_kernel
    with torch.cuda.device_of(x):
        kernel[(n_rows,)](x, out, x.stride(0), out.stride(0), n_cols, **row_config(n_cols))
    return out


def _backward(out: torch.Tensor, grad_out: torch.Tensor) -> torch.Tensor:
    n_rows, n_cols = out.shape
    grad_out = grad_out.contiguous()  # autograd may hand over an expanded scalar
    grad_x = torch.empty_like(out)
    if not out.numel():
        return grad_x
    kernel = _softmax_grad_kernel if n_cols <= MAX_COLS_IN_REGISTERS else _softmax_long_grad_kernel
    with torch.cuda.device_of(out):
        kernel[(n_rows,)](out, grad_out, grad_x, out.stride(0), n_cols, **row_config(n_cols))
    return grad_x


_operator = softmax_operator("softmax", _forward, _backward)


@softmax_spec.implementation("triton", deterministic=True)
def softmax(x: torch.Tensor) -> torch.Tensor:
    """`exp(x - max x) / sum exp(x - max x)` along each row, computed in float32.

    Args:
        x: [n_rows, n_cols], contiguous along its last dim.

    Returns:
        [n_rows, n_cols] in x's dtype.

    Raises:
        KernelError: x has another layout or dtype.
    """
    require_operands("softmax", dims=2, x=x)
    return _operator(x)

"""Shared kernels of layer_norm and adaln_modulate, forward and backward.

Operands are [B, T, n_cols]; each of the B groups of rows has its own weight and bias. layer_norm
has B = 1.

A row that fits into the registers of one program is read once, a longer one twice in tiles. In the
backward pass a program processes several rows, prefetches the next one, and sums the gradients of
weight and bias (rows.py).

Source: Ba, Kiros and Hinton, Layer Normalization, 2016 (arXiv 1607.06450).
"""

from collections.abc import Callable

import torch
import triton
import triton.language as tl
from torch import Tensor

from roofwatch.kernels.building_blocks.operators import backward_operator, operator
from roofwatch.kernels.building_blocks.rows import (
    add_to_share,
    backward_config,
    moments_of,
    share_count,
    sum_rows,
    whole_row_config,
)


@triton.jit
def _affine_norm_kernel(
    x_ptr,
    weight_ptr,
    bias_ptr,
    out_ptr,
    mean_ptr,
    rstd_ptr,
    x_group_stride,
    x_row_stride,
    weight_group_stride,
    bias_group_stride,
    n_rows,
    n_cols,
    eps,
    WEIGHT_OFFSET: tl.constexpr,
    IS_LONG: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    group = row // n_rows
    x_ptr += group * x_group_stride + row % n_rows * x_row_stride
    if IS_LONG:
        weight_ptr += group * weight_group_stride
        bias_ptr += group * bias_group_stride
        out_ptr += row * n_cols
        mean, square_sum = moments_of(x_ptr, n_cols, BLOCK)
        rstd = tl.rsqrt(square_sum / n_cols + eps)
        for start in range(0, n_cols, BLOCK):
            offs = start + tl.arange(0, BLOCK)
            mask = offs < n_cols
            x = tl.load(x_ptr + offs, mask=mask, other=0.0).to(tl.float32)  # [BLOCK]
            weight = tl.load(weight_ptr + offs, mask=mask, other=0.0).to(tl.float32)  # [BLOCK]
            bias = tl.load(bias_ptr + offs, mask=mask, other=0.0).to(tl.float32)  # [BLOCK]
            out = (x - mean) * rstd * (WEIGHT_OFFSET + weight) + bias
            tl.store(out_ptr + offs, out.to(out_ptr.dtype.element_ty), mask=mask)  # [BLOCK]
    else:
        offs = tl.arange(0, BLOCK)
        mask = offs < n_cols
        x = tl.load(x_ptr + offs, mask=mask, other=0.0).to(tl.float32)  # [BLOCK]
        mean = tl.sum(x, axis=0) / n_cols
        centred = tl.where(mask, x - mean, 0.0)
        rstd = tl.rsqrt(tl.sum(centred * centred, axis=0) / n_cols + eps)
        # loaded late, from cache, to save registers
        weight_ptrs = weight_ptr + group * weight_group_stride + offs
        weight = tl.load(weight_ptrs, mask=mask, other=0.0).to(tl.float32)  # [BLOCK]
        bias = tl.load(bias_ptr + group * bias_group_stride + offs, mask=mask, other=0.0).to(
            tl.float32
        )  # [BLOCK]
        out = centred * (rstd * (WEIGHT_OFFSET + weight)) + bias
        tl.store(
            out_ptr + row * n_cols + offs, out.to(out_ptr.dtype.element_ty), mask=mask
        )  # [BLOCK]
    tl.store(mean_ptr + row, mean)
    tl.store(rstd_ptr + row, rstd)


@triton.jit
def _affine_norm_grad_kernel(
    x_ptr,
    weight_ptr,
    mean_ptr,
    rstd_ptr,
    grad_out_ptr,
    grad_x_ptr,
    grad_weight_share_ptr,
    grad_bias_share_ptr,
    x_group_stride,
    x_row_stride,
    weight_group_stride,
    n_rows,
    n_cols,
    n_shares,
    WEIGHT_OFFSET: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    program = tl.program_id(0).to(tl.int64)
    group = program // n_shares
    first_row = program % n_shares * ROWS
    x_ptr += group * x_group_stride
    weight_ptr += group * weight_group_stride
    mean_ptr += group * n_rows
    rstd_ptr += group * n_rows
    grad_out_ptr += group * n_rows * n_cols
    grad_x_ptr += group * n_rows * n_cols
    grad_weight_share_ptr += program * n_cols
    grad_bias_share_ptr += program * n_cols
    if ROWS > 1:
        for start_row in range(first_row, n_rows, n_shares * ROWS):
            rows = start_row + tl.arange(0, ROWS)
            row_mask = rows < n_rows
            mean = tl.load(mean_ptr + rows, mask=row_mask, other=0.0)[:, None]  # [ROWS, 1]
            rstd = tl.load(rstd_ptr + rows, mask=row_mask, other=0.0)[:, None]  # [ROWS, 1]
            grads = tl.zeros((ROWS, BLOCK), tl.float32)
            products = tl.zeros((ROWS, BLOCK), tl.float32)
            for start in range(0, n_cols, BLOCK):
                cols = start + tl.arange(0, BLOCK)
                mask = row_mask[:, None] & (cols < n_cols)[None, :]
                x_offs = rows[:, None] * x_row_stride + cols[None, :]
                grad_offs = rows[:, None] * n_cols + cols[None, :]
                x = tl.load(x_ptr + x_offs, mask=mask, other=0.0).to(tl.float32)  # [ROWS, BLOCK]
                grad_out = tl.load(grad_out_ptr + grad_offs, mask=mask, other=0.0).to(
                    tl.float32
                )  # [ROWS, BLOCK]
                weight = tl.load(weight_ptr + cols, mask=cols < n_cols, other=0.0).to(
                    tl.float32
                )  # [BLOCK]
                grad_normed = grad_out * (WEIGHT_OFFSET + weight)[None, :]
                grads += grad_normed
                products += grad_normed * (x - mean) * rstd
            mean_grad = tl.sum(grads, axis=1)[:, None] / n_cols  # [ROWS, 1]
            mean_product = tl.sum(products, axis=1)[:, None] / n_cols  # [ROWS, 1]
            for start in range(0, n_cols, BLOCK):
                cols = start + tl.arange(0, BLOCK)
                col_mask = cols < n_cols
                mask = row_mask[:, None] & col_mask[None, :]
                x_offs = rows[:, None] * x_row_stride + cols[None, :]
                grad_offs = rows[:, None] * n_cols + cols[None, :]
                x = tl.load(x_ptr + x_offs, mask=mask, other=0.0).to(tl.float32)  # [ROWS, BLOCK]
                grad_out = tl.load(grad_out_ptr + grad_offs, mask=mask, other=0.0).to(
                    tl.float32
                )  # [ROWS, BLOCK]
                weight = tl.load(weight_ptr + cols, mask=col_mask, other=0.0).to(
                    tl.float32
                )  # [BLOCK]
                normed = (x - mean) * rstd
                grad_x = (
                    grad_out * (WEIGHT_OFFSET + weight)[None, :] - mean_grad - normed * mean_product
                ) * rstd
                tl.store(
                    grad_x_ptr + grad_offs, grad_x.to(grad_x_ptr.dtype.element_ty), mask=mask
                )  # [ROWS, BLOCK]
                is_begun = start_row > first_row
                add_to_share(
                    grad_weight_share_ptr,
                    cols,
                    col_mask,
                    tl.sum(grad_out * normed, axis=0),
                    is_begun,
                )
                add_to_share(
                    grad_bias_share_ptr, cols, col_mask, tl.sum(grad_out, axis=0), is_begun
                )
    else:
        offs = tl.arange(0, BLOCK)
        mask = offs < n_cols
        grad_weight = tl.zeros((BLOCK,), tl.float32)
        grad_bias = tl.zeros((BLOCK,), tl.float32)
        next_x = tl.load(x_ptr + first_row * x_row_stride + offs, mask=mask, other=0.0)  # [BLOCK]
        next_grad_out = tl.load(
            grad_out_ptr + first_row * n_cols + offs, mask=mask, other=0.0
        )  # [BLOCK]
        for row in range(first_row, n_rows, n_shares):
            x = next_x.to(tl.float32)
            grad_out = next_grad_out.to(tl.float32)
            next_row = row + n_shares
            next_mask = mask & (next_row < n_rows)
            next_x = tl.load(
                x_ptr + next_row * x_row_stride + offs, mask=next_mask, other=0.0
            )  # [BLOCK]
            next_grad_out = tl.load(
                grad_out_ptr + next_row * n_cols + offs, mask=next_mask, other=0.0
            )  # [BLOCK]
            rstd = tl.load(rstd_ptr + row)
            normed = tl.where(mask, (x - tl.load(mean_ptr + row)) * rstd, 0.0)
            grad_weight += grad_out * normed
            grad_bias += grad_out
            # reloaded from cache for each row, to save registers
            weight = tl.load(weight_ptr + offs, mask=mask, other=0.0).to(tl.float32)  # [BLOCK]
            grad_normed = grad_out * (WEIGHT_OFFSET + weight)
            mean_grad = tl.sum(grad_normed, axis=0) / n_cols
            mean_product = tl.sum(grad_normed * normed, axis=0) / n_cols
            grad_x = (grad_normed - mean_grad - normed * mean_product) * rstd
            tl.store(
                grad_x_ptr + row * n_cols + offs, grad_x.to(grad_x_ptr.dtype.element_ty), mask=mask
            )  # [BLOCK]
        tl.store(grad_weight_share_ptr + offs, grad_weight, mask=mask)  # [BLOCK]
        tl.store(grad_bias_share_ptr + offs, grad_bias, mask=mask)  # [BLOCK]


def _empty_gradients(
    x: Tensor, weight: Tensor, bias: Tensor, mean: Tensor, rstd: Tensor, grad_out: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    return x.new_empty(x.shape), weight.new_empty(weight.shape), bias.new_empty(bias.shape)


def _empty_results(
    x: Tensor, weight: Tensor, bias: Tensor, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    mean = x.new_empty(x.shape[:2], dtype=torch.float32)
    return x.new_empty(x.shape), mean, torch.empty_like(mean)


def define_affine_norm(name: str, *, weight_offset: float) -> Callable[..., tuple[Tensor, ...]]:
    """Register `roofwatch::<name>` with its gradient.

    Args:
        name: Of the operator.
        weight_offset: Added to the weight.

    Returns:
        An unchecked function of x [B, T, n_cols], weight and bias [B, n_cols], contiguous along the
        last dim, and eps. It returns the normalised x, and the mean and 1/std of each row.
    """

    @backward_operator(name, _empty_gradients)
    def backward(x, weight, bias, mean, rstd, grad_out, grad_x, grad_weight, grad_bias):
        n_groups, n_rows, n_cols = x.shape
        config = backward_config(n_cols, x.element_size())
        n_shares = share_count(x, n_groups, n_rows, config)
        grad_weight_shares = x.new_empty(n_groups, n_shares, n_cols, dtype=torch.float32)
        grad_bias_shares = torch.empty_like(grad_weight_shares)
        _affine_norm_grad_kernel[(n_groups * n_shares,)](
            x,
            weight,
            mean,
            rstd,
            grad_out.contiguous(),  # autograd may pass an expanded scalar
            grad_x,
            grad_weight_shares,
            grad_bias_shares,
            *x.stride()[:2],
            weight.stride(0),
            n_rows,
            n_cols,
            n_shares,
            WEIGHT_OFFSET=weight_offset,
            **config,
        )
        sum_rows(grad_weight_shares, grad_weight)
        sum_rows(grad_bias_shares, grad_bias)

    @operator(name, _empty_results, backward=backward)
    def forward(x, weight, bias, eps, out, mean, rstd):
        n_groups, n_rows, n_cols = x.shape
        _affine_norm_kernel[(n_groups * n_rows,)](
            x,
            weight,
            bias,
            out,
            mean,
            rstd,
            *x.stride()[:2],
            weight.stride(0),
            bias.stride(0),
            n_rows,
            n_cols,
            eps,
            WEIGHT_OFFSET=weight_offset,
            **whole_row_config(n_cols),
        )

    return forward

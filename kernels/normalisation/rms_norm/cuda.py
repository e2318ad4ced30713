"""Rms_norm in CUDA C++ (rms_norm.cu)."""

from functools import cache
from pathlib import Path

import torch

from roofwatch import CudaKernel
from roofwatch.kernels.building_blocks.rows import ONLY_NVIDIA, RowLayout, row_layout
from roofwatch.kernels.normalisation.rms_norm.operator import rms_norm_operator
from roofwatch.kernels.normalisation.rms_norm.spec import require_rms_norm_operands, rms_norm_spec
from roofwatch.kernels.target import multiprocessor_count

_SOURCE = Path(__file__).with_name("rms_norm.cu")


@cache
def _kernel(name: str, dtype: torch.dtype, weight_dtype: torch.dtype, layout: RowLayout) -> CudaKernel:
    return CudaKernel(_SOURCE, name, template=(dtype, weight_dtype, layout.length, layout.held, layout.most_threads))


def _forward(x: torch.Tensor, weight: torch.Tensor, eps: float) -> tuple[torch.Tensor, torch.Tensor]:
    n_rows, n_cols = x.shape
    out = x.new_empty(n_rows, n_cols)
    rstd = x.new_empty(n_rows, dtype=torch.float32)
    if not x.numel():
        return out, rstd.zero_()  # a grid of no blocks cannot be launched
    layout = row_layout(x, weight, out)
    _kernel("rms_norm_kernel", x.dtype, weight.dtype, layout).launch(
        n_rows, layout.n_threads, (x, weight, out, rstd, x.stride(0), n_cols, eps)
    )
    return out, rstd


def _backward(
    x: torch.Tensor, weight: torch.Tensor, rstd: torch.Tensor, grad_out: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    n_rows, n_cols = x.shape
    grad_out = grad_out.contiguous()  # autograd may hand over an expanded scalar
    grad_x = x.new_empty(n_rows, n_cols)
    if not x.numel():
        return grad_x, weight.new_zeros(weight.shape)
    n_blocks = min(n_rows, 2 * multiprocessor_count(x))
    grad_weight_shares = x.new_empty(n_blocks, n_cols, dtype=torch.float32)
    layout = row_layout(x, weight, grad_out, grad_x, grad_weight_shares, most_threads=512)
    _kernel("rms_norm_grad_kernel", x.dtype, weight.dtype, layout).launch(
        n_blocks,
        layout.n_threads,
        (x, weight, rstd, grad_out, grad_x, grad_weight_shares, x.stride(0), n_rows, n_cols),
    )
    return grad_x, grad_weight_shares.sum(dim=0).to(weight.dtype)


_operator = rms_norm_operator("rms_norm_cuda", _forward, _backward)


@rms_norm_spec.implementation("cuda", deterministic=True, unsupported_targets=ONLY_NVIDIA)
def rms_norm_cuda(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    """`x / sqrt(mean(x²) + eps) * weight` along each row, computed in float32.

    Args:
        x: [n_rows, n_cols], contiguous along its last dim.
        weight: [n_cols].
        eps: Keeps a row of zeros finite.

    Returns:
        [n_rows, n_cols] in x's dtype.

    Raises:
        KernelError: an operand has another layout, shape or dtype.
        UnsupportedError: x is not on an NVIDIA GPU, or NVRTC is not installed.
    """
    require_rms_norm_operands(x, weight)
    out, _ = _operator(x, weight, eps)
    return out

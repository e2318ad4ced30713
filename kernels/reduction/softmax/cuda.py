"""Softmax in CUDA C++ (softmax.cu)."""

from functools import cache
from pathlib import Path

import torch

from roofwatch import CudaKernel
from roofwatch.kernels.building_blocks.rows import ONLY_NVIDIA, RowLayout, row_layout
from roofwatch.kernels.operands import require_operands
from roofwatch.kernels.reduction.softmax.operator import softmax_operator
from roofwatch.kernels.reduction.softmax.spec import softmax_spec
from roofwatch.kernels.target import multiprocessor_count

_SOURCE = Path(__file__).with_name("softmax.cu")


@cache
def _kernel(name: str, dtype: torch.dtype, layout: RowLayout) -> CudaKernel:
    return CudaKernel(_SOURCE, name, template=(dtype, layout.length, layout.held, layout.most_threads))


def _block_count(rows: torch.Tensor, layout: RowLayout) -> int:
    """A block per row; of rows that are read twice only as many at once as the L2 cache holds."""
    return len(rows) if layout.fits else min(len(rows), multiprocessor_count(rows))


def _forward(x: torch.Tensor) -> torch.Tensor:
    n_rows, n_cols = x.shape
    out = x.new_empty(n_rows, n_cols)
    if not out.numel():
        return out  # a grid of no blocks cannot be launched
    layout = row_layout(x, out)
    _kernel("softmax_kernel", x.dtype, layout).launch(
        _block_count(x, layout), layout.n_threads, (x, out, x.stride(0), n_rows, n_cols)
    )
    return out


def _backward(out: torch.Tensor, grad_out: torch.Tensor) -> torch.Tensor:
    n_rows, n_cols = out.shape
    grad_out = grad_out.contiguous()  # autograd may hand over an expanded scalar
    grad_x = torch.empty_like(out)
    if not out.numel():
        return grad_x
    layout = row_layout(out, grad_out, grad_x)
    _kernel("softmax_grad_kernel", out.dtype, layout).launch(
        _block_count(out, layout), layout.n_threads, (out, grad_out, grad_x, n_rows, n_cols)
    )
    return grad_x


_operator = softmax_operator("softmax_cuda", _forward, _backward)


@softmax_spec.implementation("cuda", deterministic=True, unsupported_targets=ONLY_NVIDIA)
def softmax_cuda(x: torch.Tensor) -> torch.Tensor:
    """`exp(x - max x) / sum exp(x - max x)` along each row, computed in float32.

    Args:
        x: [n_rows, n_cols], contiguous along its last dim.

    Returns:
        [n_rows, n_cols] in x's dtype.

    Raises:
        KernelError: x has another layout or dtype.
        UnsupportedError: x is not on an NVIDIA GPU, or NVRTC is not installed.
    """
    require_operands("softmax", dims=2, x=x)
    return _operator(x)

"""Softmax over the last dim, forward and backward, in Triton and in CUDA C++.

A row that fits into registers is read once. The rest of a longer row is read twice: for the maximum
and sum, and for the result. One block per multiprocessor keeps the rows in the L2 cache until they
are read again.

Source: Milakov and Gimelshein, Online normalizer calculation for softmax, 2018 (arXiv 1805.02867).
"""

from functools import cache
from pathlib import Path
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from roofwatch import Case, CudaKernel, InputMaker, KernelSpec, cases
from roofwatch.kernels.building_blocks.exponential import BYTES_PER_LOAD, add_to_lanes, fast_exp
from roofwatch.kernels.building_blocks.operands import require_operands
from roofwatch.kernels.building_blocks.operators import backward_operator, operator
from roofwatch.kernels.building_blocks.rivals import flag_gems, liger
from roofwatch.kernels.building_blocks.rows import (
    MAX_COLS_IN_REGISTERS,
    ONLY_NVIDIA,
    RowLayout,
    row_config,
    row_layout,
)
from roofwatch.kernels.building_blocks.shapes import model_cases, small_rows, vocabulary_rows
from roofwatch.kernels.building_blocks.target import multiprocessor_count, persistent_program_count

_LONG_ROW_CONFIG = {"BLOCK": 16_384, "num_warps": 32}
"""32 KiB in flight per multiprocessor in half precision, by one block."""


def softmax_reference(x: Tensor) -> Tensor:
    """Compute `exp(x - max x) / sum exp(x - max x)` along each row."""
    exps = (x - x.amax(dim=-1, keepdim=True)).exp()
    return exps / exps.sum(dim=-1, keepdim=True)


def _inputs(case: Case, make: InputMaker) -> dict[str, Any]:
    return {"x": make.logits(case["n_rows"], case["n_cols"], scale=3.0)}


def softmax_flop_count(case: Case) -> float:
    """Count per element, forward: compare, subtract, exp, add, divide. Backward: multiply, add,
    subtract, multiply.
    """
    return (4 if case.is_backward else 5) * case["n_rows"] * case["n_cols"]


def softmax_memory_bytes(case: Case) -> float:
    """Forward reads x and writes out; backward reads out and its gradient and writes x's."""
    return (3 if case.is_backward else 2) * case["n_rows"] * case["n_cols"] * case.itemsize


softmax_spec = KernelSpec(
    name="softmax",
    family="reduction",
    inputs=_inputs,
    reference=softmax_reference,
    cases=[*small_rows(), *model_cases(vocabulary_rows(), directions=["fwd", "bwd"])],
    edges=[
        *cases(
            shapes=[{"n_rows": 1, "n_cols": 63}, {"n_rows": 0, "n_cols": 63}],
            directions=["fwd", "bwd"],
        ),
        *cases(shapes=[{"n_rows": 3, "n_cols": 1000}], dtypes=["float16"], directions=["bwd"]),
        *cases(shapes=[{"n_rows": 2, "n_cols": 1}], dtypes=["bfloat16"], directions=["bwd"]),
        # the longest row that is read once, and the shortest that is read twice
        *cases(
            shapes=[
                {"n_rows": 1, "n_cols": MAX_COLS_IN_REGISTERS},
                {"n_rows": 2, "n_cols": MAX_COLS_IN_REGISTERS + 1},
            ],
            dtypes=["bfloat16"],
            directions=["bwd"],
        ),
    ],
    flop_count=softmax_flop_count,
    memory_bytes=softmax_memory_bytes,
    formula="out = exp(x - max x) / sum exp(x - max x)",
    source="Milakov and Gimelshein, Online normalizer calculation for softmax, 2018 (arXiv "
    "1805.02867)",
    interpreted_shape={"n_rows": 2, "n_cols": 20_000},
)


@softmax_spec.implementation("torch", compile=True)
def _softmax_torch(x: Tensor) -> Tensor:
    return torch.nn.functional.softmax(x, dim=-1)


def _empty_out(x: Tensor) -> Tensor:
    return x.new_empty(x.shape)


def _empty_gradient(out: Tensor, grad_out: Tensor) -> Tensor:
    return torch.empty_like(out)


@triton.jit
def _softmax_kernel(x_ptr, out_ptr, x_row_stride, out_row_stride, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    offs = tl.arange(0, BLOCK)
    mask = offs < n_cols
    x = tl.load(x_ptr + row * x_row_stride + offs, mask=mask, other=-float("inf")).to(
        tl.float32
    )  # [BLOCK]
    exps = fast_exp(x - tl.max(x, axis=0))
    out = exps / tl.sum(exps, axis=0)
    tl.store(
        out_ptr + row * out_row_stride + offs, out.to(out_ptr.dtype.element_ty), mask=mask
    )  # [BLOCK]


@triton.jit
def _softmax_long_kernel(
    x_ptr,
    out_ptr,
    x_row_stride,
    out_row_stride,
    n_rows,
    n_cols,
    BLOCK: tl.constexpr,
    WIDTH: tl.constexpr,
):
    for row in range(tl.program_id(0), n_rows, tl.num_programs(0)):
        x_row_ptr = x_ptr + tl.cast(row, tl.int64) * x_row_stride
        out_row_ptr = out_ptr + tl.cast(row, tl.int64) * out_row_stride
        # a maximum for each load of a thread, so an element costs one exponential
        lane_max = tl.full((BLOCK // WIDTH,), -float("inf"), tl.float32)
        lane_sum = tl.zeros((BLOCK // WIDTH,), tl.float32)
        for start in range(0, n_cols, BLOCK):
            offs = start + tl.arange(0, BLOCK)
            x = tl.load(
                x_row_ptr + offs,
                mask=offs < n_cols,
                other=-float("inf"),
                eviction_policy="evict_last",
            )  # [BLOCK]
            lanes = x.to(tl.float32).reshape(BLOCK // WIDTH, WIDTH)
            lane_max, lane_sum = add_to_lanes(lanes, lane_max, lane_sum)
        row_max = tl.max(lane_max, axis=0)
        row_sum = tl.sum(lane_sum * fast_exp(lane_max - row_max), axis=0)
        for start in range(0, n_cols, BLOCK):
            offs = start + tl.arange(0, BLOCK)
            mask = offs < n_cols
            x = tl.load(
                x_row_ptr + offs, mask=mask, other=-float("inf"), eviction_policy="evict_first"
            )  # [BLOCK]
            out = (fast_exp(x.to(tl.float32) - row_max) / row_sum).to(out_ptr.dtype.element_ty)
            tl.store(out_row_ptr + offs, out, mask=mask, eviction_policy="evict_first")  # [BLOCK]


@triton.jit
def _softmax_grad_kernel(
    out_ptr, grad_out_ptr, grad_x_ptr, row_stride, n_cols, BLOCK: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    offs = row * row_stride + tl.arange(0, BLOCK)
    mask = tl.arange(0, BLOCK) < n_cols
    out = tl.load(out_ptr + offs, mask=mask, other=0.0).to(tl.float32)  # [BLOCK]
    grad_out = tl.load(grad_out_ptr + offs, mask=mask, other=0.0).to(tl.float32)  # [BLOCK]
    grad_x = out * (grad_out - tl.sum(out * grad_out, axis=0))
    tl.store(grad_x_ptr + offs, grad_x.to(grad_x_ptr.dtype.element_ty), mask=mask)  # [BLOCK]


@triton.jit
def _softmax_long_grad_kernel(
    out_ptr, grad_out_ptr, grad_x_ptr, row_stride, n_rows, n_cols, BLOCK: tl.constexpr
):
    for row in range(tl.program_id(0), n_rows, tl.num_programs(0)):
        row_start = tl.cast(row, tl.int64) * row_stride
        lane_sum = tl.zeros((BLOCK,), tl.float32)
        for start in range(0, n_cols, BLOCK):
            cols = start + tl.arange(0, BLOCK)
            mask, offs = cols < n_cols, row_start + cols
            out = tl.load(
                out_ptr + offs, mask=mask, other=0.0, eviction_policy="evict_last"
            )  # [BLOCK]
            grad_out = tl.load(
                grad_out_ptr + offs, mask=mask, other=0.0, eviction_policy="evict_last"
            )  # [BLOCK]
            lane_sum += out.to(tl.float32) * grad_out.to(tl.float32)
        row_sum = tl.sum(lane_sum, axis=0)
        for start in range(0, n_cols, BLOCK):
            cols = start + tl.arange(0, BLOCK)
            mask, offs = cols < n_cols, row_start + cols
            out = tl.load(
                out_ptr + offs, mask=mask, other=0.0, eviction_policy="evict_first"
            )  # [BLOCK]
            grad_out = tl.load(
                grad_out_ptr + offs, mask=mask, other=0.0, eviction_policy="evict_first"
            )  # [BLOCK]
            grad_x = out.to(tl.float32) * (grad_out.to(tl.float32) - row_sum)
            grad_x = grad_x.to(grad_x_ptr.dtype.element_ty)
            tl.store(grad_x_ptr + offs, grad_x, mask=mask, eviction_policy="evict_first")  # [BLOCK]


@backward_operator("softmax", _empty_gradient)
def _triton_backward(out, grad_out, grad_x):
    n_rows, n_cols = out.shape
    grad_out = grad_out.contiguous()  # autograd may pass an expanded scalar
    operands = out, grad_out, grad_x, out.stride(0)
    if n_cols <= MAX_COLS_IN_REGISTERS:
        _softmax_grad_kernel[(n_rows,)](*operands, n_cols, **row_config(n_cols))
    else:
        grid = (persistent_program_count(out, n_rows),)
        _softmax_long_grad_kernel[grid](*operands, n_rows, n_cols, **_LONG_ROW_CONFIG)


@operator("softmax", _empty_out, backward=_triton_backward)
def _softmax_op(x, out):
    n_rows, n_cols = x.shape
    operands = x, out, x.stride(0), out.stride(0)
    if n_cols <= MAX_COLS_IN_REGISTERS:
        _softmax_kernel[(n_rows,)](*operands, n_cols, **row_config(n_cols))
    else:
        grid = (persistent_program_count(x, n_rows),)
        width = BYTES_PER_LOAD // x.element_size()
        _softmax_long_kernel[grid](*operands, n_rows, n_cols, WIDTH=width, **_LONG_ROW_CONFIG)


@softmax_spec.implementation("triton", deterministic=True)
def softmax(x: Tensor) -> Tensor:
    """`exp(x - max x) / sum exp(x - max x)` along each row, computed in float32.

    Args:
        x: [n_rows, n_cols], contiguous along its last dim.

    Returns:
        [n_rows, n_cols] in x's dtype.
    """
    require_operands("softmax", dims=2, x=x)
    return _softmax_op(x)


_SOURCE = Path(__file__).with_name("softmax.cu")


@cache
def _cuda_kernel(name: str, dtype: torch.dtype, layout: RowLayout) -> CudaKernel:
    return CudaKernel(
        _SOURCE,
        name,
        template=(dtype, layout.length, layout.held, layout.most_threads),
        # denormal results of exp become 0, which saves three instructions an element
        options=["--ftz=true"],
    )


def _block_count(rows: Tensor, layout: RowLayout) -> int:
    """One block per row; fewer for rows that are read twice, so they stay in the L2 cache."""
    if layout.fits:
        return len(rows)
    return min(len(rows), multiprocessor_count(rows))


@backward_operator("softmax_cuda", _empty_gradient)
def _cuda_backward(out, grad_out, grad_x):
    n_rows, n_cols = out.shape
    grad_out = grad_out.contiguous()  # autograd may pass an expanded scalar
    layout = row_layout(out, grad_out, grad_x)
    _cuda_kernel("softmax_grad_kernel", out.dtype, layout).launch(
        _block_count(out, layout), layout.n_threads, (out, grad_out, grad_x, n_rows, n_cols)
    )


@operator("softmax_cuda", _empty_out, backward=_cuda_backward)
def _softmax_cuda_op(x, out):
    n_rows, n_cols = x.shape
    layout = row_layout(x, out)
    _cuda_kernel("softmax_kernel", x.dtype, layout).launch(
        _block_count(x, layout), layout.n_threads, (x, out, x.stride(0), n_rows, n_cols)
    )


@softmax_spec.implementation("cuda", deterministic=True, unsupported_targets=ONLY_NVIDIA)
def softmax_cuda(x: Tensor) -> Tensor:
    """Compute the same as `softmax`, in CUDA C++.

    Raises:
        UnsupportedError: x is not on an NVIDIA GPU, or NVRTC is not installed.
    """
    require_operands("softmax", dims=2, x=x)
    return _softmax_cuda_op(x)


@liger(softmax_spec)
def _softmax_liger(ops: Any, x: Tensor) -> Any:
    return ops.LigerSoftmaxFunction.apply(x)


@flag_gems(softmax_spec, directions=["fwd"])
def _softmax_flag_gems(gems: Any, x: Tensor) -> Any:
    return gems.softmax(x, 1)

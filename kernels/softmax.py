"""Softmax over the last dim, forward and backward.

A row that fits into one program's registers is read once. A longer one, a vocabulary say, is read twice in tiles:
first for its maximum and sum, kept per lane and reduced once at the end, then to write the result.
"""

from typing import Any

import torch
import triton
import triton.language as tl

from kernels.operands import require_operands
from kernels.shapes import model_cases, vocabulary_rows
from roofwatch import Case, InputMaker, KernelSpec, cases

MAX_COLS_IN_REGISTERS = 16_384
_TILE_COLS = 4_096


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


def softmax_config(n_cols: int) -> dict[str, int]:
    """Columns per tile, and warps such that a thread of an NVIDIA GPU holds 16 elements, 32 in the longest row."""
    fits = n_cols <= MAX_COLS_IN_REGISTERS
    block = triton.next_power_of_2(n_cols) if fits else _TILE_COLS
    return {"BLOCK": block, "num_warps": min(max(block // 512, 1), 16)}


@torch.library.custom_op("roofwatch::softmax", mutates_args=())
def _softmax_op(x: torch.Tensor) -> torch.Tensor:
    n_rows, n_cols = x.shape
    out = x.new_empty(n_rows, n_cols)
    if not out.numel():
        return out  # a grid of no programs cannot be launched
    kernel = _softmax_kernel if n_cols <= MAX_COLS_IN_REGISTERS else _softmax_long_kernel
    with torch.cuda.device_of(x):
        kernel[(n_rows,)](x, out, x.stride(0), out.stride(0), n_cols, **softmax_config(n_cols))
    return out


@torch.library.custom_op("roofwatch::softmax_backward", mutates_args=())
def _softmax_backward_op(out: torch.Tensor, grad_out: torch.Tensor) -> torch.Tensor:
    n_rows, n_cols = out.shape
    grad_out = grad_out.contiguous()  # autograd may hand over an expanded scalar
    grad_x = torch.empty_like(out)
    if not out.numel():
        return grad_x
    kernel = _softmax_grad_kernel if n_cols <= MAX_COLS_IN_REGISTERS else _softmax_long_grad_kernel
    with torch.cuda.device_of(out):
        kernel[(n_rows,)](out, grad_out, grad_x, out.stride(0), n_cols, **softmax_config(n_cols))
    return grad_x


@_softmax_op.register_fake
def _softmax_fake(x: torch.Tensor) -> torch.Tensor:
    return x.new_empty(x.shape)


@_softmax_backward_op.register_fake
def _softmax_backward_fake(out: torch.Tensor, grad_out: torch.Tensor) -> torch.Tensor:  # noqa: ARG001  the op's signature
    return torch.empty_like(out)


def _save_for_backward(ctx: Any, inputs: tuple[torch.Tensor], output: torch.Tensor) -> None:  # noqa: ARG001  torch's signature
    ctx.save_for_backward(output)


def _backward(ctx: Any, grad_out: torch.Tensor) -> torch.Tensor:
    (out,) = ctx.saved_tensors
    grad_x: torch.Tensor = _softmax_backward_op(out, grad_out)
    return grad_x


_softmax_op.register_autograd(_backward, setup_context=_save_for_backward)


def softmax_reference(x: torch.Tensor) -> torch.Tensor:
    """The formula, `exp(x - max x) / sum exp(x - max x)` along each row."""
    exps = (x - x.amax(dim=-1, keepdim=True)).exp()
    return exps / exps.sum(dim=-1, keepdim=True)


def _inputs(case: Case, make: InputMaker) -> dict[str, Any]:
    return {"x": make.normal(case["n_rows"], case["n_cols"], scale=3.0)}


def softmax_flop_count(case: Case) -> float:
    """Per element, forward: compare, subtract, exp, add, divide. Backward: multiply and add for the row's sum,
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
    cases=[
        *cases(
            shapes=[{"n_rows": 1024, "n_cols": 4096}],
            dtypes=["float32", "bfloat16"],
            directions=["fwd", "bwd"],
            tags=["small"],
        ),
        *model_cases(vocabulary_rows(), directions=["fwd", "bwd"]),
    ],
    edges=[
        *cases(shapes=[{"n_rows": 1, "n_cols": 63}, {"n_rows": 0, "n_cols": 63}], directions=["fwd", "bwd"]),
        *cases(shapes=[{"n_rows": 3, "n_cols": 1000}], dtypes=["float16"], directions=["bwd"]),
        *cases(shapes=[{"n_rows": 2, "n_cols": 1}], dtypes=["bfloat16"], directions=["bwd"]),
        # the longest row that is read once, and the shortest that is read twice
        *cases(
            shapes=[{"n_rows": 1, "n_cols": MAX_COLS_IN_REGISTERS}, {"n_rows": 2, "n_cols": MAX_COLS_IN_REGISTERS + 1}],
            dtypes=["bfloat16"],
            directions=["bwd"],
        ),
    ],
    flop_count=softmax_flop_count,
    memory_bytes=softmax_memory_bytes,
    formula="out = exp(x - max x) / sum exp(x - max x)",
    source="Milakov and Gimelshein, Online normalizer calculation for softmax, 2018 (arXiv 1805.02867)",
    interpreted_shape={"n_rows": 3},
)


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
    out: torch.Tensor = _softmax_op(x)
    return out


@softmax_spec.implementation("torch", compile=True)
def _softmax_torch(x: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.softmax(x, dim=-1)

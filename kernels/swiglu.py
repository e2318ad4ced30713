"""SwiGLU, the gated activation of a transformer's feed-forward block, forward and backward.

The backward pass computes the sigmoid again instead of saving it: the kernel is bound by memory.

Source: Shazeer, GLU Variants Improve Transformer, 2020 (arXiv 2002.05202).
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch.autograd.function import once_differentiable

from kernels.operands import require_equal, require_operands
from roofwatch import Case, InputMaker, KernelSpec, cases


@triton.jit
def _swiglu_kernel(
    gate_ptr, up_ptr, out_ptr, gate_row_stride, up_row_stride, out_row_stride, n_cols, BLOCK: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    offs = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n_cols
    gate = tl.load(gate_ptr + row * gate_row_stride + offs, mask=mask, other=0.0).to(tl.float32)  # [BLOCK]
    up = tl.load(up_ptr + row * up_row_stride + offs, mask=mask, other=0.0).to(tl.float32)  # [BLOCK]
    out = gate * tl.sigmoid(gate) * up
    tl.store(out_ptr + row * out_row_stride + offs, out.to(out_ptr.dtype.element_ty), mask=mask)  # [BLOCK]


@triton.jit
def _swiglu_grad_kernel(
    gate_ptr,
    up_ptr,
    grad_out_ptr,
    grad_gate_ptr,
    grad_up_ptr,
    gate_row_stride,
    up_row_stride,
    grad_row_stride,
    n_cols,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    offs = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n_cols
    gate = tl.load(gate_ptr + row * gate_row_stride + offs, mask=mask, other=0.0).to(tl.float32)  # [BLOCK]
    up = tl.load(up_ptr + row * up_row_stride + offs, mask=mask, other=0.0).to(tl.float32)  # [BLOCK]
    grad_offs = row * grad_row_stride + offs
    grad_out = tl.load(grad_out_ptr + grad_offs, mask=mask, other=0.0).to(tl.float32)  # [BLOCK]
    sigmoid = tl.sigmoid(gate)
    grad_up = grad_out * gate * sigmoid
    grad_gate = grad_out * up * sigmoid * (1.0 + gate * (1.0 - sigmoid))
    tl.store(grad_gate_ptr + grad_offs, grad_gate.to(grad_gate_ptr.dtype.element_ty), mask=mask)  # [BLOCK]
    tl.store(grad_up_ptr + grad_offs, grad_up.to(grad_up_ptr.dtype.element_ty), mask=mask)  # [BLOCK]


def swiglu_config(n_cols: int) -> dict[str, int]:
    """Eight elements per thread of an NVIDIA GPU: one load of 16 bytes in half precision, two in float32."""
    block = min(triton.next_power_of_2(n_cols), 1024)
    return {"BLOCK": block, "num_warps": max(block // 256, 1)}


def _grid(n_rows: int, n_cols: int, block: int) -> tuple[int, int]:
    return n_rows, triton.cdiv(n_cols, block)


class _SwiGlu(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
        n_rows, n_cols = gate.shape
        out = gate.new_empty(n_rows, n_cols)
        config = swiglu_config(n_cols)
        with torch.cuda.device_of(gate):
            _swiglu_kernel[_grid(n_rows, n_cols, config["BLOCK"])](
                gate, up, out, gate.stride(0), up.stride(0), out.stride(0), n_cols, **config
            )
        ctx.save_for_backward(gate, up)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_out: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        gate, up = ctx.saved_tensors
        n_rows, n_cols = gate.shape
        grad_out = grad_out.contiguous()  # autograd may hand over an expanded scalar
        grad_gate, grad_up = torch.empty_like(grad_out), torch.empty_like(grad_out)
        config = swiglu_config(n_cols)
        with torch.cuda.device_of(gate):
            _swiglu_grad_kernel[_grid(n_rows, n_cols, config["BLOCK"])](
                gate,
                up,
                grad_out,
                grad_gate,
                grad_up,
                gate.stride(0),
                up.stride(0),
                grad_out.stride(0),
                n_cols,
                **config,
            )
        return grad_gate, grad_up


def swiglu_reference(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    """The formula, `gate / (1 + exp(-gate)) * up`."""
    return gate / (1 + (-gate).exp()) * up


def _inputs(case: Case, make: InputMaker) -> dict[str, Any]:
    shape = case["n_rows"], case["n_cols"]
    return {"gate": make.normal(*shape), "up": make.normal(*shape)}


def swiglu_flop_count(case: Case) -> float:
    """Per element, forward: negate, exp, add, divide for gate * sigmoid, times up. Backward: the sigmoid (4), up's
    gradient (2), gate's (6).
    """
    return (12 if case.is_backward else 5) * case["n_rows"] * case["n_cols"]


def swiglu_memory_bytes(case: Case) -> float:
    """Forward reads gate and up and writes out; backward reads both and out's gradient and writes two gradients."""
    return (5 if case.is_backward else 3) * case["n_rows"] * case["n_cols"] * case.itemsize


swiglu_spec = KernelSpec(
    name="swiglu",
    family="activation",
    inputs=_inputs,
    reference=swiglu_reference,
    cases=[
        *cases(shapes=[{"n_rows": 256, "n_cols": 11_008}], dtypes=["bfloat16"], directions=["fwd", "bwd"]),
        *cases(shapes=[{"n_rows": 63, "n_cols": 1000}], directions=["fwd", "bwd"]),
    ],
    flop_count=swiglu_flop_count,
    memory_bytes=swiglu_memory_bytes,
    interpreted_shape={"n_rows": 3},
)


@swiglu_spec.implementation("triton")
def swiglu(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    """`gate / (1 + exp(-gate)) * up`, computed in float32.

    Args:
        gate: [n_rows, n_cols], contiguous along its last dim; the halves of one wider matrix will do.
        up: [n_rows, n_cols] of gate's dtype.

    Returns:
        [n_rows, n_cols] in gate's dtype.

    Raises:
        KernelError: an operand has another layout, shape or dtype.
    """
    require_operands("swiglu", dims=2, gate=gate, up=up)
    require_equal("swiglu", "the shapes", gate=tuple(gate.shape), up=tuple(up.shape))
    require_equal("swiglu", "the dtypes", gate=gate.dtype, up=up.dtype)
    # a grid of no programs cannot be launched, and the result is known
    return _SwiGlu.apply(gate, up) if gate.numel() else gate * up


@swiglu_spec.implementation("torch", compile=True)
def _swiglu_torch(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.silu(gate) * up

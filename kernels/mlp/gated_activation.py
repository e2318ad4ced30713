"""Shared kernels of the gated activations `activation(gate) * up`, forward and backward.

Both activations are `gate * sigmoid(z)`. SiLU has `z = gate`; the tanh form of GELU has
`z = 2 sqrt(2 / pi) (gate + 0.044715 gate³)`, since `(1 + tanh(z / 2)) / 2 = sigmoid(z)`. The backward pass computes the
sigmoid again instead of saving it, since the kernels are memory-bound.

Sources: Shazeer, GLU Variants Improve Transformer, 2020 (arXiv 2002.05202); Hendrycks and Gimpel, Gaussian Error Linear
Units, 2016 (arXiv 1606.08415), section 2, for the tanh form.
"""

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
import triton
import triton.language as tl

from roofwatch import Case, InputMaker, cases
from roofwatch.kernels.building_blocks.rows import piece_of_row
from roofwatch.kernels.operands import require_equal, require_operands
from roofwatch.kernels.shapes import Workload, model_cases

_GELU_SLOPE = tl.constexpr(2 * math.sqrt(2 / math.pi))
_GELU_CUBIC = tl.constexpr(0.044715)


@triton.jit
def _gated_kernel(
    gate_ptr,
    up_ptr,
    out_ptr,
    gate_row_stride,
    up_row_stride,
    out_row_stride,
    n_cols,
    IS_GELU: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row, offs, mask = piece_of_row(n_cols, BLOCK)
    gate = tl.load(gate_ptr + row * gate_row_stride + offs, mask=mask, other=0.0).to(tl.float32)  # [BLOCK]
    up = tl.load(up_ptr + row * up_row_stride + offs, mask=mask, other=0.0).to(tl.float32)  # [BLOCK]
    z = _GELU_SLOPE * gate * (1.0 + _GELU_CUBIC * gate * gate) if IS_GELU else gate
    out = gate * tl.sigmoid(z) * up
    tl.store(out_ptr + row * out_row_stride + offs, out.to(out_ptr.dtype.element_ty), mask=mask)  # [BLOCK]


@triton.jit
def _gated_grad_kernel(
    gate_ptr,
    up_ptr,
    grad_out_ptr,
    grad_gate_ptr,
    grad_up_ptr,
    gate_row_stride,
    up_row_stride,
    grad_row_stride,
    n_cols,
    IS_GELU: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row, offs, mask = piece_of_row(n_cols, BLOCK)
    gate = tl.load(gate_ptr + row * gate_row_stride + offs, mask=mask, other=0.0).to(tl.float32)  # [BLOCK]
    up = tl.load(up_ptr + row * up_row_stride + offs, mask=mask, other=0.0).to(tl.float32)  # [BLOCK]
    grad_offs = row * grad_row_stride + offs
    grad_out = tl.load(grad_out_ptr + grad_offs, mask=mask, other=0.0).to(tl.float32)  # [BLOCK]
    if IS_GELU:
        z = _GELU_SLOPE * gate * (1.0 + _GELU_CUBIC * gate * gate)
        z_slope = _GELU_SLOPE * (1.0 + 3.0 * _GELU_CUBIC * gate * gate)
    else:
        z = gate
        z_slope = 1.0
    sigmoid = tl.sigmoid(z)
    grad_up = grad_out * gate * sigmoid
    grad_gate = grad_out * up * sigmoid * (1.0 + gate * z_slope * (1.0 - sigmoid))
    tl.store(grad_gate_ptr + grad_offs, grad_gate.to(grad_gate_ptr.dtype.element_ty), mask=mask)  # [BLOCK]
    tl.store(grad_up_ptr + grad_offs, grad_up.to(grad_up_ptr.dtype.element_ty), mask=mask)  # [BLOCK]


def gated_activation_config(n_cols: int) -> dict[str, int]:
    """Eight elements per thread of an NVIDIA GPU: one 16-byte load in half precision."""
    block = min(triton.next_power_of_2(n_cols), 1024)
    return {"BLOCK": block, "num_warps": max(block // 256, 1)}


def define_gated_activation(name: str, *, is_gelu: bool) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    """Register `roofwatch::<name>` with its gradient and return a launcher that checks gate and up."""

    @torch.library.custom_op(f"roofwatch::{name}", mutates_args=())
    def forward_op(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
        n_rows, n_cols = gate.shape
        out = gate.new_empty(n_rows, n_cols)
        if not out.numel():
            return out  # CUDA rejects an empty grid
        config = gated_activation_config(n_cols)
        with torch.cuda.device_of(gate):
            _gated_kernel[(n_rows * triton.cdiv(n_cols, config["BLOCK"]),)](
                gate, up, out, gate.stride(0), up.stride(0), out.stride(0), n_cols, IS_GELU=is_gelu, **config
            )
        return out

    @torch.library.custom_op(f"roofwatch::{name}_backward", mutates_args=())
    def backward_op(gate: torch.Tensor, up: torch.Tensor, grad_out: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        n_rows, n_cols = gate.shape
        grad_out = grad_out.contiguous()  # autograd may pass an expanded scalar
        grad_gate, grad_up = gate.new_empty(n_rows, n_cols), gate.new_empty(n_rows, n_cols)
        if not grad_gate.numel():
            return grad_gate, grad_up
        config = gated_activation_config(n_cols)
        with torch.cuda.device_of(gate):
            _gated_grad_kernel[(n_rows * triton.cdiv(n_cols, config["BLOCK"]),)](
                gate,
                up,
                grad_out,
                grad_gate,
                grad_up,
                gate.stride(0),
                up.stride(0),
                grad_out.stride(0),
                n_cols,
                IS_GELU=is_gelu,
                **config,
            )
        return grad_gate, grad_up

    @forward_op.register_fake
    def _(gate: torch.Tensor, *_: Any) -> torch.Tensor:
        return gate.new_empty(gate.shape)

    @backward_op.register_fake
    def _(gate: torch.Tensor, *_: Any) -> tuple[torch.Tensor, torch.Tensor]:
        return gate.new_empty(gate.shape), gate.new_empty(gate.shape)

    def save_for_backward(ctx: Any, inputs: tuple[torch.Tensor, ...], output: torch.Tensor) -> None:  # noqa: ARG001  torch's signature
        ctx.save_for_backward(*inputs)

    def backward(ctx: Any, grad_out: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        gate, up = ctx.saved_tensors
        grads: tuple[torch.Tensor, torch.Tensor] = backward_op(gate, up, grad_out)
        return grads

    forward_op.register_autograd(backward, setup_context=save_for_backward)

    def launch(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
        require_operands(name, dims=2, gate=gate, up=up)
        require_equal(name, "the shapes", gate=tuple(gate.shape), up=tuple(up.shape))
        require_equal(name, "the dtypes", gate=gate.dtype, up=up.dtype)
        out: torch.Tensor = forward_op(gate, up)
        return out

    return launch


def gate_and_up(case: Case, make: InputMaker) -> dict[str, Any]:
    """The two projections of `n_rows` tokens, as a normalised residual stream gives them."""
    shape = case["n_rows"], case["n_cols"]
    return {"gate": make.normal(*shape), "up": make.normal(*shape)}


def gated_activation_cases(n_small_cols: int, workloads: Iterable[Workload]) -> list[Case]:
    """A small case, and those of models, forward and backward."""
    both = ["fwd", "bwd"]
    small = cases(
        shapes=[{"n_rows": 256, "n_cols": n_small_cols}], dtypes=["bfloat16"], directions=both, tags=["small"]
    )
    return [*small, *model_cases(workloads, directions=both)]


def gated_activation_edges() -> list[Case]:
    """Odd lengths, no rows, one row."""
    return [
        *cases(shapes=[{"n_rows": 63, "n_cols": 1000}, {"n_rows": 0, "n_cols": 63}], directions=["fwd", "bwd"]),
        *cases(shapes=[{"n_rows": 1, "n_cols": 63}], dtypes=["float16", "bfloat16"], directions=["bwd"]),
    ]


def gated_activation_memory_bytes(case: Case) -> float:
    """Forward reads gate and up and writes out; backward reads both and out's gradient and writes two gradients."""
    return (5 if case.is_backward else 3) * case["n_rows"] * case["n_cols"] * case.itemsize

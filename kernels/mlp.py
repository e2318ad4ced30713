"""SwiGLU and GeGLU, the gated activations `activation(gate) * up` of feed-forward blocks, forward
and backward.

Both activations are `gate * sigmoid(z)`. SiLU has `z = gate`; the tanh form of GELU has
`z = 2 sqrt(2 / pi) (gate + 0.044715 gate³)`, since `(1 + tanh(z / 2)) / 2 = sigmoid(z)`. It differs
from GELU by at most 5e-4, below the resolution of bfloat16 near 1. The backward pass computes the
sigmoid again instead of saving it, since the kernels are memory-bound.

Sources: Shazeer, GLU Variants Improve Transformer, 2020 (arXiv 2002.05202); Hendrycks and Gimpel,
Gaussian Error Linear Units, 2016 (arXiv 1606.08415), section 2, for the tanh form.
"""

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from roofwatch import Case, InputMaker, KernelSpec, cases
from roofwatch.kernels.building_blocks.models import GEMMA_2_9B
from roofwatch.kernels.building_blocks.operands import require_equal, require_operands
from roofwatch.kernels.building_blocks.operators import backward_operator, operator
from roofwatch.kernels.building_blocks.rivals import fla, flag_gems, liger
from roofwatch.kernels.building_blocks.rows import piece_of_row
from roofwatch.kernels.building_blocks.shapes import Workload, ffn_rows, model_cases, small_cases

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
    gate = tl.load(gate_ptr + row * gate_row_stride + offs, mask=mask, other=0.0).to(
        tl.float32
    )  # [BLOCK]
    up = tl.load(up_ptr + row * up_row_stride + offs, mask=mask, other=0.0).to(
        tl.float32
    )  # [BLOCK]
    z = _GELU_SLOPE * gate * (1.0 + _GELU_CUBIC * gate * gate) if IS_GELU else gate
    out = gate * tl.sigmoid(z) * up
    tl.store(
        out_ptr + row * out_row_stride + offs, out.to(out_ptr.dtype.element_ty), mask=mask
    )  # [BLOCK]


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
    gate = tl.load(gate_ptr + row * gate_row_stride + offs, mask=mask, other=0.0).to(
        tl.float32
    )  # [BLOCK]
    up = tl.load(up_ptr + row * up_row_stride + offs, mask=mask, other=0.0).to(
        tl.float32
    )  # [BLOCK]
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
    tl.store(
        grad_gate_ptr + grad_offs, grad_gate.to(grad_gate_ptr.dtype.element_ty), mask=mask
    )  # [BLOCK]
    tl.store(
        grad_up_ptr + grad_offs, grad_up.to(grad_up_ptr.dtype.element_ty), mask=mask
    )  # [BLOCK]


def gated_activation_config(n_cols: int) -> dict[str, int]:
    """Eight elements per thread of an NVIDIA GPU: one 16-byte load in half precision."""
    block = min(triton.next_power_of_2(n_cols), 1024)
    return {"BLOCK": block, "num_warps": max(block // 256, 1)}


def _empty_out(gate: Tensor, up: Tensor) -> Tensor:
    return gate.new_empty(gate.shape)


def _empty_gradients(gate: Tensor, up: Tensor, grad_out: Tensor) -> tuple[Tensor, Tensor]:
    return gate.new_empty(gate.shape), up.new_empty(up.shape)


def _define_gated_activation(name: str, *, is_gelu: bool) -> Callable[[Tensor, Tensor], Tensor]:
    """Register `roofwatch::<name>` with its gradient and return a launcher that checks gate
    and up.
    """

    @backward_operator(name, _empty_gradients)
    def backward(gate, up, grad_out, grad_gate, grad_up):
        n_rows, n_cols = gate.shape
        grad_out = grad_out.contiguous()  # autograd may pass an expanded scalar
        config = gated_activation_config(n_cols)
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

    @operator(name, _empty_out, backward=backward)
    def forward(gate, up, out):
        n_rows, n_cols = gate.shape
        config = gated_activation_config(n_cols)
        _gated_kernel[(n_rows * triton.cdiv(n_cols, config["BLOCK"]),)](
            gate,
            up,
            out,
            gate.stride(0),
            up.stride(0),
            out.stride(0),
            n_cols,
            IS_GELU=is_gelu,
            **config,
        )

    def launch(gate: Tensor, up: Tensor) -> Tensor:
        require_operands(name, dims=2, gate=gate, up=up)
        require_equal(name, "the shapes", gate=tuple(gate.shape), up=tuple(up.shape))
        require_equal(name, "the dtypes", gate=gate.dtype, up=up.dtype)
        return forward(gate, up)

    return launch


def _inputs(case: Case, make: InputMaker) -> dict[str, Any]:
    """The two projections of `n_rows` tokens, as a normalised residual stream gives them."""
    shape = case["n_rows"], case["n_cols"]
    return {"gate": make.gates(*shape), "up": make.normal(*shape)}


def gated_activation_memory_bytes(case: Case) -> float:
    """Forward reads gate and up and writes out; backward reads both and out's gradient and writes
    two gradients.
    """
    return (5 if case.is_backward else 3) * case["n_rows"] * case["n_cols"] * case.itemsize


def _gated_spec(
    name: str, *, n_small_cols: int, workloads: Iterable[Workload], **declared: Any
) -> KernelSpec:
    both = ["fwd", "bwd"]
    small = small_cases(
        {"n_rows": 256, "n_cols": n_small_cols}, dtypes=["bfloat16"], directions=both
    )
    return KernelSpec(
        name=name,
        family="MLP",
        inputs=_inputs,
        cases=[*small, *model_cases(workloads, directions=both)],
        edges=[
            *cases(
                shapes=[{"n_rows": 63, "n_cols": 1000}, {"n_rows": 0, "n_cols": 63}],
                directions=both,
            ),
            *cases(
                shapes=[{"n_rows": 1, "n_cols": 63}],
                dtypes=["float16", "bfloat16"],
                directions=["bwd"],
            ),
        ],
        memory_bytes=gated_activation_memory_bytes,
        token_count=lambda case: case["n_rows"],
        source="Shazeer, GLU Variants Improve Transformer, 2020 (arXiv 2002.05202)",
        interpreted_shape={"n_rows": 3, "n_cols": 2100},
        **declared,
    )


def swiglu_reference(gate: Tensor, up: Tensor) -> Tensor:
    """Compute `gate / (1 + exp(-gate)) * up`."""
    return gate / (1 + (-gate).exp()) * up


def swiglu_flop_count(case: Case) -> float:
    """Per element, forward: negate, exp, add, divide for gate * sigmoid, times up. Backward: the
    sigmoid (4), up's gradient (2), gate's (6).
    """
    return (12 if case.is_backward else 5) * case["n_rows"] * case["n_cols"]


_swiglu = _define_gated_activation("swiglu", is_gelu=False)
swiglu_spec = _gated_spec(
    "swiglu",
    reference=swiglu_reference,
    n_small_cols=11_008,
    workloads=ffn_rows(),
    flop_count=swiglu_flop_count,
    formula="out = gate / (1 + exp(-gate)) * up",
)


@swiglu_spec.implementation("triton", deterministic=True)
def swiglu(gate: Tensor, up: Tensor) -> Tensor:
    """`gate / (1 + exp(-gate)) * up`, computed in float32.

    Args:
        gate: [n_rows, n_cols], contiguous along its last dim; may be half of a wider matrix.
        up: [n_rows, n_cols] of gate's dtype.

    Returns:
        [n_rows, n_cols] in gate's dtype.
    """
    return _swiglu(gate, up)


@swiglu_spec.implementation("torch", compile=True)
def _swiglu_torch(gate: Tensor, up: Tensor) -> Tensor:
    return torch.nn.functional.silu(gate) * up


def geglu_reference(gate: Tensor, up: Tensor) -> Tensor:
    """Compute `gate * (1 + tanh(sqrt(2 / pi) * (gate + 0.044715 gate³))) / 2 * up`."""
    return gate * (1 + (math.sqrt(2 / math.pi) * (gate + 0.044715 * gate.pow(3))).tanh()) / 2 * up


def geglu_flop_count(case: Case) -> float:
    """Per element, forward: the sigmoid's argument (5), negate, exp, add, divide for gate *
    sigmoid, times up. Backward: the argument (5) and its slope (3), the sigmoid (4), up's gradient
    (2), gate's (7).
    """
    return (21 if case.is_backward else 10) * case["n_rows"] * case["n_cols"]


_geglu = _define_gated_activation("geglu", is_gelu=True)
geglu_spec = _gated_spec(
    "geglu",
    reference=geglu_reference,
    n_small_cols=9216,
    workloads=ffn_rows([GEMMA_2_9B]),
    flop_count=geglu_flop_count,
    formula="out = gate * (1 + tanh(sqrt(2 / pi) * (gate + 0.044715 gate³))) / 2 * up",
)


@geglu_spec.implementation("triton", deterministic=True)
def geglu(gate: Tensor, up: Tensor) -> Tensor:
    """`gelu(gate) * up` with the tanh form of GELU, computed in float32.

    Args:
        gate: [n_rows, n_cols], contiguous along its last dim; may be half of a wider matrix.
        up: [n_rows, n_cols] of gate's dtype.

    Returns:
        [n_rows, n_cols] in gate's dtype.
    """
    return _geglu(gate, up)


@geglu_spec.implementation("torch", compile=True)
def _geglu_torch(gate: Tensor, up: Tensor) -> Tensor:
    return torch.nn.functional.gelu(gate, approximate="tanh") * up


# forward only: their backward passes store the gradients in the inputs
@liger(swiglu_spec, directions=["fwd"])
def _swiglu_liger(ops: Any, gate: Tensor, up: Tensor) -> Any:
    return ops.LigerSiLUMulFunction.apply(gate, up)


@liger(geglu_spec, directions=["fwd"])
def _geglu_liger(ops: Any, gate: Tensor, up: Tensor) -> Any:
    return ops.LigerGELUMulFunction.apply(gate, up)


@fla(swiglu_spec, "modules.activations")
def _swiglu_fla(activations: Any, gate: Tensor, up: Tensor) -> Any:
    return activations.swiglu(gate, up)


@flag_gems(swiglu_spec)
def _swiglu_flag_gems(gems: Any, gate: Tensor, up: Tensor) -> Any:
    return gems.silu_and_mul(gate, up)

"""SwiGLU, the gated activation of Llama and most later models, forward and backward.

The kernels are in gated_activation.py.

Source: Shazeer, GLU Variants Improve Transformer, 2020 (arXiv 2002.05202).
"""

import torch

from roofwatch import Case, KernelSpec
from roofwatch.kernels.mlp.gated_activation import (
    define_gated_activation,
    gate_and_up,
    gated_activation_cases,
    gated_activation_edges,
    gated_activation_memory_bytes,
)
from roofwatch.kernels.shapes import ffn_rows

_swiglu = define_gated_activation("swiglu", is_gelu=False)


def swiglu_reference(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    """Compute `gate / (1 + exp(-gate)) * up`."""
    return gate / (1 + (-gate).exp()) * up


def swiglu_flop_count(case: Case) -> float:
    """Per element, forward: negate, exp, add, divide for gate * sigmoid, times up. Backward: the sigmoid (4), up's
    gradient (2), gate's (6).
    """
    return (12 if case.is_backward else 5) * case["n_rows"] * case["n_cols"]


swiglu_spec = KernelSpec(
    name="swiglu",
    family="MLP",
    inputs=gate_and_up,
    reference=swiglu_reference,
    cases=gated_activation_cases(11_008, ffn_rows()),
    edges=gated_activation_edges(),
    flop_count=swiglu_flop_count,
    memory_bytes=gated_activation_memory_bytes,
    formula="out = gate / (1 + exp(-gate)) * up",
    source="Shazeer, GLU Variants Improve Transformer, 2020 (arXiv 2002.05202)",
    interpreted_shape={"n_rows": 3, "n_cols": 2100},
)


@swiglu_spec.implementation("triton", deterministic=True)
def swiglu(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    """`gate / (1 + exp(-gate)) * up`, computed in float32.

    Args:
        gate: [n_rows, n_cols], contiguous along its last dim; may be half of a wider matrix.
        up: [n_rows, n_cols] of gate's dtype.

    Returns:
        [n_rows, n_cols] in gate's dtype.
    """
    return _swiglu(gate, up)


@swiglu_spec.implementation("torch", compile=True)
def _swiglu_torch(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.silu(gate) * up

"""GeGLU with the tanh form of GELU, the gated activation of Gemma's feed-forward blocks, forward and backward.

The kernels are in gated_activation.py. The tanh form costs one exponential and differs from GELU by at most 5e-4, below
the resolution of bfloat16 near 1.

Sources: Shazeer, GLU Variants Improve Transformer, 2020 (arXiv 2002.05202); Hendrycks and Gimpel, Gaussian Error Linear
Units, 2016 (arXiv 1606.08415).
"""

import math

import torch

from roofwatch import Case, KernelSpec
from roofwatch.kernels.mlp.gated_activation import (
    define_gated_activation,
    gate_and_up,
    gated_activation_cases,
    gated_activation_edges,
    gated_activation_memory_bytes,
)
from roofwatch.kernels.models import GEMMA_2_9B
from roofwatch.kernels.shapes import ffn_rows

_geglu = define_gated_activation("geglu", is_gelu=True)


def geglu_reference(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    """Compute `gate * (1 + tanh(sqrt(2 / pi) * (gate + 0.044715 gate³))) / 2 * up`."""
    return gate * (1 + (math.sqrt(2 / math.pi) * (gate + 0.044715 * gate.pow(3))).tanh()) / 2 * up


def geglu_flop_count(case: Case) -> float:
    """Per element, forward: the sigmoid's argument (5), negate, exp, add, divide for gate * sigmoid, times up.
    Backward: the argument (5) and its slope (3), the sigmoid (4), up's gradient (2), gate's (7).
    """
    return (21 if case.is_backward else 10) * case["n_rows"] * case["n_cols"]


geglu_spec = KernelSpec(
    name="geglu",
    family="MLP",
    inputs=gate_and_up,
    reference=geglu_reference,
    cases=gated_activation_cases(9216, ffn_rows([GEMMA_2_9B])),
    edges=gated_activation_edges(),
    flop_count=geglu_flop_count,
    memory_bytes=gated_activation_memory_bytes,
    formula="out = gate * (1 + tanh(sqrt(2 / pi) * (gate + 0.044715 gate³))) / 2 * up",
    source="Shazeer, GLU Variants Improve Transformer, 2020 (arXiv 2002.05202)",
    interpreted_shape={"n_rows": 3, "n_cols": 2100},
)


@geglu_spec.implementation("triton", deterministic=True)
def geglu(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    """`gelu(gate) * up` with the tanh form of GELU, computed in float32.

    Args:
        gate: [n_rows, n_cols], contiguous along its last dim; may be half of a wider matrix.
        up: [n_rows, n_cols] of gate's dtype.

    Returns:
        [n_rows, n_cols] in gate's dtype.
    """
    return _geglu(gate, up)


@geglu_spec.implementation("torch", compile=True)
def _geglu_torch(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.gelu(gate, approximate="tanh") * up

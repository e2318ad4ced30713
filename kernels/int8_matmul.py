"""Matrix product of int8 activations and int8 weights (W8A8), forward.

The products are added up in int32, so the sum is exact; the scales of the rows make it bfloat16 at the end. The kernel
is that of kernels/scaled_matmul.py.

Source: Dettmers et al., LLM.int8(): 8-bit Matrix Multiplication for Transformers at Scale, 2022 (arXiv 2208.07339),
section 2.1 (vector-wise quantisation).
"""

from typing import Any

import torch

from kernels.scaled_matmul import (
    dequantised_product,
    require_scaled_operands,
    scaled_matmul,
    scaled_matmul_flop_count,
    scaled_matmul_memory_bytes,
    scaled_operands,
)
from kernels.shapes import model_cases, projections
from roofwatch import Case, InputMaker, KernelSpec, UnsupportedError, cases

MAX_K = 131_072
"""The longest sum of products of two int8 numbers that always fits into int32."""


@torch.library.custom_op("roofwatch::int8_matmul", mutates_args=())
def _int8_matmul_op(
    x: torch.Tensor, x_scale: torch.Tensor, weight: torch.Tensor, weight_scale: torch.Tensor
) -> torch.Tensor:
    return scaled_matmul(x, x_scale, weight, weight_scale)


@_int8_matmul_op.register_fake
def _int8_matmul_fake(
    x: torch.Tensor,
    x_scale: torch.Tensor,  # noqa: ARG001  the op's signature
    weight: torch.Tensor,
    weight_scale: torch.Tensor,  # noqa: ARG001
) -> torch.Tensor:
    return x.new_empty(x.shape[0], weight.shape[0], dtype=torch.bfloat16)


def int8_matmul_reference(
    x: torch.Tensor, x_scale: torch.Tensor, weight: torch.Tensor, weight_scale: torch.Tensor
) -> torch.Tensor:
    """The formula, `out[m, n] = x_scale[m] weight_scale[n] * sum over k of x[m, k] weight[n, k]`."""
    return torch.einsum("mk,nk->mn", x.double(), weight.double()) * x_scale * weight_scale.t()


def _inputs(case: Case, make: InputMaker) -> dict[str, Any]:
    return scaled_operands(case, make, spread=20.0)


int8_matmul_spec = KernelSpec(
    name="int8_matmul",
    family="low precision",
    inputs=_inputs,
    reference=int8_matmul_reference,
    cases=[
        *cases(shapes=[{"M": 512, "N": 1024, "K": 1024}], dtypes=["int8"], tags=["small"]),
        *model_cases(projections(), dtypes=["int8"]),
    ],
    edges=cases(
        shapes=[
            {"M": 65, "N": 100, "K": 1000},
            {"M": 1, "N": 63, "K": 63},
            {"M": 20, "N": 40, "K": 512},
            {"M": 0, "N": 63, "K": 64},
        ],
        dtypes=["int8"],
    ),
    flop_count=scaled_matmul_flop_count,
    memory_bytes=scaled_matmul_memory_bytes,
    formula="out = (x @ weight.T) * x_scale * weight_scale.T",
    source="Dettmers et al., LLM.int8(), 2022 (arXiv 2208.07339), section 2.1",
    interpreted_shape={"M": 70, "N": 72, "K": 144},
)


@int8_matmul_spec.implementation("triton", directions=["fwd"], deterministic=True)
def int8_matmul(
    x: torch.Tensor, x_scale: torch.Tensor, weight: torch.Tensor, weight_scale: torch.Tensor
) -> torch.Tensor:
    """`(x @ weight.T) * x_scale * weight_scale.T`, added up in int32.

    Args:
        x: [M, K] int8, contiguous along its last dim, K at most `MAX_K`.
        x_scale: [M, 1] float32, as `quantise_int8` gives it.
        weight: [N, K] int8, contiguous along its last dim; a row is one output channel.
        weight_scale: [N, 1] float32.

    Returns:
        [M, N] bfloat16.

    Raises:
        KernelError: an operand has another layout, shape or dtype, or requires a gradient.
    """
    require_scaled_operands("int8_matmul", torch.int8, x, x_scale, weight, weight_scale, max_k=MAX_K)
    out: torch.Tensor = _int8_matmul_op(x, x_scale, weight, weight_scale)
    return out


@int8_matmul_spec.implementation("torch", directions=["fwd"], compile=True)
def _int8_matmul_torch(
    x: torch.Tensor, x_scale: torch.Tensor, weight: torch.Tensor, weight_scale: torch.Tensor
) -> torch.Tensor:
    return dequantised_product(x, x_scale, weight, weight_scale)


@int8_matmul_spec.implementation("torch", name="int_mm", directions=["fwd"])
def _int8_matmul_int_mm(
    x: torch.Tensor, x_scale: torch.Tensor, weight: torch.Tensor, weight_scale: torch.Tensor
) -> torch.Tensor:
    M, K = x.shape
    if x.is_cuda and (M <= 16 or K % 8 or weight.shape[0] % 8):
        raise UnsupportedError("needs more than 16 rows, and columns and output channels in eights, for torch._int_mm")
    return (torch._int_mm(x, weight.t()) * x_scale * weight_scale.t()).bfloat16()

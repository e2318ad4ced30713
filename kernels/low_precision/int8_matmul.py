"""Matrix product of int8 activations and int8 weights (W8A8), forward.

The products are added up in int32, so the sum is exact; the scales of the rows make it bfloat16 at the end. The kernel
is that of scaled_matmul.py.

Source: Dettmers et al., LLM.int8(): 8-bit Matrix Multiplication for Transformers at Scale, 2022 (arXiv 2208.07339),
section 2.1 (vector-wise quantisation).
"""

from functools import partial

import torch

from roofwatch import KernelSpec, UnsupportedError
from roofwatch.kernels.low_precision.scaled_matmul import (
    dequantised_product,
    empty_scaled_product,
    require_scaled_operands,
    scaled_cases,
    scaled_edges,
    scaled_matmul,
    scaled_matmul_flop_count,
    scaled_matmul_memory_bytes,
    scaled_matmul_reference,
    scaled_operands,
)

MAX_K = 131_072
"""The longest sum of products of two int8 numbers that always fits into int32."""

_int8_matmul_op = torch.library.custom_op("roofwatch::int8_matmul", scaled_matmul, mutates_args=())
_int8_matmul_op.register_fake(empty_scaled_product)

int8_matmul_spec = KernelSpec(
    name="int8_matmul",
    family="low precision",
    inputs=partial(scaled_operands, spread=20.0),
    reference=scaled_matmul_reference,
    cases=scaled_cases("int8"),
    edges=scaled_edges("int8"),
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

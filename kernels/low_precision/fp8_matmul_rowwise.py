"""Matrix product of e4m3 activations and e4m3 weights with a scale per row of each, forward.

The kernel is that of scaled_matmul.py. On sm_80, whose tensor cores have no 8-bit floats, the numbers are read
as bytes and made float16 in registers, which holds them exactly; kernels/building_blocks/fp8.py has CDNA 3's way.

Source: Micikevicius et al., FP8 Formats for Deep Learning, 2022 (arXiv 2209.05433), section 3.
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

_fp8_matmul_rowwise_op = torch.library.custom_op("roofwatch::fp8_matmul_rowwise", scaled_matmul, mutates_args=())
_fp8_matmul_rowwise_op.register_fake(empty_scaled_product)

fp8_matmul_rowwise_spec = KernelSpec(
    name="fp8_matmul_rowwise",
    family="low precision",
    inputs=partial(scaled_operands, spread=64.0),
    reference=scaled_matmul_reference,
    cases=scaled_cases("float8_e4m3fn"),
    edges=scaled_edges("float8_e4m3fn"),
    flop_count=scaled_matmul_flop_count,
    memory_bytes=scaled_matmul_memory_bytes,
    formula="out = (x @ weight.T) * x_scale * weight_scale.T",
    source="Micikevicius et al., FP8 Formats for Deep Learning, 2022 (arXiv 2209.05433), section 3",
    interpreted_shape={"M": 70, "N": 72, "K": 144},
)


@fp8_matmul_rowwise_spec.implementation("triton", directions=["fwd"], deterministic=True)
def fp8_matmul_rowwise(
    x: torch.Tensor, x_scale: torch.Tensor, weight: torch.Tensor, weight_scale: torch.Tensor
) -> torch.Tensor:
    """`(x @ weight.T) * x_scale * weight_scale.T`, added up in float32.

    Args:
        x: [M, K] float8_e4m3fn, finite, contiguous along its last dim.
        x_scale: [M, 1] float32, as `quantise_fp8` gives it.
        weight: [N, K] float8_e4m3fn, finite, contiguous along its last dim; a row is one output channel.
        weight_scale: [N, 1] float32.

    Returns:
        [M, N] bfloat16.

    Raises:
        KernelError: an operand has another layout, shape or dtype, or requires a gradient.
    """
    require_scaled_operands("fp8_matmul_rowwise", torch.float8_e4m3fn, x, x_scale, weight, weight_scale)
    out: torch.Tensor = _fp8_matmul_rowwise_op(x, x_scale, weight, weight_scale)
    return out


@fp8_matmul_rowwise_spec.implementation("torch", directions=["fwd"], compile=True)
def _fp8_matmul_rowwise_torch(
    x: torch.Tensor, x_scale: torch.Tensor, weight: torch.Tensor, weight_scale: torch.Tensor
) -> torch.Tensor:
    return dequantised_product(x, x_scale, weight, weight_scale)


@fp8_matmul_rowwise_spec.implementation("torch", name="scaled_mm", directions=["fwd"])
def _fp8_matmul_rowwise_scaled_mm(
    x: torch.Tensor, x_scale: torch.Tensor, weight: torch.Tensor, weight_scale: torch.Tensor
) -> torch.Tensor:
    if not x.is_cuda or torch.cuda.get_device_capability(x.device) < (8, 9):
        raise UnsupportedError("needs a GPU of compute capability 8.9 or newer, for torch._scaled_mm")
    if x.shape[1] % 16 or weight.shape[0] % 16:
        raise UnsupportedError("needs columns and output channels in sixteens, for torch._scaled_mm")
    return torch._scaled_mm(x, weight.t(), x_scale, weight_scale.t(), out_dtype=torch.bfloat16)

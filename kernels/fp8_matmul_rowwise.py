"""Matrix product of e4m3 activations and e4m3 weights with a scale per row of each, forward.

The kernel is that of kernels/scaled_matmul.py. On sm_80, whose tensor cores have no 8-bit floats, the numbers are read
as bytes and made float16 in registers, which holds them exactly; kernels/fp8.py has CDNA 3's way.

Source: Micikevicius et al., FP8 Formats for Deep Learning, 2022 (arXiv 2209.05433), section 3.
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


@torch.library.custom_op("roofwatch::fp8_matmul_rowwise", mutates_args=())
def _fp8_matmul_rowwise_op(
    x: torch.Tensor, x_scale: torch.Tensor, weight: torch.Tensor, weight_scale: torch.Tensor
) -> torch.Tensor:
    return scaled_matmul(x, x_scale, weight, weight_scale)


@_fp8_matmul_rowwise_op.register_fake
def _fp8_matmul_rowwise_fake(
    x: torch.Tensor,
    x_scale: torch.Tensor,  # noqa: ARG001  the op's signature
    weight: torch.Tensor,
    weight_scale: torch.Tensor,  # noqa: ARG001
) -> torch.Tensor:
    return x.new_empty(x.shape[0], weight.shape[0], dtype=torch.bfloat16)


def fp8_matmul_rowwise_reference(
    x: torch.Tensor, x_scale: torch.Tensor, weight: torch.Tensor, weight_scale: torch.Tensor
) -> torch.Tensor:
    """The formula, `out[m, n] = x_scale[m] weight_scale[n] * sum over k of x[m, k] weight[n, k]`."""
    return torch.einsum("mk,nk->mn", x, weight) * x_scale * weight_scale.t()


def _inputs(case: Case, make: InputMaker) -> dict[str, Any]:
    return scaled_operands(case, make, spread=64.0)


fp8_matmul_rowwise_spec = KernelSpec(
    name="fp8_matmul_rowwise",
    family="low precision",
    inputs=_inputs,
    reference=fp8_matmul_rowwise_reference,
    cases=[
        *cases(shapes=[{"M": 512, "N": 1024, "K": 1024}], dtypes=["float8_e4m3fn"], tags=["small"]),
        *model_cases(projections(), dtypes=["float8_e4m3fn"]),
    ],
    edges=cases(
        shapes=[
            {"M": 65, "N": 100, "K": 1000},
            {"M": 1, "N": 63, "K": 63},
            {"M": 20, "N": 40, "K": 512},
            {"M": 0, "N": 63, "K": 64},
        ],
        dtypes=["float8_e4m3fn"],
    ),
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

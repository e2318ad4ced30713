"""Dynamic quantisation of activations to the 8-bit float e4m3, with a scale per token.

The kernels are those of row_quantisation.py. A row's largest magnitude is put on 448, the largest number of
e4m3, and nothing beyond is ever made of it: what rounding lifts above 448 is clamped.

Source: Micikevicius et al., FP8 Formats for Deep Learning, 2022 (arXiv 2209.05433), section 3.
"""

import torch

from roofwatch import KernelSpec
from roofwatch.kernels.building_blocks.fp8 import E4M3_MAX
from roofwatch.kernels.low_precision.row_quantisation import (
    SMALLEST_ABSMAX,
    empty_result,
    quantise_rows,
    require_rows,
    row_quantisation_cases,
    row_quantisation_edges,
    row_quantisation_flop_count,
    row_quantisation_memory_bytes,
    rows_to_quantise,
    scale_of_rows,
)


@torch.library.custom_op("roofwatch::quantise_fp8", mutates_args=())
def _quantise_fp8_op(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return quantise_rows(x, torch.float8_e4m3fn, E4M3_MAX)


@_quantise_fp8_op.register_fake
def _quantise_fp8_fake(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return empty_result(x, torch.float8_e4m3fn)


def quantise_fp8_reference(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The formula, `scale = max |x| / 448` and `out` the number of e4m3 nearest to `x / scale`."""
    scale = x.abs().amax(dim=-1, keepdim=True).clamp(min=SMALLEST_ABSMAX) / E4M3_MAX
    # three bits after the leading one are kept; below 2^-6 the numbers lie 2^-9 apart
    scaled = x / scale
    _, exponent = torch.frexp(scaled)
    spacing = torch.exp2((exponent - 4).clamp(min=-9).to(x.dtype))
    return torch.round(scaled / spacing) * spacing, scale


quantise_fp8_spec = KernelSpec(
    name="quantise_fp8",
    family="low precision",
    inputs=rows_to_quantise,
    reference=quantise_fp8_reference,
    cases=row_quantisation_cases(),
    edges=row_quantisation_edges(),
    flop_count=row_quantisation_flop_count,
    memory_bytes=row_quantisation_memory_bytes,
    formula="out = e4m3(x / scale), scale = max |x| / 448 of each row",
    source="Micikevicius et al., FP8 Formats for Deep Learning, 2022 (arXiv 2209.05433), section 3",
    interpreted_shape={"n_rows": 3, "n_cols": 2100},
)


@quantise_fp8_spec.implementation("triton", directions=["fwd"], deterministic=True)
def quantise_fp8(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The numbers of e4m3 nearest to `x / scale` with `scale = max |x| / 448` along each row, computed in float32.

    Args:
        x: [n_rows, n_cols], finite, contiguous along its last dim.

    Returns:
        [n_rows, n_cols] float8_e4m3fn and the scales, [n_rows, 1] float32: their product is nearly x. A row of zeros
        has a tiny scale.

    Raises:
        KernelError: x has another layout or dtype, no columns, or requires a gradient.
    """
    require_rows("quantise_fp8", x)
    out, scale = _quantise_fp8_op(x)
    return out, scale


@quantise_fp8_spec.implementation("torch", directions=["fwd"], compile=True)
def _quantise_fp8_torch(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    scale = scale_of_rows(x, E4M3_MAX)
    return (x / scale).clamp(-E4M3_MAX, E4M3_MAX).to(torch.float8_e4m3fn), scale

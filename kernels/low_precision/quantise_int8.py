"""Dynamic quantisation of activations to int8, with a scale per token.

The kernels are those of row_quantisation.py. -128 is left out, so that the levels are symmetric.

Source: Dettmers et al., LLM.int8(): 8-bit Matrix Multiplication for Transformers at Scale, 2022 (arXiv 2208.07339),
section 2.1 (absmax quantisation by rows).
"""

import torch

from roofwatch import KernelSpec
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

HIGHEST_LEVEL = 127


@torch.library.custom_op("roofwatch::quantise_int8", mutates_args=())
def _quantise_int8_op(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return quantise_rows(x, torch.int8, HIGHEST_LEVEL)


@_quantise_int8_op.register_fake
def _quantise_int8_fake(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return empty_result(x, torch.int8)


def quantise_int8_reference(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The formula, `scale = max |x| / 127` and `out = x / scale`, of two equally near levels the even one."""
    scale = x.abs().amax(dim=-1, keepdim=True).clamp(min=SMALLEST_ABSMAX) / HIGHEST_LEVEL
    return torch.round(x / scale).to(torch.int8), scale


quantise_int8_spec = KernelSpec(
    name="quantise_int8",
    family="low precision",
    inputs=rows_to_quantise,
    reference=quantise_int8_reference,
    cases=row_quantisation_cases(),
    edges=row_quantisation_edges(),
    flop_count=row_quantisation_flop_count,
    memory_bytes=row_quantisation_memory_bytes,
    formula="out = round(x / scale), scale = max |x| / 127 of each row",
    source="Dettmers et al., LLM.int8(), 2022 (arXiv 2208.07339), section 2.1",
    interpreted_shape={"n_rows": 3, "n_cols": 2100},
)


@quantise_int8_spec.implementation("triton", directions=["fwd"], deterministic=True)
def quantise_int8(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """`round(x / scale)` with `scale = max |x| / 127` along each row, computed in float32.

    Args:
        x: [n_rows, n_cols], finite, contiguous along its last dim.

    Returns:
        [n_rows, n_cols] int8 and the scales, [n_rows, 1] float32: their product is nearly x. A row of zeros has a tiny
        scale.

    Raises:
        KernelError: x has another layout or dtype, no columns, or requires a gradient.
    """
    require_rows("quantise_int8", x)
    out, scale = _quantise_int8_op(x)
    return out, scale


@quantise_int8_spec.implementation("torch", directions=["fwd"], compile=True)
def _quantise_int8_torch(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    scale = scale_of_rows(x, HIGHEST_LEVEL)
    return (x / scale).round().to(torch.int8), scale

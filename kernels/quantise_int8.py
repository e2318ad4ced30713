"""Dynamic quantisation of activations to int8, with a scale per token.

The kernels are those of kernels/row_quantisation.py. -128 is left out, so that the levels are symmetric.

Source: Dettmers et al., LLM.int8(): 8-bit Matrix Multiplication for Transformers at Scale, 2022 (arXiv 2208.07339),
section 2.1 (absmax quantisation by rows).
"""

from typing import Any

import torch

from kernels.row_quantisation import (
    MAX_COLS_IN_REGISTERS,
    SMALLEST_ABSMAX,
    empty_result,
    quantise_rows,
    require_rows,
    row_quantisation_flop_count,
    row_quantisation_memory_bytes,
)
from kernels.shapes import model_cases, token_rows
from roofwatch import Case, InputMaker, KernelSpec, cases

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


def _inputs(case: Case, make: InputMaker) -> dict[str, Any]:
    return {"x": make.normal(case["n_rows"], case["n_cols"])}


quantise_int8_spec = KernelSpec(
    name="quantise_int8",
    family="low precision",
    inputs=_inputs,
    reference=quantise_int8_reference,
    cases=[
        *cases(shapes=[{"n_rows": 512, "n_cols": 4096}], dtypes=["float32", "bfloat16"], tags=["small"]),
        *model_cases(token_rows()),
    ],
    edges=[
        *cases(shapes=[{"n_rows": 1, "n_cols": 63}, {"n_rows": 0, "n_cols": 63}], dtypes=["bfloat16"]),
        *cases(shapes=[{"n_rows": 3, "n_cols": 1000}, {"n_rows": 2, "n_cols": 1}], dtypes=["float16"]),
        # the shortest row that is read twice
        *cases(shapes=[{"n_rows": 2, "n_cols": MAX_COLS_IN_REGISTERS + 1}], dtypes=["bfloat16"]),
    ],
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
    absmax = torch.linalg.vector_norm(x, ord=torch.inf, dim=-1, keepdim=True).float()
    scale = absmax.clamp(min=SMALLEST_ABSMAX) / HIGHEST_LEVEL
    return (x / scale).round().to(torch.int8), scale

"""Weights rounded to nine levels, -4 to 4 times a scale, forward and backward, for training: two ternary digits hold
one.

The kernels and the formula are those of kernels/fake_quant.py.

Source: Esser et al., Learned Step Size Quantization, 2019 (arXiv 1902.08153), section 2.1, whose starting step,
2 mean |x| / sqrt(4), is the scale.
"""

from functools import partial

import torch

from kernels.fake_quant import (
    MAX_COLS_IN_REGISTERS,
    SMALLEST_SCALE,
    define_fake_quant,
    fake_quant_flop_count,
    fake_quant_memory_bytes,
    fake_quant_torch,
    off_thresholds,
)
from kernels.shapes import model_cases, projection_weights
from roofwatch import KernelSpec, cases

_HIGHEST = 4
_nonary_fake_quant = define_fake_quant("nonary_fake_quant", _HIGHEST)


def nonary_fake_quant_reference(x: torch.Tensor) -> torch.Tensor:
    """The formula, `clamp(round(x / mean |x|), -4, 4) * mean |x|`, with the gradient of x wherever the level is not
    clamped.
    """
    scale = x.detach().abs().mean(dim=-1, keepdim=True).clamp(min=SMALLEST_SCALE)
    rounded = torch.round(x / scale).detach()
    out = rounded.clamp(-4, 4) * scale
    is_clamped = rounded.abs() > 4
    return out + torch.where(is_clamped, 0.0, x - x.detach())


nonary_fake_quant_spec = KernelSpec(
    name="nonary_fake_quant",
    family="quantisation-aware training",
    inputs=partial(off_thresholds, highest=_HIGHEST),
    reference=nonary_fake_quant_reference,
    cases=[
        *cases(
            shapes=[{"n_rows": 1024, "n_cols": 4096}],
            dtypes=["float32", "bfloat16"],
            directions=["fwd", "bwd"],
            tags=["small"],
        ),
        *model_cases(projection_weights(), directions=["fwd", "bwd"]),
    ],
    edges=[
        *cases(shapes=[{"n_rows": 1, "n_cols": 63}, {"n_rows": 0, "n_cols": 63}], directions=["bwd"]),
        *cases(shapes=[{"n_rows": 3, "n_cols": 1000}], dtypes=["float16"], directions=["bwd"]),
        # the shortest row that is read twice
        *cases(shapes=[{"n_rows": 2, "n_cols": MAX_COLS_IN_REGISTERS + 1}], dtypes=["bfloat16"], directions=["bwd"]),
    ],
    flop_count=fake_quant_flop_count,
    memory_bytes=fake_quant_memory_bytes,
    formula="out = clamp(round(x / scale), -4, 4) * scale, scale = mean |x| of each row",
    source="Esser et al., Learned Step Size Quantization, 2019 (arXiv 1902.08153), section 2.1",
    interpreted_shape={"n_rows": 3, "n_cols": 2100},
)


@nonary_fake_quant_spec.implementation("triton", deterministic=True)
def nonary_fake_quant(x: torch.Tensor) -> torch.Tensor:
    """`clamp(round(x / scale), -4, 4) * scale` with `scale = mean |x|` along each row, computed in float32.

    The gradient passes unchanged where `|x| / scale` rounds to 4 or less and is zero elsewhere.

    Args:
        x: [n_rows, n_cols], finite, contiguous along its last dim; a row is one output channel of a layer.

    Returns:
        [n_rows, n_cols] in x's dtype.

    Raises:
        KernelError: x has another layout or dtype, or no columns.
    """
    return _nonary_fake_quant(x)


@nonary_fake_quant_spec.implementation("torch", compile=True)
def _nonary_fake_quant_torch(x: torch.Tensor) -> torch.Tensor:
    return fake_quant_torch(x, _HIGHEST)

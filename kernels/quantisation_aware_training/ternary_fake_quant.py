"""Weights rounded to three levels, -1, 0 and 1 times a scale, forward and backward, for training with the ternary
weights that ternary_matmul runs on.

The kernels and the formula are those of fake_quant.py.

Source: Ma et al., The Era of 1-bit LLMs: All Large Language Models are in 1.58 Bits, 2024 (arXiv 2402.17764).
"""

import torch

from roofwatch.kernels.quantisation_aware_training.fake_quant import (
    define_fake_quant,
    fake_quant_spec,
    fake_quant_torch,
)

_HIGHEST = 1
_ternary_fake_quant = define_fake_quant("ternary_fake_quant", _HIGHEST)

ternary_fake_quant_spec = fake_quant_spec(
    "ternary_fake_quant", _HIGHEST, source="Ma et al., The Era of 1-bit LLMs, 2024 (arXiv 2402.17764), equations 1 to 3"
)


@ternary_fake_quant_spec.implementation("triton", deterministic=True)
def ternary_fake_quant(x: torch.Tensor) -> torch.Tensor:
    """`clamp(round(x / scale), -1, 1) * scale` with `scale = mean |x|` along each row, computed in float32.

    The gradient passes unchanged where `|x| / scale` rounds to 0 or 1 and is zero elsewhere.

    Args:
        x: [n_rows, n_cols], finite, contiguous along its last dim; a row is one output channel of a layer.

    Returns:
        [n_rows, n_cols] in x's dtype.

    Raises:
        KernelError: x has another layout or dtype, or no columns.
    """
    return _ternary_fake_quant(x)


@ternary_fake_quant_spec.implementation("torch", compile=True)
def _ternary_fake_quant_torch(x: torch.Tensor) -> torch.Tensor:
    return fake_quant_torch(x, _HIGHEST)

"""Weights rounded to nine levels, -4 to 4 times a scale, forward and backward, for training: two ternary digits hold
one.

The kernels and the formula are those of fake_quant.py.

Source: Esser et al., Learned Step Size Quantization, 2019 (arXiv 1902.08153), section 2.1, whose starting step,
2 mean |x| / sqrt(4), is the scale.
"""

import torch

from roofwatch.kernels.quantisation_aware_training.fake_quant import (
    define_fake_quant,
    fake_quant_spec,
    fake_quant_torch,
)

_HIGHEST = 4
_nonary_fake_quant = define_fake_quant("nonary_fake_quant", _HIGHEST)

nonary_fake_quant_spec = fake_quant_spec(
    "nonary_fake_quant",
    _HIGHEST,
    source="Esser et al., Learned Step Size Quantization, 2019 (arXiv 1902.08153), section 2.1",
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

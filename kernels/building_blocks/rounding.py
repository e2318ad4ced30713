"""Rounding to whole numbers inside kernels."""

import triton
import triton.language as tl

# above 1.5 * 2^23 neighbouring float32 numbers lie 1 apart, so adding it rounds, and rounds ties to even
_ROUNDER = tl.constexpr(12_582_912.0)


@triton.jit
def round_half_even(x):
    """The nearest whole number of each float32 of magnitude below 2^22; of two equally near the even one, as
    `torch.round` does.
    """
    return (x + _ROUNDER) - _ROUNDER

"""Round to whole numbers and to the 8-bit float e4m3, also where Triton has no e4m3.

A byte of e4m3 has a sign, four bits of exponent with bias 7 and three of mantissa. There are no infinities; the largest
number is 448.

Source: Micikevicius et al., FP8 Formats for Deep Learning, 2022 (arXiv 2209.05433), table 1.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from roofwatch.kernels.target import Target, current_target

# float32 numbers near 1.5 * 2^23 have a spacing of 1, so adding it rounds to integers, ties to even
_ROUNDER = tl.constexpr(12_582_912.0)


@triton.jit
def round_half_even(x):
    """Round float32 of magnitude below 2^22 to integers, ties to even, as `torch.round`."""
    return (x + _ROUNDER) - _ROUNDER


E4M3_MAX = 448.0


def has_e4m3(target: Target) -> bool:
    """Whether Triton supports e4m3: NVIDIA since compute capability 8.9, AMD since CDNA 4.

    The interpreter rounds wrongly (7.9 becomes 4), so it counts as unsupported.
    """
    if target.backend == "cuda":
        return int(target.arch.removeprefix("sm_")) >= 89
    return target.arch == "gfx950"


def as_kernel_operand(tensor: Tensor) -> Tensor:
    """View an e4m3 tensor as uint8 on targets without e4m3, for `from_e4m3` and `to_e4m3`."""
    return tensor if has_e4m3(current_target()) else tensor.view(torch.uint8)


@triton.jit
def from_e4m3(code):
    """Convert e4m3 bytes to float16, exactly. NaN becomes ±480."""
    code = code.to(tl.int16)
    # the seven bits in float16's exponent and mantissa give the number over 2^8: the biases are 7 and 15
    shifted = ((code & 0x80) << 8) | ((code & 0x7F) << 7)
    return shifted.to(tl.float16, bitcast=True) * 256.0


@triton.jit
def halved_in_e4m3fnuz(code):
    """Convert to e4m3fnuz of CDNA 3, halved: its bias is 8, so only -0, its NaN, changes."""
    return tl.where(code == 0x80, 0, code).to(tl.uint8)


@triton.jit
def to_e4m3(x):
    """Round float32 to e4m3 bytes, ties to even, clamped to ±448."""
    magnitude = tl.minimum(tl.abs(x), 448.0)
    bits = magnitude.to(tl.int32, bitcast=True)
    # drop 20 bits of mantissa: add just under half, plus one if the last kept bit is odd
    rounded = (bits + 0x7FFFF + ((bits >> 20) & 1)) >> 20
    normal = rounded - ((127 - 7) << 3)
    subnormal = round_half_even(magnitude * 512.0).to(tl.int32)  # spacing 2^-9 below 2^-6
    code = tl.where(magnitude < 0.015625, subnormal, normal)
    sign = (x.to(tl.int32, bitcast=True) >> 24) & 0x80
    return (code | sign).to(tl.uint8)

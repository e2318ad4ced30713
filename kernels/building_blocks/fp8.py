"""The 8-bit float e4m3 where Triton cannot use it as it is.

A byte is a sign, four bits of exponent with bias 7 and three of mantissa. There are no infinities; 448 is the largest
number.

Source: Micikevicius et al., FP8 Formats for Deep Learning, 2022 (arXiv 2209.05433), table 1.
"""

import torch
import triton
import triton.language as tl

from roofwatch.kernels.building_blocks.rounding import round_half_even
from roofwatch.kernels.target import Target, current_target

E4M3_MAX = 448.0


def has_e4m3(target: Target) -> bool:
    """Whether a target has instructions for e4m3 and Triton uses them: NVIDIA's from compute capability 8.9 on, AMD's
    from CDNA 4 on. The interpreter loses a carry: it converts 7.9 to 4.
    """
    if target.backend == "cuda":
        return int(target.arch.removeprefix("sm_")) >= 89
    return target.arch == "gfx950"


def as_kernels_take_it(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor of e4m3 as it is, or its bytes where kernels have to take those apart: `from_e4m3` and `to_e4m3`."""
    return tensor if has_e4m3(current_target()) else tensor.view(torch.uint8)


@triton.jit
def from_e4m3(code):
    """The numbers that bytes stand for, as float16, which holds each of them exactly. Not-a-numbers become ±480."""
    code = code.to(tl.int16)
    # seven bits moved into float16's exponent and mantissa read as the number over 2^8: the biases are 7 and 15
    shifted = ((code & 0x80) << 8) | ((code & 0x7F) << 7)
    return shifted.to(tl.float16, bitcast=True) * 256.0


@triton.jit
def halved_in_e4m3fnuz(code):
    """The bytes of half the numbers in CDNA 3's own e4m3. Its bias is 8, so they are the same, but for that of -0,
    which is its not-a-number.
    """
    return tl.where(code == 0x80, 0, code).to(tl.uint8)


@triton.jit
def to_e4m3(x):
    """The bytes of the numbers nearest to float32s: ties to even, clamped to ±448."""
    magnitude = tl.minimum(tl.abs(x), 448.0)
    bits = magnitude.to(tl.int32, bitcast=True)
    # 20 bits of mantissa go; adding just under half of their weight, and one if the last kept is odd, rounds
    rounded = (bits + 0x7FFFF + ((bits >> 20) & 1)) >> 20
    normal = rounded - ((127 - 7) << 3)
    subnormal = round_half_even(magnitude * 512.0).to(tl.int32)  # below 2^-6 the numbers lie 2^-9 apart
    code = tl.where(magnitude < 0.015625, subnormal, normal)
    sign = (x.to(tl.int32, bitcast=True) >> 24) & 0x80
    return (code | sign).to(tl.uint8)

"""Number formats of quantised kernels: whole numbers, 8-bit floats (e4m3), packed 4-bit and ternary
weights.

A byte of e4m3 has a sign, four bits of exponent with bias 7 and three of mantissa. There are no
infinities; the largest number is 448. Some targets have no e4m3 in Triton.

4-bit: a row of a matrix [K, N] is N / 8 int32 words. Word j holds columns 8 j to 8 j + 7 in the
nibble order `NIBBLE_COLUMNS` of AWQ: shifted by 4 p and masked, a word has two adjacent columns,
one in each 16-bit half.

Ternary: a row of a matrix [N, K] is K / 4 bytes. Each block of 32 bytes holds 128 columns: bits 2 p
and 2 p + 1 of byte r hold column 32 p + r in two's complement (0, 1, or 3 for -1). A shift and a
mask unpack 32 adjacent columns.

Sources: Micikevicius et al., FP8 Formats for Deep Learning, 2022 (arXiv 2209.05433), table 1; Lin
et al., AWQ: Activation-aware Weight Quantization, 2023 (arXiv 2306.00978), and its published
weights, for the order; Kim et al., Who Says Elephants Can't Run, 2022 (arXiv 2211.10017), for the
conversion to floats.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from roofwatch.kernels.building_blocks.target import IS_INTERPRETED, DeviceTarget, current_target

# float32 numbers near 1.5 * 2^23 have a spacing of 1, so adding it rounds to integers, ties to even
_ROUNDER = tl.constexpr(12_582_912.0)


@triton.jit
def round_half_even(x):
    """Round float32 of magnitude below 2^22 to integers, ties to even, as `torch.round`."""
    return (x + _ROUNDER) - _ROUNDER


E4M3_MAX = 448.0


def has_e4m3(target: DeviceTarget) -> bool:
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
    # the seven bits in float16's exponent and mantissa give the number over 2^8: the biases are 7
    # and 15
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


NIBBLE_COLUMNS = (0, 2, 4, 6, 1, 3, 5, 7)
"""Columns of a word by nibble, lowest first."""
TERNARY_BLOCK_COLUMNS = 128
_TERNARY_BLOCK_BYTES = 32


def pack_int4(levels: Tensor) -> Tensor:
    """Pack integers 0 to 15 [n_rows, n_cols] into int32 [n_rows, n_cols / 8]."""
    n_rows, n_cols = levels.shape
    words = levels.to(torch.int64).reshape(n_rows, n_cols // 8, 8)
    packed = torch.zeros_like(words[..., 0])
    for position, column in enumerate(NIBBLE_COLUMNS):
        packed |= words[..., column] << (4 * position)
    return torch.where(packed < 2**31, packed, packed - 2**32).to(torch.int32)


def unpack_int4(packed: Tensor) -> Tensor:
    """Unpack the result of `pack_int4` to int32 [n_rows, n_cols]."""
    columns = torch.arange(8, device=packed.device, dtype=torch.int32)
    shifts = 4 * (columns // 2 + 4 * (columns % 2))
    return ((packed[..., None] >> shifts) & 15).flatten(1)


def pack_ternary(levels: Tensor) -> Tensor:
    """Pack -1, 0 and 1 [n_rows, n_cols] into uint8 [n_rows, n_cols / 4]."""
    n_rows, n_cols = levels.shape
    codes = (
        (levels.to(torch.int8) & 3)
        .to(torch.uint8)
        .reshape(n_rows, n_cols // TERNARY_BLOCK_COLUMNS, 4, _TERNARY_BLOCK_BYTES)
    )
    packed = codes[:, :, 0]
    for position in range(1, 4):
        packed = packed | (codes[:, :, position] << (2 * position))
    return packed.reshape(n_rows, n_cols // 4)


def unpack_ternary(packed: Tensor) -> Tensor:
    """Unpack the result of `pack_ternary` to int8 [n_rows, n_cols]."""
    n_rows, n_bytes = packed.shape
    blocks = packed.reshape(n_rows, n_bytes // _TERNARY_BLOCK_BYTES, 1, _TERNARY_BLOCK_BYTES)
    shifts = 2 * torch.arange(4, device=packed.device, dtype=torch.uint8)
    codes = (blocks >> shifts[:, None]) & 3
    return ((codes.to(torch.int8) ^ 2) - 2).reshape(n_rows, 4 * n_bytes)


@triton.jit
def as_floats(words, DTYPE: tl.constexpr):
    """Convert nibbles 0 and 4 of each word to 16-bit floats offset + level, one in each half.

    The nibble becomes the mantissa: the offset is 128 in bfloat16 and 1024 in float16.
    """
    exponents: tl.constexpr = 0x43004300 if DTYPE.is_bf16() else 0x64006400
    if IS_INTERPRETED or not tl.target_info.is_cuda():
        floats = (words & 0x000F000F) | exponents
    else:
        # one instruction instead of two
        floats = tl.inline_asm_elementwise(
            f"lop3.b32 $0, $1, 0x000F000F, {exponents}, 0xEA;",
            "=r,r",
            [words],
            dtype=tl.int32,
            is_pure=True,
            pack=1,
        )
    return floats


@triton.jit
def low_half(words, DTYPE: tl.constexpr):
    return words.to(tl.int16).to(DTYPE, bitcast=True)


@triton.jit
def columns_joined(c0, c1, c2, c3, c4, c5, c6, c7, N_ROWS: tl.constexpr, N_WORDS: tl.constexpr):
    """Interleave the columns 8 j, 8 j + 1, ... of words j to [N_ROWS, 8 * N_WORDS].

    Each join appends a bit to the column number, highest first.
    """
    even = tl.join(tl.join(c0, c4), tl.join(c2, c6))  # [N_ROWS, N_WORDS, 2, 2]
    odd = tl.join(tl.join(c1, c5), tl.join(c3, c7))  # [N_ROWS, N_WORDS, 2, 2]
    return tl.join(even, odd).reshape(N_ROWS, 8 * N_WORDS)


@triton.jit
def unpacked(words, DTYPE: tl.constexpr, N_ROWS: tl.constexpr, N_WORDS: tl.constexpr):
    """Unpack words to offset + level of each column, [N_ROWS, 8 * N_WORDS]."""
    c01 = as_floats(words, DTYPE)
    c23 = as_floats(words >> 4, DTYPE)
    c45 = as_floats(words >> 8, DTYPE)
    c67 = as_floats(words >> 12, DTYPE)
    return columns_joined(
        low_half(c01, DTYPE),
        low_half(c01 >> 16, DTYPE),
        low_half(c23, DTYPE),
        low_half(c23 >> 16, DTYPE),
        low_half(c45, DTYPE),
        low_half(c45 >> 16, DTYPE),
        low_half(c67, DTYPE),
        low_half(c67 >> 16, DTYPE),
        N_ROWS,
        N_WORDS,
    )

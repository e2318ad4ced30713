"""Packed 4-bit and ternary weights, and unpacking of 4-bit weights in registers.

4-bit: a row of a matrix [K, N] is N / 8 int32 words. Word j holds columns 8 j to 8 j + 7 in the nibble order
`NIBBLE_COLUMNS` of AWQ: shifted by 4 p and masked, a word has two adjacent columns, one in each 16-bit half.

Ternary: a row of a matrix [N, K] is K / 4 bytes. Each block of 32 bytes holds 128 columns: bits 2 p and 2 p + 1 of byte
r hold column 32 p + r in two's complement (0, 1, or 3 for -1). A shift and a mask unpack 32 adjacent columns.

Sources: Lin et al., AWQ: Activation-aware Weight Quantization, 2023 (arXiv 2306.00978), and its published weights, for
the order; Kim et al., Who Says Elephants Can't Run, 2022 (arXiv 2211.10017), for the conversion to floats.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from roofwatch.kernels.target import IS_INTERPRETED

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
            f"lop3.b32 $0, $1, 0x000F000F, {exponents}, 0xEA;", "=r,r", [words], dtype=tl.int32, is_pure=True, pack=1
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

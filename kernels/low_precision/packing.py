"""Weights of a few bits, packed for storage: how they lie in words and bytes.

Four bits: a row of a matrix [K, N] is N / 8 words of int32. Word j holds the columns 8 j to 8 j + 7; its nibbles, from
the lowest on, hold those of `NIBBLE_COLUMNS`. The order is AWQ's: shifted by 4 p and masked, a word shows two
neighbouring columns, one in each half, as a pair of 16-bit numbers.

Ternary: a row of a matrix [N, K] is K / 4 bytes. Each block of 32 bytes holds 128 columns; bits 2 p and 2 p + 1 of its
byte r hold column 32 p + r in two's complement: 0, 1 or, for -1, 3. So a shift and a mask show 32 neighbouring columns
in 32 neighbouring bytes.

Source of the first: Lin et al., AWQ: Activation-aware Weight Quantization, 2023 (arXiv 2306.00978), and its published
weights.
"""

import torch
import triton
import triton.language as tl

from roofwatch.kernels.target import IS_INTERPRETED

NIBBLE_COLUMNS = (0, 2, 4, 6, 1, 3, 5, 7)
"""Of the eight columns that a word holds, those in its nibbles from the lowest to the highest."""
TERNARY_BLOCK_COLUMNS = 128
_TERNARY_BLOCK_BYTES = 32


def pack_int4(levels: torch.Tensor) -> torch.Tensor:
    """Pack whole numbers 0 … 15 of shape [n_rows, n_cols] into int32 of [n_rows, n_cols / 8]."""
    n_rows, n_cols = levels.shape
    words = levels.to(torch.int64).reshape(n_rows, n_cols // 8, 8)
    packed = torch.zeros_like(words[..., 0])
    for position, column in enumerate(NIBBLE_COLUMNS):
        packed |= words[..., column] << (4 * position)
    return torch.where(packed < 2**31, packed, packed - 2**32).to(torch.int32)


def unpack_int4(packed: torch.Tensor) -> torch.Tensor:
    """The whole numbers 0 … 15, int32 of [n_rows, n_cols], that `pack_int4` packed."""
    columns = torch.arange(8, device=packed.device, dtype=torch.int32)
    shifts = 4 * (columns // 2 + 4 * (columns % 2))
    return ((packed[..., None] >> shifts) & 15).flatten(1)


def pack_ternary(levels: torch.Tensor) -> torch.Tensor:
    """Pack -1, 0 and 1 of shape [n_rows, n_cols] into uint8 of [n_rows, n_cols / 4]."""
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


def unpack_ternary(packed: torch.Tensor) -> torch.Tensor:
    """The -1, 0 and 1, int8 of [n_rows, n_cols], that `pack_ternary` packed."""
    n_rows, n_bytes = packed.shape
    blocks = packed.reshape(n_rows, n_bytes // _TERNARY_BLOCK_BYTES, 1, _TERNARY_BLOCK_BYTES)
    shifts = 2 * torch.arange(4, device=packed.device, dtype=torch.uint8)
    codes = (blocks >> shifts[:, None]) & 3
    return ((codes.to(torch.int8) ^ 2) - 2).reshape(n_rows, 4 * n_bytes)


@triton.jit
def as_floats(words, DTYPE: tl.constexpr):
    """Nibbles 0 and 4 of each word as the floats offset + level, one in each half."""
    exponents: tl.constexpr = 0x43004300 if DTYPE.is_bf16() else 0x64006400
    if IS_INTERPRETED or not tl.target_info.is_cuda():
        floats = (words & 0x000F000F) | exponents
    else:
        # one instruction, where the compiler makes two of the same: it lets each have one constant
        floats = tl.inline_asm_elementwise(
            f"lop3.b32 $0, $1, 0x000F000F, {exponents}, 0xEA;", "=r,r", [words], dtype=tl.int32, is_pure=True, pack=1
        )
    return floats


@triton.jit
def low_half(words, DTYPE: tl.constexpr):
    return words.to(tl.int16).to(DTYPE, bitcast=True)


@triton.jit
def columns_joined(c0, c1, c2, c3, c4, c5, c6, c7, N_ROWS: tl.constexpr, N_WORDS: tl.constexpr):
    """[N_ROWS, 8 * N_WORDS] of the columns 8 j, 8 j + 1, … of the words j. A join appends a bit to the column's number,
    so it starts with the highest.
    """
    even = tl.join(tl.join(c0, c4), tl.join(c2, c6))  # [N_ROWS, N_WORDS, 2, 2]
    odd = tl.join(tl.join(c1, c5), tl.join(c3, c7))  # [N_ROWS, N_WORDS, 2, 2]
    return tl.join(even, odd).reshape(N_ROWS, 8 * N_WORDS)


@triton.jit
def unpacked(words, DTYPE: tl.constexpr, N_ROWS: tl.constexpr, N_WORDS: tl.constexpr):
    """Level and offset of each column, [N_ROWS, 8 * N_WORDS]."""
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

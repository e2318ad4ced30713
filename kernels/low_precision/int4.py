"""Words of eight 4-bit levels, packed as packing.py says, taken apart in registers.

Two nibbles become the mantissas of two 16-bit floats of one fixed exponent, so they read as 128 + level in bfloat16 and
as 1024 + level in float16. That is one and a half instructions a level.

Source: Kim et al., Who Says Elephants Can't Run: Bringing Large Scale MoE Models into Cloud Scale Production, 2022
(arXiv 2211.10017).
"""

import triton
import triton.language as tl

from roofwatch.kernels.target import IS_INTERPRETED


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

"""How a Triton program reads a row: whole into registers, or a longer one in tiles."""

import triton
import triton.language as tl

MAX_COLS_IN_REGISTERS = 16_384
"""The longest row that one program holds, and so does one block of CUDA threads in half precision."""
TILES_OF_LONG_ROWS = {"BLOCK": 4_096, "num_warps": 8}


def row_config(n_cols: int) -> dict[str, int]:
    """Columns per tile, and warps such that a thread of an NVIDIA GPU holds 16 elements, 32 in the longest row."""
    if n_cols > MAX_COLS_IN_REGISTERS:
        return TILES_OF_LONG_ROWS
    block = triton.next_power_of_2(n_cols)
    return {"BLOCK": block, "num_warps": min(max(block // 512, 1), 16)}


@triton.jit
def piece_of_row(n_cols, BLOCK: tl.constexpr):
    """Row, columns and which of those there are, [BLOCK], of a program that works on a piece of one row. Neighbours in
    a row run together.
    """
    n_pieces = tl.cdiv(n_cols, BLOCK)
    row = (tl.program_id(0) // n_pieces).to(tl.int64)
    offs = tl.program_id(0) % n_pieces * BLOCK + tl.arange(0, BLOCK)
    return row, offs, offs < n_cols

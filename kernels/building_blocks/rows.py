"""How a Triton program or a block of CUDA threads (rows.cuh) reads a row."""

from dataclasses import dataclass

import triton
import triton.language as tl
from torch import Tensor

MAX_COLS_IN_REGISTERS = 16_384
"""Longest row that one program, or one block of CUDA threads in half precision, keeps in registers."""
TILES_OF_LONG_ROWS = {"BLOCK": 4_096, "num_warps": 8}


def row_config(n_cols: int) -> dict[str, int]:
    """Columns per tile and warps: 16 elements per thread of an NVIDIA GPU, 32 in the longest row."""
    if n_cols > MAX_COLS_IN_REGISTERS:
        return TILES_OF_LONG_ROWS
    block = triton.next_power_of_2(n_cols)
    return {"BLOCK": block, "num_warps": min(max(block // 512, 1), 16)}


@triton.jit
def piece_of_row(n_cols, BLOCK: tl.constexpr):
    """Return row, columns [BLOCK] and mask [BLOCK] of this program's piece of a row; pieces of a row are adjacent."""
    n_pieces = tl.cdiv(n_cols, BLOCK)
    row = (tl.program_id(0) // n_pieces).to(tl.int64)
    offs = tl.program_id(0) % n_pieces * BLOCK + tl.arange(0, BLOCK)
    return row, offs, offs < n_cols


ONLY_NVIDIA = dict.fromkeys(("gfx942", "gfx950"), "is an AMD target; NVRTC compiles CUDA C++ for NVIDIA only")
"""`unsupported_targets` of kernels in CUDA C++."""

_WARP = 32
_VECTOR_BYTES = 16
_FEW_VECTORS = 512


@dataclass(frozen=True)
class RowLayout:
    """How a block of threads reads a row.

    Args:
        length: Elements of a vector load.
        held: Vectors that each thread keeps in registers.
        most_threads: Launch bound of the block, which limits registers per thread.
        n_threads: Threads of a block.
        fits: Whether the registers hold the whole row.
    """

    length: int
    held: int
    most_threads: int
    n_threads: int
    fits: bool


def row_layout(*operands: Tensor, most_threads: int = 1024) -> RowLayout:
    """Choose the layout for rows along the last dim of the operands.

    A short row has one vector per thread, to have enough threads. A longer row has four, whose loads overlap. Of a row
    that is too long for the largest block, the registers hold the first part.
    """
    length = vector_length(*operands)
    n_vectors = operands[0].shape[-1] // length
    held = 4 if _FEW_VECTORS <= n_vectors <= 4 * 512 else 1
    most = 512 if held == 4 else most_threads
    n_threads = min(-(-n_vectors // (held * _WARP)) * _WARP, most)
    return RowLayout(length, held, most, n_threads, fits=n_vectors <= held * n_threads)


def vector_length(*operands: Tensor) -> int:
    """Elements of the longest vector, at most 16 bytes, with which the rows of every operand are aligned."""
    length = _VECTOR_BYTES // operands[0].element_size()
    while length > 1 and not all(_is_divided(operand, length) for operand in operands):
        length //= 2
    return length


def _is_divided(operand: Tensor, length: int) -> bool:
    starts = (operand.shape[-1], *operand.stride()[:-1])
    alignment_bytes = min(length * operand.element_size(), _VECTOR_BYTES)
    return all(start % length == 0 for start in starts) and operand.data_ptr() % alignment_bytes == 0

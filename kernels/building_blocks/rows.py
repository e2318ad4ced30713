"""How a Triton program or a block of CUDA threads (rows.cuh) reads rows; their mean and variance;
sums over rows.

Deviations are summed around means, so squares do not cancel. In the backward pass a program walks
over several rows and sums its partial gradient of each column. The partial sums are added in a
fixed order, so results are deterministic. Short rows keep the partial sum in registers. Long rows
are processed four at a time, so the partial sum in memory is updated once for all four.

Sources: Welford, Note on a method for calculating corrected sums of squares and products, 1962;
Chan, Golub and LeVeque, Updating formulae and a pairwise algorithm for computing sample variances,
1979.
"""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from roofwatch.kernels.building_blocks.target import persistent_program_count

MAX_COLS_IN_REGISTERS = 16_384
"""Longest row that one program, or one block of CUDA threads in half precision, keeps in registers.
"""
TILES_OF_LONG_ROWS = {"BLOCK": 4_096, "num_warps": 8}


def row_config(n_cols: int) -> dict[str, int]:
    """Columns per tile and warps: 16 elements per thread of an NVIDIA GPU,
    32 in the longest row.
    """
    if n_cols > MAX_COLS_IN_REGISTERS:
        return TILES_OF_LONG_ROWS
    block = triton.next_power_of_2(n_cols)
    return {"BLOCK": block, "num_warps": min(max(block // 512, 1), 16)}


def whole_row_config(n_cols: int) -> dict[str, int]:
    """As `row_config`, and `IS_LONG`: the program reads its row twice, in tiles."""
    return {**row_config(n_cols), "IS_LONG": n_cols > MAX_COLS_IN_REGISTERS}


@triton.jit
def piece_of_row(n_cols, BLOCK: tl.constexpr):
    """Return row, columns [BLOCK] and mask [BLOCK] of this program's piece of a row; pieces of a
    row are adjacent.
    """
    n_pieces = tl.cdiv(n_cols, BLOCK)
    row = (tl.program_id(0) // n_pieces).to(tl.int64)
    offs = tl.program_id(0) % n_pieces * BLOCK + tl.arange(0, BLOCK)
    return row, offs, offs < n_cols


@triton.jit
def moments_of(x_ptr, length, BLOCK: tl.constexpr):
    """Return mean and sum of squared deviations of `length` elements at `x_ptr`, read in tiles of
    BLOCK.
    """
    lane_mean = tl.zeros((BLOCK,), tl.float32)
    lane_square_sum = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, length, BLOCK):
        offs = start + tl.arange(0, BLOCK)
        mask = offs < length
        x = tl.load(x_ptr + offs, mask=mask, other=0.0).to(tl.float32)  # [BLOCK]
        lane_mean, lane_square_sum = _add_tile(
            x, mask, start // BLOCK + 1, lane_mean, lane_square_sum
        )
    count = tl.cdiv(length - tl.arange(0, BLOCK), BLOCK).to(tl.float32)
    return merge_parts(count, lane_mean, lane_square_sum)


@triton.jit
def _add_tile(x, mask, n_tiles, lane_mean, lane_square_sum):
    """Update the mean and squared deviations of each lane, [BLOCK] float32, with one tile
    (Welford).

    `n_tiles` includes this tile; mean and deviations start at zero.
    """
    offset = tl.where(mask, x - lane_mean, 0.0)
    lane_mean += offset * (1.0 / n_tiles)
    return lane_mean, lane_square_sum + offset * (x - lane_mean)


@triton.jit
def merge_parts(count, mean, square_sum):
    """Combine means and sums of squared deviations of parts, each [n_parts] float32 (Chan, Golub
    and LeVeque).

    Empty parts (count 0) are allowed.
    """
    whole_mean = tl.sum(count * mean, axis=0) / tl.sum(count, axis=0)
    offset = mean - whole_mean
    return whole_mean, tl.sum(square_sum + count * offset * offset, axis=0)


MAX_ROW_BYTES_BACKWARD = 16_384
"""Longest row that stays in registers, with the next row and one or two float32 sums per column."""
_LONG_ROWS_AT_ONCE = 4
_WARPS_PER_MULTIPROCESSOR = 16
"""More would exceed the registers."""


@triton.jit
def add_to_share(share_ptr, cols, mask, addend, is_begun):
    """Add to the program's partial sum in the L2 cache,
    which is uninitialised unless `is_begun`.
    """
    share = tl.load(share_ptr + cols, mask=mask & is_begun, other=0.0)  # [BLOCK]
    tl.store(share_ptr + cols, share + addend, mask=mask)  # [BLOCK]


def backward_config(n_cols: int, itemsize: int) -> dict[str, int]:
    """Columns per tile, warps, and `ROWS`, the rows processed together: 1 if a row stays in
    registers.
    """
    if n_cols * itemsize <= MAX_ROW_BYTES_BACKWARD:
        return {**row_config(n_cols), "ROWS": 1}
    tile_cols = TILES_OF_LONG_ROWS["BLOCK"] // _LONG_ROWS_AT_ONCE
    return {**TILES_OF_LONG_ROWS, "ROWS": _LONG_ROWS_AT_ONCE, "BLOCK": tile_cols}


def share_count(x: Tensor, n_groups: int, n_rows: int, config: dict[str, int]) -> int:
    """Programs per group of `n_rows` rows: enough to keep x's GPU busy."""
    n_tiles = triton.cdiv(n_rows, config["ROWS"])
    programs_per_multiprocessor = _WARPS_PER_MULTIPROCESSOR // config["num_warps"]
    n_programs = programs_per_multiprocessor * persistent_program_count(x, n_groups * n_tiles)
    return int(min(n_tiles, triton.cdiv(n_programs, n_groups)))


def sum_rows(shares: Tensor, out: Tensor) -> None:
    """Sum the programs' float32 shares [..., n_shares, n_cols] into `out`, which may have another
    dtype.
    """
    if out.dtype == torch.float32:
        torch.sum(shares, dim=-2, out=out)
    else:
        out.copy_(shares.sum(dim=-2))


ONLY_NVIDIA = dict.fromkeys(
    ("gfx942", "gfx950"), "is an AMD target; NVRTC compiles CUDA C++ for NVIDIA only"
)
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

    A short row has one vector per thread, to have enough threads. A longer row has four, whose
    loads overlap. Of a row that is too long for the largest block, the registers hold the first
    part.
    """
    length = vector_length(*operands)
    n_vectors = operands[0].shape[-1] // length
    held = 4 if _FEW_VECTORS <= n_vectors <= 4 * 512 else 1
    most = 512 if held == 4 else most_threads
    n_threads = min(-(-n_vectors // (held * _WARP)) * _WARP, most)
    return RowLayout(length, held, most, n_threads, fits=n_vectors <= held * n_threads)


def vector_length(*operands: Tensor) -> int:
    """Elements of the longest vector, at most 16 bytes, with which the rows of every operand are
    aligned.
    """
    length = _VECTOR_BYTES // operands[0].element_size()
    while length > 1 and not all(_is_divided(operand, length) for operand in operands):
        length //= 2
    return length


def _is_divided(operand: Tensor, length: int) -> bool:
    starts = (operand.shape[-1], *operand.stride()[:-1])
    alignment_bytes = min(length * operand.element_size(), _VECTOR_BYTES)
    return (
        all(start % length == 0 for start in starts) and operand.data_ptr() % alignment_bytes == 0
    )

"""How the backward pass of a normalisation sums up what belongs to columns, such as the weight's gradient.

A program walks over several rows and sums their share of it; the shares are added up afterwards in a fixed order, so
the result is the same in every run. Of rows that the registers hold, the share is kept there too. Longer rows are
worked on four at a time, so that a share, which then lies in memory, is changed once for all four.
"""

import torch
import triton
import triton.language as tl

from roofwatch.kernels.building_blocks.row_tiles import TILES_OF_LONG_ROWS, row_config
from roofwatch.kernels.target import persistent_program_count

MAX_ROW_BYTES_BACKWARD = 16_384
"""Of a row that a program holds in registers, with the next one and one or two float32 sums per column."""
_LONG_ROWS_AT_ONCE = 4
_WARPS_PER_MULTIPROCESSOR = 16
"""More would not find registers."""


@triton.jit
def add_to_share(share_ptr, cols, mask, addend, is_begun):
    """Add to the program's own share, which stays in the L2 cache; it holds nothing yet unless `is_begun`."""
    share = tl.load(share_ptr + cols, mask=mask & is_begun, other=0.0)  # [BLOCK]
    tl.store(share_ptr + cols, share + addend, mask=mask)  # [BLOCK]


def backward_config(n_cols: int, itemsize: int) -> dict[str, int]:
    """Columns per tile, and warps; of rows that no program holds also `ROWS`, how many are worked on at a time."""
    if n_cols * itemsize <= MAX_ROW_BYTES_BACKWARD:
        return row_config(n_cols)
    tile_cols = TILES_OF_LONG_ROWS["BLOCK"] // _LONG_ROWS_AT_ONCE
    return {**TILES_OF_LONG_ROWS, "ROWS": _LONG_ROWS_AT_ONCE, "BLOCK": tile_cols}


def share_count(x: torch.Tensor, n_groups: int, n_rows: int, config: dict[str, int]) -> int:
    """Programs that each of the groups of `n_rows` rows is dealt out to: as many as keep x's GPU busy."""
    n_tiles = triton.cdiv(n_rows, config.get("ROWS", 1))
    programs_per_multiprocessor = _WARPS_PER_MULTIPROCESSOR // config["num_warps"]
    n_programs = programs_per_multiprocessor * persistent_program_count(x, n_groups * n_tiles)
    return int(min(n_tiles, triton.cdiv(n_programs, n_groups)))

"""Tiles of matrix products over rows sorted by expert: their order, experts and operands.

The rows per expert are known only on the GPU. Each program reads all offsets and finds the expert
of each of its tiles by the cumulative tile counts.
"""

from typing import Any

import triton
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from roofwatch.kernels.building_blocks.operands import supports_tma
from roofwatch.kernels.building_blocks.target import DeviceTarget
from roofwatch.kernels.building_blocks.tiles import tile_of


@triton.jit
def tiles_up_to_experts(
    offsets_ptr, n_experts, n_tiles_n, EXPERTS: tl.constexpr, BLOCK_M: tl.constexpr
):
    """Return the number of tiles [EXPERTS] of each expert and those before it."""
    offs_e = tl.arange(0, EXPERTS)
    starts = tl.load(offsets_ptr + offs_e, mask=offs_e < n_experts, other=0)  # [EXPERTS]
    ends = tl.load(offsets_ptr + 1 + offs_e, mask=offs_e < n_experts, other=0)  # [EXPERTS]
    return tl.cumsum(tl.cdiv(ends - starts, BLOCK_M) * n_tiles_n, axis=0)


@triton.jit
def expert_of_tile(tile, end_tiles, offsets_ptr, n_tiles_n, BLOCK_M: tl.constexpr):
    """Return expert of a tile, the tile's first row, the end of the expert's rows, and the column
    of the tile.
    """
    expert = tl.sum((end_tiles <= tile).to(tl.int32), axis=0)
    first_tile = tl.max(tl.where(end_tiles <= tile, end_tiles, 0), axis=0)
    first_row = tl.load(offsets_ptr + expert)
    end_row = tl.load(offsets_ptr + expert + 1)
    n_tiles_m = tl.cdiv(end_row - first_row, BLOCK_M)
    tile_m, tile_n = tile_of(tile - first_tile, n_tiles_m, n_tiles_n)
    return expert, first_row + tile_m * BLOCK_M, end_row, tile_n


def expert_operands(
    rows: Tensor, weights: Tensor, config: dict[str, int], target: DeviceTarget
) -> tuple[Any, Any, bool]:
    """Return both as TMA descriptors for tiles of a configuration if target and layout allow it,
    and whether they do.
    """
    is_copied = (
        target.has_tma and rows.element_size() == 2 and supports_tma(rows) and supports_tma(weights)
    )
    if not is_copied:
        return rows, weights, False
    block_m, block_n, block_k = config["BLOCK_M"], config["BLOCK_N"], config["BLOCK_K"]
    return (
        TensorDescriptor.from_tensor(rows, [block_m, block_k]),
        TensorDescriptor.from_tensor(weights, [1, block_k, block_n]),
        True,
    )


def most_expert_tiles(n_rows: int, n_experts: int, N: int, config: dict[str, int]) -> int:
    """Maximum number of tiles: the last one of each expert may be partial."""
    n_tiles_m = int(triton.cdiv(n_rows, config["BLOCK_M"])) + n_experts
    return n_tiles_m * int(triton.cdiv(N, config["BLOCK_N"]))

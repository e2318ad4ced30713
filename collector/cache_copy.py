"""A copy that goes round and round in the L2 of a GPU: what its cache can deliver, without a launch between rounds."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

_BLOCK = 4096
_WARPS = 8
ITEM_BYTES = 4


@triton.jit  # type: ignore[untyped-decorator]
def _copy_rounds_kernel(  # type: ignore[no-untyped-def]
    source_ptr,
    target_ptr,
    block_count,
    ROUNDS: tl.constexpr,  # noqa: N803  a constant of the compiler
    BLOCK: tl.constexpr,  # noqa: N803
):
    offs = tl.arange(0, BLOCK)
    for turn in range(ROUNDS):
        # another block each round, past the L1 that keeps what its own multiprocessor has read
        start = (tl.program_id(0) + turn) % block_count * BLOCK
        values = tl.load(source_ptr + start + offs, cache_modifier=".cg")  # [BLOCK]
        tl.store(target_ptr + start + offs, values, cache_modifier=".cg")  # [BLOCK]


def copy_in_rounds(source: torch.Tensor, target: torch.Tensor, *, rounds: int) -> None:
    """Copy `source` to `target`, all of it, as many times, in one launch.

    Args:
        source: float32 on a GPU, shape [n]; n is a multiple of `whole_blocks(1)`.
        target: Like it.
        rounds: Of which the first finds the cache as it is.
    """
    block_count = source.numel() // _BLOCK
    _copy_rounds_kernel[(block_count,)](source, target, block_count, ROUNDS=rounds, BLOCK=_BLOCK, num_warps=_WARPS)


def whole_blocks(item_count: int) -> int:
    """The most items up to a count that the kernel can copy; one block at least."""
    return max(1, item_count // _BLOCK) * _BLOCK

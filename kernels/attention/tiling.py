"""Tile sizes of the attention kernels by GPU, supported heads, and tile descriptors."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import triton
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from roofwatch.kernels.building_blocks.errors import KernelError
from roofwatch.kernels.building_blocks.operands import is_aligned
from roofwatch.kernels.building_blocks.target import DeviceTarget

_CACHED_BYTES = 16 * 2**20
"""Part of the L2 cache, which has 40 MiB on an A100 and 50 MiB on an H100."""


@dataclass(frozen=True)
class AttentionTiling:
    """A tile of `BLOCK_M` queries and `BLOCK_N` keys, and launch options."""

    BLOCK_M: int
    BLOCK_N: int
    num_warps: int
    num_stages: int

    def has_full_tile(self, window: int) -> bool:
        """Whether every query of a causal tile can see every key of one; 0 for no window."""
        return not window or window >= self.BLOCK_M + self.BLOCK_N


@dataclass(frozen=True)
class Tilings:
    """Tiles of the three kernels for one head dim. The operand that a program keeps has the larger
    block.
    """

    forward: AttentionTiling
    query_gradient: AttentionTiling
    key_gradient: AttentionTiling


# The largest tiles tried that fit the shared memory without spills, by head dim rounded up to a
# power of two. Unaligned rows may spill, and a window one register at 128 on sm_90.
_HALF: Mapping[str, Mapping[int, Tilings]] = {
    "sm_80": {
        64: Tilings(
            AttentionTiling(128, 64, 8, 3),
            AttentionTiling(128, 64, 8, 2),
            AttentionTiling(32, 128, 8, 2),
        ),
        128: Tilings(
            AttentionTiling(128, 32, 8, 3),
            AttentionTiling(64, 64, 8, 2),
            AttentionTiling(64, 64, 8, 2),
        ),
        256: Tilings(
            AttentionTiling(64, 32, 8, 2),
            AttentionTiling(64, 32, 8, 1),
            AttentionTiling(32, 32, 8, 1),
        ),
    },
    "sm_90": {
        64: Tilings(
            AttentionTiling(128, 128, 8, 3),
            AttentionTiling(128, 128, 8, 2),
            AttentionTiling(64, 128, 8, 3),
        ),
        128: Tilings(
            AttentionTiling(128, 128, 8, 2),
            AttentionTiling(128, 64, 8, 3),
            AttentionTiling(64, 128, 8, 2),
        ),
        256: Tilings(
            AttentionTiling(64, 64, 8, 2),
            AttentionTiling(64, 64, 8, 2),
            AttentionTiling(16, 64, 8, 2),
        ),
    },
    "sm_100": {
        64: Tilings(
            AttentionTiling(128, 128, 8, 3),
            AttentionTiling(128, 64, 8, 3),
            AttentionTiling(64, 128, 8, 3),
        ),
        128: Tilings(
            AttentionTiling(128, 64, 8, 3),
            AttentionTiling(128, 64, 4, 3),
            AttentionTiling(32, 128, 4, 2),
        ),
        256: Tilings(
            AttentionTiling(64, 64, 8, 2),
            AttentionTiling(64, 32, 8, 2),
            AttentionTiling(32, 64, 8, 2),
        ),
    },
    "gfx942": {
        64: Tilings(
            AttentionTiling(128, 64, 4, 1),
            AttentionTiling(128, 64, 4, 1),
            AttentionTiling(64, 128, 4, 1),
        ),
        128: Tilings(
            AttentionTiling(128, 64, 4, 1),
            AttentionTiling(128, 64, 4, 1),
            AttentionTiling(16, 128, 4, 1),
        ),
        256: Tilings(
            AttentionTiling(64, 32, 4, 1),
            AttentionTiling(64, 32, 4, 1),
            AttentionTiling(32, 32, 4, 1),
        ),
    },
}
# a float32 product takes three TF32 products; the widest heads spill
_SINGLE: Mapping[int, Tilings] = {
    64: Tilings(
        AttentionTiling(32, 32, 4, 2), AttentionTiling(32, 16, 4, 1), AttentionTiling(16, 32, 4, 1)
    ),
    128: Tilings(
        AttentionTiling(32, 32, 8, 2), AttentionTiling(16, 16, 4, 1), AttentionTiling(16, 16, 4, 1)
    ),
    256: Tilings(
        AttentionTiling(16, 16, 8, 1), AttentionTiling(16, 16, 8, 1), AttentionTiling(16, 16, 8, 1)
    ),
}
# without a window, sinks or packed sequences, whose masks and sums would spill here
_PLAIN_FORWARD: Mapping[tuple[str, int], AttentionTiling] = {
    ("sm_100", 128): AttentionTiling(128, 128, 8, 2)
}
# few and large: the interpreter's time depends on the number of operations
_INTERPRETED = Tilings(
    AttentionTiling(64, 32, 4, 1), AttentionTiling(64, 32, 4, 1), AttentionTiling(32, 64, 4, 1)
)


def attention_config(D: int, itemsize: int, target: DeviceTarget) -> Tilings:
    """Choose tiles for head dim `D`; a GPU that is not listed uses the tiles of the
    smallest one.
    """
    if target.backend == "interpreter":
        return _INTERPRETED
    width = max(64, triton.next_power_of_2(D))
    if itemsize == 4:
        return _SINGLE[width]
    return _HALF.get(target.arch, _HALF["sm_80" if target.backend == "cuda" else "gfx942"])[width]


def forward_tiling(
    D: int, itemsize: int, target: DeviceTarget, *, is_plain: bool
) -> AttentionTiling:
    """Choose the tile of the forward pass; `is_plain` without a window, sinks or packed
    sequences.
    """
    tiling = attention_config(D, itemsize, target).forward
    if is_plain and itemsize == 2:
        tiling = _PLAIN_FORWARD.get((target.arch, D), tiling)
    return tiling


def key_heads_in_cache(n_tokens: int, D: int, itemsize: int) -> int:
    """Heads whose keys and values fit into `_CACHED_BYTES`."""
    return max(_CACHED_BYTES // (2 * n_tokens * D * itemsize), 1)


def as_heads(packed: Tensor) -> Tensor:
    """View packed sequences [total, H, D] as one batch entry [1, H, total, D]."""
    return packed.transpose(0, 1).unsqueeze(0)


def as_tiles(heads: Tensor, block: int, target: DeviceTarget) -> Any:
    """Return a TMA descriptor for tiles of `block` rows if target and layout allow it, else the
    tensor.
    """
    can_be_copied = (
        heads.element_size() == 2
        and is_aligned(heads)
        and all(stride > 0 for stride in heads.stride())
    )
    if not can_be_copied or target.arch not in {"sm_90", "sm_100", ""}:
        return heads
    return TensorDescriptor(
        heads, list(heads.shape), list(heads.stride()), [1, 1, block, padded_width(heads.shape[-1])]
    )


MAX_HEAD_DIM = 256
"""Larger accumulators would not fit into registers."""


def require_heads(kernel: str, n_heads: int, n_kv_heads: int, head_dim: int) -> None:
    """Require a group of query heads per key head, and at most `MAX_HEAD_DIM` dims."""
    if n_heads and (n_kv_heads == 0 or n_heads % n_kv_heads):
        raise KernelError(
            f"{kernel}: {n_heads} heads of q are no multiple of k's {n_kv_heads}; call "
            f"k.repeat_interleave(n, dim=1)"
        )
    if head_dim > MAX_HEAD_DIM:
        raise KernelError(
            f"{kernel}: a head has {head_dim} dims, at most {MAX_HEAD_DIM} stay in registers; "
            "call torch.nn.functional.scaled_dot_product_attention"
        )


def padded_width(D: int) -> int:
    """Columns of a tile: at least 16 for a matrix product."""
    return max(16, int(triton.next_power_of_2(D)))

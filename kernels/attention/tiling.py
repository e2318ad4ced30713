"""Tile sizes of the attention kernels by GPU, and the operands as the kernels take them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
import triton
from triton.tools.tensor_descriptor import TensorDescriptor

from roofwatch.kernels.attention.heads import is_aligned, padded_width
from roofwatch.kernels.target import Target

_CACHED_BYTES = 16 * 2**20
"""Of the L2 cache, 40 MiB on an A100 and 50 MiB on an H100, while others use it too."""


@dataclass(frozen=True)
class Tiling:
    """A tile of `BLOCK_M` queries and `BLOCK_N` keys, and how Triton compiles its kernel."""

    BLOCK_M: int
    BLOCK_N: int
    num_warps: int
    num_stages: int


@dataclass(frozen=True)
class Tilings:
    """Of the three kernels for one width of heads. A kernel that walks over keys has more queries than keys in a tile,
    one that walks over queries the reverse: what stands still is read once.
    """

    forward: Tiling
    query_gradient: Tiling
    key_gradient: Tiling


# The largest tiles tried that fit the shared memory and spill nothing to memory under any mask, by the width of the
# heads to a power of two. Heads whose rows lie at odd addresses may spill.
_HALF: Mapping[str, Mapping[int, Tilings]] = {
    "sm_80": {
        64: Tilings(Tiling(128, 64, 8, 3), Tiling(128, 64, 8, 2), Tiling(32, 128, 8, 2)),
        128: Tilings(Tiling(128, 32, 8, 3), Tiling(64, 64, 8, 2), Tiling(64, 64, 8, 2)),
        256: Tilings(Tiling(64, 32, 8, 2), Tiling(64, 32, 8, 1), Tiling(32, 32, 8, 1)),
    },
    "sm_90": {
        64: Tilings(Tiling(128, 128, 8, 3), Tiling(128, 128, 8, 2), Tiling(64, 128, 8, 3)),
        128: Tilings(Tiling(128, 128, 8, 2), Tiling(128, 64, 8, 3), Tiling(64, 128, 8, 2)),
        256: Tilings(Tiling(64, 64, 8, 2), Tiling(64, 64, 8, 2), Tiling(16, 64, 8, 2)),
    },
    "sm_100": {
        64: Tilings(Tiling(128, 128, 8, 3), Tiling(128, 64, 8, 3), Tiling(64, 128, 8, 3)),
        128: Tilings(Tiling(128, 64, 8, 3), Tiling(128, 64, 8, 3), Tiling(32, 128, 8, 2)),
        256: Tilings(Tiling(64, 64, 8, 2), Tiling(64, 32, 4, 2), Tiling(32, 64, 8, 2)),
    },
    "gfx942": {
        64: Tilings(Tiling(128, 64, 4, 1), Tiling(128, 64, 4, 1), Tiling(64, 128, 4, 1)),
        128: Tilings(Tiling(128, 64, 4, 1), Tiling(128, 64, 4, 1), Tiling(16, 128, 4, 1)),
        256: Tilings(Tiling(64, 32, 4, 1), Tiling(64, 32, 4, 1), Tiling(32, 32, 4, 1)),
    },
    "gfx950": {
        64: Tilings(Tiling(128, 64, 4, 1), Tiling(128, 64, 4, 1), Tiling(64, 128, 4, 1)),
        128: Tilings(Tiling(128, 64, 4, 1), Tiling(128, 64, 4, 1), Tiling(32, 128, 4, 1)),
        256: Tilings(Tiling(64, 32, 4, 1), Tiling(64, 32, 4, 1), Tiling(32, 32, 4, 1)),
    },
}
# float32 products take three of TF32; the widest heads do spill
_SINGLE: Mapping[int, Tilings] = {
    64: Tilings(Tiling(32, 32, 4, 2), Tiling(32, 16, 4, 1), Tiling(16, 32, 4, 1)),
    128: Tilings(Tiling(32, 32, 8, 2), Tiling(16, 16, 4, 1), Tiling(16, 16, 4, 1)),
    256: Tilings(Tiling(16, 16, 8, 1), Tiling(16, 16, 8, 1), Tiling(16, 16, 8, 1)),
}
# few and large: the interpreter's time goes by the operation, not by the element
_INTERPRETED = Tilings(Tiling(64, 32, 4, 1), Tiling(64, 32, 4, 1), Tiling(32, 64, 4, 1))


def attention_config(D: int, itemsize: int, target: Target) -> Tilings:
    """The tiles of heads of `D` dims on a GPU; one that is not listed gets those of a listed one that has less."""
    if target.backend == "interpreter":
        return _INTERPRETED
    width = max(64, triton.next_power_of_2(D))
    if itemsize == 4:
        return _SINGLE[width]
    return _HALF.get(target.arch, _HALF["sm_80" if target.backend == "cuda" else "gfx942"])[width]


def key_heads_in_cache(n_tokens: int, D: int, itemsize: int) -> int:
    """Heads of so many keys and values that fit together into a part of the L2 cache."""
    return max(_CACHED_BYTES // (2 * n_tokens * D * itemsize), 1)


def as_tiles(heads: torch.Tensor, block: int, target: Target) -> Any:
    """What a kernel loads tiles of `block` rows from: a descriptor for the engine that copies tiles, where the tensor
    cores read them from shared memory, or the tensor itself.

    Source: CUDA driver API, cuTensorMapEncodeTiled: addresses and strides are multiples of 16 bytes.
    """
    can_be_copied = heads.element_size() == 2 and is_aligned(heads) and all(stride > 0 for stride in heads.stride())
    if not can_be_copied or target.arch not in {"sm_90", "sm_100", ""}:
        return heads
    return TensorDescriptor(
        heads, list(heads.shape), list(heads.stride()), [1, 1, block, padded_width(heads.shape[-1])]
    )

"""A decode step with a paged cache of keys and values, for several numbers of sequences.

Source: Kwon et al., Efficient Memory Management for Large Language Model Serving with PagedAttention, 2023 (arXiv
2309.06180).
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from roofwatch import Case, InputMaker, cases, workload
from roofwatch.kernels.attention.paged_decode_attention import paged_decode_attention
from roofwatch.kernels.memory.kv_cache_write import kv_cache_write
from roofwatch.kernels.workloads.blocks import (
    ON_REQUEST,
    SMALL,
    TRITON,
    TransformerBlock,
    block_shapes,
    weight_count,
)

_BLOCK_SIZE = 16
Decoded = tuple[Tensor, Tensor, Tensor]


class DecodeBlock(TransformerBlock):
    """The transformer block for one new token of each sequence, whose earlier tokens are in the cache."""

    def forward(  # type: ignore[override]
        self,
        x: Tensor,
        key_cache: Tensor,
        value_cache: Tensor,
        block_tables: Tensor,
        context_lengths: Tensor,
        slots: Tensor,
    ) -> Decoded:
        """Take x [B, hidden] and the new tokens' slots [B]; the rest as of `paged_decode_attention`."""
        q, k, v = self.projected(x.unsqueeze(0), context_lengths - 1)
        self.write(k[0], v[0], key_cache, value_cache, slots)
        mixed = self.attend(q[0], key_cache, value_cache, block_tables, context_lengths)
        return self.mixed_in(x, mixed.flatten(1)), key_cache, value_cache

    def write(self, key: Tensor, value: Tensor, key_cache: Tensor, value_cache: Tensor, slots: Tensor) -> None:
        """Write the new keys and values, [B, H_KV, D], into the caches."""
        key_cache.flatten(0, 1)[slots] = key
        value_cache.flatten(0, 1)[slots] = value

    def attend(
        self, q: Tensor, key_cache: Tensor, value_cache: Tensor, block_tables: Tensor, context_lengths: Tensor
    ) -> Tensor:
        """Attend to the cached tokens of each sequence, [B, H, D]."""
        k, v = (cache[block_tables].flatten(1, 2).transpose(1, 2) for cache in (key_cache, value_cache))
        mask = torch.arange(k.shape[2], device=q.device) < context_lengths[:, None]
        out = functional.scaled_dot_product_attention(
            q.unsqueeze(2), k, v, attn_mask=mask[:, None, None], enable_gqa=q.shape[1] != k.shape[1]
        )
        return out.squeeze(2)


class TritonDecodeBlock(DecodeBlock):
    """The same with Triton kernels."""

    def __init__(self, case: Case) -> None:
        super().__init__(case, TRITON)

    def write(self, key: Tensor, value: Tensor, key_cache: Tensor, value_cache: Tensor, slots: Tensor) -> None:
        kv_cache_write(key, value, key_cache, value_cache, slots)

    def attend(
        self, q: Tensor, key_cache: Tensor, value_cache: Tensor, block_tables: Tensor, context_lengths: Tensor
    ) -> Tensor:
        return paged_decode_attention(q, key_cache, value_cache, block_tables, context_lengths)


def _inputs(case: Case, make: InputMaker) -> dict[str, Any]:
    B, n_blocks = case["B"], -(-case["T"] // _BLOCK_SIZE)
    tables = make.permutation(B * n_blocks, "int32").view(B, n_blocks)
    cache = B * n_blocks, _BLOCK_SIZE, case["H_KV"], case["D"]
    last = case["T"] - 1
    return {
        "x": make.normal(B, case["hidden"]),
        "key_cache": make.normal(*cache),
        "value_cache": make.normal(*cache),
        "block_tables": tables,
        "context_lengths": torch.full((B,), case["T"], dtype=torch.int32, device=make.device),
        "slots": tables[:, last // _BLOCK_SIZE].long() * _BLOCK_SIZE + last % _BLOCK_SIZE,
    }


def decode_flop_count(case: Case) -> float:
    """Count the projections of each token and the attention to its context."""
    return case["B"] * (2 * weight_count(case) + 4 * case["T"] * case["H"] * case["D"])


def decode_memory_bytes(case: Case) -> float:
    """Reads all weights, the tokens and their cached keys and values; writes the tokens."""
    cached = 2 * case["T"] * case["H_KV"] * case["D"]
    return (weight_count(case) + case["B"] * (cached + 2 * case["hidden"])) * case.itemsize


def _cases() -> Iterator[Case]:
    small = [{"B": B, "T": 1152, **SMALL} for B in (1, 4, 16)]
    yield from cases(shapes=small, dtypes=["float32"], tags=[ON_REQUEST, "small"])
    for shape, tags in block_shapes():
        shapes = [{"B": B, "T": 4096, **shape} for B in (1, 8, 32, 128)]
        yield from cases(shapes=shapes, dtypes=["bfloat16"], tags=[*tags, "decode"])


llama_decode_spec = workload(
    "llama_decode",
    module=DecodeBlock,
    variants={"triton": TritonDecodeBlock},
    inputs=_inputs,
    cases=[*_cases()],
    token_count=lambda case: case["B"],
    flop_count=decode_flop_count,
    memory_bytes=decode_memory_bytes,
    mutates=("key_cache", "value_cache"),
    interpreted_shape={"B": 2, "T": 40},
)

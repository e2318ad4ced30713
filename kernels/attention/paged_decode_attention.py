"""Decode attention: one new token per sequence over a paged cache of keys and values, forward.

The tokens of a sequence are in the blocks listed in its row of the block table. The kernels in
decoding.py split them over enough programs to saturate the memory.

Source: Kwon et al., PagedAttention, SOSP 2023 (arXiv 2309.06180), for the cache; Dao et al.,
Flash-Decoding for long-context inference, 2023, for the splits.
"""

import math
from inspect import signature
from typing import Any

import torch
from torch import Tensor

from roofwatch import Case, InputMaker, KernelSpec, UnsupportedError, cases
from roofwatch.kernels.attention.decoding import decode_op
from roofwatch.kernels.attention.tiling import require_heads
from roofwatch.kernels.building_blocks.models import LLAMA_3_1_70B
from roofwatch.kernels.building_blocks.operands import (
    require_equal,
    require_integers,
    require_operands,
)
from roofwatch.kernels.building_blocks.shapes import (
    decode_attention,
    model_cases,
    only,
    small_cases,
    with_choice,
)


def paged_decode_attention_reference(
    q: Tensor, key_cache: Tensor, value_cache: Tensor, block_tables: Tensor, context_lengths: Tensor
) -> Tensor:
    """Compute `softmax(q kᵀ / sqrt(D)) v` over the tokens of each sequence, gathered from their
    blocks.
    """
    group = q.shape[1] // key_cache.shape[2]
    outs = []
    for query, blocks, length in zip(q, block_tables, context_lengths.tolist(), strict=True):
        k, v = (
            cache[blocks].flatten(0, 1)[:length].repeat_interleave(group, dim=1)
            for cache in (key_cache, value_cache)
        )
        scores = torch.einsum("hd,thd->ht", query, k) / math.sqrt(q.shape[2])
        outs.append(torch.einsum("ht,thd->hd", scores.softmax(dim=-1), v))
    return torch.stack(outs) if outs else torch.empty_like(q)


def context_lengths_of(case: Case) -> list[int]:
    """Lengths from T for the first sequence down to about T / 2 for the last."""
    B, T = case["B"], case["T"]
    return [T - T * n // (2 * B) for n in range(B)]


def _inputs(case: Case, make: InputMaker) -> dict[str, Any]:
    B, block_size = case["B"], case["block_size"]
    blocks_per_sequence = -(-case["T"] // block_size)
    cache_shape = B * blocks_per_sequence, block_size, case["H_KV"], case["D"]
    lengths = torch.tensor(context_lengths_of(case), dtype=torch.int32, device=make.device)
    return {
        "q": make.scores(B, case["H"], case["D"]),
        "key_cache": make.scores(*cache_shape),
        "value_cache": make.normal(*cache_shape),
        "block_tables": make.permutation(B * blocks_per_sequence, "int32").view(
            B, blocks_per_sequence
        ),
        "context_lengths": lengths[make.permutation(B)],
    }


def paged_decode_attention_flop_count(case: Case) -> float:
    """Count two products of 2 D FLOP per token of context and head; the softmax is not counted."""
    return 4 * case["D"] * sum(context_lengths_of(case)) * case["H"]


def paged_decode_attention_memory_bytes(case: Case) -> float:
    """Reads keys and values of each context once, q, and 4-byte block table entries and lengths;
    writes out.
    """
    lengths = context_lengths_of(case)
    n_cached = 2 * case["H_KV"] * sum(lengths) * case["D"]
    n_entries = sum(-(-length // case["block_size"]) for length in lengths) + len(lengths)
    return (n_cached + 2 * case["B"] * case["H"] * case["D"]) * case.itemsize + 4 * n_entries


paged_decode_attention_spec = KernelSpec(
    name="paged_decode_attention",
    family="attention",
    inputs=_inputs,
    reference=paged_decode_attention_reference,
    cases=[
        *small_cases({"B": 4, "H": 8, "H_KV": 2, "T": 1024, "D": 64, "block_size": 16}),
        *model_cases(
            [
                *with_choice(decode_attention(), block_size=16),
                *with_choice(
                    only(decode_attention([LLAMA_3_1_70B], batches=[16]), "tp1"), block_size=64
                ),
                *with_choice(
                    only(decode_attention([LLAMA_3_1_70B], batches=[16]), "tp1"), block_size=256
                ),
            ]
        ),
    ],
    edges=[
        *cases(
            shapes=[
                {"B": 3, "H": 3, "H_KV": 3, "T": 200, "D": 63, "block_size": 5},
                {"B": 1, "H": 20, "H_KV": 1, "T": 1, "D": 128, "block_size": 16},
                {"B": 0, "H": 4, "H_KV": 2, "T": 9, "D": 16, "block_size": 4},
            ],
            dtypes=["float16"],
        ),
        *cases(
            shapes=[{"B": 1, "H": 2, "H_KV": 1, "T": 1000, "D": 256, "block_size": 16}],
            dtypes=["bfloat16"],
        ),
    ],
    flop_count=paged_decode_attention_flop_count,
    memory_bytes=paged_decode_attention_memory_bytes,
    token_count=lambda case: case["B"],
    formula="out = softmax(q kᵀ / sqrt(D)) v over the blocks of each sequence",
    source="Kwon et al., Efficient Memory Management for Large Language Model Serving with "
    "PagedAttention, 2023 "
    "(arXiv 2309.06180)",
    interpreted_shape={"B": 2, "H": 4, "H_KV": 2, "T": 300},
)


@paged_decode_attention_spec.implementation("triton", directions=["fwd"], deterministic=True)
def paged_decode_attention(
    q: Tensor, key_cache: Tensor, value_cache: Tensor, block_tables: Tensor, context_lengths: Tensor
) -> Tensor:
    """Compute `softmax(q kᵀ / sqrt(D)) v` of one token per sequence over its cached context,
    accumulated in float32.

    Args:
        q: [B, H, D], contiguous along its last dim, D at most 256.
        key_cache: [n_blocks, block_size, H_KV, D] of q's dtype, contiguous along its last dim; each
            head serves `H / H_KV` consecutive heads of q.
        value_cache: [n_blocks, block_size, H_KV, D] of q's dtype.
        block_tables: [B, blocks_per_sequence] int32, the blocks of each sequence in order. Entries
            are not checked: an invalid block within the context is an out-of-bounds read.
        context_lengths: [B] int32, tokens of each sequence, at most `blocks_per_sequence *
            block_size`; 0 gives zeros.

    Returns:
        [B, H, D] in q's dtype, contiguous.
    """
    name = "paged_decode_attention"
    require_operands(name, q=q, key_cache=key_cache, value_cache=value_cache)
    require_operands(name, dims=3, q=q)
    require_operands(name, dims=4, key_cache=key_cache)
    require_equal(
        name, "the shapes", key_cache=tuple(key_cache.shape), value_cache=tuple(value_cache.shape)
    )
    require_equal(
        name, "the dtypes", q=q.dtype, key_cache=key_cache.dtype, value_cache=value_cache.dtype
    )
    require_equal(name, "the head dims", q=q.shape[2], key_cache=key_cache.shape[3])
    require_heads(name, q.shape[1], key_cache.shape[2], q.shape[2])
    require_integers(name, dtype=torch.int32, dims=2, like=q, block_tables=block_tables)
    require_integers(name, dtype=torch.int32, dims=1, like=q, context_lengths=context_lengths)
    require_equal(
        name,
        "the sequences",
        q=len(q),
        block_tables=len(block_tables),
        context_lengths=len(context_lengths),
    )
    return decode_op(q, key_cache, value_cache, block_tables, context_lengths)


@paged_decode_attention_spec.implementation("torch", directions=["fwd"], compile=True)
def paged_decode_attention_torch(
    q: Tensor, key_cache: Tensor, value_cache: Tensor, block_tables: Tensor, context_lengths: Tensor
) -> Tensor:
    k, v = (cache[block_tables].flatten(1, 2).transpose(1, 2) for cache in (key_cache, value_cache))
    is_context = torch.arange(k.shape[2], device=q.device) < context_lengths[:, None]
    out = torch.nn.functional.scaled_dot_product_attention(
        q.unsqueeze(2),
        k,
        v,
        attn_mask=is_context[:, None, None],
        enable_gqa=q.shape[1] != k.shape[1],
    )
    return out.squeeze(2)


@paged_decode_attention_spec.implementation("torch", name="flash", directions=["fwd"])
def _paged_decode_attention_flash(
    q: Tensor, key_cache: Tensor, value_cache: Tensor, block_tables: Tensor, context_lengths: Tensor
) -> Tensor:
    if not q.is_cuda:
        raise UnsupportedError("needs a GPU")
    if q.dtype == torch.float32:
        raise UnsupportedError("supports only float16 and bfloat16")
    if key_cache.shape[1] % 256:
        raise UnsupportedError("needs blocks of a multiple of 256 tokens")
    from torch.nn.attention.varlen import varlen_attn

    if "block_table" not in signature(varlen_attn).parameters:
        raise UnsupportedError("needs a torch whose varlen_attn takes a block table")
    each_by_itself = torch.arange(len(q) + 1, dtype=torch.int32, device=q.device)
    out = varlen_attn(
        q,
        key_cache,
        value_cache,
        each_by_itself,
        None,
        1,
        block_tables.shape[1] * key_cache.shape[1],
        seqused_k=context_lengths,
        block_table=block_tables,
        enable_gqa=q.shape[1] != key_cache.shape[2],
    )
    assert isinstance(out, Tensor)  # a tuple only with more requested outputs
    return out

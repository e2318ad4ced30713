"""Prefill attention over a paged cache: new tokens behind a cached prefix, with sinks and a sliding
window or without, forward.

Keys and values of the new tokens are in the cache already. Sequences that share a prefix list the
same blocks, so its keys and values are computed and cached once. Each sequence attends to them on
its own. The new tokens of all sequences are packed in one batch. The kernel is in prefill.py.

Sources: Kwon et al., PagedAttention, SOSP 2023 (arXiv 2309.06180), section 4.4, for shared
prefixes; OpenAI, gpt-oss model card, 2025 (arXiv 2508.10925), section 2, for sinks and the window.
"""

import math
from typing import Any

import torch
from torch import Tensor

from roofwatch import Case, InputMaker, KernelSpec, cases
from roofwatch.kernels.attention.masks import hidden_pairs, window_of
from roofwatch.kernels.attention.paged_decode_attention import context_lengths_of
from roofwatch.kernels.attention.prefill import prefill_op
from roofwatch.kernels.attention.tiling import require_heads
from roofwatch.kernels.building_blocks.errors import KernelError
from roofwatch.kernels.building_blocks.models import GPT_OSS_120B, LLAMA_3_1_70B
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


def paged_prefill_attention_reference(
    q: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    block_tables: Tensor,
    context_lengths: Tensor,
    cu_seqlens: Tensor,
    max_seqlen: int,
    window: int = 0,
    sinks: Tensor | None = None,
) -> Tensor:
    """Compute the softmax over the visible keys and the sink of each new token, by sequence."""
    group = q.shape[1] // key_cache.shape[2]
    outs = [q[:0]]
    starts = cu_seqlens.tolist()
    for b, length in enumerate(context_lengths.tolist()):
        queries = q[starts[b] : starts[b + 1]]
        k, v = (
            cache[block_tables[b]].flatten(0, 1)[:length].repeat_interleave(group, dim=1)
            for cache in (key_cache, value_cache)
        )
        positions = torch.arange(length - len(queries), length, device=q.device)
        age = positions[:, None] - torch.arange(length, device=q.device)
        scores = torch.einsum("mhd,nhd->hmn", queries, k) / math.sqrt(q.shape[2])
        scores = scores.masked_fill(hidden_pairs(age, window), -math.inf)
        if sinks is not None:
            sink = sinks[:, None, None].expand(*scores.shape[:2], 1)
            scores = torch.cat([scores, sink], dim=-1)
        probabilities = scores.softmax(dim=-1)[..., :length]
        outs.append(torch.einsum("hmn,nhd->mhd", probabilities, v))
    return torch.cat(outs)


def _inputs(case: Case, make: InputMaker) -> dict[str, Any]:
    B, block_size, new = case["B"], case["block_size"], case["new"]
    blocks_per_sequence = -(-case["T"] // block_size)
    n_blocks = B * blocks_per_sequence
    cache_shape = n_blocks, block_size, case["H_KV"], case["D"]
    lengths = torch.tensor(context_lengths_of(case), dtype=torch.int32, device=make.device)
    starts = torch.arange(B + 1, dtype=torch.int32, device=make.device) * new
    inputs: dict[str, Any] = {
        "q": make.scores(B * new, case["H"], case["D"]),
        "key_cache": make.scores(*cache_shape),
        "value_cache": make.normal(*cache_shape),
        "block_tables": make.permutation(n_blocks, "int32").view(B, blocks_per_sequence),
        "context_lengths": lengths[make.permutation(B)],
        "cu_seqlens": starts,
        "max_seqlen": new,
        "window": window_of(case),
    }
    if case.choice("mask") == "window":  # as gpt-oss
        inputs["sinks"] = make.weights(case["H"], dtype="float32")
    return inputs


def _seen_keys(case: Case) -> int:
    """Keys that the new tokens see, over all sequences and tokens, for one head."""
    window, new = window_of(case), case["new"]
    n_seen = 0
    for length in context_lengths_of(case):
        before = length - new
        n_seen += new * before + _sum_to(new)
        if window:
            n_seen -= _sum_to(length - window) - _sum_to(before - window)
    return n_seen


def _sum_to(last: int) -> int:
    """1 + 2 + ... + last, or 0."""
    return max(last, 0) * (max(last, 0) + 1) // 2


def paged_prefill_attention_flop_count(case: Case) -> float:
    """Count two products of 2 D FLOP per head, new token and key that it sees; the softmax is not
    counted.
    """
    return 4 * case["D"] * _seen_keys(case) * case["H"]


def paged_prefill_attention_memory_bytes(case: Case) -> float:
    """Reads q, the keys and values that some token sees once, and 4-byte block table entries,
    lengths and offsets; writes out. Sinks are not counted.
    """
    window, new = window_of(case), case["new"]
    n_cached = n_entries = 0
    for length in context_lengths_of(case):
        n_visible = length
        if window:
            n_visible = min(length, window + new - 1)
        n_cached += 2 * case["H_KV"] * n_visible * case["D"]
        n_entries += -(-n_visible // case["block_size"]) + 2
    n_tokens = case["B"] * new
    return (n_cached + 2 * n_tokens * case["H"] * case["D"]) * case.itemsize + 4 * (n_entries + 1)


# chunks of 2048 new tokens in the last quarter of prompts of 8192
_CHUNKS = only(decode_attention([LLAMA_3_1_70B], batches=[4]), "tp1")
_GPT_OSS = only(decode_attention([GPT_OSS_120B], batches=[4]), "tp1")

paged_prefill_attention_spec = KernelSpec(
    name="paged_prefill_attention",
    family="attention",
    inputs=_inputs,
    reference=paged_prefill_attention_reference,
    cases=[
        *small_cases(
            {
                "B": 2,
                "H": 8,
                "H_KV": 2,
                "T": 512,
                "D": 64,
                "new": 128,
                "block_size": 16,
                "mask": "causal",
            },
            dtypes=["bfloat16"],
        ),
        *model_cases(with_choice(_CHUNKS, new=2048, block_size=16, mask="causal")),
        *model_cases(with_choice(_GPT_OSS, new=2048, block_size=16, mask="window", window=128)),
    ],
    edges=[
        *cases(
            shapes=[
                {
                    "B": 3,
                    "H": 3,
                    "H_KV": 3,
                    "T": 90,
                    "D": 40,
                    "new": 37,
                    "block_size": 5,
                    "mask": "window",
                    "window": 9,
                },
                {
                    "B": 1,
                    "H": 4,
                    "H_KV": 1,
                    "T": 70,
                    "D": 63,
                    "new": 70,
                    "block_size": 16,
                    "mask": "causal",
                },
                {
                    "B": 0,
                    "H": 4,
                    "H_KV": 2,
                    "T": 9,
                    "D": 16,
                    "new": 3,
                    "block_size": 4,
                    "mask": "causal",
                },
            ],
            dtypes=["float16"],
        ),
    ],
    flop_count=paged_prefill_attention_flop_count,
    memory_bytes=paged_prefill_attention_memory_bytes,
    token_count=lambda case: case["B"] * case["new"],
    formula="out = softmax([q kᵀ / sqrt(D) + mask, sink])[:-1] v over the blocks of each sequence",
    source="Kwon et al., Efficient Memory Management for Large Language Model Serving with "
    "PagedAttention, 2023 (arXiv 2309.06180), section 4.4",
    interpreted_shape={"B": 2, "H": 2, "H_KV": 1, "T": 90, "new": 40, "window": 20},
)


@paged_prefill_attention_spec.implementation("triton", directions=["fwd"], deterministic=True)
def paged_prefill_attention(
    q: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    block_tables: Tensor,
    context_lengths: Tensor,
    cu_seqlens: Tensor,
    max_seqlen: int,
    window: int = 0,
    sinks: Tensor | None = None,
) -> Tensor:
    """Compute causal attention of new tokens over their cached context, accumulated in float32.

    Args:
        q: [n_tokens, H, D], the new tokens of all sequences in order, contiguous along its last
            dim, D at most 256.
        key_cache: [n_blocks, block_size, H_KV, D] of q's dtype, contiguous along its last dim, with
            the keys of the new tokens; each head serves `H / H_KV` consecutive heads of q.
        value_cache: [n_blocks, block_size, H_KV, D] of q's dtype.
        block_tables: [B, blocks_per_sequence] int32, the blocks of each sequence in order; several
            sequences may share blocks. Entries are not checked.
        context_lengths: [B] int32, cached tokens of each sequence, the new ones included.
        cu_seqlens: [B + 1] int32, cumulative numbers of new tokens, from 0.
        max_seqlen: Maximum number of new tokens of a sequence.
        window: Maximum number of keys per query, including its own; 0 for no limit.
        sinks: [H] float32, a score of each head without a value; None for no sinks.

    Returns:
        [n_tokens, H, D] in q's dtype, contiguous.
    """
    name = "paged_prefill_attention"
    require_operands(name, dims=3, q=q)
    require_operands(name, q=q, key_cache=key_cache, value_cache=value_cache)
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
    require_integers(
        name,
        dtype=torch.int32,
        dims=1,
        like=q,
        context_lengths=context_lengths,
        cu_seqlens=cu_seqlens,
    )
    require_equal(
        name,
        "the sequences",
        block_tables=len(block_tables),
        context_lengths=len(context_lengths),
        cu_seqlens=len(cu_seqlens) - 1,
    )
    if sinks is not None:
        require_operands(name, dims=1, dtypes=(torch.float32,), sinks=sinks)
        require_equal(
            name, "heads and device", q=(q.shape[1], q.device), sinks=(len(sinks), sinks.device)
        )
    if window < 0:
        raise KernelError(f"{name}: window is {window}, must be at least 0; pass 0 for no limit")
    return prefill_op(
        q,
        key_cache,
        value_cache,
        block_tables,
        context_lengths,
        cu_seqlens,
        max_seqlen,
        window,
        sinks,
    )


@paged_prefill_attention_spec.implementation("torch", directions=["fwd"], compile=True)
def _paged_prefill_attention_torch(
    q: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    block_tables: Tensor,
    context_lengths: Tensor,
    cu_seqlens: Tensor,
    max_seqlen: int,
    window: int = 0,
    sinks: Tensor | None = None,
) -> Tensor:
    # new tokens in rows of one length, [B, max_seqlen]
    in_row = torch.arange(max_seqlen, device=q.device)
    n_new = cu_seqlens.diff()
    tokens = (cu_seqlens[:-1, None] + in_row).clamp(max=max(len(q) - 1, 0))
    queries = q[tokens].transpose(1, 2)  # [B, H, max_seqlen, D]
    group = q.shape[1] // key_cache.shape[2]
    k, v = (
        cache[block_tables].flatten(1, 2).transpose(1, 2).repeat_interleave(group, dim=1)
        for cache in (key_cache, value_cache)
    )  # [B, H, T, D]
    positions = (context_lengths - n_new)[:, None] + in_row
    age = positions[:, :, None] - torch.arange(k.shape[2], device=q.device)
    is_hidden = hidden_pairs(age, window)
    scores = queries @ k.transpose(2, 3) / math.sqrt(q.shape[2])
    scores = scores.masked_fill(is_hidden[:, None], -math.inf)
    if sinks is not None:
        sink = sinks.to(q.dtype)[:, None, None].expand(*scores.shape[:3], 1)
        scores = torch.cat([scores, sink], dim=-1)
    out = scores.softmax(dim=-1)[..., : k.shape[2]] @ v
    sequence = torch.searchsorted(cu_seqlens[1:], torch.arange(len(q), device=q.device), right=True)
    row = torch.arange(len(q), device=q.device) - cu_seqlens[sequence]
    return out.transpose(1, 2)[sequence, row]

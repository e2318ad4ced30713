"""Attention of one new token per sequence over a paged cache of keys and values: the decode step of a language model.

A sequence's tokens lie in blocks all over the cache, in the order that its row of the block table gives. All that
counts is to read them once at full bandwidth: one program serves all query heads that share a key head, and a sequence
is split over many programs. What each of them finds is merged in a fixed order, weighted by its log-sum-exp.

Source: Kwon et al., PagedAttention, SOSP 2023 (arXiv 2309.06180), for the cache; Dao et al., Flash-Decoding for
long-context inference, 2023, for the splits.
"""

import math
from inspect import signature
from typing import Any

import torch
import triton
import triton.language as tl

from kernels.attention.operator import require_heads
from kernels.dots import dot
from kernels.models import LLAMA_3_1_70B
from kernels.operands import refuse_gradients, require_equal, require_integers, require_operands
from kernels.shapes import decode_attention, model_cases, only, with_choice
from kernels.target import Target, current_target, multiprocessor_count
from roofwatch import Case, InputMaker, KernelSpec, UnsupportedError, cases

_LOWEST = tl.constexpr(-1e38)
"""Below every score. Minus infinity would make NaN of a row that has seen no key yet."""
_PROGRAMS_PER_MULTIPROCESSOR = 16
"""Enough for sequences of unequal lengths to keep all of them busy to the end."""
_MERGED_SPLITS = tl.constexpr(16)
# as many tiles, and one, as the shared memory holds for two or three programs; AMD's loads wait in registers
_STAGES = {"sm_80": 3, "sm_90": 3, "sm_100": 3, "sm_120": 2, "gfx942": 1, "gfx950": 1}


@triton.jit
def _paged_decode_attention_kernel(
    q_ptr,  # [B, H, D]
    key_cache_ptr,  # [n_blocks, block_size, H_KV, D]
    value_cache_ptr,  # [n_blocks, block_size, H_KV, D]
    block_tables_ptr,  # [B, blocks_per_sequence]
    context_lengths_ptr,  # [B]
    out_ptr,  # [B, H, n_splits, D]
    lse_ptr,  # [B, H, n_splits]
    q_strides,
    key_strides,
    value_strides,
    blocks_per_sequence,
    H_KV,
    group,
    n_splits,
    tokens_per_split,
    scale,
    BLOCK_SIZE: tl.constexpr,
    D: tl.constexpr,
    BLOCK_H: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
):
    # heads of a token are neighbours in memory, so programs that run together work on them
    kv_head = tl.program_id(0) % H_KV
    split = tl.program_id(0) // H_KV % n_splits
    b = (tl.program_id(0) // H_KV // n_splits).to(tl.int64)
    length = tl.load(context_lengths_ptr + b)
    start = split * tokens_per_split
    stop = tl.minimum(start + tokens_per_split, length)
    if (start >= length) & (split > 0):
        return
    offs_h = tl.arange(0, BLOCK_H)
    offs_d = tl.arange(0, BLOCK_D)
    head = kv_head * group + offs_h
    mask = (offs_h < group)[:, None] & (offs_d < D)[None, :]
    q_ptrs = q_ptr + b * q_strides[0] + head[:, None] * q_strides[1] + offs_d[None, :]
    q = tl.load(q_ptrs, mask=mask, other=0.0)  # [BLOCK_H, BLOCK_D]
    key_cache_ptr += kv_head.to(tl.int64) * key_strides[2]
    value_cache_ptr += kv_head.to(tl.int64) * value_strides[2]
    block_tables_ptr += b * blocks_per_sequence
    acc = tl.zeros((BLOCK_H, BLOCK_D), tl.float32)
    row_max = tl.full((BLOCK_H,), _LOWEST, tl.float32)
    row_sum = tl.zeros((BLOCK_H,), tl.float32)
    full_stop = tl.maximum(stop - start, 0) // BLOCK_N * BLOCK_N + start
    tokens = start + tl.arange(0, BLOCK_N)
    blocks = tl.load(block_tables_ptr + tokens // BLOCK_SIZE, mask=tokens < stop, other=0)  # [BLOCK_N]
    for is_edge in tl.static_range(2):
        for first in range(full_stop if is_edge else start, stop if is_edge else full_stop, BLOCK_N):
            tokens = first + tl.arange(0, BLOCK_N)
            # one tile ahead, so that the addresses of keys and values never wait for them
            next_tokens = tokens + BLOCK_N
            next_blocks = tl.load(
                block_tables_ptr + next_tokens // BLOCK_SIZE, mask=next_tokens < stop, other=0
            )  # [BLOCK_N]
            in_block = tokens % BLOCK_SIZE
            key_rows = blocks.to(tl.int64) * key_strides[0] + in_block * key_strides[1]
            value_rows = blocks.to(tl.int64) * value_strides[0] + in_block * value_strides[1]
            key_ptrs = key_cache_ptr + key_rows[:, None] + offs_d[None, :]
            value_ptrs = value_cache_ptr + value_rows[:, None] + offs_d[None, :]
            if is_edge or D != BLOCK_D:
                mask_kv = (tokens < stop)[:, None] & (offs_d < D)[None, :]
                k = tl.load(key_ptrs, mask=mask_kv, other=0.0)  # [BLOCK_N, BLOCK_D]
                v = tl.load(value_ptrs, mask=mask_kv, other=0.0)  # [BLOCK_N, BLOCK_D]
            else:
                k = tl.load(key_ptrs)  # [BLOCK_N, BLOCK_D]
                v = tl.load(value_ptrs)  # [BLOCK_N, BLOCK_D]
            scores = dot(q, k.T, tl.zeros((BLOCK_H, BLOCK_N), tl.float32))
            if is_edge:
                scores = tl.where((tokens < stop)[None, :], scores, -float("inf"))
            new_max = tl.maximum(row_max, tl.max(scores, axis=1) * scale)
            exps = tl.exp2(scores * scale - new_max[:, None])
            correction = tl.exp2(row_max - new_max)
            row_sum = row_sum * correction + tl.sum(exps, axis=1)
            acc = dot(exps.to(v.dtype), v, acc * correction[:, None])
            row_max = new_max
            blocks = next_blocks
    # a sequence without tokens gives zeros
    out = acc / tl.where(row_sum > 0, row_sum, 1.0)[:, None]
    row = (b * H_KV * group + head) * n_splits + split
    tl.store(out_ptr + row[:, None] * D + offs_d[None, :], out.to(out_ptr.dtype.element_ty), mask=mask)
    tl.store(lse_ptr + row, row_max + tl.log2(row_sum), mask=offs_h < group)  # [BLOCK_H]


@triton.jit
def _merge_splits_kernel(
    split_out_ptr,  # [B, H, n_splits, D]
    lse_ptr,  # [B, H, n_splits]
    context_lengths_ptr,  # [B]
    out_ptr,  # [B, H, D]
    H,
    n_splits,
    tokens_per_split,
    D: tl.constexpr,
    BLOCK_D: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    n_filled = tl.cdiv(tl.load(context_lengths_ptr + row // H), tokens_per_split)
    offs_d = tl.arange(0, BLOCK_D)
    acc = tl.zeros((BLOCK_D,), tl.float32)
    total_max = -1e38
    total_sum = 0.0
    for first in range(0, n_filled, _MERGED_SPLITS):
        offs_s = first + tl.arange(0, _MERGED_SPLITS)
        mask_s = offs_s < n_filled
        rows = row * n_splits + offs_s
        lse = tl.load(lse_ptr + rows, mask=mask_s, other=-float("inf"))  # [_MERGED_SPLITS]
        mask = mask_s[:, None] & (offs_d < D)[None, :]
        outs = tl.load(split_out_ptr + rows[:, None] * D + offs_d[None, :], mask=mask, other=0.0)
        new_max = tl.maximum(total_max, tl.max(lse, axis=0))
        weights = tl.exp2(lse - new_max)
        correction = tl.exp2(total_max - new_max)
        acc = acc * correction + tl.sum(weights[:, None] * outs, axis=0)
        total_sum = total_sum * correction + tl.sum(weights, axis=0)
        total_max = new_max
    out = acc / tl.where(total_sum > 0, total_sum, 1.0)
    tl.store(out_ptr + row * D + offs_d, out.to(out_ptr.dtype.element_ty), mask=offs_d < D)  # [BLOCK_D]


def paged_decode_attention_config(group: int, D: int, itemsize: int, target: Target) -> dict[str, int]:
    """Tiles of 16 KiB of keys and as much of values, of which all but one stage of the pipeline are under way. A matrix
    product has at least 16 rows; those of heads that are not there cost no traffic.
    """
    block_d = max(triton.next_power_of_2(D), 16)
    return {
        "BLOCK_H": max(triton.next_power_of_2(group), 16),
        "BLOCK_N": max(min(16_384 // (block_d * itemsize), 128), 16),
        "BLOCK_D": block_d,
        "num_warps": 4,
        "num_stages": _STAGES.get(target.arch, 2),
    }


def tokens_per_split(max_tokens: int, n_key_heads: int, n_multiprocessors: int, block_n: int) -> int:
    """Tokens that a program works on: whole tiles, two at the least, and few enough to keep the GPU busy.

    Args:
        max_tokens: Of the longest sequence.
        n_key_heads: Of all sequences together.
        n_multiprocessors: Of the GPU.
        block_n: Tokens of a tile.
    """
    n_splits = max(_PROGRAMS_PER_MULTIPROCESSOR * n_multiprocessors // n_key_heads, 1)
    n_tiles = int(triton.cdiv(triton.cdiv(max_tokens, n_splits), block_n))
    return max(n_tiles, 2) * block_n


@torch.library.custom_op("roofwatch::paged_decode_attention", mutates_args=())
def _paged_decode_attention_op(
    q: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    block_tables: torch.Tensor,
    context_lengths: torch.Tensor,
) -> torch.Tensor:
    B, H, D = q.shape
    block_size, H_KV = key_cache.shape[1:3]
    max_tokens = block_tables.shape[1] * block_size
    out = q.new_empty(B, H, D)
    if not out.numel():
        return out  # a grid of no programs cannot be launched
    config = paged_decode_attention_config(H // H_KV, D, q.element_size(), current_target())
    per_split = tokens_per_split(max_tokens, B * H_KV, multiprocessor_count(q), config["BLOCK_N"])
    n_splits = max(triton.cdiv(max_tokens, per_split), 1)
    split_out = out if n_splits == 1 else q.new_empty(B, H, n_splits, D, dtype=torch.float32)
    lse = q.new_empty(B, H, n_splits, dtype=torch.float32)
    with torch.cuda.device_of(q):
        _paged_decode_attention_kernel[(B * n_splits * H_KV,)](
            q,
            key_cache,
            value_cache,
            block_tables,
            context_lengths,
            split_out,
            lse,
            q.stride()[:2],
            key_cache.stride()[:3],
            value_cache.stride()[:3],
            block_tables.shape[1],
            H_KV,
            H // H_KV,
            n_splits,
            per_split,
            math.log2(math.e) / math.sqrt(D),
            BLOCK_SIZE=block_size,
            D=D,
            **config,
        )
        if n_splits > 1:
            _merge_splits_kernel[(B * H,)](
                split_out, lse, context_lengths, out, H, n_splits, per_split, D=D, BLOCK_D=config["BLOCK_D"]
            )
    return out


@_paged_decode_attention_op.register_fake
def _paged_decode_attention_fake(q: torch.Tensor, *_others: torch.Tensor) -> torch.Tensor:
    return q.new_empty(q.shape)


def paged_decode_attention_reference(
    q: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    block_tables: torch.Tensor,
    context_lengths: torch.Tensor,
) -> torch.Tensor:
    """The formula, `softmax(q kᵀ / sqrt(D)) v` over the first tokens of each sequence, collected from their blocks."""
    group = q.shape[1] // key_cache.shape[2]
    outs = []
    for query, blocks, length in zip(q, block_tables, context_lengths.tolist(), strict=True):
        k, v = (
            cache[blocks].flatten(0, 1)[:length].repeat_interleave(group, dim=1) for cache in (key_cache, value_cache)
        )
        scores = torch.einsum("hd,thd->ht", query, k) / math.sqrt(q.shape[2])
        outs.append(torch.einsum("ht,thd->hd", scores.softmax(dim=-1), v))
    return torch.stack(outs) if outs else torch.empty_like(q)


def context_lengths_of(case: Case) -> list[int]:
    """T for the first sequence, down to about half of it for the last."""
    B, T = case["B"], case["T"]
    return [T - T * n // (2 * B) for n in range(B)]


def _inputs(case: Case, make: InputMaker) -> dict[str, Any]:
    B, block_size = case["B"], case["block_size"]
    blocks_per_sequence = -(-case["T"] // block_size)
    cache_shape = B * blocks_per_sequence, block_size, case["H_KV"], case["D"]
    lengths = torch.tensor(context_lengths_of(case), dtype=torch.int32, device=make.device)
    return {
        "q": make.normal(B, case["H"], case["D"]),
        "key_cache": make.normal(*cache_shape),
        "value_cache": make.normal(*cache_shape),
        "block_tables": make.permutation(B * blocks_per_sequence, "int32").view(B, blocks_per_sequence),
        "context_lengths": lengths[make.permutation(B)],
    }


def paged_decode_attention_flop_count(case: Case) -> float:
    """Two products of 2 D FLOP for each token of a sequence's context, in each head; the softmax is left out."""
    return 4 * case["D"] * sum(context_lengths_of(case)) * case["H"]


def paged_decode_attention_memory_bytes(case: Case) -> float:
    """Reads the keys and values of each context once, and q; writes out. Block table and lengths, 4 bytes each, are
    counted too.
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
        *cases(
            shapes=[{"B": 4, "H": 8, "H_KV": 2, "T": 1024, "D": 64, "block_size": 16}],
            dtypes=["float32", "bfloat16"],
            tags=["small"],
        ),
        *model_cases(
            [
                *with_choice(decode_attention(), block_size=16),
                *with_choice(only(decode_attention([LLAMA_3_1_70B], batches=[16]), "tp1"), block_size=64),
                *with_choice(only(decode_attention([LLAMA_3_1_70B], batches=[16]), "tp1"), block_size=256),
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
        *cases(shapes=[{"B": 1, "H": 2, "H_KV": 1, "T": 1000, "D": 256, "block_size": 16}], dtypes=["bfloat16"]),
    ],
    flop_count=paged_decode_attention_flop_count,
    memory_bytes=paged_decode_attention_memory_bytes,
    formula="out = softmax(q kᵀ / sqrt(D)) v over the blocks of each sequence",
    source="Kwon et al., Efficient Memory Management for Large Language Model Serving with PagedAttention, 2023 "
    "(arXiv 2309.06180)",
    interpreted_shape={"B": 2, "H": 4, "H_KV": 2, "T": 300},
)


@paged_decode_attention_spec.implementation("triton", directions=["fwd"], deterministic=True)
def paged_decode_attention(
    q: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    block_tables: torch.Tensor,
    context_lengths: torch.Tensor,
) -> torch.Tensor:
    """`softmax(q kᵀ / sqrt(D)) v` of one token per sequence over its context in the cache, accumulated in float32.

    Args:
        q: [B, H, D], contiguous along its last dim, D at most 256.
        key_cache: [n_blocks, block_size, H_KV, D] of q's dtype, contiguous along its last dim; each of its heads serves
            `H / H_KV` heads of q, one behind another.
        value_cache: [n_blocks, block_size, H_KV, D] of q's dtype.
        block_tables: [B, blocks_per_sequence] int32, the blocks of each sequence in order. Neither it nor the lengths
            are read here: an entry that is no block of the cache is read out of bounds, unless it lies beyond the
            context.
        context_lengths: [B] int32, tokens of each sequence, at most `blocks_per_sequence * block_size`; 0 gives zeros.

    Returns:
        [B, H, D] in q's dtype, contiguous.

    Raises:
        KernelError: an operand has another layout, shape or dtype, or requires a gradient.
    """
    name = "paged_decode_attention"
    require_operands(name, q=q, key_cache=key_cache, value_cache=value_cache)
    require_operands(name, dims=3, q=q)
    require_operands(name, dims=4, key_cache=key_cache)
    require_equal(name, "the shapes", key_cache=tuple(key_cache.shape), value_cache=tuple(value_cache.shape))
    require_equal(name, "the dtypes", q=q.dtype, key_cache=key_cache.dtype, value_cache=value_cache.dtype)
    require_equal(name, "the head dims", q=q.shape[2], key_cache=key_cache.shape[3])
    require_heads(name, q.shape[1], key_cache.shape[2], q.shape[2])
    require_integers(name, dtype=torch.int32, dims=2, beside=q, block_tables=block_tables)
    require_integers(name, dtype=torch.int32, dims=1, beside=q, context_lengths=context_lengths)
    require_equal(name, "the sequences", q=len(q), block_tables=len(block_tables), context_lengths=len(context_lengths))
    refuse_gradients(name, q=q, key_cache=key_cache, value_cache=value_cache)
    out: torch.Tensor = _paged_decode_attention_op(q, key_cache, value_cache, block_tables, context_lengths)
    return out


@paged_decode_attention_spec.implementation("torch", directions=["fwd"], compile=True)
def _paged_decode_attention_torch(
    q: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    block_tables: torch.Tensor,
    context_lengths: torch.Tensor,
) -> torch.Tensor:
    k, v = (cache[block_tables].flatten(1, 2).transpose(1, 2) for cache in (key_cache, value_cache))
    is_context = torch.arange(k.shape[2], device=q.device) < context_lengths[:, None]
    out = torch.nn.functional.scaled_dot_product_attention(
        q.unsqueeze(2), k, v, attn_mask=is_context[:, None, None], enable_gqa=q.shape[1] != k.shape[1]
    )
    return out.squeeze(2)


@paged_decode_attention_spec.implementation("torch", name="flash", directions=["fwd"])
def _paged_decode_attention_flash(
    q: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    block_tables: torch.Tensor,
    context_lengths: torch.Tensor,
) -> torch.Tensor:
    if not q.is_cuda:
        raise UnsupportedError("needs a GPU")
    if q.dtype == torch.float32:
        raise UnsupportedError("takes float16 and bfloat16 alone")
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
    assert isinstance(out, torch.Tensor)  # a pair only where more is asked for
    return out

"""The kernel of `paged_prefill_attention`: a program processes `BLOCK_M` new tokens of a head.

Source: Dao, FlashAttention-2, 2023 (arXiv 2307.08691), algorithm 1, for the order of the work.
"""

import math

import triton
import triton.language as tl
from torch import Tensor

from roofwatch.kernels.attention.tiles import add_scores, first_sums
from roofwatch.kernels.attention.tiling import padded_width
from roofwatch.kernels.building_blocks.operators import operator
from roofwatch.kernels.building_blocks.target import DeviceTarget, current_target
from roofwatch.kernels.building_blocks.tiles import dot


@triton.jit
def _paged_prefill_attention_kernel(
    q_ptr,  # [n_tokens, H, D]
    key_cache_ptr,  # [n_blocks, block_size, H_KV, D]
    value_cache_ptr,  # [n_blocks, block_size, H_KV, D]
    block_tables_ptr,  # [B, blocks_per_sequence]
    context_lengths_ptr,  # [B]
    cu_seqlens_ptr,  # [B + 1]
    sinks_ptr,  # [H]
    out_ptr,  # [n_tokens, H, D]
    q_strides,
    key_strides,
    value_strides,
    blocks_per_sequence,
    H,
    group,
    n_tiles,
    window,
    scale,
    HAS_WINDOW: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    D: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
):
    head = tl.program_id(0) % H
    # the last queries see the most keys: start with them
    tile = n_tiles - 1 - tl.program_id(0) // H % n_tiles
    b = (tl.program_id(0) // H // n_tiles).to(tl.int64)
    first_token = tl.load(cu_seqlens_ptr + b)
    n_queries = tl.load(cu_seqlens_ptr + b + 1) - first_token
    first_query = tile * BLOCK_M
    if first_query >= n_queries:
        return
    length = tl.load(context_lengths_ptr + b)
    first_position = length - n_queries + first_query
    offs_m = first_query + tl.arange(0, BLOCK_M)
    offs_d = tl.arange(0, BLOCK_D)
    positions = length - n_queries + offs_m
    token = (first_token + offs_m).to(tl.int64)
    mask_q = (offs_m < n_queries)[:, None] & (offs_d < D)[None, :]
    q_ptrs = q_ptr + token[:, None] * q_strides[0] + head * q_strides[1] + offs_d[None, :]
    q = tl.load(q_ptrs, mask=mask_q, other=0.0)  # [BLOCK_M, BLOCK_D]
    kv_head = (head // group).to(tl.int64)
    key_cache_ptr += kv_head * key_strides[2]
    value_cache_ptr += kv_head * value_strides[2]
    block_tables_ptr += b * blocks_per_sequence
    acc = tl.zeros((BLOCK_M, BLOCK_D), tl.float32)
    row_max, row_sum = first_sums(sinks_ptr, head, BLOCK_M)
    # all queries of the tile see the keys before the first one's tile
    start = 0
    full_stop = first_position // BLOCK_N * BLOCK_N
    FIRST_PHASE: tl.constexpr = 1 if HAS_WINDOW else 0
    if HAS_WINDOW:  # masks every tile
        full_stop = tl.maximum(first_position - window + 1, 0) // BLOCK_N * BLOCK_N
    stop = tl.minimum(first_position + BLOCK_M, length)
    for is_edge in tl.static_range(FIRST_PHASE, 2):
        for first in range(
            full_stop if is_edge else start, stop if is_edge else full_stop, BLOCK_N
        ):
            keys = first + tl.arange(0, BLOCK_N)
            blocks = tl.load(
                block_tables_ptr + keys // BLOCK_SIZE, mask=keys < length, other=0
            )  # [BLOCK_N]
            in_block = keys % BLOCK_SIZE
            key_rows = blocks.to(tl.int64) * key_strides[0] + in_block * key_strides[1]
            value_rows = blocks.to(tl.int64) * value_strides[0] + in_block * value_strides[1]
            key_ptrs = key_cache_ptr + key_rows[:, None] + offs_d[None, :]
            value_ptrs = value_cache_ptr + value_rows[:, None] + offs_d[None, :]
            if is_edge or D != BLOCK_D:
                mask_kv = (keys < length)[:, None] & (offs_d < D)[None, :]
                k = tl.load(key_ptrs, mask=mask_kv, other=0.0)  # [BLOCK_N, BLOCK_D]
                v = tl.load(value_ptrs, mask=mask_kv, other=0.0)  # [BLOCK_N, BLOCK_D]
            else:
                k = tl.load(key_ptrs)  # [BLOCK_N, BLOCK_D]
                v = tl.load(value_ptrs)  # [BLOCK_N, BLOCK_D]
            scores = dot(q, k.T, tl.zeros((BLOCK_M, BLOCK_N), tl.float32))
            if is_edge:
                age = positions[:, None] - keys[None, :]
                is_seen = age >= 0
                if HAS_WINDOW:
                    is_seen = is_seen & (age < window)
                scores = tl.where(is_seen, scores, -float("inf"))
            exps, correction, row_max, row_sum = add_scores(scores, scale, row_max, row_sum)
            acc = dot(exps.to(v.dtype), v, acc * correction[:, None])
    out = acc / tl.where(row_sum > 0, row_sum, 1.0)[:, None]
    out_ptrs = out_ptr + (token[:, None] * H + head) * D + offs_d[None, :]
    tl.store(out_ptrs, out.to(out_ptr.dtype.element_ty), mask=mask_q)  # [BLOCK_M, BLOCK_D]


def paged_prefill_attention_config(D: int, itemsize: int, target: DeviceTarget) -> dict[str, int]:
    """Choose tiles of queries and keys that fit the registers and shared memory of the target."""
    width = padded_width(D)
    is_amd = target.backend == "hip"
    if width > 128 or itemsize == 4:
        block_m, block_n, n_warps = 32, 32, 4
    else:
        block_m, block_n = 128, 32 if target.arch == "sm_80" else 64
        n_warps = 4 if is_amd else 8
    return {
        "BLOCK_M": block_m,
        "BLOCK_N": block_n,
        "BLOCK_D": width,
        "num_warps": n_warps,
        "num_stages": 1 if is_amd else 2,
    }


def _empty_out(
    q: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    block_tables: Tensor,
    context_lengths: Tensor,
    cu_seqlens: Tensor,
    max_seqlen: int,
    window: int,
    sinks: Tensor | None,
) -> Tensor:
    return q.new_empty(q.shape)


@operator("paged_prefill_attention", _empty_out)
def prefill_op(
    q,
    key_cache,
    value_cache,
    block_tables,
    context_lengths,
    cu_seqlens,
    max_seqlen,
    window,
    sinks,
    out,
):
    _, H, D = q.shape
    B, blocks_per_sequence = block_tables.shape
    block_size, H_KV = key_cache.shape[1:3]
    config = paged_prefill_attention_config(D, q.element_size(), current_target())
    n_tiles = triton.cdiv(max_seqlen, config["BLOCK_M"])
    _paged_prefill_attention_kernel[(n_tiles * H * B,)](
        q,
        key_cache,
        value_cache,
        block_tables,
        context_lengths,
        cu_seqlens,
        sinks,
        out,
        q.stride()[:2],
        key_cache.stride()[:3],
        value_cache.stride()[:3],
        blocks_per_sequence,
        H,
        H // H_KV,
        n_tiles,
        window,
        math.log2(math.e) / math.sqrt(D),
        HAS_WINDOW=window > 0,
        BLOCK_SIZE=block_size,
        D=D,
        **config,
    )

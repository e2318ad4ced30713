"""Attention forward with an online softmax.

A program processes `BLOCK_M` queries of one head and iterates over tiles of keys. The log-sum-exp
of each row is saved for the backward pass.

Source: Dao, FlashAttention-2, 2023 (arXiv 2307.08691), algorithm 1.
"""

import math
from dataclasses import asdict

import torch
import triton
import triton.language as tl
from torch import Tensor

from roofwatch.kernels.attention.backward import attention_backward, attention_sinks_backward
from roofwatch.kernels.attention.tiles import (
    add_scores,
    first_sums,
    is_seen,
    load_tile,
    place_of,
    store_tile,
    token_at,
    visible_keys,
    walk,
)
from roofwatch.kernels.attention.tiling import (
    as_heads,
    as_tiles,
    forward_tiling,
    key_heads_in_cache,
    padded_width,
)
from roofwatch.kernels.building_blocks.operands import is_aligned
from roofwatch.kernels.building_blocks.operators import operator
from roofwatch.kernels.building_blocks.target import current_target
from roofwatch.kernels.building_blocks.tiles import dot


@triton.jit
def attention_kernel(
    q,  # [B, H, T, D]
    k,  # [B, H_KV, S, D]
    v,  # [B, H_KV, S, D]
    out,  # [B, H, T, D]
    lse_ptr,  # [B, H, T]
    sinks_ptr,  # [H]
    cu_seqlens_ptr,
    q_strides,
    k_strides,
    v_strides,
    out_strides,
    lse_stride,
    n_heads,
    H,
    group,
    n_tiles,
    section,
    n_queries,
    n_keys,
    window,
    scale,
    IS_CAUSAL: tl.constexpr,
    HAS_WINDOW: tl.constexpr,
    HAS_FULL_TILE: tl.constexpr,
    D: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
    IS_ALIGNED: tl.constexpr,
):
    IS_PACKED: tl.constexpr = cu_seqlens_ptr is not None
    tile, h, b, first_token, n_queries, n_keys = place_of(
        tl.program_id(0), n_heads, H, n_tiles, section, cu_seqlens_ptr, n_queries, n_keys
    )
    # the last queries see the most keys: start with them
    first_query = (n_tiles - 1 - tile) * BLOCK_M
    if first_query >= n_queries:
        return
    query_token = first_token + first_query
    n_rows = n_queries - first_query
    # fmt: off
    q_tile = load_tile(
        q, q_strides, b, h, query_token, n_rows, D, BLOCK_M, BLOCK_D, IS_ALIGNED, True, IS_PACKED
    )  # [BLOCK_M, BLOCK_D]
    acc = tl.zeros((BLOCK_M, BLOCK_D), tl.float32)
    row_max, row_sum = first_sums(sinks_ptr, h, BLOCK_M)
    start, full_start, full_stop, stop = visible_keys(
        first_query, n_keys, window, IS_CAUSAL, HAS_WINDOW, HAS_FULL_TILE, BLOCK_M, BLOCK_N
    )
    for is_edge in tl.static_range(0 if HAS_FULL_TILE else 1, 2):
        first_step, end = walk(start, full_start, full_stop, stop, is_edge)
        for step in range(first_step, end, BLOCK_N):
            first_key = token_at(step, full_start, full_stop, is_edge)
            key_token = first_token + first_key
            n_left = n_keys - first_key
            # before k, or Triton puts a barrier of the program between the softmax and the second
            # product
            v_tile = load_tile(
                v, v_strides, b, h // group, key_token, n_left,
                D, BLOCK_N, BLOCK_D, IS_ALIGNED, is_edge, IS_PACKED
            )  # [BLOCK_N, BLOCK_D]
            k_tile = load_tile(
                k, k_strides, b, h // group, key_token, n_left,
                D, BLOCK_N, BLOCK_D, IS_ALIGNED, is_edge, IS_PACKED
            )  # [BLOCK_N, BLOCK_D]
            scores = dot(q_tile, k_tile.T, tl.zeros((BLOCK_M, BLOCK_N), tl.float32))
            if is_edge:
                offs_m = first_query - first_key + tl.arange(0, BLOCK_M)
                offs_n = tl.arange(0, BLOCK_N)
                seen = is_seen(
                    offs_m[:, None], offs_n[None, :], n_left, window, IS_CAUSAL, HAS_WINDOW
                )
                scores = tl.where(seen, scores, -float("inf"))
            exps, correction, row_max, row_sum = add_scores(scores, scale, row_max, row_sum)
            acc = dot(exps.to(v_tile.dtype), v_tile, acc * correction[:, None])
    out_tile = acc / row_sum[:, None]
    store_tile(
        out, out_tile, out_strides, b, h, query_token, n_rows, D,
        BLOCK_M, BLOCK_D, IS_ALIGNED,
    )
    # fmt: on
    offs_m = tl.arange(0, BLOCK_M)
    lse_ptr += (b * H + h).to(tl.int64) * lse_stride + query_token
    tl.store(lse_ptr + offs_m, row_max + tl.log2(row_sum), mask=offs_m < n_rows)  # [BLOCK_M]


def _empty_results(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    is_causal: bool,
    window: int,
    cu_seqlens: Tensor | None,
    max_seqlen: int | None,
) -> tuple[Tensor, Tensor]:
    heads = q if cu_seqlens is None else as_heads(q)
    return q.new_empty(q.shape), q.new_empty(heads.shape[:3], dtype=torch.float32)


def _launch(q, k, v, sinks, is_causal, window, cu_seqlens, max_seqlen, out, lse):
    """Compute `out` and `lse`, the log-sum-exp to base 2 of each query's scaled scores.

    Args:
        q: [B, H, T, D], or packed sequences [total, H, D].
        k: [B, H_KV, S, D], or [total, H_KV, D].
        v: As k.
        sinks: [H] float32, a score of each head that has no value; None for no sinks.
        is_causal: Query t sees keys 0 to t.
        window: Maximum number of keys per query, including its own; 0 for no limit.
        cu_seqlens: [n + 1], cumulative lengths of packed sequences.
        max_seqlen: Maximum length of a packed sequence.
        out: As q.
        lse: [B, H, T], or [1, H, total]; float32.
    """
    if not k.numel() or max_seqlen == 0:
        out.zero_()
        lse.fill_(-torch.inf)
        return
    if cu_seqlens is not None:
        q, k, v, out = map(as_heads, (q, k, v, out))
    B, H, T, D = q.shape
    H_KV, S = k.shape[1:3]
    target = current_target()
    config = forward_tiling(
        D,
        q.element_size(),
        target,
        is_plain=window == 0 and sinks is None and cu_seqlens is None,
    )
    n_heads = H * (B if cu_seqlens is None else len(cu_seqlens) - 1)
    n_tiles = triton.cdiv(T if max_seqlen is None else max_seqlen, config.BLOCK_M)
    attention_kernel[(n_tiles * n_heads,)](
        q,
        as_tiles(k, config.BLOCK_N, target),
        as_tiles(v, config.BLOCK_N, target),
        out,
        lse,
        sinks,
        cu_seqlens,
        q.stride()[:3],
        k.stride()[:3],
        v.stride()[:3],
        out.stride()[:3],
        T,
        n_heads,
        H,
        H // H_KV,
        n_tiles,
        H
        // H_KV
        * key_heads_in_cache(S if max_seqlen is None else max_seqlen, D, q.element_size()),
        T,
        S,
        window,
        math.log2(math.e) / math.sqrt(D),
        IS_CAUSAL=is_causal,
        HAS_WINDOW=window > 0,
        HAS_FULL_TILE=config.has_full_tile(window),
        D=D,
        BLOCK_D=padded_width(D),
        IS_ALIGNED=is_aligned(q, k, v, out),
        **asdict(config),
    )


@operator("attention", _empty_results, backward=attention_backward)
def attention_op(q, k, v, is_causal, window, cu_seqlens, max_seqlen, out, lse):
    _launch(q, k, v, None, is_causal, window, cu_seqlens, max_seqlen, out, lse)


def _empty_sink_results(
    q: Tensor, k: Tensor, v: Tensor, sinks: Tensor, window: int
) -> tuple[Tensor, Tensor]:
    return _empty_results(q, k, v, True, window, None, None)


@operator("attention_sinks", _empty_sink_results, backward=attention_sinks_backward)
def attention_sinks_op(q, k, v, sinks, window, out, lse):
    _launch(q, k, v, sinks, True, window, None, None, out, lse)

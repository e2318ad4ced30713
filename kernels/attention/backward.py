"""Attention backward: recomputes the probabilities from the scores and the saved log-sum-exp.

Two kernels without atomics, so results are deterministic. The first processes a tile of queries,
iterates over the keys and computes the gradient of q. It also stores `delta`, the row sums of out
times its gradient. The second processes a tile of keys, iterates over the queries of the heads that
share them and computes the gradients of k and v. If that gives too few programs, the heads are
split over several programs and their float32 results are summed afterwards.

    probs = exp2(scores - lse)               grad_v = probsᵀ grad_out
    grad_probs = grad_out vᵀ                 grad_q = scale · grad_scores k
    grad_scores = probs (grad_probs - delta) grad_k = scale · grad_scoresᵀ q

Source: Dao, FlashAttention-2, 2023 (arXiv 2307.08691), algorithm 2. It has one pass with atomic
adds and five products; this one has seven. Compiled for D = 128 with tiles of 64 queries and 128
keys, one pass would take 2560 cycles of the tensor cores per tile instead of 3584. But it needs
more than the 255 registers of a thread on sm_90, and 576 of 512 columns of tensor memory on sm_100.
"""

import math
from dataclasses import asdict

import torch
import triton
import triton.language as tl
from torch import Tensor

from roofwatch.kernels.attention.tiles import (
    attending_queries,
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
    attention_config,
    key_heads_in_cache,
    padded_width,
)
from roofwatch.kernels.building_blocks.operands import is_aligned
from roofwatch.kernels.building_blocks.operators import backward_operator
from roofwatch.kernels.building_blocks.target import current_target, persistent_program_count
from roofwatch.kernels.building_blocks.tiles import dot


@triton.jit
def query_gradient_kernel(
    q,  # [B, H, T, D]
    k,  # [B, H_KV, S, D]
    v,  # [B, H_KV, S, D]
    out,  # [B, H, T, D]
    grad_out,  # [B, H, T, D]
    lse_ptr,  # [B, H, T]
    delta_ptr,  # [B, H, T]
    grad_q,  # [B, H, T, D]
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
    log2_scale,
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
    first_query = (n_tiles - 1 - tile) * BLOCK_M
    if first_query >= n_queries:
        return
    query_token = first_token + first_query
    n_rows = n_queries - first_query
    # fmt: off
    q_tile = load_tile(
        q, q_strides, b, h, query_token, n_rows, D, BLOCK_M, BLOCK_D, IS_ALIGNED, True, IS_PACKED
    )  # [BLOCK_M, BLOCK_D]
    out_tile = load_tile(
        out, out_strides, b, h, query_token, n_rows,
        D, BLOCK_M, BLOCK_D, IS_ALIGNED, True, IS_PACKED
    )  # [BLOCK_M, BLOCK_D]
    grad_out_tile = load_tile(
        grad_out, out_strides, b, h, query_token, n_rows,
        D, BLOCK_M, BLOCK_D, IS_ALIGNED, True, IS_PACKED
    )  # [BLOCK_M, BLOCK_D]
    offs_m = (b * H + h).to(tl.int64) * lse_stride + query_token + tl.arange(0, BLOCK_M)
    mask_m = tl.arange(0, BLOCK_M) < n_rows
    delta = tl.sum(out_tile.to(tl.float32) * grad_out_tile.to(tl.float32), axis=1)
    lse = tl.load(lse_ptr + offs_m, mask=mask_m, other=0.0)  # [BLOCK_M]
    tl.store(delta_ptr + offs_m, delta, mask=mask_m)  # [BLOCK_M]
    acc = tl.zeros((BLOCK_M, BLOCK_D), tl.float32)
    start, full_start, full_stop, stop = visible_keys(
        first_query, n_keys, window, IS_CAUSAL, HAS_WINDOW, HAS_FULL_TILE, BLOCK_M, BLOCK_N
    )
    for is_edge in tl.static_range(0 if HAS_FULL_TILE else 1, 2):
        first_step, end = walk(start, full_start, full_stop, stop, is_edge)
        for step in range(first_step, end, BLOCK_N):
            first_key = token_at(step, full_start, full_stop, is_edge)
            key_token = first_token + first_key
            n_left = n_keys - first_key
            # before k, as in the forward kernel
            v_tile = load_tile(
                v, v_strides, b, h // group, key_token, n_left,
                D, BLOCK_N, BLOCK_D, IS_ALIGNED, is_edge, IS_PACKED
            )  # [BLOCK_N, BLOCK_D]
            k_tile = load_tile(
                k, k_strides, b, h // group, key_token, n_left,
                D, BLOCK_N, BLOCK_D, IS_ALIGNED, is_edge, IS_PACKED
            )  # [BLOCK_N, BLOCK_D]
            scores = dot(q_tile, k_tile.T, tl.zeros((BLOCK_M, BLOCK_N), tl.float32))
            probs = tl.exp2(scores * log2_scale - lse[:, None])
            if is_edge:
                rows = first_query - first_key + tl.arange(0, BLOCK_M)
                cols = tl.arange(0, BLOCK_N)
                seen = is_seen(rows[:, None], cols[None, :], n_left, window, IS_CAUSAL, HAS_WINDOW)
                probs = tl.where(seen, probs, 0.0)
            grad_probs = dot(grad_out_tile, v_tile.T, tl.zeros((BLOCK_M, BLOCK_N), tl.float32))
            grad_scores = probs * (grad_probs - delta[:, None])
            acc = dot(grad_scores.to(k_tile.dtype), k_tile, acc)
    acc *= scale
    store_tile(grad_q, acc, out_strides, b, h, query_token, n_rows, D, BLOCK_M, BLOCK_D, IS_ALIGNED)
    # fmt: on


@triton.jit
def key_gradient_kernel(
    q,  # [B, H, T, D]
    k,  # [B, H_KV, S, D]
    v,  # [B, H_KV, S, D]
    grad_out,  # [B, H, T, D]
    lse_ptr,  # [B, H, T]
    delta_ptr,  # [B, H, T]
    grad_k,  # [B, H_KV * shares, S, D]
    grad_v,  # [B, H_KV * shares, S, D]
    cu_seqlens_ptr,
    q_strides,
    k_strides,
    v_strides,
    out_strides,
    grad_k_strides,
    lse_stride,
    n_heads,
    H,
    heads_per_share,
    shares,
    n_tiles,
    section,
    n_queries,
    n_keys,
    window,
    scale,
    log2_scale,
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
    tile, share, b, first_token, n_queries, n_keys = place_of(
        tl.program_id(0),
        n_heads,
        H // heads_per_share,
        n_tiles,
        section,
        cu_seqlens_ptr,
        n_queries,
        n_keys,
    )
    # most queries see the first keys: start with them
    first_key = tile * BLOCK_N
    if first_key >= n_keys:
        return
    key_token = first_token + first_key
    n_rows = n_keys - first_key
    # fmt: off
    # rows past the last key are not stored, so packed sequences need no extra mask
    k_tile = load_tile(
        k, k_strides, b, share // shares, key_token, n_rows,
        D, BLOCK_N, BLOCK_D, IS_ALIGNED, True, False
    )  # [BLOCK_N, BLOCK_D]
    v_tile = load_tile(
        v, v_strides, b, share // shares, key_token, n_rows,
        D, BLOCK_N, BLOCK_D, IS_ALIGNED, True, False
    )  # [BLOCK_N, BLOCK_D]
    first_row = b.to(tl.int64) * H * lse_stride + first_token
    lse_ptr += first_row
    delta_ptr += first_row
    k_acc = tl.zeros((BLOCK_N, BLOCK_D), tl.float32)
    v_acc = tl.zeros((BLOCK_N, BLOCK_D), tl.float32)
    start, full_start, full_stop, stop = attending_queries(
        first_key, n_queries, window, IS_CAUSAL, HAS_WINDOW, HAS_FULL_TILE, BLOCK_M, BLOCK_N
    )
    for is_edge in tl.static_range(0 if HAS_FULL_TILE else 1, 2):
        first_step, end = walk(start, full_start, full_stop, stop, is_edge)
        n_steps = tl.cdiv(end - first_step, BLOCK_M)
        # no loads ahead in edge tiles, to save registers
        for step in tl.range(heads_per_share * n_steps, num_stages=1 if is_edge else None):
            # computed from `step`, or the loads are not started ahead
            h = share * heads_per_share + step // n_steps
            query_step = first_step + step % n_steps * BLOCK_M
            first_query = token_at(query_step, full_start, full_stop, is_edge)
            query_token = first_token + first_query
            n_left = n_queries - first_query
            q_tile = load_tile(
                q, q_strides, b, h, query_token, n_left,
                D, BLOCK_M, BLOCK_D, IS_ALIGNED, is_edge, IS_PACKED
            )  # [BLOCK_M, BLOCK_D]
            offs_m = h * lse_stride + first_query + tl.arange(0, BLOCK_M)
            if is_edge:
                # zero probability and gradient past the last query
                mask_m = tl.arange(0, BLOCK_M) < n_left
                lse = tl.load(lse_ptr + offs_m, mask=mask_m, other=float("inf"))  # [BLOCK_M]
            else:
                lse = tl.load(lse_ptr + offs_m)  # [BLOCK_M]
            scores = tl.zeros((BLOCK_N, BLOCK_M), tl.float32)
            if is_edge and IS_CAUSAL:
                rows = first_key - first_query + tl.arange(0, BLOCK_N)
                cols = tl.arange(0, BLOCK_M)
                seen = is_seen(cols[None, :], rows[:, None], n_rows, window, IS_CAUSAL, HAS_WINDOW)
                scores = tl.where(seen, 0.0, -float("inf"))
            probs = tl.exp2(dot(k_tile, q_tile.T, scores) * log2_scale - lse[None, :])
            grad_out_tile = load_tile(
                grad_out, out_strides, b, h, query_token, n_left,
                D, BLOCK_M, BLOCK_D, IS_ALIGNED, is_edge, IS_PACKED
            )  # [BLOCK_M, BLOCK_D]
            v_acc = dot(probs.to(grad_out_tile.dtype), grad_out_tile, v_acc)
            delta_ptrs = delta_ptr + offs_m
            # delta has shape [BLOCK_M]
            delta = tl.load(delta_ptrs, mask=mask_m, other=0.0) if is_edge else tl.load(delta_ptrs)
            # start the product from the subtracted term, to save registers
            grad_probs = tl.broadcast_to(-delta[None, :], (BLOCK_N, BLOCK_M))
            grad_scores = probs * dot(v_tile, grad_out_tile.T, grad_probs)
            k_acc = dot(grad_scores.to(q_tile.dtype), q_tile, k_acc)
    k_acc *= scale
    store_tile(
        grad_k, k_acc, grad_k_strides, b, share, key_token, n_rows, D,
        BLOCK_N, BLOCK_D, IS_ALIGNED,
    )
    store_tile(
        grad_v, v_acc, grad_k_strides, b, share, key_token, n_rows, D,
        BLOCK_N, BLOCK_D, IS_ALIGNED,
    )
    # fmt: on


def share_count(group: int, n_programs: int, n_wanted: int) -> int:
    """Programs per group of heads: the smallest divisor of `group` that gives `n_wanted`
    programs.
    """
    shares = [count for count in range(1, group + 1) if group % count == 0]
    return next((count for count in shares if count * n_programs >= n_wanted), group)


def _empty_gradients(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    lse: Tensor,
    grad_out: Tensor,
    is_causal: bool,
    window: int,
    cu_seqlens: Tensor | None,
    max_seqlen: int | None,
) -> tuple[Tensor, Tensor, Tensor]:
    return q.new_empty(q.shape), k.new_empty(k.shape), v.new_empty(v.shape)


def _launch(
    q, k, v, out, lse, grad_out, is_causal, window, cu_seqlens, max_seqlen, grad_q, grad_k, grad_v
):
    """Fill the gradients and return `delta`, [B, H, T]."""
    delta = torch.empty_like(lse)
    if not k.numel() or max_seqlen == 0:
        for gradient in (grad_q, grad_k, grad_v):
            gradient.zero_()
        return delta
    grad_out = grad_out.contiguous()  # autograd may pass an expanded scalar
    if cu_seqlens is not None:
        q, k, v, out, grad_out, grad_q, grad_k, grad_v = map(
            as_heads, (q, k, v, out, grad_out, grad_q, grad_k, grad_v)
        )
    B, H, T, D = q.shape
    H_KV, S = k.shape[1:3]
    group = H // H_KV
    itemsize = q.element_size()
    target = current_target()
    tilings = attention_config(D, itemsize, target)
    n_sequences = B if cu_seqlens is None else len(cu_seqlens) - 1
    max_queries, max_keys = (T, S) if max_seqlen is None else (max_seqlen, max_seqlen)
    strides = (q.stride()[:3], k.stride()[:3], v.stride()[:3], out.stride()[:3])
    scale = 1 / math.sqrt(D)
    meaning = (T, S, window, scale, scale * math.log2(math.e))
    shared = {"IS_CAUSAL": is_causal, "HAS_WINDOW": window > 0, "D": D, "BLOCK_D": padded_width(D)}
    tiling = tilings.query_gradient
    n_tiles = triton.cdiv(max_queries, tiling.BLOCK_M)
    query_gradient_kernel[(n_tiles * H * n_sequences,)](
        q,
        as_tiles(k, tiling.BLOCK_N, target),
        as_tiles(v, tiling.BLOCK_N, target),
        out,
        grad_out,
        lse,
        delta,
        grad_q,
        cu_seqlens,
        *strides,
        T,
        H * n_sequences,
        H,
        group,
        n_tiles,
        group * key_heads_in_cache(max_keys, D, itemsize),
        *meaning,
        **shared,
        HAS_FULL_TILE=tiling.has_full_tile(window),
        IS_ALIGNED=is_aligned(q, k, v, out),
        **asdict(tiling),
    )
    tiling = tilings.key_gradient
    n_tiles = triton.cdiv(max_keys, tiling.BLOCK_N)
    n_programs = n_tiles * H_KV * n_sequences
    shares = share_count(group, n_programs, persistent_program_count(q, n_programs * group))
    share_shape = (k.shape[0], H_KV * shares, *k.shape[2:])
    k_share, v_share = (
        (grad_k, grad_v)
        if shares == 1
        else (
            k.new_empty(share_shape, dtype=torch.float32),
            v.new_empty(share_shape, dtype=torch.float32),
        )
    )
    key_gradient_kernel[(n_programs * shares,)](
        as_tiles(q, tiling.BLOCK_M, target),
        as_tiles(k, tiling.BLOCK_N, target),
        as_tiles(v, tiling.BLOCK_N, target),
        as_tiles(grad_out, tiling.BLOCK_M, target),
        lse,
        delta,
        k_share,
        v_share,
        cu_seqlens,
        *strides,
        k_share.stride()[:3],
        T,
        H_KV * shares * n_sequences,
        H,
        group // shares,
        shares,
        n_tiles,
        # each key head serves several query heads
        max(key_heads_in_cache(max_queries, D, itemsize) * shares // group, 1),
        *meaning,
        **shared,
        HAS_FULL_TILE=tiling.has_full_tile(window),
        IS_ALIGNED=is_aligned(q, k, v, out, k_share),
        **asdict(tiling),
    )
    if shares > 1:
        grad_k.copy_(k_share.unflatten(1, (H_KV, shares)).sum(dim=2))
        grad_v.copy_(v_share.unflatten(1, (H_KV, shares)).sum(dim=2))
    return delta


@backward_operator("attention", _empty_gradients)
def attention_backward(
    q, k, v, out, lse, grad_out, is_causal, window, cu_seqlens, max_seqlen, grad_q, grad_k, grad_v
):
    operands = q, k, v, out, lse, grad_out
    _launch(*operands, is_causal, window, cu_seqlens, max_seqlen, grad_q, grad_k, grad_v)


def _empty_sink_gradients(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    sinks: Tensor,
    out: Tensor,
    lse: Tensor,
    grad_out: Tensor,
    window: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    gradients = _empty_gradients(q, k, v, out, lse, grad_out, True, window, None, None)
    return *gradients, sinks.new_empty(sinks.shape)


@backward_operator("attention_sinks", _empty_sink_gradients)
def attention_sinks_backward(
    q, k, v, sinks, out, lse, grad_out, window, grad_q, grad_k, grad_v, grad_sinks
):
    operands = q, k, v, out, lse, grad_out
    delta = _launch(*operands, True, window, None, None, grad_q, grad_k, grad_v)
    # a sink has the value 0, so the gradient of its probability is 0
    probability = torch.exp2(sinks[:, None] * math.log2(math.e) - lse)
    torch.sum(probability * -delta, dim=(0, 2), out=grad_sinks)

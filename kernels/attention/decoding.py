"""Decode attention over splits of a sequence, and the merge of the splits.

One program processes all query heads that share a key head. A sequence is split over many programs.
Each stores its result and log-sum-exp, and a second kernel combines them in a fixed order.

Source: Dao et al., Flash-Decoding for long-context inference, 2023.
"""

import math
from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from roofwatch.kernels.attention.tiles import LOWEST, add_scores
from roofwatch.kernels.building_blocks.operators import operator
from roofwatch.kernels.building_blocks.target import (
    DeviceTarget,
    current_target,
    multiprocessor_count,
)
from roofwatch.kernels.building_blocks.tiles import dot

_PROGRAMS_PER_MULTIPROCESSOR = 16
"""Enough to balance sequences of unequal lengths."""
_RESIDENT_PROGRAMS = 3
"""Of a multiprocessor at a time, with tiles of 32 KiB."""
_FEW_WAVES = 2
_MIN_TILES_PER_SPLIT = 2
_MERGED_SPLITS = 16
# one more than the tiles that fit into shared memory with two or three programs; on AMD loads go to
# registers
_STAGES = {"sm_80": 3, "sm_90": 3, "sm_100": 3, "sm_120": 2, "gfx942": 1, "gfx950": 1}


@triton.jit
def attend_to_blocks(
    q,  # [BLOCK_H, BLOCK_D]
    key_cache_ptr,
    value_cache_ptr,
    block_tables_ptr,
    start,
    stop,
    key_strides,
    value_strides,
    scale,
    BLOCK_SIZE: tl.constexpr,
    D: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
):
    """Return attention of q to the tokens from `start` up to `stop` of one key head, and its
    log-sum-exp to base 2.
    """
    BLOCK_H: tl.constexpr = q.shape[0]
    offs_d = tl.arange(0, BLOCK_D)
    acc = tl.zeros((BLOCK_H, BLOCK_D), tl.float32)
    row_max = tl.full((BLOCK_H,), LOWEST, tl.float32)
    row_sum = tl.zeros((BLOCK_H,), tl.float32)
    full_stop = tl.maximum(stop - start, 0) // BLOCK_N * BLOCK_N + start
    tokens = start + tl.arange(0, BLOCK_N)
    blocks = tl.load(
        block_tables_ptr + tokens // BLOCK_SIZE, mask=tokens < stop, other=0
    )  # [BLOCK_N]
    for is_edge in tl.static_range(2):
        for first in range(
            full_stop if is_edge else start, stop if is_edge else full_stop, BLOCK_N
        ):
            tokens = first + tl.arange(0, BLOCK_N)
            # prefetch one tile ahead, to have the addresses of keys and values in time
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
            exps, correction, row_max, row_sum = add_scores(scores, scale, row_max, row_sum)
            acc = dot(exps.to(v.dtype), v, acc * correction[:, None])
            blocks = next_blocks
    # without tokens the result is zero
    out = acc / tl.where(row_sum > 0, row_sum, 1.0)[:, None]
    return out, row_max + tl.log2(row_sum)


@triton.jit
def _paged_decode_attention_kernel(
    q_ptr,  # [B, H, D]
    key_cache_ptr,  # [n_blocks, block_size, H_KV, D]
    value_cache_ptr,  # [n_blocks, block_size, H_KV, D]
    block_tables_ptr,  # [B, blocks_per_sequence]
    context_lengths_ptr,  # [B]
    out_ptr,  # [B, H, n_stored_splits, D]
    lse_ptr,  # [B, H, n_stored_splits]
    q_strides,
    key_strides,
    value_strides,
    blocks_per_sequence,
    H_KV,
    group,
    n_splits,
    first_stored_split,
    n_stored_splits,
    tokens_per_split,
    scale,
    BLOCK_SIZE: tl.constexpr,
    D: tl.constexpr,
    BLOCK_H: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
):
    # heads of a token are adjacent in memory, so adjacent programs process them
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
    out, lse = attend_to_blocks(
        q,
        key_cache_ptr,
        value_cache_ptr,
        block_tables_ptr,
        start,
        stop,
        key_strides,
        value_strides,
        scale,
        BLOCK_SIZE,
        D,
        BLOCK_N,
        BLOCK_D,
    )
    row = (b * H_KV * group + head) * n_stored_splits + first_stored_split + split
    tl.store(
        out_ptr + row[:, None] * D + offs_d[None, :], out.to(out_ptr.dtype.element_ty), mask=mask
    )
    tl.store(lse_ptr + row, lse, mask=offs_h < group)  # [BLOCK_H]


@triton.jit
def merge_splits_kernel(
    split_out_ptr,  # [B, H, n_splits, D]
    lse_ptr,  # [B, H, n_splits]
    context_lengths_ptr,  # [B]
    out_ptr,  # [B, H, D]
    H,
    n_prefix_splits,
    n_splits,
    tokens_per_split,
    D: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_S: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    n_filled = tl.cdiv(tl.load(context_lengths_ptr + row // H), tokens_per_split) + n_prefix_splits
    offs_d = tl.arange(0, BLOCK_D)
    acc = tl.zeros((BLOCK_D,), tl.float32)
    total_max = LOWEST
    total_sum = 0.0
    for first in range(0, n_filled, BLOCK_S):
        offs_s = first + tl.arange(0, BLOCK_S)
        mask_s = offs_s < n_filled
        rows = row * n_splits + offs_s
        lse = tl.load(lse_ptr + rows, mask=mask_s, other=-float("inf"))  # [BLOCK_S]
        mask = mask_s[:, None] & (offs_d < D)[None, :]
        outs = tl.load(split_out_ptr + rows[:, None] * D + offs_d[None, :], mask=mask, other=0.0)
        new_max = tl.maximum(total_max, tl.max(lse, axis=0))
        weights = tl.exp2(lse - new_max)
        correction = tl.exp2(total_max - new_max)
        acc = acc * correction + tl.sum(weights[:, None] * outs, axis=0)
        total_sum = total_sum * correction + tl.sum(weights, axis=0)
        total_max = new_max
    out = acc / tl.where(total_sum > 0, total_sum, 1.0)
    tl.store(
        out_ptr + row * D + offs_d, out.to(out_ptr.dtype.element_ty), mask=offs_d < D
    )  # [BLOCK_D]


def merge_config(n_splits: int, D: int) -> dict[str, int]:
    """Splits and dims that a program of the merge loads together."""
    return {
        "BLOCK_D": max(triton.next_power_of_2(D), 16),
        "BLOCK_S": min(triton.next_power_of_2(n_splits), _MERGED_SPLITS),
    }


def paged_decode_attention_config(
    group: int, D: int, itemsize: int, target: DeviceTarget
) -> dict[str, int]:
    """Choose tiles of 16 KiB of keys and 16 KiB of values. A matrix product needs at least 16 rows
    of heads.
    """
    block_d = max(triton.next_power_of_2(D), 16)
    return {
        "BLOCK_H": max(triton.next_power_of_2(group), 16),
        "BLOCK_N": max(min(16_384 // (block_d * itemsize), 128), 16),
        "BLOCK_D": block_d,
        "num_warps": 4,
        "num_stages": _STAGES.get(target.arch, 2),
    }


def tokens_per_split(
    max_tokens: int, n_key_heads: int, n_multiprocessors: int, block_n: int
) -> int:
    """Tokens per program, in whole tiles.

    Many programs balance sequences of unequal lengths. But if they would run in few waves, the last
    one would leave much of the GPU idle, so one wave of larger programs fills it.

    Args:
        max_tokens: Of the longest sequence.
        n_key_heads: Over all sequences.
        n_multiprocessors: Of the GPU.
        block_n: Tokens of a tile.
    """
    n_tiles = int(triton.cdiv(max_tokens, block_n))

    def tiles_per_program(n_programs: int) -> int:
        n_splits = max(n_programs // n_key_heads, 1)
        return max(int(triton.cdiv(n_tiles, n_splits)), _MIN_TILES_PER_SPLIT)

    n_tiles_of_one = tiles_per_program(_PROGRAMS_PER_MULTIPROCESSOR * n_multiprocessors)
    n_programs = n_key_heads * int(triton.cdiv(n_tiles, n_tiles_of_one))
    n_resident = _RESIDENT_PROGRAMS * n_multiprocessors
    if n_key_heads <= n_resident and n_programs <= _FEW_WAVES * n_resident:
        n_tiles_of_one = tiles_per_program(n_resident)
    return n_tiles_of_one * block_n


def _empty_out(
    q: Tensor, key_cache: Tensor, value_cache: Tensor, block_tables: Tensor, context_lengths: Tensor
) -> Tensor:
    return q.new_empty(q.shape)


@operator("paged_decode_attention", _empty_out)
def decode_op(q, key_cache, value_cache, block_tables, context_lengths, out):
    splits = splits_of(q, key_cache, block_tables, n_prefix_splits=0)
    # one split writes its result at once
    split_out = out
    if splits.n_stored != 1:
        split_out = splits.empty_out(q)
    lse = splits.empty_lse(q)
    decode_splits(q, key_cache, value_cache, block_tables, context_lengths, split_out, lse, splits)
    if splits.n_stored > 1:
        merge_splits(split_out, lse, context_lengths, out, splits)


@dataclass(frozen=True)
class Splits:
    """How the tokens of each sequence are split; those of a shared prefix come first."""

    n_prefix: int
    n_own: int
    tokens_per_split: int

    @property
    def n_stored(self) -> int:
        return self.n_prefix + self.n_own

    def empty_out(self, q: Tensor) -> Tensor:
        B, H, D = q.shape
        return q.new_empty(B, H, self.n_stored, D, dtype=torch.float32)

    def empty_lse(self, q: Tensor) -> Tensor:
        return q.new_empty(*q.shape[:2], self.n_stored, dtype=torch.float32)


def splits_of(
    q: Tensor, key_cache: Tensor, block_tables: Tensor, *, n_prefix_splits: int
) -> Splits:
    """Split the tokens that a row of the block table can list."""
    B, H, D = q.shape
    block_size, H_KV = key_cache.shape[1:3]
    max_tokens = block_tables.shape[1] * block_size
    config = paged_decode_attention_config(H // H_KV, D, q.element_size(), current_target())
    per_split = tokens_per_split(max_tokens, B * H_KV, multiprocessor_count(q), config["BLOCK_N"])
    return Splits(n_prefix_splits, max(triton.cdiv(max_tokens, per_split), 1), per_split)


def decode_splits(
    q: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    block_tables: Tensor,
    context_lengths: Tensor,
    split_out: Tensor,
    lse: Tensor,
    splits: Splits,
) -> None:
    """Launch attention of each sequence to its own tokens."""
    B, H, D = q.shape
    block_size, H_KV = key_cache.shape[1:3]
    _paged_decode_attention_kernel[(B * splits.n_own * H_KV,)](
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
        splits.n_own,
        splits.n_prefix,
        splits.n_stored,
        splits.tokens_per_split,
        math.log2(math.e) / math.sqrt(D),
        BLOCK_SIZE=block_size,
        D=D,
        **paged_decode_attention_config(H // H_KV, D, q.element_size(), current_target()),
    )


def merge_splits(
    split_out: Tensor, lse: Tensor, context_lengths: Tensor, out: Tensor, splits: Splits
) -> None:
    """Launch the merge of all splits of each head, in a fixed order."""
    B, H, D = out.shape
    merge_splits_kernel[(B * H,)](
        split_out,
        lse,
        context_lengths,
        out,
        H,
        splits.n_prefix,
        splits.n_stored,
        splits.tokens_per_split,
        D=D,
        **merge_config(splits.n_stored, D),
    )

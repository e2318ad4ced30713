"""Decode attention over a paged cache of latent vectors (multi-head latent attention), forward.

Keys and values of all heads are projections of one latent vector per token. The projection of the
keys is absorbed into the queries, and that of the values into the next layer. So every head reads
the same cache: latent and rotary dims are the key, the latent dims alone the value. A program
processes several heads and a share of the tokens. It loads each latent tile once for both products.

Sources: DeepSeek-AI, DeepSeek-V2, 2024 (arXiv 2405.04434), section 2.1 and appendix C; Dao et al.,
Flash-Decoding for long-context inference, 2023, for the splits.
"""

import math
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from roofwatch import Case, InputMaker, KernelSpec, cases
from roofwatch.kernels.attention.decoding import Splits, merge_splits
from roofwatch.kernels.attention.paged_decode_attention import context_lengths_of
from roofwatch.kernels.attention.tiles import LOWEST, add_scores
from roofwatch.kernels.building_blocks.errors import KernelError
from roofwatch.kernels.building_blocks.models import DEEPSEEK_V3
from roofwatch.kernels.building_blocks.operands import (
    require_equal,
    require_integers,
    require_operands,
)
from roofwatch.kernels.building_blocks.operators import operator
from roofwatch.kernels.building_blocks.shapes import (
    decode_attention,
    model_cases,
    small_cases,
    with_choice,
    with_dimensions,
)
from roofwatch.kernels.building_blocks.target import (
    DeviceTarget,
    current_target,
    multiprocessor_count,
)
from roofwatch.kernels.building_blocks.tiles import dot

MAX_LATENT = 512
"""A wider accumulator would not fit into registers."""
_MIN_TILES_PER_SPLIT = 2
_HEAD_DIM = 192
"""Of DeepSeek-V3 before absorption, 128 and 64 rotary dims: the scale is its inverse root."""


@triton.jit
def _mla_decode_kernel(
    q_ptr,  # [B, H, L + R]
    cache_ptr,  # [n_blocks, block_size, L + R]
    block_tables_ptr,  # [B, blocks_per_sequence]
    context_lengths_ptr,  # [B]
    out_ptr,  # [B, H, n_splits, L]
    lse_ptr,  # [B, H, n_splits]
    q_strides,
    cache_strides,
    blocks_per_sequence,
    H,
    n_splits,
    tokens_per_split,
    scale,
    BLOCK_SIZE: tl.constexpr,
    L: tl.constexpr,
    R: tl.constexpr,
    BLOCK_H: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_L: tl.constexpr,
    BLOCK_R: tl.constexpr,
):
    # adjacent programs read the same tokens for other heads
    n_head_tiles = tl.cdiv(H, BLOCK_H)
    head = tl.program_id(0) % n_head_tiles * BLOCK_H + tl.arange(0, BLOCK_H)
    split = tl.program_id(0) // n_head_tiles % n_splits
    b = (tl.program_id(0) // n_head_tiles // n_splits).to(tl.int64)
    length = tl.load(context_lengths_ptr + b)
    start = split * tokens_per_split
    if (start >= length) & (split > 0):
        return
    stop = tl.minimum(start + tokens_per_split, length)
    offs_l = tl.arange(0, BLOCK_L)
    offs_r = tl.arange(0, BLOCK_R)
    mask_h = head < H
    mask_l = (offs_l < L)[None, :]
    mask_r = (offs_r < R)[None, :]
    q_ptrs = q_ptr + b * q_strides[0] + head[:, None] * q_strides[1]
    q_latent = tl.load(
        q_ptrs + offs_l[None, :], mask=mask_h[:, None] & mask_l, other=0.0
    )  # [BLOCK_H, BLOCK_L]
    q_rope = tl.load(
        q_ptrs + L + offs_r[None, :], mask=mask_h[:, None] & mask_r, other=0.0
    )  # [BLOCK_H, BLOCK_R]
    block_tables_ptr += b * blocks_per_sequence
    acc = tl.zeros((BLOCK_H, BLOCK_L), tl.float32)
    row_max = tl.full((BLOCK_H,), LOWEST, tl.float32)
    row_sum = tl.zeros((BLOCK_H,), tl.float32)
    for first in range(start, stop, BLOCK_N):
        tokens = first + tl.arange(0, BLOCK_N)
        mask_n = tokens < stop
        blocks = tl.load(block_tables_ptr + tokens // BLOCK_SIZE, mask=mask_n, other=0)  # [BLOCK_N]
        rows = blocks.to(tl.int64) * cache_strides[0] + tokens % BLOCK_SIZE * cache_strides[1]
        cache_ptrs = cache_ptr + rows[:, None]
        latent = tl.load(
            cache_ptrs + offs_l[None, :], mask=mask_n[:, None] & mask_l, other=0.0
        )  # [BLOCK_N, BLOCK_L]
        rope = tl.load(
            cache_ptrs + L + offs_r[None, :], mask=mask_n[:, None] & mask_r, other=0.0
        )  # [BLOCK_N, BLOCK_R]
        scores = dot(q_rope, rope.T, tl.zeros((BLOCK_H, BLOCK_N), tl.float32))
        scores = dot(q_latent, latent.T, scores)
        scores = tl.where(mask_n[None, :], scores, -float("inf"))
        exps, correction, row_max, row_sum = add_scores(scores, scale, row_max, row_sum)
        acc = dot(exps.to(latent.dtype), latent, acc * correction[:, None])
    # a sequence without tokens gives zeros
    out = acc / tl.where(row_sum > 0, row_sum, 1.0)[:, None]
    row = (b * H + head) * n_splits + split
    tl.store(
        out_ptr + row[:, None] * L + offs_l[None, :],
        out.to(out_ptr.dtype.element_ty),
        mask=mask_h[:, None] & mask_l,
    )  # [BLOCK_H, BLOCK_L]
    tl.store(lse_ptr + row, row_max + tl.log2(row_sum), mask=mask_h)  # [BLOCK_H]


# heads, tokens, warps and stages of a tile: as many heads as the registers hold
_TILES = {
    "sm_90": (64, 64, 8, 2),
    "sm_100": (64, 32, 8, 2),
    "sm_80": (16, 32, 4, 2),
    "sm_120": (16, 32, 4, 2),
    "cuda": (16, 32, 4, 2),
    "hip": (16, 32, 4, 1),
    "interpreter": (16, 32, 4, 1),
}


def mla_decode_config(
    H: int, L: int, R: int, itemsize: int, target: DeviceTarget
) -> dict[str, int]:
    """Choose tiles of heads and tokens. A matrix product needs at least 16 rows."""
    block_h, block_n, n_warps, n_stages = _TILES.get(target.arch, _TILES[target.backend])
    if itemsize == 4:
        block_h, block_n, n_warps, n_stages = 16, 16, 8, 1
    return {
        "BLOCK_H": max(min(triton.next_power_of_2(H), block_h), 16),
        "BLOCK_N": block_n,
        "BLOCK_L": max(triton.next_power_of_2(L), 16),
        "BLOCK_R": max(triton.next_power_of_2(R), 16),
        "num_warps": n_warps,
        "num_stages": n_stages,
    }


def tokens_per_split(max_tokens: int, n_rows: int, n_multiprocessors: int, block_n: int) -> int:
    """Tokens per program, in whole tiles, so that one wave of programs fills the GPU.

    Args:
        max_tokens: Of the longest sequence.
        n_rows: Tiles of heads over all sequences.
        n_multiprocessors: Of the GPU; one program fits on each.
        block_n: Tokens of a tile.
    """
    n_splits = max(n_multiprocessors // n_rows, 1)
    n_tiles = int(triton.cdiv(triton.cdiv(max_tokens, n_splits), block_n))
    return max(n_tiles, _MIN_TILES_PER_SPLIT) * block_n


def _empty_out(
    q: Tensor,
    cache: Tensor,
    block_tables: Tensor,
    context_lengths: Tensor,
    n_rope: int,
    scale: float,
) -> Tensor:
    return q.new_empty(q.shape[0], q.shape[1], q.shape[2] - n_rope)


@operator("mla_decode", _empty_out)
def _mla_decode_op(q, cache, block_tables, context_lengths, n_rope, scale, out):
    B, H, L = out.shape
    block_size = cache.shape[1]
    max_tokens = block_tables.shape[1] * block_size
    config = mla_decode_config(H, L, n_rope, q.element_size(), current_target())
    n_head_tiles = triton.cdiv(H, config["BLOCK_H"])
    per_split = tokens_per_split(
        max_tokens, B * n_head_tiles, multiprocessor_count(q), config["BLOCK_N"]
    )
    n_splits = max(triton.cdiv(max_tokens, per_split), 1)
    # one split writes its result at once
    split_out = out
    if n_splits != 1:
        split_out = q.new_empty(B, H, n_splits, L, dtype=torch.float32)
    lse = q.new_empty(B, H, n_splits, dtype=torch.float32)
    _mla_decode_kernel[(B * n_splits * n_head_tiles,)](
        q,
        cache,
        block_tables,
        context_lengths,
        split_out,
        lse,
        q.stride()[:2],
        cache.stride()[:2],
        block_tables.shape[1],
        H,
        n_splits,
        per_split,
        scale * math.log2(math.e),
        BLOCK_SIZE=block_size,
        L=L,
        R=n_rope,
        **config,
    )
    if n_splits > 1:
        merge_splits(split_out, lse, context_lengths, out, Splits(0, n_splits, per_split))


def mla_decode_reference(
    q: Tensor,
    cache: Tensor,
    block_tables: Tensor,
    context_lengths: Tensor,
    n_rope: int,
    scale: float,
) -> Tensor:
    """Compute the softmax over the tokens of each sequence, and the sum of their latent dims."""
    n_latent = q.shape[2] - n_rope
    outs = [q.new_empty(0, q.shape[1], n_latent)]
    for query, blocks, length in zip(q, block_tables, context_lengths.tolist(), strict=True):
        keys = cache[blocks].flatten(0, 1)[:length]
        scores = torch.einsum("hd,td->ht", query, keys) * scale
        values = keys[:, :n_latent]
        outs.append(torch.einsum("ht,td->hd", scores.softmax(dim=-1), values)[None])
    return torch.cat(outs)


def _inputs(case: Case, make: InputMaker) -> dict[str, Any]:
    B, block_size = case["B"], case["block_size"]
    width = case["latent"] + case["rope"]
    blocks_per_sequence = -(-case["T"] // block_size)
    n_blocks = B * blocks_per_sequence
    lengths = torch.tensor(context_lengths_of(case), dtype=torch.int32, device=make.device)
    return {
        "q": make.scores(B, case["H"], width),
        "cache": make.scores(n_blocks, block_size, width),
        "block_tables": make.permutation(n_blocks, "int32").view(B, blocks_per_sequence),
        "context_lengths": lengths[make.permutation(B)],
        "n_rope": case["rope"],
        "scale": width**-0.5 if width < _HEAD_DIM else _HEAD_DIM**-0.5,
    }


def mla_decode_flop_count(case: Case) -> float:
    """Count 2 FLOP per head, token, and dim of the key and of the value; the softmax is not
    counted.
    """
    dims = 2 * case["latent"] + case["rope"]
    return 2 * dims * sum(context_lengths_of(case)) * case["H"]


def mla_decode_memory_bytes(case: Case) -> float:
    """Reads the cached tokens of each context once, q, and 4-byte block table entries and lengths;
    writes out.
    """
    lengths = context_lengths_of(case)
    n_cached = sum(lengths) * (case["latent"] + case["rope"])
    n_entries = sum(-(-length // case["block_size"]) for length in lengths) + len(lengths)
    n_query = case["B"] * case["H"] * (2 * case["latent"] + case["rope"])
    return (n_cached + n_query) * case.itemsize + 4 * n_entries


_DEEPSEEK = {"latent": 512, "rope": 64, "block_size": 64}
_SMALL = {"B": 2, "H": 16, "T": 512, "latent": 128, "rope": 32, "block_size": 16}

mla_decode_spec = KernelSpec(
    name="mla_decode",
    family="attention",
    inputs=_inputs,
    reference=mla_decode_reference,
    cases=[
        *small_cases(_SMALL, dtypes=["bfloat16"]),
        *model_cases(
            with_choice(
                with_dimensions(decode_attention([DEEPSEEK_V3], batches=[16, 1]), "B", "H", "T"),
                **_DEEPSEEK,
            )
        ),
    ],
    edges=[
        *cases(
            shapes=[
                {"B": 3, "H": 20, "T": 90, "latent": 40, "rope": 8, "block_size": 5},
                {"B": 1, "H": 1, "T": 1, "latent": 16, "rope": 3, "block_size": 16},
                {"B": 0, "H": 4, "T": 9, "latent": 16, "rope": 16, "block_size": 4},
            ],
            dtypes=["float16"],
        ),
        *cases(shapes=[{"B": 1, "H": 5, "T": 50, "latent": 63, "rope": 9, "block_size": 16}]),
    ],
    flop_count=mla_decode_flop_count,
    memory_bytes=mla_decode_memory_bytes,
    token_count=lambda case: case["B"],
    formula="out = softmax(q [latent, rope]ᵀ scale) latent over the blocks of each sequence",
    source="DeepSeek-V2, 2024 (arXiv 2405.04434), section 2.1 and appendix C",
    interpreted_shape={"B": 2, "H": 20, "T": 150, "latent": 80, "rope": 16},
)


@mla_decode_spec.implementation("triton", directions=["fwd"], deterministic=True)
def mla_decode(
    q: Tensor,
    cache: Tensor,
    block_tables: Tensor,
    context_lengths: Tensor,
    n_rope: int,
    scale: float,
) -> Tensor:
    """Compute attention of one token per sequence over cached latent vectors, in float32.

    Args:
        q: [B, H, latent + n_rope], contiguous along its last dim, latent at most `MAX_LATENT`; the
            projection of the keys is absorbed.
        cache: [n_blocks, block_size, latent + n_rope] of q's dtype, contiguous along its last dim.
        block_tables: [B, blocks_per_sequence] int32, the blocks of each sequence in order. Entries
            are not checked: an invalid block within the context is an out-of-bounds read.
        context_lengths: [B] int32, tokens of each sequence, at most `blocks_per_sequence *
            block_size`; 0 gives zeros.
        n_rope: Rotary dims, the last of q and cache, which are no part of the values.
        scale: Factor of the scores, the inverse root of the head dim before absorption.

    Returns:
        [B, H, latent] in q's dtype, contiguous.
    """
    name = "mla_decode"
    require_operands(name, dims=3, q=q, cache=cache)
    require_equal(name, "the dtypes", q=q.dtype, cache=cache.dtype)
    require_equal(name, "the widths", q=q.shape[2], cache=cache.shape[2])
    require_integers(name, dtype=torch.int32, dims=2, like=q, block_tables=block_tables)
    require_integers(name, dtype=torch.int32, dims=1, like=q, context_lengths=context_lengths)
    require_equal(
        name,
        "the sequences",
        q=len(q),
        block_tables=len(block_tables),
        context_lengths=len(context_lengths),
    )
    n_latent = q.shape[2] - n_rope
    if n_rope < 1 or not 1 <= n_latent <= MAX_LATENT:
        raise KernelError(
            f"{name}: n_rope is {n_rope} of {q.shape[2]} dims; pass at least 1, and leave 1 to "
            f"{MAX_LATENT} latent dims"
        )
    return _mla_decode_op(q, cache, block_tables, context_lengths, n_rope, scale)


@mla_decode_spec.implementation("torch", directions=["fwd"], compile=True)
def _mla_decode_torch(
    q: Tensor,
    cache: Tensor,
    block_tables: Tensor,
    context_lengths: Tensor,
    n_rope: int,
    scale: float,
) -> Tensor:
    keys = cache[block_tables].flatten(1, 2)[:, None]  # one head, which all queries share
    is_context = torch.arange(keys.shape[2], device=q.device) < context_lengths[:, None]
    return torch.nn.functional.scaled_dot_product_attention(
        q[:, None],
        keys,
        keys[..., : q.shape[2] - n_rope],
        attn_mask=is_context[:, None, None],
        scale=scale,
    ).squeeze(1)

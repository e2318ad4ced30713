"""Cascade attention: decode attention of sequences that share a prefix, forward.

The queries of all sequences attend to the prefix together, so its keys and values are read once and
not once per sequence; each sequence then attends to its own tokens. Both parts are split over
programs, and one merge combines all splits of a row by their log-sum-exps.

Sources: Ye et al., Cascade inference, FlashInfer, 2024, and FlashInfer, 2025 (arXiv 2501.01005);
Juravsky et al., Hydragen, 2024 (arXiv 2402.05099).
"""

import math
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from roofwatch import Case, InputMaker, KernelSpec, cases
from roofwatch.kernels.attention.decoding import (
    attend_to_blocks,
    decode_splits,
    merge_splits,
    paged_decode_attention_config,
    splits_of,
    tokens_per_split,
)
from roofwatch.kernels.attention.paged_decode_attention import (
    context_lengths_of,
    paged_decode_attention_reference,
    paged_decode_attention_torch,
)
from roofwatch.kernels.attention.tiling import require_heads
from roofwatch.kernels.building_blocks.models import LLAMA_3_1_70B
from roofwatch.kernels.building_blocks.operands import (
    require_equal,
    require_integers,
    require_operands,
)
from roofwatch.kernels.building_blocks.operators import operator
from roofwatch.kernels.building_blocks.shapes import (
    decode_attention,
    model_cases,
    only,
    small_cases,
    with_choice,
)
from roofwatch.kernels.building_blocks.target import (
    DeviceTarget,
    current_target,
    multiprocessor_count,
)

_MAX_ROWS = 64
"""Queries of a program, of all sequences and the heads that share a key head."""


@triton.jit
def _prefix_attention_kernel(
    q_ptr,  # [B, H, D]
    key_cache_ptr,  # [n_blocks, block_size, H_KV, D]
    value_cache_ptr,  # [n_blocks, block_size, H_KV, D]
    prefix_blocks_ptr,  # [n_prefix_blocks]
    out_ptr,  # [B, H, n_stored_splits, D]
    lse_ptr,  # [B, H, n_stored_splits]
    q_strides,
    key_strides,
    value_strides,
    n_rows,
    n_tiles,
    H_KV,
    group,
    n_stored_splits,
    n_prefix_tokens,
    tokens_per_split,
    scale,
    BLOCK_SIZE: tl.constexpr,
    D: tl.constexpr,
    BLOCK_H: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
):
    kv_head = tl.program_id(0) % H_KV
    tile = tl.program_id(0) // H_KV % n_tiles
    split = tl.program_id(0) // H_KV // n_tiles
    start = split * tokens_per_split
    stop = tl.minimum(start + tokens_per_split, n_prefix_tokens)
    # rows of all sequences: those of one are the heads that share the key head
    rows = tile * BLOCK_H + tl.arange(0, BLOCK_H)
    b = (rows // group).to(tl.int64)
    head = kv_head * group + rows % group
    offs_d = tl.arange(0, BLOCK_D)
    mask = (rows < n_rows)[:, None] & (offs_d < D)[None, :]
    q_rows = b * q_strides[0] + head * q_strides[1]
    q = tl.load(q_ptr + q_rows[:, None] + offs_d[None, :], mask=mask, other=0.0)
    out, lse = attend_to_blocks(
        q,
        key_cache_ptr + kv_head.to(tl.int64) * key_strides[2],
        value_cache_ptr + kv_head.to(tl.int64) * value_strides[2],
        prefix_blocks_ptr,
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
    out_row = (b * H_KV * group + head) * n_stored_splits + split
    tl.store(out_ptr + out_row[:, None] * D + offs_d[None, :], out, mask=mask)
    tl.store(lse_ptr + out_row, lse, mask=rows < n_rows)  # [BLOCK_H]


def prefix_attention_config(
    n_rows: int, D: int, itemsize: int, target: DeviceTarget
) -> dict[str, int]:
    """Choose the tiles of decode attention, with queries of several sequences."""
    most_rows = _MAX_ROWS if itemsize == 2 and D <= 128 else 16
    config = paged_decode_attention_config(min(n_rows, most_rows), D, itemsize, target)
    if target.backend == "hip":
        # with instructions of 32 rows, scalar registers are spilled on gfx942 with Triton 3.6
        config["matrix_instr_nonkdim"] = 16
    return config


def _empty_out(
    q: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    prefix_blocks: Tensor,
    block_tables: Tensor,
    context_lengths: Tensor,
) -> Tensor:
    return q.new_empty(q.shape)


@operator("cascade_decode", _empty_out)
def _cascade_decode_op(
    q, key_cache, value_cache, prefix_blocks, block_tables, context_lengths, out
):
    B, H, D = q.shape
    block_size, H_KV = key_cache.shape[1:3]
    n_prefix_tokens = len(prefix_blocks) * block_size
    n_rows = B * H // H_KV
    config = prefix_attention_config(n_rows, D, q.element_size(), current_target())
    n_tiles = triton.cdiv(n_rows, config["BLOCK_H"])
    per_split = tokens_per_split(
        n_prefix_tokens, n_tiles * H_KV, multiprocessor_count(q), config["BLOCK_N"]
    )
    n_prefix_splits = triton.cdiv(n_prefix_tokens, per_split)
    splits = splits_of(q, key_cache, block_tables, n_prefix_splits=n_prefix_splits)
    split_out, lse = splits.empty_out(q), splits.empty_lse(q)
    if n_prefix_splits:
        _prefix_attention_kernel[(n_prefix_splits * n_tiles * H_KV,)](
            q,
            key_cache,
            value_cache,
            prefix_blocks,
            split_out,
            lse,
            q.stride()[:2],
            key_cache.stride()[:3],
            value_cache.stride()[:3],
            n_rows,
            n_tiles,
            H_KV,
            H // H_KV,
            splits.n_stored,
            n_prefix_tokens,
            per_split,
            math.log2(math.e) / math.sqrt(D),
            BLOCK_SIZE=block_size,
            D=D,
            **config,
        )
    decode_splits(q, key_cache, value_cache, block_tables, context_lengths, split_out, lse, splits)
    merge_splits(split_out, lse, context_lengths, out, splits)


def _whole_sequences(
    block_size: int, prefix_blocks: Tensor, block_tables: Tensor, context_lengths: Tensor
) -> tuple[Tensor, Tensor]:
    """Return block tables and lengths of the sequences with the prefix in front."""
    prefixes = prefix_blocks.expand(len(block_tables), -1)
    lengths = context_lengths + len(prefix_blocks) * block_size
    return torch.cat([prefixes, block_tables], dim=1), lengths


def cascade_decode_reference(
    q: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    prefix_blocks: Tensor,
    block_tables: Tensor,
    context_lengths: Tensor,
) -> Tensor:
    """Compute attention of each sequence to the prefix and its own tokens."""
    whole = _whole_sequences(key_cache.shape[1], prefix_blocks, block_tables, context_lengths)
    return paged_decode_attention_reference(q, key_cache, value_cache, *whole)


def _own_lengths(case: Case) -> list[int]:
    """Tokens of each sequence behind the prefix."""
    n_shared = case["prefix"] * case["block_size"]
    return [max(length - n_shared, 0) for length in context_lengths_of(case)]


def _inputs(case: Case, make: InputMaker) -> dict[str, Any]:
    B, block_size, n_prefix_blocks = case["B"], case["block_size"], case["prefix"]
    own_blocks = max(-(-case["T"] // block_size) - n_prefix_blocks, 1)
    n_blocks = n_prefix_blocks + B * own_blocks
    blocks = make.permutation(n_blocks, "int32")
    cache_shape = n_blocks, block_size, case["H_KV"], case["D"]
    lengths = torch.tensor(_own_lengths(case), dtype=torch.int32, device=make.device)
    return {
        "q": make.scores(B, case["H"], case["D"]),
        "key_cache": make.scores(*cache_shape),
        "value_cache": make.normal(*cache_shape),
        "prefix_blocks": blocks[:n_prefix_blocks],
        "block_tables": blocks[n_prefix_blocks:].view(B, own_blocks),
        "context_lengths": lengths[make.permutation(B)],
    }


def cascade_decode_flop_count(case: Case) -> float:
    """Count two products of 2 D FLOP per head and token of prefix or own context; the softmax is
    not counted.
    """
    n_tokens = case["B"] * case["prefix"] * case["block_size"] + sum(_own_lengths(case))
    return 4 * case["D"] * n_tokens * case["H"]


def cascade_decode_memory_bytes(case: Case) -> float:
    """Reads keys and values of the prefix once and of each own context once, q, and 4-byte block
    table entries and lengths; writes out.
    """
    lengths = _own_lengths(case)
    n_tokens = case["prefix"] * case["block_size"] + sum(lengths)
    n_entries = case["prefix"] + sum(-(-length // case["block_size"]) + 1 for length in lengths)
    n_elements = 2 * n_tokens * case["H_KV"] * case["D"] + 2 * case["B"] * case["H"] * case["D"]
    return n_elements * case.itemsize + 4 * n_entries


# half of the longest sequence is the prefix: a system prompt, or samples of one prompt
_WORKLOADS = with_choice(
    only(decode_attention([LLAMA_3_1_70B], batches=[16]), "tp1"), block_size=16, prefix=256
)
_SMALL = {"B": 4, "H": 8, "H_KV": 2, "T": 512, "D": 64, "block_size": 16, "prefix": 16}

cascade_decode_spec = KernelSpec(
    name="cascade_decode",
    family="attention",
    inputs=_inputs,
    reference=cascade_decode_reference,
    cases=[*small_cases(_SMALL), *model_cases(_WORKLOADS)],
    edges=[
        # rows of several tiles; no prefix; no own tokens
        *cases(
            shapes=[
                {"B": 30, "H": 3, "H_KV": 1, "T": 100, "D": 63, "block_size": 5, "prefix": 9},
                {"B": 2, "H": 4, "H_KV": 2, "T": 90, "D": 16, "block_size": 8, "prefix": 0},
                {"B": 0, "H": 4, "H_KV": 2, "T": 9, "D": 16, "block_size": 4, "prefix": 1},
            ],
            dtypes=["float16"],
        ),
        *cases(
            shapes=[{"B": 1, "H": 2, "H_KV": 1, "T": 32, "D": 256, "block_size": 16, "prefix": 2}],
            dtypes=["bfloat16"],
        ),
    ],
    flop_count=cascade_decode_flop_count,
    memory_bytes=cascade_decode_memory_bytes,
    token_count=lambda case: case["B"],
    formula="out = softmax(q kᵀ / sqrt(D)) v over the prefix and the blocks of each sequence",
    source="Ye et al., FlashInfer, 2025 (arXiv 2501.01005)",
    interpreted_shape={"B": 3, "H": 4, "H_KV": 2, "T": 200, "prefix": 6},
)


@cascade_decode_spec.implementation("triton", directions=["fwd"], deterministic=True)
def cascade_decode(
    q: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    prefix_blocks: Tensor,
    block_tables: Tensor,
    context_lengths: Tensor,
) -> Tensor:
    """Compute `softmax(q kᵀ / sqrt(D)) v` of one token per sequence over a prefix that all share
    and its own cached context, accumulated in float32.

    Args:
        q: [B, H, D], contiguous along its last dim, D at most 256.
        key_cache: [n_blocks, block_size, H_KV, D] of q's dtype, contiguous along its last dim; each
            head serves `H / H_KV` consecutive heads of q.
        value_cache: [n_blocks, block_size, H_KV, D] of q's dtype.
        prefix_blocks: [n_prefix_blocks] int32, the blocks of the prefix in order, all full. Entries
            are not checked.
        block_tables: [B, blocks_per_sequence] int32, the blocks behind the prefix. Entries are not
            checked.
        context_lengths: [B] int32, tokens of each sequence behind the prefix.

    Returns:
        [B, H, D] in q's dtype, contiguous; zeros without any token.
    """
    name = "cascade_decode"
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
    require_integers(
        name,
        dtype=torch.int32,
        dims=1,
        like=q,
        prefix_blocks=prefix_blocks,
        context_lengths=context_lengths,
    )
    require_equal(
        name,
        "the sequences",
        q=len(q),
        block_tables=len(block_tables),
        context_lengths=len(context_lengths),
    )
    return _cascade_decode_op(
        q, key_cache, value_cache, prefix_blocks, block_tables, context_lengths
    )


@cascade_decode_spec.implementation("torch", directions=["fwd"], compile=True)
def _cascade_decode_torch(
    q: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    prefix_blocks: Tensor,
    block_tables: Tensor,
    context_lengths: Tensor,
) -> Tensor:
    whole = _whole_sequences(key_cache.shape[1], prefix_blocks, block_tables, context_lengths)
    return paged_decode_attention_torch(q, key_cache, value_cache, *whole)

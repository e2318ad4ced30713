"""Shared parts of the attention kernels: tile positions, masks, loads, stores and the online
softmax.

The scores have a row per query and a column per key. Tiles in the middle are fully visible and need
no mask. Tiles at the diagonal, the far end of the window and the end of the sequence do. A program
first walks over the middle tiles, then over the edge tiles. A window narrower than two tiles leaves
no middle: a second loop that never runs would still take registers.

Source of the softmax: Milakov and Gimelshein, Online normalizer calculation for softmax, 2018
(arXiv 1805.02867), algorithm 3.
"""

import triton
import triton.language as tl


@triton.jit
def place_of(
    program, n_heads, heads_per_sequence, n_tiles, section, cu_seqlens_ptr, n_queries, n_keys
):
    """Return tile, head and batch entry of a program, and first token, queries and keys of its
    sequence.

    Heads are processed in sections whose keys fit into the L2 cache. Within a section, the tiles
    with the most work start first. Packed sequences are concatenated in one batch entry.
    """
    first_head = program // (section * n_tiles) * section
    in_section = program - first_head * n_tiles
    n_in_section = tl.minimum(section, n_heads - first_head)
    head = first_head + in_section % n_in_section
    tile = in_section // n_in_section
    z, h = head // heads_per_sequence, head % heads_per_sequence
    b = z
    first_token = z * 0
    if cu_seqlens_ptr is not None:
        b = z * 0
        first_token = tl.load(cu_seqlens_ptr + z)
        n_queries = tl.load(cu_seqlens_ptr + z + 1) - first_token
        n_keys = n_queries
    return tile, h, b, first_token, n_queries, n_keys


@triton.jit
def visible_keys(
    first_query,
    n_keys,
    window,
    IS_CAUSAL: tl.constexpr,
    HAS_WINDOW: tl.constexpr,
    HAS_FULL_TILE: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """Return the keys that some of `BLOCK_M` queries see (start, stop) and that all see
    (full_start, full_stop).

    All but `stop` are multiples of `BLOCK_N`, which divides `BLOCK_M`.
    """
    start = 0
    full_start = 0
    if IS_CAUSAL:
        full_stop = first_query
        stop = tl.minimum(first_query + BLOCK_M, n_keys)
    else:
        full_stop = n_keys // BLOCK_N * BLOCK_N
        stop = n_keys
    if HAS_WINDOW:
        start = tl.maximum(first_query - window + 1, 0) // BLOCK_N * BLOCK_N
        full_start = tl.cdiv(tl.maximum(first_query + BLOCK_M - window, 0), BLOCK_N) * BLOCK_N
        full_start = tl.minimum(full_start, full_stop)
    if not HAS_FULL_TILE:
        full_start = full_stop  # equal already, but not to the compiler
    return start, full_start, full_stop, stop


@triton.jit
def attending_queries(
    first_key,
    n_queries,
    window,
    IS_CAUSAL: tl.constexpr,
    HAS_WINDOW: tl.constexpr,
    HAS_FULL_TILE: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """Return the queries that see some of `BLOCK_N` keys (start, stop) and that see all
    (full_start, full_stop).

    All but `stop` are multiples of `BLOCK_M`.
    """
    start = 0
    full_start = 0
    full_stop = n_queries // BLOCK_M * BLOCK_M
    stop = n_queries
    if IS_CAUSAL:
        start = first_key // BLOCK_M * BLOCK_M
        full_start = tl.cdiv(first_key + BLOCK_N - 1, BLOCK_M) * BLOCK_M
    if HAS_WINDOW:
        full_stop = tl.minimum(full_stop, (first_key + window) // BLOCK_M * BLOCK_M)
        stop = tl.minimum(stop, first_key + BLOCK_N - 1 + window)
    full_stop = tl.maximum(full_start, full_stop)
    if not HAS_FULL_TILE:
        full_stop = full_start  # equal already, but not to the compiler
    return start, full_start, full_stop, stop


@triton.jit
def walk(start, full_start, full_stop, stop, IS_EDGE: tl.constexpr):
    """Return the range of steps over the middle tiles, or over the edge tiles with the middle
    skipped.
    """
    if IS_EDGE:
        first_step = start
        end = stop - (full_stop - full_start)
    else:
        first_step = full_start
        end = full_stop
    return first_step, end


@triton.jit
def token_at(step, full_start, full_stop, IS_EDGE: tl.constexpr):
    """Return the token of a step."""
    token = step
    if IS_EDGE:
        token += tl.where(step >= full_start, full_stop - full_start, 0)
    return token


@triton.jit
def is_seen(offs_m, offs_n, n_keys, window, IS_CAUSAL: tl.constexpr, HAS_WINDOW: tl.constexpr):
    """Return the mask of visible keys.

    Both offsets are relative to the same token and broadcast.
    """
    # a causal mask also hides keys past the end
    if HAS_WINDOW:
        # later keys have a negative age, which is a large unsigned one
        age = (offs_m - offs_n).to(tl.uint32, bitcast=True)
        seen = age < tl.cast(window, tl.uint32)
    else:
        seen = offs_m >= offs_n if IS_CAUSAL else offs_n < n_keys
    return seen


@triton.jit
def _tile_ptrs(
    heads,  # [B, H, T, D]
    strides,
    b,
    h,
    token,
    BLOCK: tl.constexpr,
    BLOCK_D: tl.constexpr,
    IS_ALIGNED: tl.constexpr,
):
    """Return pointers [BLOCK, BLOCK_D] with one 64-bit offset; the others are 32-bit."""
    first = (
        b.to(tl.int64) * strides[0] + h.to(tl.int64) * strides[1] + token.to(tl.int64) * strides[2]
    )
    ptrs = (
        heads + first + tl.arange(0, BLOCK)[:, None] * strides[2] + tl.arange(0, BLOCK_D)[None, :]
    )
    if IS_ALIGNED:
        # a hint for strides that are multiples of 8 but not of 16, such as 72
        ptrs = tl.multiple_of(ptrs, [1, 16])
    return ptrs


@triton.jit
def load_tile(
    heads,  # [B, H, T, D], as a pointer or a descriptor
    strides,
    b,
    h,
    token,
    n_rows,
    D: tl.constexpr,
    BLOCK: tl.constexpr,
    BLOCK_D: tl.constexpr,
    IS_ALIGNED: tl.constexpr,
    IS_EDGE: tl.constexpr,
    IS_PACKED: tl.constexpr,
):
    """Load [BLOCK, BLOCK_D] of one head from a token on, padded with zeros.

    The sequence has `n_rows` left; only an edge tile may exceed them.
    """
    is_row = tl.arange(0, BLOCK) < n_rows
    if isinstance(heads, tl.tensor_descriptor):
        tile = heads.load([b, h, token, 0]).reshape(BLOCK, BLOCK_D)
        if IS_EDGE and IS_PACKED:
            tile = tl.where(is_row[:, None], tile, 0.0)  # the descriptor covers all sequences
    else:
        ptrs = _tile_ptrs(heads, strides, b, h, token, BLOCK, BLOCK_D, IS_ALIGNED)
        offs_d = tl.arange(0, BLOCK_D)
        if IS_EDGE:
            tile = tl.load(ptrs, mask=is_row[:, None] & (offs_d < D)[None, :], other=0.0)
        elif D != BLOCK_D:
            tile = tl.load(ptrs, mask=(offs_d < D)[None, :], other=0.0)
        else:
            tile = tl.load(ptrs)
    return tile


@triton.jit
def store_tile(
    heads,  # [B, H, T, D]
    tile,  # [BLOCK, BLOCK_D]
    strides,
    b,
    h,
    token,
    n_rows,
    D: tl.constexpr,
    BLOCK: tl.constexpr,
    BLOCK_D: tl.constexpr,
    IS_ALIGNED: tl.constexpr,
):
    """Store a tile, with the mask of an edge tile."""
    ptrs = _tile_ptrs(heads, strides, b, h, token, BLOCK, BLOCK_D, IS_ALIGNED)
    is_row = tl.arange(0, BLOCK) < n_rows
    mask = is_row[:, None] & (tl.arange(0, BLOCK_D) < D)[None, :]
    tl.store(ptrs, tile.to(heads.dtype.element_ty), mask=mask)


_LOG2_E = tl.constexpr(1.4426950408889634)
LOWEST = tl.constexpr(-1e38)
"""Below every score. Minus infinity would give NaN in rows without keys."""


@triton.jit
def first_sums(sinks_ptr, h, BLOCK_M: tl.constexpr):
    """Return the running maximum and sum of each row before the first key, for `add_scores`.

    A sink is a score of the head that every row has, without a value.
    """
    if sinks_ptr is None:
        row_max = tl.full((BLOCK_M,), LOWEST, tl.float32)
        row_sum = tl.zeros((BLOCK_M,), tl.float32)
    else:
        row_max = tl.full((BLOCK_M,), 1.0, tl.float32) * (tl.load(sinks_ptr + h) * _LOG2_E)
        row_sum = tl.full((BLOCK_M,), 1.0, tl.float32)
    return row_max, row_sum


@triton.jit
def add_scores(scores, scale, row_max, row_sum):
    """Update the running maximum and sum of each row with a tile of scores. Exponentials are powers
    of two.

    Args:
        scores: [n_rows, n_cols] float32, minus infinity where masked.
        scale: Scale of the scores times log2(e).
        row_max: [n_rows], initially `LOWEST`.
        row_sum: [n_rows], initially zero.

    Returns:
        Exponentials of the scores, correction factor of earlier sums, new maximum, new sum.
    """
    new_max = tl.maximum(row_max, tl.max(scores, axis=1) * scale)
    exps = tl.exp2(scores * scale - new_max[:, None])
    correction = tl.exp2(row_max - new_max)
    return exps, correction, new_max, row_sum * correction + tl.sum(exps, axis=1)

"""What the attention kernels share: where a program works, which tiles of the scores need a mask, how tiles are loaded.

The scores have a row per query and a column per key. Of the tiles that a program walks over, those in the middle are
seen whole and take no mask. Those at the edges do: at the diagonal, at the window's far end, at the sequence's end. A
program first walks over the middle, then over the edges as if the middle were not there.
"""

import triton
import triton.language as tl


@triton.jit
def place_of(program, n_heads, heads_per_sequence, n_tiles, section, cu_seqlens_ptr, n_queries, n_keys):
    """Where a program works: its tile, its head, the batch entry, and of its sequence the first token, the number of
    queries and of keys.

    Heads, of all sequences', are worked on in sections whose keys the L2 cache holds; within one, all first tiles come
    first, so that the longest walks are under way before the shortest. Packed sequences lie one behind another in one
    batch entry.
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
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """Keys `start` to `stop`, which some of `BLOCK_M` queries see, and `full_start` to `full_stop`, which all of them
    see; `BLOCK_M` is a multiple of `BLOCK_N`, and all but `stop` are.
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
    return start, full_start, full_stop, stop


@triton.jit
def seeing_queries(
    first_key,
    n_queries,
    window,
    IS_CAUSAL: tl.constexpr,
    HAS_WINDOW: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """Queries `start` to `stop`, which see some of `BLOCK_N` keys, and `full_start` to `full_stop`, which see all of
    them; all but `stop` are multiples of `BLOCK_M`.
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
    return start, full_start, tl.maximum(full_start, full_stop), stop


@triton.jit
def walk(start, full_start, full_stop, stop, IS_EDGE: tl.constexpr):
    """Where the walk over the middle begins and ends, or over the edges as if the middle were not there."""
    if IS_EDGE:
        first_step = start
        end = stop - (full_stop - full_start)
    else:
        first_step = full_start
        end = full_stop
    return first_step, end


@triton.jit
def token_at(step, full_start, full_stop, IS_EDGE: tl.constexpr):
    """The token that a step of the walk stands on."""
    token = step
    if IS_EDGE:
        token += tl.where(step >= full_start, full_stop - full_start, 0)
    return token


@triton.jit
def is_seen(offs_m, offs_n, n_keys, window, IS_CAUSAL: tl.constexpr, HAS_WINDOW: tl.constexpr):
    """Whether each query sees each key. Offsets from the same token carry the dims that they vary along."""
    # under a causal mask, keys beyond the last one lie behind every query
    seen = offs_m >= offs_n if IS_CAUSAL else offs_n < n_keys
    if HAS_WINDOW:
        seen = seen & (offs_m - offs_n < window)
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
    """[BLOCK, BLOCK_D]: one offset of 64 bits, the others in 32."""
    first = b.to(tl.int64) * strides[0] + h.to(tl.int64) * strides[1] + token.to(tl.int64) * strides[2]
    ptrs = heads + first + tl.arange(0, BLOCK)[:, None] * strides[2] + tl.arange(0, BLOCK_D)[None, :]
    if IS_ALIGNED:
        # strides of 72, say, which Triton does not know to be multiples of 8
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
    """One head from a token on, [BLOCK, BLOCK_D]. Zeros lie behind the `n_rows` that its sequence has left, which only
    an edge tile may run out of, and beyond the last of D columns.
    """
    is_row = tl.arange(0, BLOCK) < n_rows
    if isinstance(heads, tl.tensor_descriptor):
        tile = heads.load([b, h, token, 0]).reshape(BLOCK, BLOCK_D)
        if IS_EDGE and IS_PACKED:
            tile = tl.where(is_row[:, None], tile, 0.0)  # the descriptor ends where the last sequence does
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
    """The counterpart of `load_tile` at an edge."""
    ptrs = _tile_ptrs(heads, strides, b, h, token, BLOCK, BLOCK_D, IS_ALIGNED)
    is_row = tl.arange(0, BLOCK) < n_rows
    mask = is_row[:, None] & (tl.arange(0, BLOCK_D) < D)[None, :]
    tl.store(ptrs, tile.to(heads.dtype.element_ty), mask=mask)

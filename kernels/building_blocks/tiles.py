"""Tiles of a matrix product: which one a program works on, and how it is read and written."""

import triton
import triton.language as tl


@triton.jit
def tile_of(program, n_tiles_m, n_tiles_n, GROUP_M: tl.constexpr):
    """Row and column of the program's tile. Programs that run together work on a block of `GROUP_M` rows of tiles, so
    they share its columns of b in the L2 cache.
    """
    group_size = GROUP_M * n_tiles_n
    first_tile_m = program // group_size * GROUP_M
    rows = tl.minimum(n_tiles_m - first_tile_m, GROUP_M)  # the last group may have fewer
    in_group = program % group_size
    return first_tile_m + in_group % rows, in_group // rows


@triton.jit
def by_chiplet(program, n_programs, N_CHIPLETS: tl.constexpr):
    """Renumber programs such that those of one chiplet, which the hardware deals out in turn, are neighbours and share
    its L2 cache.
    """
    if N_CHIPLETS == 1:
        return program
    chiplet = program % N_CHIPLETS
    share = n_programs // N_CHIPLETS
    with_one_more = n_programs % N_CHIPLETS
    return chiplet * share + tl.minimum(chiplet, with_one_more) + program // N_CHIPLETS


@triton.jit
def tile_of_program(
    M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr, N_CHIPLETS: tl.constexpr
):
    """Row and column of this program's tile of an M x N result, where each tile has a program of its own."""
    program = by_chiplet(tl.program_id(0), tl.num_programs(0), N_CHIPLETS)
    return tile_of(program, tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N), GROUP_M)


@triton.jit
def load_factors(a_ptrs, b_ptrs, n_left, K_IS_EVEN: tl.constexpr):
    """Tiles [BLOCK_M, BLOCK_K] of a and [BLOCK_K, BLOCK_N] of b, where K has `n_left` terms left: zeros lie beyond
    them. `K_IS_EVEN` says that all tiles are whole, which spares the masks.
    """
    if K_IS_EVEN:
        a = tl.load(a_ptrs)  # [BLOCK_M, BLOCK_K]
        b = tl.load(b_ptrs)  # [BLOCK_K, BLOCK_N]
    else:
        mask_k = tl.arange(0, b_ptrs.shape[0]) < n_left
        a = tl.load(a_ptrs, mask=mask_k[None, :], other=0.0)  # [BLOCK_M, BLOCK_K]
        b = tl.load(b_ptrs, mask=mask_k[:, None], other=0.0)  # [BLOCK_K, BLOCK_N]
    return a, b


@triton.jit
def store_product(out_ptr, product, offs_m, offs_n, M, N, row_stride):
    """Write a tile, in the result's dtype, to the rows and columns that lie within M x N."""
    out_ptrs = out_ptr + offs_m.to(tl.int64)[:, None] * row_stride + offs_n[None, :]
    mask = (offs_m < M)[:, None] & (offs_n < N)[None, :]
    tl.store(out_ptrs, product.to(out_ptr.dtype.element_ty), mask=mask)  # [BLOCK_M, BLOCK_N]

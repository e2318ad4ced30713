"""Which tile of a matrix product a program works on."""

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

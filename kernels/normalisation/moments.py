"""Mean and variance of what is longer than one tile, without squares that cancel: deviations are summed around means.

Sources: Welford, Note on a method for calculating corrected sums of squares and products, 1962; Chan, Golub and
LeVeque, Updating formulae and a pairwise algorithm for computing sample variances, 1979.
"""

import triton
import triton.language as tl


@triton.jit
def moments_of(x_ptr, length, BLOCK: tl.constexpr):
    """Mean and sum of squared deviations of the `length` elements from `x_ptr` on, read in tiles of BLOCK."""
    lane_mean = tl.zeros((BLOCK,), tl.float32)
    lane_square_sum = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, length, BLOCK):
        offs = start + tl.arange(0, BLOCK)
        mask = offs < length
        x = tl.load(x_ptr + offs, mask=mask, other=0.0).to(tl.float32)  # [BLOCK]
        lane_mean, lane_square_sum = _add_tile(x, mask, start // BLOCK + 1, lane_mean, lane_square_sum)
    count = tl.cdiv(length - tl.arange(0, BLOCK), BLOCK).to(tl.float32)
    return merge_parts(count, lane_mean, lane_square_sum)


@triton.jit
def _add_tile(x, mask, n_tiles, lane_mean, lane_square_sum):
    """Take one more tile into the moments of each lane.

    Args:
        x: [BLOCK] float32.
        mask: [BLOCK], False where the last tile has no element.
        n_tiles: How many tiles there are with this one.
        lane_mean: [BLOCK] float32, of the tiles before; zeros at first.
        lane_square_sum: [BLOCK] float32, their squared deviations from it; zeros at first.

    Returns:
        The new lane_mean and lane_square_sum.
    """
    offset = tl.where(mask, x - lane_mean, 0.0)
    lane_mean += offset * (1.0 / n_tiles)
    return lane_mean, lane_square_sum + offset * (x - lane_mean)


@triton.jit
def merge_parts(count, mean, square_sum):
    """Mean and sum of squared deviations of a whole from those of its parts.

    Args:
        count: [n_parts] float32, elements of each part; a part of none adds nothing.
        mean: [n_parts] float32.
        square_sum: [n_parts] float32, squared deviations from the part's own mean.

    Returns:
        The whole's mean and sum of squared deviations.
    """
    whole_mean = tl.sum(count * mean, axis=0) / tl.sum(count, axis=0)
    offset = mean - whole_mean
    return whole_mean, tl.sum(square_sum + count * offset * offset, axis=0)

"""The exponential function and its running sums, as kernels of probabilities use them."""

import triton
import triton.language as tl

BYTES_PER_LOAD = 16
"""Of one thread: the elements that share a running maximum without an exchange with other threads.
"""
_LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit
def fast_exp(x):
    """Compute exp(x) in float32 in two instructions; a result below 2**-126 is 0.

    `tl.exp` takes five on NVIDIA GPUs: it also scales results below the normal range.
    """
    return tl.exp2(x * _LOG2_E)


@triton.jit
def add_to_lanes(x, lane_max, lane_sum):
    """Add the exponentials of x, [LANES, WIDTH] float32, to the running maximum and sum of each
    lane, [LANES] float32.

    Source: Milakov and Gimelshein, Online normalizer calculation for softmax, 2018 (arXiv
    1805.02867), algorithm 3.
    """
    new_max = tl.maximum(lane_max, tl.max(x, axis=1))
    # avoid exp(-inf + inf) in a lane with only -inf
    anchor = tl.where(new_max == -float("inf"), 0.0, new_max)
    tile_sum = tl.sum(fast_exp(x - anchor[:, None]), axis=1)
    return new_max, lane_sum * fast_exp(lane_max - anchor) + tile_sum

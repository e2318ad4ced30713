"""Search for the bound of the most probable tokens of a row, and draw one of those above it."""

import triton
import triton.language as tl

from roofwatch.kernels.building_blocks.exponential import fast_exp

NEGLIGIBLE = tl.constexpr(87.0)
"""Below the largest logit by this much, a probability is below 2**-125 and counts as 0."""
_MAX_PASSES = tl.constexpr(64)
_BISECTIONS = tl.constexpr(16)


@triton.jit
def load_logits(logits_ptr, start, n_cols, factor, BLOCK: tl.constexpr):
    offs = start + tl.arange(0, BLOCK)
    logits = tl.load(logits_ptr + offs, mask=offs < n_cols, other=-float("inf"))  # [BLOCK]
    return logits.to(tl.float32) * factor


@triton.jit
def weight_of(x, row_max, IS_MASS: tl.constexpr):
    """Return the unnormalised probability of each token, or 1."""
    if IS_MASS:
        weight = fast_exp(x - row_max)
    else:
        weight = tl.full(x.shape, 1.0, tl.float32)
    return weight


@triton.jit
def weight_above(
    logits_ptr, n_cols, factor, row_max, bound, IS_MASS: tl.constexpr, BLOCK: tl.constexpr
):
    """Sum the weights of tokens with a logit above `bound`."""
    lane_sum = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, n_cols, BLOCK):
        x = load_logits(logits_ptr, start, n_cols, factor, BLOCK)
        lane_sum += tl.where(x > bound, weight_of(x, row_max, IS_MASS), 0.0)
    return tl.sum(lane_sum, axis=0)


@triton.jit
def lower_bound(
    logits_ptr, n_cols, factor, row_max, low, goal, IS_MASS: tl.constexpr, BLOCK: tl.constexpr
):
    """Return the bound above which tokens are kept: all tokens with larger logits weigh less than
    `goal`.

    The tokens above `low` weigh at least `goal`.
    """
    high = row_max
    n_passes = 0
    is_open = n_passes == 0
    while is_open:
        first_pivot = low + (high - low) * 0.3333333
        second_pivot = low + (high - low) * 0.6666667
        first_sum = tl.zeros((BLOCK,), tl.float32)
        second_sum = tl.zeros((BLOCK,), tl.float32)
        smallest = tl.full((BLOCK,), float("inf"), tl.float32)
        largest = tl.full((BLOCK,), -float("inf"), tl.float32)
        for start in range(0, n_cols, BLOCK):
            x = load_logits(logits_ptr, start, n_cols, factor, BLOCK)
            weight = weight_of(x, row_max, IS_MASS)
            first_sum += tl.where(x > first_pivot, weight, 0.0)
            second_sum += tl.where(x > second_pivot, weight, 0.0)
            smallest = tl.minimum(smallest, tl.where(x > low, x, float("inf")))
            largest = tl.maximum(largest, tl.where(x <= high, x, -float("inf")))
        smallest_above = tl.min(smallest, axis=0)
        largest_below = tl.max(largest, axis=0)
        n_passes += 1
        is_open = (smallest_above < largest_below) & (n_passes < _MAX_PASSES)
        if is_open:
            if tl.sum(second_sum, axis=0) >= goal:
                low = second_pivot
                high = largest_below
            elif tl.sum(first_sum, axis=0) >= goal:
                low = first_pivot
                high = tl.minimum(second_pivot, largest_below)
            else:
                high = tl.minimum(first_pivot, largest_below)
    return low


@triton.jit
def draw_token(logits_ptr, n_cols, factor, row_max, low, uniform, BLOCK: tl.constexpr):
    """Return the first element at which the cumulative weight of kept ones exceeds a drawn share of
    the total.
    """
    total = weight_above(logits_ptr, n_cols, factor, row_max, low, True, BLOCK)
    drawn = uniform * total
    passed = total * 0.0
    # the last kept element, if the sums differ by rounding
    last_kept = 0
    chosen = n_cols
    for start in range(0, n_cols, BLOCK):
        x = load_logits(logits_ptr, start, n_cols, factor, BLOCK)
        offs = start + tl.arange(0, BLOCK)
        weight = tl.where(x > low, weight_of(x, row_max, True), 0.0)
        last_kept = tl.maximum(last_kept, tl.max(tl.where(x > low, offs, 0), axis=0))
        with_block = passed + tl.sum(weight, axis=0)
        if (with_block > drawn) & (passed <= drawn):
            is_past = (passed + tl.cumsum(weight, axis=0) > drawn) & (x > low)
            chosen = tl.minimum(chosen, tl.min(tl.where(is_past, offs, n_cols), axis=0))
        passed = with_block
    return tl.where(chosen < n_cols, chosen, last_kept)


@triton.jit
def choose_token(
    logits_ptr,
    n,
    factor,
    row_max,
    low,
    is_limited,
    top_k,
    top_p,
    total,
    uniform,
    BLOCK: tl.constexpr,
):
    """Return the drawn one of n elements; `total` is the weight of all tokens, for rows that top_k
    does not limit.
    """
    if is_limited:
        n_above = weight_above(logits_ptr, n, factor, row_max, low, False, BLOCK)
        if n_above > top_k:
            low = lower_bound(logits_ptr, n, factor, row_max, low, top_k, False, BLOCK)
        total = weight_above(logits_ptr, n, factor, row_max, low, True, BLOCK)
    if top_p < 1.0:
        low = lower_bound(logits_ptr, n, factor, row_max, low, top_p * total, True, BLOCK)
    return draw_token(logits_ptr, n, factor, row_max, low, uniform, BLOCK)


@triton.jit
def bound_of_candidates(lane_max, row_max, n_wanted):
    """Return a bound that at least the `n_wanted` largest elements exceed, or the lowest one.

    Each lane whose maximum exceeds it has such an element.
    """
    low = row_max - NEGLIGIBLE
    high = row_max
    for _ in range(_BISECTIONS):
        middle = 0.5 * (low + high)
        is_exceeded = tl.sum((lane_max > middle).to(tl.float32), axis=0) >= n_wanted
        low = tl.where(is_exceeded, middle, low)
        high = tl.where(is_exceeded, high, middle)
    return low

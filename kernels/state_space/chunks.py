"""Shared parts of the scan of Mamba-2 and its gradient: the tokens and the decays of a chunk."""

import triton
import triton.language as tl


@triton.jit
def load_chunk(
    ptr, start, steps, row_stride, n_left, first_d, D: tl.constexpr, BLOCK_D: tl.constexpr
):
    """Load [BLOCK_T, BLOCK_D] with one 64-bit offset, zero after the sequence."""
    offs_d = first_d + tl.arange(0, BLOCK_D)
    mask = (steps < n_left)[:, None]
    if D % BLOCK_D:
        mask = mask & (offs_d < D)[None, :]
    ptr += tl.cast(start, tl.int64) * row_stride
    ptrs = ptr + steps[:, None] * row_stride + offs_d[None, :]
    return tl.load(ptrs, mask=mask, other=0.0)  # [BLOCK_T, BLOCK_D]


@triton.jit
def store_chunk(ptr, chunk, start, steps, row_stride, n_left, first_d, D: tl.constexpr):
    """Store [BLOCK_T, BLOCK_D] in the dtype of the result, up to the end of the sequence."""
    offs_d = first_d + tl.arange(0, chunk.shape[1])
    ptr += tl.cast(start, tl.int64) * row_stride
    ptrs = ptr + steps[:, None] * row_stride + offs_d[None, :]
    mask = (steps < n_left)[:, None] & (offs_d < D)[None, :]
    tl.store(ptrs, chunk.to(ptr.dtype.element_ty), mask=mask)  # [BLOCK_T, BLOCK_D]


@triton.jit
def load_steps(dt_ptr, start, steps, H, n_left):
    """Load dt of a head, zero past the last token: the state stays as it is."""
    dt_ptrs = dt_ptr + tl.cast(start, tl.int64) * H + steps * H
    return tl.load(dt_ptrs, mask=steps < n_left, other=0.0)  # [BLOCK_T]


@triton.jit
def decays_of(dt, rate):
    """Return logarithms to base 2 of the decay from the start of the chunk up to each token, and
    up to the end.
    """
    return tl.cumsum(dt * rate, axis=0), tl.sum(dt * rate, axis=0)


@triton.jit
def decay_between(decay, steps, FROM_ROWS: tl.constexpr):
    """Return the decay [BLOCK_T, BLOCK_T] from one token up to another; 0 for an earlier one.

    The tokens that it starts from are the rows or the columns.
    """
    later = steps[None, :] if FROM_ROWS else steps[:, None]
    earlier = steps[:, None] if FROM_ROWS else steps[None, :]
    between = decay[None, :] - decay[:, None] if FROM_ROWS else decay[:, None] - decay[None, :]
    # masked before the power: it would overflow for earlier tokens
    return tl.exp2(tl.where(later >= earlier, between, -float("inf")))

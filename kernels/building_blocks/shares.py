"""The sum of what programs that split a dim among themselves have left, in a fixed order."""

import torch
import triton
import triton.language as tl

_BLOCK = 1024


@triton.jit
def _sum_of_shares_kernel(share_ptr, out_ptr, n_elements, N_SHARES: tl.constexpr, BLOCK: tl.constexpr):
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n_elements
    total = tl.zeros((BLOCK,), tl.float32)
    for share in tl.static_range(N_SHARES):
        share_ptrs = share_ptr + share * n_elements.to(tl.int64) + offs
        total += tl.load(share_ptrs, mask=mask, other=0.0)  # [BLOCK]
    tl.store(out_ptr + offs, total.to(out_ptr.dtype.element_ty), mask=mask)  # [BLOCK]


def sum_shares(shares: torch.Tensor, out: torch.Tensor) -> None:
    """Write the sum over the first dim of `shares`, float32 and contiguous, into `out` of the other dims."""
    grid = (triton.cdiv(out.numel(), _BLOCK),)
    _sum_of_shares_kernel[grid](shares, out, out.numel(), N_SHARES=shares.shape[0], BLOCK=_BLOCK)


def groups_per_split(n_groups: int, n_tiles: int, n_multiprocessors: int, programs_per_multiprocessor: int) -> int:
    """How many of the groups along the split dim a program works on, such that there are enough programs."""
    wanted = max(programs_per_multiprocessor * n_multiprocessors // n_tiles, 1)
    return -(-n_groups // min(wanted, n_groups))

"""Kernels that really break a GPU's context, each followed by one that needs it to work."""

from functools import partial

import plus_one
import torch
import triton
import triton.language as tl


@triton.jit
def _add_one_kernel(x_ptr, y_ptr, count, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < count)  # [BLOCK]
    tl.store(y_ptr + offsets, x + 1, mask=offsets < count)


@triton.jit
def _write_far_away_kernel(y_ptr):
    far = tl.cast(1 << 44, tl.int64)
    tl.store(y_ptr + far, 1.0)


@triton.jit
def _wait_for_ever_kernel(flag_ptr, y_ptr):
    while tl.load(flag_ptr, volatile=True) == 0.0:
        pass
    tl.store(y_ptr, 1.0)


@triton.jit
def _never_compiles_kernel(y_ptr, BLOCK: tl.constexpr):
    tl.static_assert(BLOCK == 7, "blocks of seven")
    tl.store(y_ptr, 1.0)


def _add_one(x):
    y = torch.empty_like(x)
    _add_one_kernel[(1,)](x, y, x.numel(), BLOCK=64)
    return y


def _write_far_away(x):
    y = torch.empty_like(x)
    _write_far_away_kernel[(1,)](y)
    return y


def _wait_for_ever(x):
    y = torch.empty_like(x)
    _wait_for_ever_kernel[(1,)](torch.zeros_like(x), y)
    return y


def _never_compiles(x):
    y = torch.empty_like(x)
    _never_compiles_kernel[(1,)](y, BLOCK=8)
    return y


declare = partial(plus_one.declare, language="triton")

illegal_access = declare("illegal_access", _write_far_away)
works_first = declare("works_first", _add_one)
device_assertion = declare("device_assertion", lambda x: x[torch.full_like(x, 10**6, dtype=torch.int64)])
works_second = declare("works_second", _add_one)
infinite_loop = declare("infinite_loop", _wait_for_ever)
works_third = declare("works_third", _add_one)
exhausts_memory = declare("exhausts_memory", lambda x: torch.empty(2**50, device=x.device))
never_compiles = declare("never_compiles", _never_compiles)
works_last = declare("works_last", _add_one)

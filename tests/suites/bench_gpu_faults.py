"""Kernels that really break a GPU's context, each followed by one that needs it to work."""

from functools import partial

import plus_one
import torch
import triton
import triton.language as tl


@triton.jit
def _add_one_kernel(x_ptr, y_ptr, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.store(y_ptr + offsets, tl.load(x_ptr + offsets) + 1)  # [BLOCK]


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


def _launch(kernel, *inputs, like, **constants):
    y = torch.empty_like(like)
    kernel[(1,)](*inputs, y, **constants)
    return y


def _add_one(x):
    return _launch(_add_one_kernel, x, like=x, BLOCK=x.numel())


declare = partial(plus_one.declare, language="triton")

illegal_access = declare("illegal_access", lambda x: _launch(_write_far_away_kernel, like=x))
works_first = declare("works_first", _add_one)
device_assertion = declare(
    "device_assertion", lambda x: x[torch.full_like(x, 10**6, dtype=torch.int64)]
)
works_second = declare("works_second", _add_one)
infinite_loop = declare(
    "infinite_loop", lambda x: _launch(_wait_for_ever_kernel, torch.zeros_like(x), like=x)
)
works_third = declare("works_third", _add_one)
exhausts_memory = declare("exhausts_memory", lambda x: torch.empty(2**50, device=x.device))
never_compiles = declare(
    "never_compiles", lambda x: _launch(_never_compiles_kernel, like=x, BLOCK=8)
)
works_last = declare("works_last", _add_one)

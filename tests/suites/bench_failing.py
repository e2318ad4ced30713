"""One kernel for each way to fail, and one between them that works: what a run must survive."""

import ctypes
import os
import time

import torch
import triton
import triton.language as tl
from plus_one import declare


def _mutate(x):
    x.add_(1)
    return x.clone()


def _hang(x):
    while True:
        time.sleep(1)


@triton.jit
def _uncompilable_kernel(x_ptr, y_ptr, BLOCK: tl.constexpr):
    tl.static_assert(BLOCK == 7, "blocks of seven")
    tl.store(y_ptr, tl.load(x_ptr))


def _uncompilable(x):
    y = torch.empty_like(x)
    _uncompilable_kernel[(1,)](x, y, BLOCK=8)
    return y


raises = declare("raises", lambda x: x[1000])
segfault = declare("segfault", lambda x: ctypes.string_at(0))
aborts = declare("aborts", lambda x: os.abort())
leaves = declare("leaves", lambda x: os._exit(0))
hangs = declare("hangs", _hang)
exhausts_memory = declare("exhausts_memory", lambda x: torch.empty(2**50))
wrong_shape = declare("wrong_shape", lambda x: torch.cat([x, x]) + 1)
not_a_tensor = declare("not_a_tensor", lambda x: "a string")
gives_nan = declare("gives_nan", lambda x: x + float("nan"))
gives_garbage = declare("gives_garbage", lambda x: torch.rand_like(x))
gives_zeros = declare("gives_zeros", torch.zeros_like)
changes_input = declare("changes_input", _mutate)
unsupported = declare("unsupported", lambda x: torch.linalg.qr(x.half().view(8, 8)))
uncompilable = declare("uncompilable", _uncompilable, language="triton")
too_fast = declare("too_fast", lambda x: x + 1)
too_fast.flop_count = lambda case: 1e15
works = declare("works", lambda x: x + 1)

"""Triton code as a library has it: jitted functions,
and nothing that says how they are launched.
"""

import triton
import triton.language as tl


@triton.jit
def twice(x):
    return x + x


@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < n
    total = twice(tl.load(x_ptr + offsets, mask=inside)) + tl.load(y_ptr + offsets, mask=inside)
    tl.store(out_ptr + offsets, total, mask=inside)


@triton.autotune(
    configs=[triton.Config({"BLOCK": size}, num_warps=4) for size in (128, 512)], key=["n"]
)
@triton.jit
def copy_kernel(x_ptr, out_ptr, n, DTYPE: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < n
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask=inside).to(DTYPE), mask=inside)


@triton.jit
def never_launched(x_ptr):
    tl.store(x_ptr, 1.0)

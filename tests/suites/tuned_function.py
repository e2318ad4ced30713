"""A jitted function with two configurations, for tests that launch nothing."""

import triton
import triton.language as tl


@triton.autotune(
    [triton.Config({"BLOCK": 32}), triton.Config({"BLOCK": 128}, num_warps=8)], key=["count"]
)
@triton.jit
def scale(x_ptr, count, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(
        x_ptr + offsets, 2 * tl.load(x_ptr + offsets, mask=offsets < count), mask=offsets < count
    )

"""Functions with several configurations: some slow, one wrong, some that spill or do not fit."""

import torch
import triton
import triton.language as tl
from plus_one import declare


def _add_one_in_parts(x, rows=4096, extra=0):
    y = torch.empty_like(x)
    for start in range(0, len(x), rows):
        y[start : start + rows] = x[start : start + rows] + 1 + extra
    return y


parts = declare("parts", lambda x: x + 1, n=8192)
parts.implementation(
    "torch", name="in_parts", configs=[{"rows": 64}, {"rows": 8192}, {"rows": 8192, "extra": 1}]
)(_add_one_in_parts)


@triton.jit
def _add_one_kernel(x_ptr, y_ptr, count, BLOCK: tl.constexpr, PASSES: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    for _ in tl.static_range(PASSES):
        x = tl.load(x_ptr + offsets, mask=offsets < count)  # [BLOCK]
        tl.store(y_ptr + offsets, tl.sqrt(x * x) + 1, mask=offsets < count)
        tl.debug_barrier()


def _add_one(x, block=1024, passes=1, num_warps=4):
    y = torch.empty_like(x)
    grid = (triton.cdiv(x.numel(), block),)
    _add_one_kernel[grid](x, y, x.numel(), BLOCK=block, PASSES=passes, num_warps=num_warps)
    return y


blocks = declare(
    "blocks",
    _add_one,
    language="triton",
    n=2**22,
)
blocks.implementations.clear()
blocks.implementation(
    "triton",
    configs=[
        {"block": 1024, "passes": 8},
        {"block": 1024},
        {"block": 16_384, "num_warps": 1},
        {"block": 1000},
    ],
)(_add_one)

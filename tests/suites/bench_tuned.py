"""A suite whose one kernel has a choice of configurations."""

import torch
import triton
import triton.language as tl
from plus_one import declare


@triton.autotune(
    [triton.Config({"BLOCK": 32}), triton.Config({"BLOCK": 1024}, num_warps=8)], key=["count"]
)
@triton.jit
def _add_one_kernel(x_ptr, y_ptr, count, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < count)  # [BLOCK]
    tl.store(y_ptr + offsets, x + 1, mask=offsets < count)


def _add_one(x):
    y = torch.empty_like(x)
    _add_one_kernel[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, y, x.numel())
    return y


tuned = declare("tuned", _add_one, language="triton", n=100_000)

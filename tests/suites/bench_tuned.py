"""A suite whose one kernel has a choice of configurations."""

import torch
import triton
import triton.language as tl
from roofwatch import KernelSpec, cases


@triton.autotune([triton.Config({"BLOCK": 32}), triton.Config({"BLOCK": 1024}, num_warps=8)], key=["count"])
@triton.jit
def _double_kernel(x_ptr, y_ptr, count, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < count)  # [BLOCK]
    tl.store(y_ptr + offsets, 2 * x, mask=offsets < count)


double = KernelSpec(
    name="double",
    inputs=lambda case, make: {"x": make.normal(case["n"])},
    reference=lambda x: 2 * x,
    cases=cases(shapes=[{"n": 100_000}], directions=["fwd"]),
    flop_count=lambda case: case["n"],
    memory_bytes=lambda case: 2 * case["n"] * case.itemsize,
)


@double.implementation("triton")
def double_triton(x):
    y = torch.empty_like(x)
    _double_kernel[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, y, x.numel())
    return y

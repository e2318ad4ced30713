"""A small suite as a user would write it: one kernel in Triton and torch, one in torch alone."""

import torch
import triton
import triton.language as tl
from roofwatch import KernelSpec, cases


@triton.jit
def _scale_kernel(x_ptr, y_ptr, count, factor, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < count)  # [BLOCK]
    tl.store(y_ptr + offsets, x * factor, mask=offsets < count)


scale = KernelSpec(
    name="scale",
    inputs=lambda case, make: {"x": make.normal(case["n"])},
    reference=lambda x: 3 * x,
    cases=cases(shapes=[{"n": 1000}], directions=["fwd"]),
    flop_count=lambda case: case["n"],
    memory_bytes=lambda case: 2 * case["n"] * case.itemsize,
)


@scale.implementation("torch")
def scale_eager(x):
    return x * 3


@scale.implementation("triton")
def scale_triton(x):
    y = torch.empty_like(x)
    _scale_kernel[(triton.cdiv(x.numel(), 128),)](x, y, x.numel(), 3.0, BLOCK=128)
    return y


total = KernelSpec(
    name="total",
    inputs=lambda case, make: {"x": make.normal(case["n"])},
    reference=lambda x: x.square().sum(),
    cases=cases(shapes=[{"n": 500}], directions=["fwd", "bwd"]),
    flop_count=lambda case: 2 * case["n"],
    memory_bytes=lambda case: case["n"] * case.itemsize,
)


@total.implementation("torch")
def total_eager(x):
    return (x * x).sum()

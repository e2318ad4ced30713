"""A launcher; the version to judge copies its input first."""

import torch
import triton
import triton.language as tl

from roofwatch import KernelSpec, cases


@triton.jit
def _square_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < n)
    tl.store(y_ptr + offs, x * x, mask=offs < n)


def square(x):
    x = x.contiguous()  # VERSION
    y = torch.empty_like(x)
    n = x.numel()
    grid = (triton.cdiv(n, 1024),)
    _square_kernel[grid](x, y, n, BLOCK=1024)
    return y


square_spec = KernelSpec(
    name="square",
    inputs=lambda case, make: {"x": make.normal(case["n"])},
    reference=lambda x: x * x,
    cases=cases(shapes=[{"n": 1 << 20}]),
    interpreted_shape={"n": 2048},
    flop_count=lambda case: case["n"],
    memory_bytes=lambda case: 2 * case["n"] * case.itemsize,
)


@square_spec.implementation("triton")
def square_triton(x):
    return square(x)

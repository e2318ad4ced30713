"""A Triton kernel that leaves out the last elements of a row."""

import torch
import triton
import triton.language as tl

from roofwatch import KernelSpec, cases


@triton.jit
def _double_kernel(x_ptr, y_ptr, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offs = tl.arange(0, BLOCK)
    mask = offs < n_cols // 32 * 32
    x = tl.load(x_ptr + row * n_cols + offs, mask=mask)
    tl.store(y_ptr + row * n_cols + offs, 2 * x, mask=mask)


def double(x):
    x = x.contiguous()
    y = torch.zeros_like(x)
    n_rows, n_cols = x.shape
    block = triton.next_power_of_2(n_cols)
    _double_kernel[(n_rows,)](x, y, n_cols, BLOCK=block)
    return y


double_spec = KernelSpec(
    name="double",
    inputs=lambda case, make: {"x": make.normal(case["n_rows"], case["n_cols"])},
    reference=lambda x: 2 * x,
    cases=cases(shapes=[{"n_rows": 4, "n_cols": 128}, {"n_rows": 4, "n_cols": 100}]),
    flop_count=lambda case: case["n_rows"] * case["n_cols"],
    memory_bytes=lambda case: 2 * case["n_rows"] * case["n_cols"] * case.itemsize,
)


@double_spec.implementation("triton")
def double_triton(x):
    return double(x)

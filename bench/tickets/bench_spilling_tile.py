"""A row softmax; the version to judge has one warp for a row of 16,384."""

import torch
import triton
import triton.language as tl

from roofwatch import KernelSpec, cases

N_WARPS = 8  # VERSION


@triton.jit
def _softmax_kernel(x_ptr, y_ptr, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offs = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n_cols + offs, mask=offs < n_cols, other=-float("inf"))
    x = tl.exp(x - tl.max(x, 0))
    tl.store(y_ptr + row * n_cols + offs, x / tl.sum(x, 0), mask=offs < n_cols)


def softmax(x):
    x = x.contiguous()
    y = torch.empty_like(x)
    n_rows, n_cols = x.shape
    block = triton.next_power_of_2(n_cols)
    _softmax_kernel[(n_rows,)](x, y, n_cols, BLOCK=block, num_warps=N_WARPS)
    return y


row_softmax_spec = KernelSpec(
    name="row_softmax",
    inputs=lambda case, make: {"x": make.normal(case["n_rows"], case["n_cols"])},
    reference=lambda x: torch.softmax(x, -1),
    cases=cases(shapes=[{"n_rows": 64, "n_cols": 16384}]),
    interpreted_shape={"n_rows": 2},
    flop_count=lambda case: 5 * case["n_rows"] * case["n_cols"],
    memory_bytes=lambda case: 2 * case["n_rows"] * case["n_cols"] * case.itemsize,
)


@row_softmax_spec.implementation("triton")
def softmax_triton(x):
    return softmax(x)

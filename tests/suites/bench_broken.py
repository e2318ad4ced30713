"""Kernels with the faults that Triton code usually has, each of one line, for the check to find and
to locate.
"""

import torch
import triton
import triton.language as tl
from roofwatch import KernelSpec, cases

BLOCK = 64


@triton.jit
def _copy_rows_kernel(
    x_ptr, y_ptr, n_cols, n_whole, row_stride, SHIFT: tl.constexpr, BLOCK: tl.constexpr
):
    row = tl.program_id(0)
    start = tl.program_id(1) * BLOCK
    cols = start + tl.arange(0, BLOCK)
    late = tl.where(start == BLOCK, SHIFT, 0)  # the second tile reads one column late
    x = tl.load(x_ptr + row * row_stride + cols + late, mask=cols + late < n_cols, other=0.0)
    tl.store(y_ptr + row * n_cols + cols, 2 * x, mask=cols < n_whole)


@triton.jit
def _causal_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n + cols, mask=cols < n)
    # the diagonal belongs to the past
    tl.store(y_ptr + row * n + cols, tl.where(cols < row, 2 * x, 0.0), mask=cols < n)


def _launch(x, *, skip_tail=False, shift=0, row_stride=None):
    y = torch.empty(x.shape, device=x.device, dtype=x.dtype)
    n_rows, n_cols = x.shape
    n_whole = n_cols // BLOCK * BLOCK if skip_tail else n_cols
    grid = (n_rows, triton.cdiv(n_cols, BLOCK))
    _copy_rows_kernel[grid](
        x, y, n_cols, n_whole, row_stride or x.stride(0), SHIFT=shift, BLOCK=BLOCK
    )
    return y


def declare(name, *, reference=lambda x: 2 * x, n_rows=3, n_cols=200):
    spec = KernelSpec(
        name=name,
        inputs=lambda case, make: {"x": make.normal(case["n_rows"], case["n_cols"])},
        reference=reference,
        cases=cases(shapes=[{"n_rows": n_rows, "n_cols": n_cols}]),
        edges=cases(shapes=[{"n_rows": 1, "n_cols": 64}]),
        flop_count=lambda case: case["n_rows"] * case["n_cols"],
        memory_bytes=lambda case: 8 * case["n_rows"] * case["n_cols"],
    )
    spec.implementation("torch")(lambda x: reference(x))
    return spec


sound = declare("sound")
tail = declare("tail")
tile = declare("tile")
causal = declare("causal", reference=lambda x: 2 * x.tril(), n_rows=40, n_cols=40)
strides = declare("strides")
silent = declare("silent")
terse = declare("terse")


@sound.implementation("triton", deterministic=True)
def _sound(x):
    if x.stride(-1) != 1:
        raise ValueError("sound: x must be contiguous along its last dim; call x.contiguous()")
    return _launch(x)


@tail.implementation("triton")
def _tail_never_written(x):
    return _launch(x.contiguous(), skip_tail=True)


@tile.implementation("triton")
def _tile_one_late(x):
    return _launch(x.contiguous(), shift=1)


@causal.implementation("triton")
def _without_the_diagonal(x):
    x = x.contiguous()
    y = torch.empty_like(x)
    _causal_kernel[(x.shape[0],)](x, y, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
    return y


@strides.implementation("triton")
def _blind_to_strides(x):
    return _launch(x, row_stride=x.shape[1])


@silent.implementation("triton")
def _refuses_without_a_word(x):
    assert x.stride(0) == x.shape[1]
    return _launch(x)


@terse.implementation("triton")
def _refuses_by_a_bare_assertion(x):
    assert x.is_contiguous()
    return _launch(x)

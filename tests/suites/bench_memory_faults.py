"""Kernels that leave the bounds of an operand or have a race, and kernels that look as if."""

import torch
import triton
import triton.language as tl
from roofwatch import KernelSpec, UnsupportedError, cases

BLOCK = 256


@triton.jit
def _mask_kernel(x_ptr, y_ptr, n_cols, n_read, n_written, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n_cols + cols, mask=cols < n_read)  # [BLOCK] a read too far
    x = tl.where(cols < n_cols, x, 0.0)
    tl.store(y_ptr + row * n_cols + cols, 2 * x, mask=cols < n_written)  # a write too far


@triton.jit
def _store(pointers, values):
    tl.store(pointers, values)  # without a mask


@triton.jit
def _helper_kernel(x_ptr, y_ptr, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n_cols + cols, mask=cols < n_cols)
    _store(y_ptr + row * n_cols + cols, 2 * x)


@triton.jit
def _block_pointer_kernel(x_ptr, y_ptr, n_rows, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    x = tl.load(
        tl.make_block_ptr(x_ptr, (n_rows, n_cols), (n_cols, 1), (row, 0), (1, BLOCK), (1, 0)),
        boundary_check=(0, 1),
    )
    y = tl.make_block_ptr(y_ptr, (n_rows, n_cols), (n_cols, 1), (row, 0), (1, BLOCK), (1, 0))
    tl.store(y, 2 * x, boundary_check=(0,))  # columns are not checked


@triton.jit
def _row_sum_kernel(x_ptr, y_ptr, n_cols, WITH_ATOMIC: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n_cols + cols, mask=cols < n_cols, other=0.0)
    if WITH_ATOMIC:
        tl.atomic_add(y_ptr + cols, x, mask=cols < n_cols)
    else:
        y = tl.load(y_ptr + cols, mask=cols < n_cols)
        tl.store(y_ptr + cols, x + y, mask=cols < n_cols)  # a race


@triton.jit
def _locked_sum_kernel(x_ptr, y_ptr, lock_ptr, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n_cols + cols, mask=cols < n_cols, other=0.0)
    while tl.atomic_cas(lock_ptr, 0, 1) == 1:
        pass
    y = tl.load(y_ptr + cols, mask=cols < n_cols)
    tl.store(y_ptr + cols, x + y, mask=cols < n_cols)
    tl.debug_barrier()
    tl.atomic_xchg(lock_ptr, 0)


@triton.jit
def _flagged_copy_kernel(x_ptr, y_ptr, flag_ptr, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n_cols + cols, mask=cols < n_cols)
    tl.store(y_ptr + row * n_cols + cols, 2 * x, mask=cols < n_cols)
    tl.store(flag_ptr, 1)  # the same value from every program


def declare(name, *, reference=lambda x: 2 * x, n_rows=3):
    spec = KernelSpec(
        name=name,
        inputs=lambda case, make: {"x": make.normal(case["n_rows"], case["n_cols"])},
        reference=reference,
        cases=cases(shapes=[{"n_rows": n_rows, "n_cols": 200}]),
        flop_count=lambda case: case["n_rows"] * case["n_cols"],
        memory_bytes=lambda case: 8 * case["n_rows"] * case["n_cols"],
    )
    spec.implementation("torch")(lambda x: reference(x))
    return spec


def masked(x, *, read_too_many=0, written_too_many=0):
    x = x.contiguous()
    y = torch.empty_like(x)
    n_rows, n_cols = x.shape
    limits = (n_cols, n_cols + read_too_many, n_cols + written_too_many)
    _mask_kernel[(n_rows,)](x, y, *limits, BLOCK=BLOCK)
    return y


read_one = declare("read_one")
read_one.implementation("triton")(lambda x: masked(x, read_too_many=1))
written_one = declare("written_one")
written_one.implementation("triton")(lambda x: masked(x, written_too_many=1))
helper = declare("helper")
block_pointer = declare("block_pointer")
racing = declare("racing", reference=lambda x: x.sum(0))
atomic = declare("atomic", reference=lambda x: x.sum(0))
locked = declare("locked", reference=lambda x: x.sum(0))
flagged = declare("flagged")
expanded = declare("expanded")


@helper.implementation("triton")
def _helper(x):
    x = x.contiguous()
    y = torch.empty_like(x)
    _helper_kernel[(x.shape[0],)](x, y, x.shape[1], BLOCK=BLOCK)
    return y


@block_pointer.implementation("triton")
def _block_pointer(x):
    x = x.contiguous()
    y = torch.empty_like(x)
    _block_pointer_kernel[(x.shape[0],)](x, y, *x.shape, BLOCK=BLOCK)
    return y


@racing.implementation("triton")
def _racing(x):
    return _summed(x, with_atomic=False)


@atomic.implementation("triton")
def _atomic(x):
    return _summed(x, with_atomic=True)


def _summed(x, *, with_atomic):
    x = x.contiguous()
    y = x.new_zeros(x.shape[1])
    _row_sum_kernel[(x.shape[0],)](x, y, x.shape[1], WITH_ATOMIC=with_atomic, BLOCK=BLOCK)
    return y


@locked.implementation("triton")
def _locked(x):
    x = x.contiguous()
    y, lock = x.new_zeros(x.shape[1]), torch.zeros(1, dtype=torch.int32)
    _locked_sum_kernel[(x.shape[0],)](x, y, lock, x.shape[1], BLOCK=BLOCK)
    return y


@flagged.implementation("triton")
def _flagged(x):
    x = x.contiguous()
    y, flag = torch.empty_like(x), torch.zeros(1, dtype=torch.int32)
    _flagged_copy_kernel[(x.shape[0],)](x, y, flag, x.shape[1], BLOCK=BLOCK)
    return y


@expanded.implementation("triton")
def _reads_rows_as_if_contiguous(x):
    y = torch.empty(x.shape)
    _helper_kernel[(x.shape[0],)](x, y, x.shape[1], BLOCK=8)
    _mask_kernel[(x.shape[0],)](x, y, *(x.shape[1],) * 3, BLOCK=BLOCK)
    return y


without_kernel = declare("without_kernel")


@without_kernel.implementation("triton")
def _launches_nothing(x):
    return x + x


def _unwritten(x):
    raise UnsupportedError("write the reference")


unwritten = declare("unwritten", reference=_unwritten)
unwritten_and_wrong = declare("unwritten_and_wrong", reference=_unwritten)
unwritten_and_failing = declare("unwritten_and_failing", reference=_unwritten)


@unwritten.implementation("triton")
def _right_without_reference(x):
    return masked(x)


@unwritten_and_wrong.implementation("triton")
def _wrong_without_reference(x):
    return masked(x, read_too_many=1)


@unwritten_and_failing.implementation("triton")
def _failing_without_reference(x):
    masked(x)
    raise RuntimeError("half-way")

"""A small kernel that shows whether Triton's interpreter computes as a GPU does.

Import it after the corrections.
"""

from typing import Any

import torch
import triton
import triton.language as tl

from roofwatch.collector.accuracy.memory_guard import GUARD, MemoryWatch

_BLOCK = 16


@triton.jit  # type: ignore[untyped-decorator]
def _bfloat16_kernel(x_ptr: Any, out_ptr: Any, BLOCK: tl.constexpr) -> None:  # noqa: N803
    offs = tl.arange(0, BLOCK)  # [BLOCK]
    x = tl.load(x_ptr + offs)  # [BLOCK]
    narrow = x.to(tl.bfloat16)
    tl.store(out_ptr + offs, narrow.to(tl.float32))  # [BLOCK]
    tl.store(out_ptr + BLOCK + offs, (narrow * narrow).to(tl.float32))  # [BLOCK]
    total = tl.reduce(narrow, 0, tl.standard._sum_combine)
    tl.store(out_ptr + 2 * BLOCK + offs, total.to(tl.float32))  # [BLOCK]
    square = tl.broadcast_to(narrow[:, None], [BLOCK, BLOCK])
    products = tl.sum(tl.dot(square, square), axis=1)  # [BLOCK]
    tl.store(out_ptr + 3 * BLOCK + offs, products)  # [BLOCK]


@triton.jit  # type: ignore[untyped-decorator]
def _faulty_kernel(x_ptr: Any, out_ptr: Any, BLOCK: tl.constexpr) -> None:  # noqa: N803
    program = tl.program_id(0)
    offs = tl.arange(0, BLOCK)  # [BLOCK]
    for step in tl.range(1):
        # a loop variable is a tensor
        x = tl.load(x_ptr + offs + 1 + step.to(tl.int64))  # [BLOCK]
        tl.store(out_ptr + offs * 2 + step, x)  # [BLOCK]
    tl.store(out_ptr, program)


def wrong_answers() -> list[str]:
    """Names of what the interpreter computes otherwise than a GPU, or does not see."""
    return [*_wrong_numbers(), *_unseen_faults()]


def _wrong_numbers() -> list[str]:
    """Kinds of arithmetic in which the interpreter differs from a GPU."""
    # a tie, and a sum that depends on the order: bfloat16 has no 257
    x = torch.ones(_BLOCK)
    x[0] = 256.0
    x[1] = 1.01171875
    out = torch.full((4, _BLOCK), torch.nan)
    _bfloat16_kernel[(1,)](x, out, BLOCK=_BLOCK)
    narrow = x.to(torch.bfloat16)
    total = narrow
    while len(total) > 1:
        middle = len(total) // 2
        total = total[:middle] + total[middle:]
    wide = narrow.to(torch.float32)
    expected = {
        "bfloat16 conversions": wide,
        "bfloat16 arithmetic": narrow * narrow,
        "bfloat16 sums": total.expand(_BLOCK),
        "bfloat16 matrix products": wide * wide.sum() * _BLOCK,
    }
    return [
        name
        for (name, values), computed in zip(expected.items(), out, strict=True)
        if not torch.equal(values.to(torch.float32), computed)
    ]


def _unseen_faults() -> list[str]:
    """Planted faults that the memory guard does not report."""
    # operands within larger tensors: a guard that fails lets the kernel do no harm
    x = torch.ones(4 * _BLOCK)
    out = torch.zeros(4 * _BLOCK)
    ends = {tensor.data_ptr(): tensor[_BLOCK:].data_ptr() for tensor in (x, out)}
    watch = MemoryWatch()
    GUARD.divide_storage(ends)
    try:
        with GUARD.watching(watch):
            _faulty_kernel[(2,)](x, out, BLOCK=_BLOCK)
    finally:
        GUARD.divide_storage({})
    seen: set[str] = set()
    for fault in watch.faults:
        if fault.is_race:
            seen.add("a race")
        else:
            seen.add(f"a {fault.access} out of bounds")
    expected = {"a race", "a load out of bounds", "a store out of bounds"}
    return sorted(expected - seen)

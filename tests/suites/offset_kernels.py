"""Triton kernels that compute offsets in different ways, and suites of one kernel around them."""

from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from roofwatch import KernelSpec, cases

BLOCK = 1024
HAS_BLOCK_POINTERS = tuple(map(int, triton.__version__.split(".")[:2])) < (3, 9)
"""Triton 3.9 removed them in favour of tensor descriptors."""


@triton.jit
def row_kernel(x_ptr, y_ptr, stride, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    for start in range(0, n_cols, BLOCK):
        mask = start + cols < n_cols
        offs = row * stride + start + cols
        tl.store(y_ptr + offs, tl.load(x_ptr + offs, mask=mask), mask=mask)


@triton.jit
def wide_row_kernel(x_ptr, y_ptr, stride, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    for start in range(0, n_cols, BLOCK):
        mask = start + cols < n_cols
        offs = row * stride + start + cols
        tl.store(y_ptr + offs, tl.load(x_ptr + offs, mask=mask), mask=mask)


@triton.jit
def flat_kernel(x_ptr, y_ptr, n_elements, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n_elements
    tl.store(y_ptr + offs, tl.load(x_ptr + offs, mask=mask), mask=mask)


@triton.jit
def float8_kernel(x_ptr, y_ptr, n_elements, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n_elements
    x = tl.load(x_ptr + offs, mask=mask)
    # GPUs before sm_89 cannot convert to this format
    tl.store(y_ptr + offs, x.to(tl.float8e4nv).to(x.dtype), mask=mask)


tuned_kernel = triton.autotune(
    [triton.Config({}, num_warps=count) for count in (2, 4)], key=["n_elements"]
)(flat_kernel)


@triton.jit
def moving_pointer_kernel(x_ptr, y_ptr, n_rows, stride, BLOCK: tl.constexpr):
    cols = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    for _ in range(n_rows):
        tl.store(y_ptr + cols, tl.load(x_ptr + cols, mask=cols < stride), mask=cols < stride)
        x_ptr += stride
        y_ptr += stride


@triton.jit
def moving_offset_kernel(x_ptr, y_ptr, n_rows, stride, BLOCK: tl.constexpr):
    cols = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    offs = cols
    for _ in range(n_rows):
        tl.store(y_ptr + offs, tl.load(x_ptr + offs, mask=cols < stride), mask=cols < stride)
        offs += stride


@triton.jit
def while_kernel(x_ptr, y_ptr, n_rows, stride, BLOCK: tl.constexpr):
    cols = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    row = 0
    while row < n_rows:
        offs = row * stride + cols
        tl.store(y_ptr + offs, tl.load(x_ptr + offs, mask=cols < stride), mask=cols < stride)
        row += 1


@triton.jit
def block_pointer_kernel(x_ptr, y_ptr, n_rows, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    for start in range(0, n_cols, BLOCK):
        x = tl.make_block_ptr(
            x_ptr, (n_rows, n_cols), (n_cols, 1), (row, start), (1, BLOCK), (1, 0)
        )
        y = tl.make_block_ptr(
            y_ptr, (n_rows, n_cols), (n_cols, 1), (row, start), (1, BLOCK), (1, 0)
        )
        tl.store(y, tl.load(x, boundary_check=(0, 1)), boundary_check=(0, 1))


@triton.jit
def descriptor_kernel(x, y, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    for start in range(0, n_cols, BLOCK):
        y.store([row, start], x.load([row, start]))


@triton.jit
def assuming_kernel(x_ptr, y_ptr, stride, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    tl.assume(row < 1000)
    cols = tl.arange(0, BLOCK)
    offs = row * stride + cols
    tl.store(y_ptr + offs, tl.load(x_ptr + offs, mask=cols < n_cols), mask=cols < n_cols)


@triton.jit
def early_return_kernel(x_ptr, y_ptr, stride, n_rows, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    if row >= n_rows:
        return
    cols = tl.arange(0, BLOCK)
    offs = row * stride + cols
    tl.store(y_ptr + offs, tl.load(x_ptr + offs, mask=cols < stride), mask=cols < stride)


@triton.jit
def gather_kernel(x_ptr, index_ptr, y_ptr, stride, BLOCK: tl.constexpr):
    program = tl.program_id(0)
    row = tl.load(index_ptr + program).to(tl.int32)
    cols = tl.arange(0, BLOCK)
    value = tl.load(x_ptr + row * stride + cols, mask=cols < stride)
    tl.store(y_ptr + program.to(tl.int64) * stride + cols, value, mask=cols < stride)


@triton.jit
def tile_kernel(x_ptr, scale_ptr, y_ptr, M, N, BLOCK: tl.constexpr):
    """Dequantises tiles; the product of row and N is a 32-bit integer."""
    offs_m = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    offs_n = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    offs = offs_m[:, None] * N + offs_n[None, :]
    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    scale = tl.load(scale_ptr + tl.program_id(0) * tl.cdiv(N, BLOCK) + tl.program_id(1))
    tl.store(y_ptr + offs, tl.load(x_ptr + offs, mask=mask) * scale, mask=mask)


@triton.jit
def square_kernel(x_ptr, y_ptr, stride, n_rows, BLOCK: tl.constexpr):
    """Uses one index for rows and columns, and masks only the rows."""
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tile = offs[:, None] * stride + offs[None, :]
    mask = (offs < n_rows)[:, None]
    tl.store(y_ptr + tile, tl.load(x_ptr + tile, mask=mask), mask=mask)


@triton.jit
def total_kernel(x_ptr, y_ptr, stride, n_rows, BLOCK: tl.constexpr):
    """Adds the sum of an index to it; the mask limits the index and not the sum."""
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    places = tl.max(offs, 0) * stride + offs
    mask = offs < n_rows
    tl.store(y_ptr + places, tl.load(x_ptr + places, mask=mask), mask=mask)


Launch = Callable[..., torch.Tensor]


def by_row(kernel: Any) -> Launch:
    """Launch one program for each row, with the row's stride and length."""

    def launch(x: torch.Tensor) -> torch.Tensor:
        y = torch.empty_like(x)
        kernel[(x.shape[0],)](x, y, x.stride(0), x.shape[1], BLOCK=BLOCK)
        return y

    return launch


def by_tile(kernel: Any) -> Launch:
    """Launch one program for each tile of 64 rows."""

    def launch(x: torch.Tensor) -> torch.Tensor:
        y = torch.empty_like(x)
        kernel[(triton.cdiv(x.shape[0], 64),)](x, y, x.stride(0), x.shape[0], BLOCK=64)
        return y

    return launch


def by_column(kernel: Any) -> Launch:
    """Launch one program for each tile of columns, which walks over all rows."""

    def launch(x: torch.Tensor) -> torch.Tensor:
        y = torch.empty_like(x)
        kernel[(triton.cdiv(x.shape[1], BLOCK),)](x, y, x.shape[0], x.stride(0), BLOCK=BLOCK)
        return y

    return launch


def flat(x: torch.Tensor) -> torch.Tensor:
    y = torch.empty_like(x)
    flat_kernel[(triton.cdiv(x.numel(), BLOCK),)](x, y, x.numel(), BLOCK=BLOCK)
    return y


def in_float8(x: torch.Tensor) -> torch.Tensor:
    y = torch.empty_like(x)
    float8_kernel[(triton.cdiv(x.numel(), BLOCK),)](x, y, x.numel(), BLOCK=BLOCK)
    return y


def tuned(x: torch.Tensor) -> torch.Tensor:
    y = torch.empty_like(x)
    tuned_kernel[(triton.cdiv(x.numel(), BLOCK),)](x, y, x.numel(), BLOCK=BLOCK)
    return y


def by_block_pointer(x: torch.Tensor) -> torch.Tensor:
    y = torch.empty_like(x)
    block_pointer_kernel[(x.shape[0],)](x, y, *x.shape, BLOCK=BLOCK)
    return y


def by_descriptor(x: torch.Tensor) -> torch.Tensor:
    y = torch.empty_like(x)
    tiles = [TensorDescriptor.from_tensor(each, [1, BLOCK]) for each in (x, y)]
    descriptor_kernel[(x.shape[0],)](*tiles, x.shape[1], BLOCK=BLOCK)
    return y


def dequantise(x: torch.Tensor) -> torch.Tensor:
    y = torch.empty_like(x)
    tile = 64
    grid = (triton.cdiv(x.shape[0], tile), triton.cdiv(x.shape[1], tile))
    scale = torch.empty(grid, dtype=x.dtype, device=x.device)
    tile_kernel[grid](x, scale, y, *x.shape, BLOCK=tile)
    return y


def returning_early(x: torch.Tensor) -> torch.Tensor:
    y = torch.empty_like(x)
    early_return_kernel[(2**20,)](x, y, x.stride(0), x.shape[0], BLOCK=BLOCK)
    return y


def gather(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    y = torch.empty(index.shape[0], x.shape[1], dtype=x.dtype, device=x.device)
    gather_kernel[(index.shape[0],)](x, index, y, x.stride(0), BLOCK=BLOCK)
    return y


def gather_computed(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    return gather(x, torch.bitwise_xor(index, 1).cumsum(0))


def tall(x: torch.Tensor) -> torch.Tensor:
    y = torch.empty_like(x)
    row_kernel[(1, x.shape[0])](x, y, 0, x.shape[1], BLOCK=BLOCK)
    return y


def declare(
    launch: Launch,
    *,
    is_gather: bool = False,
    directions: tuple[str, ...] = ("fwd",),
    **shape: int,
) -> KernelSpec:
    """Declare a suite's kernel with one case."""

    def inputs(case: Any, make: Any) -> dict[str, Any]:
        x = make.normal(case["n_rows"], case["n_cols"])
        if not is_gather:
            return {"x": x}
        return {"x": x, "index": make.integers(64, high=case["n_rows"])}

    spec = KernelSpec(
        name="moves_rows",
        inputs=inputs,
        reference=lambda **values: values["x"],
        cases=cases(shapes=[shape], dtypes=["bfloat16"], directions=list(directions)),
        flop_count=lambda _case: 0.0,
        memory_bytes=lambda _case: 0.0,
    )
    spec.implementation("triton", directions=directions)(launch)
    return spec

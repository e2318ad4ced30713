"""Copy of a matrix: the baseline of every memory-bound kernel.

A contiguous matrix is copied as one long row, a strided one row by row.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from roofwatch import Case, InputMaker, KernelSpec, cases
from roofwatch.kernels.building_blocks.operators import operator
from roofwatch.kernels.operands import require_operands
from roofwatch.kernels.shapes import model_cases, vocabulary_rows, with_choice

_TILE_BYTES = 16_384
_GAP_COLS = 64
"""Columns between the rows of a strided matrix: a multiple of the 32-byte sector, so no extra bytes are moved."""


@triton.jit
def _memory_copy_kernel(
    x_ptr, out_ptr, x_row_stride, out_row_stride, n_rows, n_cols, BLOCK_ROWS: tl.constexpr, BLOCK_COLS: tl.constexpr
):
    program = tl.program_id(0)
    n_tiles = tl.cdiv(n_cols, BLOCK_COLS)  # in a row
    rows = (program // n_tiles).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    cols = (program % n_tiles).to(tl.int64) * BLOCK_COLS + tl.arange(0, BLOCK_COLS)
    mask = (rows < n_rows)[:, None] & (cols < n_cols)[None, :]
    x = tl.load(x_ptr + rows[:, None] * x_row_stride + cols[None, :], mask=mask)  # [BLOCK_ROWS, BLOCK_COLS]
    tl.store(out_ptr + rows[:, None] * out_row_stride + cols[None, :], x, mask=mask)  # [BLOCK_ROWS, BLOCK_COLS]


def memory_copy_config(n_cols: int, itemsize: int) -> dict[str, int]:
    """Tiles of 16 KiB: 64 bytes per thread of an NVIDIA GPU, in 16-byte loads, saturate the memory."""
    n_elements = _TILE_BYTES // itemsize
    block_cols = min(triton.next_power_of_2(n_cols), n_elements)
    return {"BLOCK_ROWS": n_elements // block_cols, "BLOCK_COLS": block_cols, "num_warps": 8}


def _empty_out(x: Tensor) -> Tensor:
    return x.new_empty(x.shape)


@operator("memory_copy", _empty_out)
def _memory_copy_op(x, out):
    n_rows, n_cols = (1, x.numel()) if x.is_contiguous() else x.shape
    config = memory_copy_config(n_cols, x.element_size())
    grid = (triton.cdiv(n_rows, config["BLOCK_ROWS"]) * triton.cdiv(n_cols, config["BLOCK_COLS"]),)
    _memory_copy_kernel[grid](x, out, x.stride(0), out.stride(0), n_rows, n_cols, **config)


def memory_copy_reference(x: Tensor) -> Tensor:
    """Compute `out = x` by an addition, which returns a new tensor."""
    return x + 0


def _inputs(case: Case, make: InputMaker) -> dict[str, Any]:
    n_rows, n_cols = case["n_rows"], case["n_cols"]
    if case.choice("layout") == "strided":
        return {"x": make.normal(n_rows, n_cols + _GAP_COLS)[:, :n_cols]}
    return {"x": make.normal(n_rows, n_cols)}


def memory_copy_flop_count(case: Case) -> float:
    """Nothing is computed."""
    return 0


def memory_copy_memory_bytes(case: Case) -> float:
    """Reads x and writes out."""
    return 2 * case["n_rows"] * case["n_cols"] * case.itemsize


memory_copy_spec = KernelSpec(
    name="memory_copy",
    family="memory",
    inputs=_inputs,
    reference=memory_copy_reference,
    cases=[
        *cases(
            shapes=[
                {"n_rows": 1024, "n_cols": 4096, "layout": "contiguous"},
                {"n_rows": 1024, "n_cols": 4096, "layout": "strided"},
            ],
            dtypes=["float32", "bfloat16"],
            tags=["small"],
        ),
        *model_cases(with_choice(vocabulary_rows(), layout="contiguous")),
        *model_cases(with_choice(vocabulary_rows(), layout="strided")),
    ],
    edges=[
        *cases(
            shapes=[
                {"n_rows": 0, "n_cols": 63, "layout": "contiguous"},
                {"n_rows": 1, "n_cols": 63, "layout": "strided"},
                {"n_rows": 63, "n_cols": 1000, "layout": "strided"},
            ]
        ),
        *cases(shapes=[{"n_rows": 9, "n_cols": 1001, "layout": "contiguous"}], dtypes=["float16"]),
    ],
    flop_count=memory_copy_flop_count,
    memory_bytes=memory_copy_memory_bytes,
    formula="out = x",
    source="McCalpin, Memory Bandwidth and Machine Balance in Current High Performance Computers, 1995 (STREAM copy)",
    interpreted_shape={"n_rows": 7, "n_cols": 9000},
)


@memory_copy_spec.implementation("triton", directions=["fwd"], deterministic=True)
def memory_copy(x: Tensor) -> Tensor:
    """Return a contiguous copy of x.

    Args:
        x: [n_rows, n_cols], contiguous along its last dim.

    Returns:
        [n_rows, n_cols] in x's dtype.
    """
    require_operands("memory_copy", dims=2, x=x)
    return _memory_copy_op(x)


@memory_copy_spec.implementation("torch", directions=["fwd"], compile=True)
def _memory_copy_torch(x: Tensor) -> Tensor:
    return x.clone(memory_format=torch.contiguous_format)

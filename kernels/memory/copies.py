"""Copies of a matrix: whole, the baseline of every memory-bound kernel; transposed; and rows by
index. Forward.

A contiguous matrix is copied as one long row, a strided one row by row. Each tile is transposed in
shared memory, so loads and stores both use whole cache lines. To look rows up, a program copies one
piece of one row, so a few tokens saturate the memory.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from roofwatch import Case, InputMaker, KernelSpec, cases
from roofwatch.kernels.building_blocks.operands import require_integers, require_operands
from roofwatch.kernels.building_blocks.operators import operator
from roofwatch.kernels.building_blocks.rows import piece_of_row
from roofwatch.kernels.building_blocks.shapes import (
    embedded_tokens,
    model_cases,
    small_cases,
    vocabulary_rows,
    weight_matrices,
    with_choice,
)
from roofwatch.kernels.building_blocks.tiles import tile_of

_TILE_BYTES = 16_384
_GAP_COLS = 64
"""Columns between the rows of a strided matrix: a multiple of the 32-byte sector, so no extra bytes
are moved.
"""


@triton.jit
def _memory_copy_kernel(
    x_ptr,
    out_ptr,
    x_row_stride,
    out_row_stride,
    n_rows,
    n_cols,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLS: tl.constexpr,
):
    program = tl.program_id(0)
    n_tiles = tl.cdiv(n_cols, BLOCK_COLS)  # in a row
    rows = (program // n_tiles).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    cols = (program % n_tiles).to(tl.int64) * BLOCK_COLS + tl.arange(0, BLOCK_COLS)
    mask = (rows < n_rows)[:, None] & (cols < n_cols)[None, :]
    x = tl.load(
        x_ptr + rows[:, None] * x_row_stride + cols[None, :], mask=mask
    )  # [BLOCK_ROWS, BLOCK_COLS]
    tl.store(
        out_ptr + rows[:, None] * out_row_stride + cols[None, :], x, mask=mask
    )  # [BLOCK_ROWS, BLOCK_COLS]


def memory_copy_config(n_cols: int, itemsize: int) -> dict[str, int]:
    """Tiles of 16 KiB: 64 bytes per thread of an NVIDIA GPU, in 16-byte loads,
    saturate the memory.
    """
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


def no_flop_count(case: Case) -> float:
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
        *small_cases(
            {"n_rows": 1024, "n_cols": 4096, "layout": "contiguous"},
            {"n_rows": 1024, "n_cols": 4096, "layout": "strided"},
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
    flop_count=no_flop_count,
    memory_bytes=memory_copy_memory_bytes,
    formula="out = x",
    source="McCalpin, Memory Bandwidth and Machine Balance in Current High Performance Computers, "
    "1995 (STREAM copy)",
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


@triton.jit
def _transpose_kernel(
    x_ptr,
    out_ptr,
    x_row_stride,
    out_row_stride,
    M,
    N,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    tile_m, tile_n = tile_of(tl.program_id(0), tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N))
    offs_m = tile_m.to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tile_n.to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    mask_m = offs_m < M
    mask_n = offs_n < N
    x_ptrs = x_ptr + offs_m[:, None] * x_row_stride + offs_n[None, :]
    x = tl.load(x_ptrs, mask=mask_m[:, None] & mask_n[None, :])  # [BLOCK_M, BLOCK_N]
    out_ptrs = out_ptr + offs_n[:, None] * out_row_stride + offs_m[None, :]
    tl.store(out_ptrs, tl.trans(x), mask=mask_n[:, None] & mask_m[None, :])  # [BLOCK_N, BLOCK_M]


def transpose_config() -> dict[str, int]:
    """Tiles of 64 x 64: a cache line of 128 bytes in half precision, two in float32."""
    return {"BLOCK_M": 64, "BLOCK_N": 64, "num_warps": 4}


def _empty_transposed(x: Tensor) -> Tensor:
    M, N = x.shape
    return x.new_empty(N, M)


@operator("transpose", _empty_transposed)
def _transpose_op(x, out):
    M, N = x.shape
    config = transpose_config()
    grid = (triton.cdiv(M, config["BLOCK_M"]) * triton.cdiv(N, config["BLOCK_N"]),)
    _transpose_kernel[grid](x, out, x.stride(0), out.stride(0), M, N, **config)


def transpose_reference(x: Tensor) -> Tensor:
    """Compute `out[n, m] = x[m, n]`."""
    return torch.einsum("mn->nm", x).contiguous()


def _transpose_inputs(case: Case, make: InputMaker) -> dict[str, Any]:
    return {"x": make.normal(case["M"], case["N"])}


def transpose_memory_bytes(case: Case) -> float:
    """Reads x and writes out."""
    return 2 * case["M"] * case["N"] * case.itemsize


transpose_spec = KernelSpec(
    name="transpose",
    family="memory",
    inputs=_transpose_inputs,
    reference=transpose_reference,
    cases=[
        *small_cases({"M": 1024, "N": 2048}),
        *model_cases(weight_matrices()),
    ],
    edges=[
        *cases(
            shapes=[{"M": 63, "N": 1000}, {"M": 1, "N": 63}, {"M": 63, "N": 1}, {"M": 0, "N": 5}]
        ),
        *cases(shapes=[{"M": 130, "N": 65}], dtypes=["float16", "bfloat16"]),
    ],
    flop_count=no_flop_count,
    memory_bytes=transpose_memory_bytes,
    formula="out[n, m] = x[m, n]",
    source="Ruetsch and Micikevicius, Optimizing Matrix Transpose in CUDA, 2009",
    interpreted_shape={"M": 600, "N": 140},
)


@transpose_spec.implementation("triton", directions=["fwd"], deterministic=True)
def transpose(x: Tensor) -> Tensor:
    """Compute `out[n, m] = x[m, n]`, a contiguous copy.

    Args:
        x: [M, N], contiguous along its last dim.

    Returns:
        [N, M] in x's dtype.
    """
    require_operands("transpose", dims=2, x=x)
    return _transpose_op(x)


@transpose_spec.implementation("torch", directions=["fwd"], compile=True)
def _transpose_torch(x: Tensor) -> Tensor:
    return x.t().contiguous()


@triton.jit
def _embedding_gather_kernel(
    table_ptr,
    indices_ptr,
    out_ptr,
    table_row_stride,
    out_row_stride,
    vocab,
    hidden,
    BLOCK: tl.constexpr,
):
    token, offs, mask = piece_of_row(hidden, BLOCK)
    index = tl.load(indices_ptr + token)
    is_known = (index >= 0) & (index < vocab)
    row = tl.load(
        table_ptr + index * table_row_stride + offs, mask=mask & is_known, other=float("nan")
    )  # [BLOCK]
    tl.store(out_ptr + token * out_row_stride + offs, row, mask=mask)  # [BLOCK]


def embedding_gather_config(hidden: int) -> dict[str, int]:
    """Pieces of up to 2048 elements, 16 per thread of an NVIDIA GPU: two 16-byte loads in half
    precision.
    """
    block = min(triton.next_power_of_2(hidden), 2048)
    return {"BLOCK": block, "num_warps": max(block // 512, 1)}


def _empty_rows(table: Tensor, indices: Tensor) -> Tensor:
    return table.new_empty(indices.shape[0], table.shape[1])


@operator("embedding_gather", _empty_rows)
def _embedding_gather_op(table, indices, out):
    vocab, hidden = table.shape
    n_tokens = indices.shape[0]
    config = embedding_gather_config(hidden)
    grid = (n_tokens * triton.cdiv(hidden, config["BLOCK"]),)
    _embedding_gather_kernel[grid](
        table, indices, out, table.stride(0), out.stride(0), vocab, hidden, **config
    )


def embedding_gather_reference(table: Tensor, indices: Tensor) -> Tensor:
    """Compute `out[t] = table[indices[t]]`."""
    return table[indices]


def _gather_inputs(case: Case, make: InputMaker) -> dict[str, Any]:
    return {
        "table": make.normal(case["vocab"], case["hidden"]),
        "indices": make.integers(case["T"], high=case["vocab"]),
    }


def embedding_gather_memory_bytes(case: Case) -> float:
    """Reads an index of 8 bytes per token and each distinct row once; writes a row per token.

    T uniform draws have `vocab * (1 - (1 - 1 / vocab)^T)` distinct rows on average.
    """
    vocab, n_tokens = case["vocab"], case["T"]
    distinct_rows = vocab * (1 - (1 - 1 / vocab) ** n_tokens)
    return 8 * n_tokens + (distinct_rows + n_tokens) * case["hidden"] * case.itemsize


embedding_gather_spec = KernelSpec(
    name="embedding_gather",
    family="memory",
    inputs=_gather_inputs,
    reference=embedding_gather_reference,
    cases=[
        *small_cases({"T": 1024, "vocab": 8192, "hidden": 1024}),
        *model_cases(embedded_tokens()),
    ],
    edges=[
        *cases(shapes=[{"T": 63, "vocab": 5, "hidden": 1000}, {"T": 0, "vocab": 7, "hidden": 63}]),
        *cases(shapes=[{"T": 1, "vocab": 7, "hidden": 63}], dtypes=["float16", "bfloat16"]),
    ],
    flop_count=no_flop_count,
    memory_bytes=embedding_gather_memory_bytes,
    token_count=lambda case: case["T"],
    formula="out[t] = table[indices[t]]",
    source="Bengio et al., A Neural Probabilistic Language Model, JMLR 2003",
    interpreted_shape={"T": 5, "vocab": 100, "hidden": 2100},
)


@embedding_gather_spec.implementation("triton", directions=["fwd"], deterministic=True)
def embedding_gather(table: Tensor, indices: Tensor) -> Tensor:
    """`out[t] = table[indices[t]]`.

    An index out of range gives a row of NaN; torch's own gather would fail with a device-side
    assert.

    Args:
        table: [vocab, hidden], contiguous along its last dim.
        indices: [T] of int64, contiguous.

    Returns:
        [T, hidden] in table's dtype.
    """
    require_operands("embedding_gather", dims=2, table=table)
    require_integers("embedding_gather", dtype=torch.int64, dims=1, like=table, indices=indices)
    return _embedding_gather_op(table, indices)


@embedding_gather_spec.implementation("torch", directions=["fwd"], compile=True)
def _embedding_gather_torch(table: Tensor, indices: Tensor) -> Tensor:
    return torch.nn.functional.embedding(indices, table)

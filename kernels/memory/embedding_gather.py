"""Embedding lookup: rows of a table by index, forward.

A program copies one piece of one row, so a few tokens saturate the memory.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from roofwatch import Case, InputMaker, KernelSpec, cases
from roofwatch.kernels.building_blocks.operators import operator
from roofwatch.kernels.building_blocks.rows import piece_of_row
from roofwatch.kernels.operands import require_integers, require_operands
from roofwatch.kernels.shapes import embedded_tokens, model_cases


@triton.jit
def _embedding_gather_kernel(
    table_ptr, indices_ptr, out_ptr, table_row_stride, out_row_stride, vocab, hidden, BLOCK: tl.constexpr
):
    token, offs, mask = piece_of_row(hidden, BLOCK)
    index = tl.load(indices_ptr + token)
    is_known = (index >= 0) & (index < vocab)
    row = tl.load(table_ptr + index * table_row_stride + offs, mask=mask & is_known, other=float("nan"))  # [BLOCK]
    tl.store(out_ptr + token * out_row_stride + offs, row, mask=mask)  # [BLOCK]


def embedding_gather_config(hidden: int) -> dict[str, int]:
    """Pieces of up to 2048 elements, 16 per thread of an NVIDIA GPU: two 16-byte loads in half precision."""
    block = min(triton.next_power_of_2(hidden), 2048)
    return {"BLOCK": block, "num_warps": max(block // 512, 1)}


def _empty_out(table: Tensor, indices: Tensor) -> Tensor:
    return table.new_empty(indices.shape[0], table.shape[1])


@operator("embedding_gather", _empty_out)
def _embedding_gather_op(table, indices, out):
    vocab, hidden = table.shape
    n_tokens = indices.shape[0]
    config = embedding_gather_config(hidden)
    grid = (n_tokens * triton.cdiv(hidden, config["BLOCK"]),)
    _embedding_gather_kernel[grid](table, indices, out, table.stride(0), out.stride(0), vocab, hidden, **config)


def embedding_gather_reference(table: Tensor, indices: Tensor) -> Tensor:
    """Compute `out[t] = table[indices[t]]`."""
    return table[indices]


def _inputs(case: Case, make: InputMaker) -> dict[str, Any]:
    return {
        "table": make.normal(case["vocab"], case["hidden"]),
        "indices": make.integers(case["T"], high=case["vocab"]),
    }


def embedding_gather_flop_count(case: Case) -> float:
    """Nothing is computed."""
    return 0


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
    inputs=_inputs,
    reference=embedding_gather_reference,
    cases=[
        *cases(shapes=[{"T": 1024, "vocab": 8192, "hidden": 1024}], dtypes=["float32", "bfloat16"], tags=["small"]),
        *model_cases(embedded_tokens()),
    ],
    edges=[
        *cases(shapes=[{"T": 63, "vocab": 5, "hidden": 1000}, {"T": 0, "vocab": 7, "hidden": 63}]),
        *cases(shapes=[{"T": 1, "vocab": 7, "hidden": 63}], dtypes=["float16", "bfloat16"]),
    ],
    flop_count=embedding_gather_flop_count,
    memory_bytes=embedding_gather_memory_bytes,
    token_count=lambda case: case["T"],
    formula="out[t] = table[indices[t]]",
    source="Bengio et al., A Neural Probabilistic Language Model, JMLR 2003",
    interpreted_shape={"T": 5, "vocab": 100, "hidden": 2100},
)


@embedding_gather_spec.implementation("triton", directions=["fwd"], deterministic=True)
def embedding_gather(table: Tensor, indices: Tensor) -> Tensor:
    """`out[t] = table[indices[t]]`.

    An index out of range gives a row of NaN; torch's own gather would fail with a device-side assert.

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

"""Combine expert rows into tokens by a weighted sum; forward.

A program gathers the top_k rows of one token and adds them in float32 in a fixed order, so the result is deterministic.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from roofwatch import Case, InputMaker, KernelSpec, cases
from roofwatch.kernels.building_blocks.operators import operator
from roofwatch.kernels.operands import require_equal, require_integers, require_operands
from roofwatch.kernels.shapes import expert_tokens, model_cases, with_dimensions


@triton.jit
def _unpermute_kernel(
    rows_ptr, positions_ptr, weights_ptr, out_ptr, rows_row_stride, n_cols, TOP_K: tl.constexpr, BLOCK: tl.constexpr
):
    token = tl.program_id(0).to(tl.int64)
    offs = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n_cols
    acc = tl.zeros((BLOCK,), tl.float32)
    for choice in tl.static_range(TOP_K):
        position = tl.load(positions_ptr + token * TOP_K + choice).to(tl.int64)
        weight = tl.load(weights_ptr + token * TOP_K + choice).to(tl.float32)
        row = tl.load(rows_ptr + position * rows_row_stride + offs, mask=mask, other=0.0).to(tl.float32)  # [BLOCK]
        acc += weight * row
    tl.store(out_ptr + token * n_cols + offs, acc.to(out_ptr.dtype.element_ty), mask=mask)  # [BLOCK]


def moe_unpermute_config(n_cols: int) -> dict[str, int]:
    """Columns per program: one 16-byte load per thread from each of the top_k rows in half precision."""
    block = min(triton.next_power_of_2(n_cols), 1024)
    return {"BLOCK": block, "num_warps": max(block // 256, 1)}


def _empty_out(rows: Tensor, positions: Tensor, weights: Tensor) -> Tensor:
    return rows.new_empty(positions.shape[0], rows.shape[1])


@operator("moe_unpermute", _empty_out)
def _moe_unpermute_op(rows, positions, weights, out):
    n_tokens, top_k = positions.shape
    n_cols = rows.shape[1]
    config = moe_unpermute_config(n_cols)
    _unpermute_kernel[(n_tokens, triton.cdiv(n_cols, config["BLOCK"]))](
        rows, positions, weights, out, rows.stride(0), n_cols, TOP_K=top_k, **config
    )


def moe_unpermute_reference(rows: Tensor, positions: Tensor, weights: Tensor) -> Tensor:
    """Compute `out[t] = sum over k of weights[t, k] * rows[positions[t, k]]`."""
    return torch.einsum("tk,tkc->tc", weights, rows[positions.long()])


def _inputs(case: Case, make: InputMaker) -> dict[str, Any]:
    T, top_k = case["T"], case["top_k"]
    shares = make.uniform(T, top_k, low=0.1, high=1.0, dtype="float32")
    return {
        "rows": make.normal(T * top_k, case["hidden"]),
        # rows of a token are scattered, as with many experts
        "positions": make.permutation(T * top_k, dtype="int32").reshape(T, top_k),
        "weights": shares / shares.sum(dim=1, keepdim=True),
    }


def moe_unpermute_flop_count(case: Case) -> float:
    """One multiplication and one addition per element of the rows."""
    return 2 * case["T"] * case["top_k"] * case["hidden"]


def moe_unpermute_memory_bytes(case: Case) -> float:
    """Reads the rows and 4-byte positions and weights; writes a row per token."""
    T, top_k = case["T"], case["top_k"]
    return (top_k + 1) * T * case["hidden"] * case.itemsize + 8 * T * top_k


moe_unpermute_spec = KernelSpec(
    name="moe_unpermute",
    family="MoE",
    inputs=_inputs,
    reference=moe_unpermute_reference,
    cases=[
        *cases(shapes=[{"T": 512, "top_k": 4, "hidden": 1024}], dtypes=["float32", "bfloat16"], tags=["small"]),
        *model_cases(with_dimensions(expert_tokens(), "T", "top_k", "hidden")),
    ],
    edges=[
        *cases(
            shapes=[
                {"T": 1, "top_k": 1, "hidden": 63},
                {"T": 5, "top_k": 3, "hidden": 1025},
                {"T": 0, "top_k": 2, "hidden": 64},
            ],
            dtypes=["float16"],
        )
    ],
    flop_count=moe_unpermute_flop_count,
    memory_bytes=moe_unpermute_memory_bytes,
    token_count=lambda case: case["T"],
    formula="out[t] = sum_k weights[t, k] * rows[positions[t, k]]",
    source="Gale et al., MegaBlocks: efficient sparse training with mixture-of-experts, 2022 (arXiv 2211.15841)",
    interpreted_shape={"T": 20, "hidden": 1030},
)


@moe_unpermute_spec.implementation("triton", directions=["fwd"], deterministic=True)
def moe_unpermute(rows: Tensor, positions: Tensor, weights: Tensor) -> Tensor:
    """`out[t] = sum over k of weights[t, k] * rows[positions[t, k]]`, added in float32.

    Args:
        rows: [n_rows, n_cols], contiguous along its last dim.
        positions: [n_tokens, top_k] int32, each from 0 to n_rows - 1, as `moe_permute` returns them; not checked.
        weights: [n_tokens, top_k], contiguous.

    Returns:
        [n_tokens, n_cols] in rows' dtype.
    """
    require_operands("moe_unpermute", dims=2, rows=rows, weights=weights)
    require_integers("moe_unpermute", dtype=torch.int32, dims=2, like=rows, positions=positions)
    require_equal("moe_unpermute", "the shapes", positions=tuple(positions.shape), weights=tuple(weights.shape))
    return _moe_unpermute_op(rows, positions, weights.contiguous())


@moe_unpermute_spec.implementation("torch", compile=True)
def _moe_unpermute_torch(rows: Tensor, positions: Tensor, weights: Tensor) -> Tensor:
    gathered = rows[positions].float()
    return (gathered * weights[..., None].float()).sum(dim=1).to(rows.dtype)

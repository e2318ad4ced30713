"""Sort token rows by expert, as a grouped GEMM reads them, and combine them again by a weighted
sum; forward.

The order is that of a stable counting sort in two kernels: each block of choices counts its
experts, then computes the positions of its choices from the counts of smaller experts and earlier
blocks. There are no atomics, so the order is deterministic. A third kernel reads each row once and
writes it to all its positions. To combine them, a program gathers the top_k rows of one token and
adds them in float32 in a fixed order.
"""

from collections.abc import Iterable
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from roofwatch import Case, InputMaker, KernelSpec, cases
from roofwatch.kernels.building_blocks.operands import (
    require_equal,
    require_integers,
    require_operands,
)
from roofwatch.kernels.building_blocks.operators import operator
from roofwatch.kernels.building_blocks.shapes import (
    Workload,
    expert_tokens,
    model_cases,
    small_cases,
    with_dimensions,
)
from roofwatch.kernels.memory.copies import no_flop_count

_BLOCK = 512
_EXPERTS_AT_ONCE = 16

Permuted = tuple[Tensor, Tensor, Tensor]


@triton.jit
def _count_kernel(experts_ptr, counts_ptr, n_choices, EXPERTS: tl.constexpr, BLOCK: tl.constexpr):
    block = tl.program_id(0)
    offs = block * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n_choices
    experts = tl.load(experts_ptr + offs, mask=mask, other=0)  # [BLOCK]
    counts = tl.histogram(experts, EXPERTS, mask=mask)
    tl.store(counts_ptr + block * EXPERTS + tl.arange(0, EXPERTS), counts)  # [EXPERTS]


@triton.jit
def _place_kernel(
    experts_ptr,
    counts_ptr,
    positions_ptr,
    offsets_ptr,
    n_choices,
    n_experts,
    n_blocks,
    EXPERTS: tl.constexpr,
    EXPERTS_AT_ONCE: tl.constexpr,
    BLOCKS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    block = tl.program_id(0)
    offs = block * BLOCK + tl.arange(0, BLOCK)
    experts = tl.load(experts_ptr + offs, mask=offs < n_choices, other=-1)  # [BLOCK]
    blocks = tl.arange(0, BLOCKS)[:, None]
    positions = tl.zeros((BLOCK,), tl.int32)
    start = 0
    for first in range(0, n_experts, EXPERTS_AT_ONCE):
        offs_e = first + tl.arange(0, EXPERTS_AT_ONCE)
        counts_ptrs = counts_ptr + blocks * EXPERTS + offs_e[None, :]
        counts = tl.load(counts_ptrs, mask=blocks < n_blocks, other=0)  # [BLOCKS, EXPERTS_AT_ONCE]
        total = tl.sum(counts, axis=0)
        before = tl.sum(tl.where(blocks < block, counts, 0), axis=0)
        starts = start + tl.cumsum(total, axis=0) - total
        start += tl.sum(total, axis=0)
        if block == 0:
            tl.store(offsets_ptr + offs_e, starts, mask=offs_e < n_experts)  # [EXPERTS_AT_ONCE]
        is_chosen = experts[:, None] == offs_e[None, :]
        rank = tl.cumsum(is_chosen.to(tl.int32), axis=0) - 1
        positions += tl.sum(tl.where(is_chosen, (starts + before)[None, :] + rank, 0), axis=1)
    tl.store(positions_ptr + offs, positions, mask=offs < n_choices)  # [BLOCK]
    if block == 0:
        tl.store(offsets_ptr + n_experts, n_choices)


@triton.jit
def _copy_kernel(
    x_ptr, positions_ptr, rows_ptr, x_row_stride, n_cols, TOP_K: tl.constexpr, BLOCK: tl.constexpr
):
    token = tl.program_id(0).to(tl.int64)
    offs = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n_cols
    x = tl.load(x_ptr + token * x_row_stride + offs, mask=mask)  # [BLOCK]
    for choice in tl.static_range(TOP_K):
        position = tl.load(positions_ptr + token * TOP_K + choice).to(tl.int64)
        tl.store(rows_ptr + position * n_cols + offs, x, mask=mask)  # [BLOCK]


def copy_config(n_cols: int) -> dict[str, int]:
    """Columns per program: two 16-byte accesses per thread in half precision."""
    block = min(triton.next_power_of_2(n_cols), 2048)
    return {"BLOCK": block, "num_warps": max(block // 512, 1)}


def _empty_results(x: Tensor, experts: Tensor, n_experts: int) -> Permuted:
    rows = x.new_empty(experts.shape[0] * experts.shape[1], x.shape[1])
    return torch.empty_like(experts), experts.new_empty(n_experts + 1), rows


@operator("moe_permute", _empty_results)
def _moe_permute_op(x, experts, n_experts, positions, offsets, rows):
    n_tokens, n_cols = x.shape
    n_choices = experts.numel()
    padded = triton.next_power_of_2(max(n_experts, 2))
    n_blocks = triton.cdiv(n_choices, _BLOCK)
    counts = experts.new_empty(n_blocks, padded)
    _count_kernel[(n_blocks,)](
        experts, counts, n_choices, EXPERTS=padded, BLOCK=_BLOCK, num_warps=4
    )
    _place_kernel[(n_blocks,)](
        experts,
        counts,
        positions,
        offsets,
        n_choices,
        n_experts,
        n_blocks,
        EXPERTS=padded,
        EXPERTS_AT_ONCE=min(padded, _EXPERTS_AT_ONCE),
        BLOCKS=triton.next_power_of_2(n_blocks),
        BLOCK=_BLOCK,
        num_warps=8,
    )
    if n_cols:
        config = copy_config(n_cols)
        _copy_kernel[(n_tokens, triton.cdiv(n_cols, config["BLOCK"]))](
            x, positions, rows, x.stride(0), n_cols, TOP_K=experts.shape[1], **config
        )


def routed(workloads: Iterable[Workload], *dimensions: str) -> list[Workload]:
    """Repeat the workloads for each routing, with the dimensions that a kernel needs."""
    return [
        Workload({**workload.shape, "routing": routing}, workload.tags | {routing})
        for workload in with_dimensions(workloads, *dimensions)
        for routing in ("uniform", "zipf", "all_to_one")
    ]


def chosen_experts(case: Case, make: InputMaker) -> Tensor:
    """Experts of each token by the case's routing, [T, top_k] int32."""
    return make.routing(case["T"], case["E"], case["top_k"], case.choice("routing"))


def expert_offsets(experts: Tensor, n_experts: int) -> Tensor:
    """Offsets of each expert's rows sorted by expert, and their total, [n_experts + 1] int32."""
    counts = torch.bincount(experts.flatten().cpu(), minlength=n_experts)
    offsets = torch.nn.functional.pad(counts.cumsum(0), (1, 0))
    return offsets.to(device=experts.device, dtype=torch.int32)


def moe_permute_reference(x: Tensor, experts: Tensor, n_experts: int) -> Permuted:
    """Concatenate the rows of each expert in token order."""
    flat = experts.flatten()
    groups = [(flat == expert).nonzero().flatten() for expert in range(n_experts)]
    order = torch.cat(groups)
    positions = torch.empty_like(order)
    positions[order] = torch.arange(order.numel(), device=order.device)
    offsets = torch.tensor([0, *(group.numel() for group in groups)], device=order.device).cumsum(0)
    return x[order // experts.shape[1]], positions.reshape(experts.shape), offsets


def _inputs(case: Case, make: InputMaker) -> dict[str, Any]:
    return {
        "x": make.normal(case["T"], case["hidden"]),
        "experts": chosen_experts(case, make),
        "n_experts": case["E"],
    }


def moe_permute_memory_bytes(case: Case) -> float:
    """Reads each row and its experts once; writes top_k rows, their positions and the offsets.
    Indices have 4 bytes.
    """
    T, top_k = case["T"], case["top_k"]
    return (1 + top_k) * T * case["hidden"] * case.itemsize + 4 * (2 * T * top_k + case["E"] + 1)


_SHAPE = ("T", "E", "top_k", "hidden")

moe_permute_spec = KernelSpec(
    name="moe_permute",
    family="MoE",
    inputs=_inputs,
    reference=moe_permute_reference,
    cases=[
        *small_cases({"T": 512, "E": 16, "top_k": 4, "hidden": 1024, "routing": "zipf"}),
        *model_cases(routed(expert_tokens(), *_SHAPE)),
    ],
    edges=[
        # the last block of choices is full, has one choice, or is the only one
        *cases(
            shapes=[
                {"T": 128, "E": 8, "top_k": 8, "hidden": 63, "routing": "uniform"},
                {"T": 171, "E": 40, "top_k": 3, "hidden": 3, "routing": "zipf"},
                {"T": 7, "E": 33, "top_k": 3, "hidden": 100, "routing": "all_to_one"},
            ],
            dtypes=["float16"],
        ),
        *cases(
            shapes=[{"T": 1, "E": 1, "top_k": 1, "hidden": 1000, "routing": "uniform"}],
            dtypes=["bfloat16"],
        ),
        *cases(
            shapes=[{"T": 0, "E": 4, "top_k": 2, "hidden": 64, "routing": "uniform"}],
            dtypes=["bfloat16"],
        ),
    ],
    flop_count=no_flop_count,
    memory_bytes=moe_permute_memory_bytes,
    token_count=lambda case: case["T"],
    formula="rows = x[order // top_k] with order = stable argsort of experts",
    source="Gale et al., MegaBlocks: efficient sparse training with mixture-of-experts, 2022 "
    "(arXiv 2211.15841)",
    interpreted_shape={"T": 75, "E": 9, "top_k": 7, "hidden": 130},
)


@moe_permute_spec.implementation("triton", directions=["fwd"], deterministic=True)
def moe_permute(x: Tensor, experts: Tensor, n_experts: int) -> Permuted:
    """Sort token rows by expert; rows of one expert stay in token order.

    Args:
        x: [n_tokens, n_cols], contiguous along its last dim.
        experts: [n_tokens, top_k] int32, each from 0 to n_experts - 1; this is not checked.
        n_experts: Number of experts.

    Returns:
        Rows [n_tokens * top_k, n_cols] in x's dtype, the row of each choice [n_tokens, top_k]
        int32, and the first row of each expert with the total at the end [n_experts + 1] int32.
    """
    require_operands("moe_permute", dims=2, x=x)
    require_integers("moe_permute", dtype=torch.int32, dims=2, like=x, experts=experts)
    require_equal("moe_permute", "the tokens", x=x.shape[0], experts=experts.shape[0])
    positions, offsets, rows = _moe_permute_op(x, experts, n_experts)
    return rows, positions, offsets


@moe_permute_spec.implementation("torch", compile=True)
def moe_permute_torch(x: Tensor, experts: Tensor, n_experts: int) -> Permuted:
    in_order, order = experts.flatten().sort(stable=True)
    places = torch.arange(order.numel(), device=x.device, dtype=torch.int32)
    positions = torch.zeros_like(places).scatter(0, order, places)
    bounds = torch.arange(n_experts + 1, device=x.device, dtype=torch.int32)
    offsets = torch.searchsorted(in_order, bounds, out_int32=True)
    return x[order // experts.shape[1]], positions.reshape(experts.shape), offsets


@triton.jit
def _unpermute_kernel(
    rows_ptr,
    positions_ptr,
    weights_ptr,
    out_ptr,
    rows_row_stride,
    n_cols,
    TOP_K: tl.constexpr,
    BLOCK: tl.constexpr,
):
    token = tl.program_id(0).to(tl.int64)
    offs = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n_cols
    acc = tl.zeros((BLOCK,), tl.float32)
    for choice in tl.static_range(TOP_K):
        position = tl.load(positions_ptr + token * TOP_K + choice).to(tl.int64)
        weight = tl.load(weights_ptr + token * TOP_K + choice).to(tl.float32)
        row = tl.load(rows_ptr + position * rows_row_stride + offs, mask=mask, other=0.0).to(
            tl.float32
        )  # [BLOCK]
        acc += weight * row
    tl.store(
        out_ptr + token * n_cols + offs, acc.to(out_ptr.dtype.element_ty), mask=mask
    )  # [BLOCK]


def moe_unpermute_config(n_cols: int) -> dict[str, int]:
    """Columns per program: one 16-byte load per thread from each of the top_k rows in half
    precision.
    """
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


def _unpermute_inputs(case: Case, make: InputMaker) -> dict[str, Any]:
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
    inputs=_unpermute_inputs,
    reference=moe_unpermute_reference,
    cases=[
        *small_cases({"T": 512, "top_k": 4, "hidden": 1024}),
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
    source="Gale et al., MegaBlocks: efficient sparse training with mixture-of-experts, 2022 "
    "(arXiv 2211.15841)",
    interpreted_shape={"T": 20, "hidden": 1030},
)


@moe_unpermute_spec.implementation("triton", directions=["fwd"], deterministic=True)
def moe_unpermute(rows: Tensor, positions: Tensor, weights: Tensor) -> Tensor:
    """`out[t] = sum over k of weights[t, k] * rows[positions[t, k]]`, added in float32.

    Args:
        rows: [n_rows, n_cols], contiguous along its last dim.
        positions: [n_tokens, top_k] int32, each from 0 to n_rows - 1, as `moe_permute` returns
            them; not checked.
        weights: [n_tokens, top_k], contiguous.

    Returns:
        [n_tokens, n_cols] in rows' dtype.
    """
    require_operands("moe_unpermute", dims=2, rows=rows, weights=weights)
    require_integers("moe_unpermute", dtype=torch.int32, dims=2, like=rows, positions=positions)
    require_equal(
        "moe_unpermute",
        "the shapes",
        positions=tuple(positions.shape),
        weights=tuple(weights.shape),
    )
    return _moe_unpermute_op(rows, positions, weights.contiguous())


@moe_unpermute_spec.implementation("torch", compile=True)
def moe_unpermute_torch(rows: Tensor, positions: Tensor, weights: Tensor) -> Tensor:
    return (rows[positions] * weights[..., None]).sum(dim=1).to(rows.dtype)

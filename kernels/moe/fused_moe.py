"""Fused mixture of experts: the SwiGLU blocks of the chosen experts of each token, forward.

The rows of tokens are sorted by expert first. One launch multiplies them with both halves of the
experts' first weight and applies SwiGLU while the products are in registers, so the products are
not stored. A grouped GEMM follows, and a weighted sum over the experts of each token.

Sources: Gale et al., MegaBlocks, 2022 (arXiv 2211.15841), for products grouped by expert; Kwon et
al., vLLM, 2023 (arXiv 2309.06180), whose `fused_experts` has these operands.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from roofwatch import Case, InputMaker, KernelSpec, cases
from roofwatch.kernels.building_blocks.exponential import fast_exp
from roofwatch.kernels.building_blocks.operands import (
    refuse_gradients,
    require_equal,
    require_integers,
    require_operands,
)
from roofwatch.kernels.building_blocks.operators import operator
from roofwatch.kernels.building_blocks.shapes import model_cases, small_cases
from roofwatch.kernels.building_blocks.target import (
    DeviceTarget,
    current_target,
    persistent_program_count,
)
from roofwatch.kernels.building_blocks.tiles import dot, store_product
from roofwatch.kernels.moe.expert_tiles import (
    expert_of_tile,
    expert_operands,
    most_expert_tiles,
    tiles_up_to_experts,
)
from roofwatch.kernels.moe.grouped_gemm import (
    EXPERT_SHAPE,
    EXPERT_WORKLOADS,
    grouped_gemm,
    grouped_gemm_torch,
    used_experts,
)
from roofwatch.kernels.moe.moe_permute import (
    chosen_experts,
    moe_permute,
    moe_permute_torch,
    moe_unpermute,
    moe_unpermute_torch,
    routed,
)


@triton.jit
def _gate_up_kernel(
    rows,  # [n_rows, K], sorted by expert
    weights,  # [n_experts, K, 2 N]: the columns of the gate, and those of up
    offsets_ptr,
    out_ptr,  # [n_rows, N]
    n_experts,
    N,
    K,
    rows_row_stride,
    weights_expert_stride,
    weights_row_stride,
    EXPERTS: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    IS_COPIED: tl.constexpr,
):
    n_tiles_n = tl.cdiv(N, BLOCK_N)
    end_tiles = tiles_up_to_experts(offsets_ptr, n_experts, n_tiles_n, EXPERTS, BLOCK_M)
    for tile in range(tl.program_id(0), tl.max(end_tiles, axis=0), tl.num_programs(0)):
        expert, first_m, end_row, tile_n = expert_of_tile(
            tile, end_tiles, offsets_ptr, n_tiles_n, BLOCK_M
        )
        first_n = tile_n * BLOCK_N
        offs_m = first_m + tl.arange(0, BLOCK_M)
        offs_n = first_n + tl.arange(0, BLOCK_N)
        gate = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
        up = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
        if IS_COPIED:
            for first_k in range(0, K, BLOCK_K):
                # may include rows of the next expert, and columns of up, which are not stored
                a = rows.load([first_m, first_k])  # [BLOCK_M, BLOCK_K]
                b = weights.load([expert, first_k, first_n]).reshape(BLOCK_K, BLOCK_N)
                gate = dot(a, b, gate)
                b = weights.load([expert, first_k, N + first_n]).reshape(BLOCK_K, BLOCK_N)
                up = dot(a, b, up)
        else:
            offs_k = tl.arange(0, BLOCK_K)
            # rows and columns past the end are clamped or wrapped, and not stored
            a_ptrs = rows + tl.minimum(offs_m, end_row - 1).to(tl.int64)[:, None] * rows_row_stride
            b_ptrs = weights + expert.to(tl.int64) * weights_expert_stride + (offs_n % N)[None, :]
            for first_k in range(0, K, BLOCK_K):
                cols = first_k + offs_k
                mask_k = cols < K
                a = tl.load(a_ptrs + cols[None, :], mask=mask_k[None, :], other=0.0)
                row_ptrs = b_ptrs + cols.to(tl.int64)[:, None] * weights_row_stride
                b = tl.load(row_ptrs, mask=mask_k[:, None], other=0.0)  # [BLOCK_K, BLOCK_N]
                gate = dot(a, b, gate)
                b = tl.load(row_ptrs + N, mask=mask_k[:, None], other=0.0)  # [BLOCK_K, BLOCK_N]
                up = dot(a, b, up)
        out = gate / (1.0 + fast_exp(-gate)) * up
        store_product(out_ptr, out, offs_m, offs_n, end_row, N, N)


def gate_up_config(rows_per_expert: int, itemsize: int, target: DeviceTarget) -> dict[str, int]:
    """Choose tiles by the average rows per expert. Both accumulators stay in registers."""
    n_stages = 2 if target.backend == "hip" else 3
    if itemsize == 4:
        return {"BLOCK_M": 64, "BLOCK_N": 32, "BLOCK_K": 16, "num_warps": 8, "num_stages": n_stages}
    if rows_per_expert < 64:
        block_m = min(max(triton.next_power_of_2(rows_per_expert), 16), 64)
        return {
            "BLOCK_M": block_m,
            "BLOCK_N": 64,
            "BLOCK_K": 64,
            "num_warps": 4,
            "num_stages": n_stages,
        }
    is_wide = target.arch in {"sm_90", "sm_100"}
    return {
        "BLOCK_M": 128,
        "BLOCK_N": 128 if is_wide else 64,
        "BLOCK_K": 64 if is_wide else 32,
        "num_warps": 8,
        "num_stages": n_stages,
    }


def _empty_out(rows: Tensor, weights: Tensor, offsets: Tensor) -> Tensor:
    return rows.new_empty(rows.shape[0], weights.shape[2] // 2)


@operator("moe_gate_up", _empty_out)
def _gate_up_op(rows, weights, offsets, out):
    n_rows, K = rows.shape
    n_experts, _, both = weights.shape
    N = both // 2
    target = current_target()
    config = gate_up_config(triton.cdiv(n_rows, n_experts), rows.element_size(), target)
    row_tiles, weight_tiles, is_copied = expert_operands(rows, weights, config, target)
    most_tiles = most_expert_tiles(n_rows, n_experts, N, config)
    _gate_up_kernel[(persistent_program_count(rows, most_tiles),)](
        row_tiles,
        weight_tiles,
        offsets,
        out,
        n_experts,
        N,
        K,
        rows.stride(0),
        weights.stride(0),
        weights.stride(1),
        EXPERTS=triton.next_power_of_2(max(n_experts, 2)),
        IS_COPIED=is_copied,
        **config,
    )


def fused_moe_reference(
    x: Tensor, gate_up: Tensor, down: Tensor, experts: Tensor, shares: Tensor
) -> Tensor:
    """Compute the block of each chosen expert for each token, and their weighted sum."""
    out = torch.zeros_like(x)
    for choice in range(experts.shape[1]):
        for expert in range(len(gate_up)):
            tokens = (experts[:, choice] == expert).nonzero().flatten()
            gate, up = (x[tokens] @ gate_up[expert]).chunk(2, dim=1)
            block = (gate / (1 + (-gate).exp()) * up) @ down[expert]
            out[tokens] += shares[tokens, choice, None] * block
    return out


def _inputs(case: Case, make: InputMaker) -> dict[str, Any]:
    T, E, hidden, ffn = case["T"], case["E"], case["hidden"], case["ffn"]
    shares = make.uniform(T, case["top_k"], low=0.1, high=1.0, dtype="float32")
    return {
        "x": make.normal(T, hidden),
        "gate_up": make.weights(E, hidden, 2 * ffn, scale=hidden**-0.5),
        "down": make.weights(E, ffn, hidden, scale=ffn**-0.5),
        "experts": chosen_experts(case, make),
        "shares": shares / shares.sum(dim=1, keepdim=True),
    }


def fused_moe_flop_count(case: Case) -> float:
    """Count the three products of each choice, and 2 per element of their weighted sum; SwiGLU is
    not counted.
    """
    n_rows = case["T"] * case["top_k"]
    return n_rows * case["hidden"] * (3 * 2 * case["ffn"] + 2)


def fused_moe_memory_bytes(case: Case) -> float:
    """Reads x, the weights of experts with tokens, 4-byte experts and shares; writes out.

    All experts have tokens, unless routing is all_to_one. What the launches pass on is not counted.
    """
    T, top_k = case["T"], case["top_k"]
    n_elements = 2 * T * case["hidden"] + used_experts(case) * 3 * case["hidden"] * case["ffn"]
    return n_elements * case.itemsize + 8 * T * top_k


fused_moe_spec = KernelSpec(
    name="fused_moe",
    family="MoE",
    inputs=_inputs,
    reference=fused_moe_reference,
    cases=[
        *small_cases(
            {"T": 128, "E": 8, "top_k": 2, "hidden": 128, "ffn": 256, "routing": "zipf"},
            dtypes=["bfloat16"],
        ),
        *model_cases(routed(EXPERT_WORKLOADS, *EXPERT_SHAPE)),
    ],
    edges=[
        # few rows per expert; unaligned rows; experts without rows
        *cases(
            shapes=[
                {"T": 9, "E": 5, "top_k": 2, "hidden": 63, "ffn": 35, "routing": "all_to_one"},
                {"T": 1, "E": 1, "top_k": 1, "hidden": 8, "ffn": 16, "routing": "uniform"},
                {"T": 0, "E": 3, "top_k": 1, "hidden": 8, "ffn": 16, "routing": "uniform"},
            ],
            dtypes=["float16"],
        ),
        *cases(shapes=[{"T": 20, "E": 3, "top_k": 2, "hidden": 40, "ffn": 70, "routing": "zipf"}]),
    ],
    flop_count=fused_moe_flop_count,
    memory_bytes=fused_moe_memory_bytes,
    token_count=lambda case: case["T"],
    formula="out[t] = sum over e in experts[t] of share[t, e] swiglu(x[t] gate_up[e]) down[e]",
    source="Gale et al., MegaBlocks: efficient sparse training with mixture-of-experts, 2022 "
    "(arXiv 2211.15841)",
    interpreted_shape={"T": 40, "E": 4, "top_k": 2, "hidden": 72, "ffn": 72},
)


@fused_moe_spec.implementation("triton", directions=["fwd"], deterministic=True)
def fused_moe(x: Tensor, gate_up: Tensor, down: Tensor, experts: Tensor, shares: Tensor) -> Tensor:
    """Compute the SwiGLU blocks of the chosen experts of each token, and their weighted sum.

    Args:
        x: [T, hidden], contiguous along its last dim.
        gate_up: [n_experts, hidden, 2 ffn] of x's dtype, contiguous along its last dim: the columns
            of the gate, then those of up.
        down: [n_experts, ffn, hidden] of x's dtype, contiguous along its last dim.
        experts: [T, top_k] int32, each from 0 to n_experts - 1; this is not checked.
        shares: [T, top_k], contiguous along its last dim.

    Returns:
        [T, hidden] in x's dtype.
    """
    name = "fused_moe"
    require_operands(name, dims=2, x=x, shares=shares)
    require_operands(name, x=x, gate_up=gate_up, down=down)
    require_operands(name, dims=3, gate_up=gate_up, down=down)
    require_integers(name, dtype=torch.int32, dims=2, like=x, experts=experts)
    require_equal(name, "the dtypes", x=x.dtype, gate_up=gate_up.dtype, down=down.dtype)
    require_equal(name, "the choices", experts=tuple(experts.shape), shares=tuple(shares.shape))
    require_equal(name, "the tokens", x=len(x), experts=len(experts))
    n_experts, ffn, hidden = down.shape
    require_equal(
        name, "the shapes", gate_up=tuple(gate_up.shape), down=(n_experts, hidden, 2 * ffn)
    )
    require_equal(name, "the widths", x=x.shape[1], down=hidden)
    refuse_gradients(name, x=x, gate_up=gate_up, down=down, shares=shares)
    rows, positions, offsets = moe_permute(x, experts, n_experts)
    activated = _gate_up_op(rows, gate_up, offsets)
    return moe_unpermute(grouped_gemm(activated, down, offsets), positions, shares)


@fused_moe_spec.implementation("torch", directions=["fwd"], compile=True)
def _fused_moe_torch(
    x: Tensor, gate_up: Tensor, down: Tensor, experts: Tensor, shares: Tensor
) -> Tensor:
    rows, positions, offsets = moe_permute_torch(x, experts, len(gate_up))
    gate, up = grouped_gemm_torch(rows, gate_up, offsets).chunk(2, dim=1)
    activated = torch.nn.functional.silu(gate) * up
    return moe_unpermute_torch(grouped_gemm_torch(activated, down, offsets), positions, shares)

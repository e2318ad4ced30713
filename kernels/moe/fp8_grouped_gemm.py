"""Grouped GEMM of e4m3 rows and weights with a scale per row and output channel, forward.

The products of a mixture of experts in fp8: tensor cores add the raw 8-bit products, and the scales
are applied to the result. Each row keeps its scale when rows are sorted by expert.

Sources: Gale et al., MegaBlocks, 2022 (arXiv 2211.15841), for products grouped by expert;
Micikevicius et al., FP8 Formats for Deep Learning, 2022 (arXiv 2209.05433), section 3.
"""

from itertools import pairwise
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from roofwatch import Case, InputMaker, KernelSpec, UnsupportedError, cases
from roofwatch.kernels.building_blocks.formats import as_kernel_operand
from roofwatch.kernels.building_blocks.operands import (
    require_contiguous,
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
from roofwatch.kernels.building_blocks.tiles import dot_8_bit, load_factors, store_product
from roofwatch.kernels.moe.expert_tiles import (
    expert_of_tile,
    most_expert_tiles,
    tiles_up_to_experts,
)
from roofwatch.kernels.moe.grouped_gemm import (
    EXPERT_SHAPE,
    EXPERT_WORKLOADS,
    grouped_gemm_flop_count,
    grouped_gemm_torch,
    used_experts,
)
from roofwatch.kernels.moe.moe_permute import chosen_experts, expert_offsets, routed


@triton.jit
def _fp8_grouped_gemm_kernel(
    rows_ptr,  # [n_rows, K], sorted by expert
    row_scale_ptr,  # [n_rows]
    weights_ptr,  # [n_experts, N, K]
    weight_scale_ptr,  # [n_experts, N]
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
    K_IS_EVEN: tl.constexpr,
):
    n_tiles_n = tl.cdiv(N, BLOCK_N)
    end_tiles = tiles_up_to_experts(offsets_ptr, n_experts, n_tiles_n, EXPERTS, BLOCK_M)
    for tile in range(tl.program_id(0), tl.max(end_tiles, axis=0), tl.num_programs(0)):
        expert, first_m, end_row, tile_n = expert_of_tile(
            tile, end_tiles, offsets_ptr, n_tiles_n, BLOCK_M
        )
        offs_m = first_m + tl.arange(0, BLOCK_M)
        offs_n = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
        offs_k = tl.arange(0, BLOCK_K)
        # rows and columns past the end are clamped or wrapped, and not stored
        row = tl.minimum(offs_m, end_row - 1).to(tl.int64)
        channel = (offs_n % N).to(tl.int64)
        row_ptrs = rows_ptr + row[:, None] * rows_row_stride + offs_k[None, :]
        weight_ptrs = weights_ptr + expert.to(tl.int64) * weights_expert_stride
        weight_ptrs += channel[None, :] * weights_row_stride + offs_k[:, None]
        acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
        for first_k in range(0, K, BLOCK_K):
            a, b = load_factors(
                row_ptrs, weight_ptrs, K - first_k, K_IS_EVEN
            )  # [BLOCK_M, BLOCK_K], [BLOCK_K, BLOCK_N]
            acc = dot_8_bit(a, b, acc)
            row_ptrs += BLOCK_K
            weight_ptrs += BLOCK_K
        row_scale = tl.load(row_scale_ptr + row)  # [BLOCK_M]
        weight_scale = tl.load(weight_scale_ptr + expert.to(tl.int64) * N + channel)  # [BLOCK_N]
        out = acc * row_scale[:, None] * weight_scale[None, :]
        store_product(out_ptr, out, offs_m, offs_n, end_row, N, N)


def fp8_grouped_gemm_config(rows_per_expert: int, target: DeviceTarget) -> dict[str, int]:
    """Choose tiles by the average rows per expert, as of `fp8_matmul_rowwise`."""
    is_amd = target.backend == "hip"
    if rows_per_expert < 64:
        return {
            "BLOCK_M": min(max(triton.next_power_of_2(rows_per_expert), 16), 64),
            "BLOCK_N": 64,
            "BLOCK_K": 128,
            "num_warps": 4,
            "num_stages": 2 if is_amd else 3,
        }
    return {
        "BLOCK_M": 128,
        "BLOCK_N": 128,
        "BLOCK_K": 64 if target.arch == "sm_80" else 128,
        "num_warps": 8,
        "num_stages": 2 if is_amd or target.arch == "sm_80" else 3,
    }


def _empty_out(
    rows: Tensor, row_scale: Tensor, weights: Tensor, weight_scale: Tensor, offsets: Tensor
) -> Tensor:
    return rows.new_empty(rows.shape[0], weights.shape[1], dtype=torch.bfloat16)


@operator("fp8_grouped_gemm", _empty_out)
def _fp8_grouped_gemm_op(rows, row_scale, weights, weight_scale, offsets, out):
    n_rows, K = rows.shape
    n_experts, N, _ = weights.shape
    config = fp8_grouped_gemm_config(triton.cdiv(n_rows, n_experts), current_target())
    most_tiles = most_expert_tiles(n_rows, n_experts, N, config)
    _fp8_grouped_gemm_kernel[(persistent_program_count(rows, most_tiles),)](
        as_kernel_operand(rows),
        row_scale,
        as_kernel_operand(weights),
        weight_scale,
        offsets,
        out,
        n_experts,
        N,
        K,
        rows.stride(0),
        weights.stride(0),
        weights.stride(1),
        EXPERTS=triton.next_power_of_2(max(n_experts, 2)),
        K_IS_EVEN=K % config["BLOCK_K"] == 0,
        **config,
    )


def fp8_grouped_gemm_reference(
    rows: Tensor, row_scale: Tensor, weights: Tensor, weight_scale: Tensor, offsets: Tensor
) -> Tensor:
    """Compute `out[i, n] = row_scale[i] weight_scale[e, n] * sum over k of rows[i, k] weights[e, n,
    k]` for the rows i of expert e.
    """
    products = []
    for expert, (start, end) in enumerate(pairwise(offsets.tolist())):
        scaled_rows = rows[start:end] * row_scale[start:end, None]
        scaled_weight = weights[expert] * weight_scale[expert, :, None]
        products.append(torch.einsum("ik,nk->in", scaled_rows, scaled_weight))
    return torch.cat(products)


def _inputs(case: Case, make: InputMaker) -> dict[str, Any]:
    n_rows, E = case["T"] * case["top_k"], case["E"]
    return {
        "rows": make.normal(n_rows, case["ffn"], scale=64.0),
        "row_scale": make.uniform(n_rows, low=0.01, high=0.02, dtype="float32"),
        "weights": make.normal(E, case["hidden"], case["ffn"], scale=64.0),
        "weight_scale": make.uniform(E, case["hidden"], low=0.001, high=0.002, dtype="float32"),
        "offsets": expert_offsets(chosen_experts(case, make), E),
    }


def fp8_grouped_gemm_flop_count(case: Case) -> float:
    """Count a multiplication and an addition per term, and two multiplications per result."""
    return grouped_gemm_flop_count(case) + 2 * case["T"] * case["top_k"] * case["hidden"]


def fp8_grouped_gemm_memory_bytes(case: Case) -> float:
    """Reads rows, offsets, the weights of experts with rows, and 4-byte scales of both; writes two
    bytes per result.
    """
    n_rows, hidden, ffn = case["T"] * case["top_k"], case["hidden"], case["ffn"]
    n_channels = used_experts(case) * hidden
    n_bytes = (n_rows + n_channels) * (ffn * case.itemsize + 4)
    return n_bytes + 2 * n_rows * hidden + 4 * (case["E"] + 1)


_DTYPES = ["float8_e4m3fn"]
fp8_grouped_gemm_spec = KernelSpec(
    name="fp8_grouped_gemm",
    family="MoE",
    inputs=_inputs,
    reference=fp8_grouped_gemm_reference,
    cases=[
        *small_cases(
            {"T": 256, "E": 8, "top_k": 2, "hidden": 256, "ffn": 512, "routing": "uniform"},
            {"T": 256, "E": 8, "top_k": 2, "hidden": 256, "ffn": 512, "routing": "zipf"},
            dtypes=_DTYPES,
        ),
        *model_cases(routed(EXPERT_WORKLOADS, *EXPERT_SHAPE), dtypes=_DTYPES),
    ],
    edges=cases(
        # few rows per expert; unaligned rows; experts without rows
        shapes=[
            {"T": 9, "E": 5, "top_k": 2, "hidden": 63, "ffn": 35, "routing": "all_to_one"},
            {"T": 1, "E": 1, "top_k": 1, "hidden": 8, "ffn": 16, "routing": "uniform"},
            {"T": 0, "E": 3, "top_k": 1, "hidden": 8, "ffn": 16, "routing": "uniform"},
            {"T": 100, "E": 3, "top_k": 1, "hidden": 131, "ffn": 70, "routing": "zipf"},
        ],
        dtypes=_DTYPES,
    ),
    flop_count=fp8_grouped_gemm_flop_count,
    memory_bytes=fp8_grouped_gemm_memory_bytes,
    token_count=lambda case: case["T"],
    formula="out[i] = (rows[i] @ weights[e].T) * row_scale[i] * weight_scale[e] for offsets[e] <= "
    "i < offsets[e + 1]",
    source="Gale et al., MegaBlocks, 2022 (arXiv 2211.15841); Micikevicius et al., 2022 "
    "(arXiv 2209.05433)",
    interpreted_shape={"T": 210, "E": 6, "top_k": 2, "hidden": 136, "ffn": 72},
)


@fp8_grouped_gemm_spec.implementation("triton", directions=["fwd"], deterministic=True)
def fp8_grouped_gemm(
    rows: Tensor, row_scale: Tensor, weights: Tensor, weight_scale: Tensor, offsets: Tensor
) -> Tensor:
    """Compute `rows[i] @ weights[e].T`, scaled, for the rows of each expert e, accumulated in
    float32.

    Args:
        rows: [n_rows, K] float8_e4m3fn, finite, sorted by expert, contiguous along its last dim.
        row_scale: [n_rows] float32, contiguous.
        weights: [n_experts, N, K] float8_e4m3fn, finite, contiguous along its last dim; a row is
            one output channel.
        weight_scale: [n_experts, N] float32, contiguous.
        offsets: [n_experts + 1] int32: first row of each expert, and n_rows at the end, as
            `moe_permute` returns them. Rows past the last offset are not written.

    Returns:
        [n_rows, N] bfloat16.
    """
    name = "fp8_grouped_gemm"
    require_operands(name, dtypes=(torch.float8_e4m3fn,), rows=rows, weights=weights)
    require_operands(name, dims=2, dtypes=(torch.float8_e4m3fn,), rows=rows)
    require_operands(name, dims=3, dtypes=(torch.float8_e4m3fn,), weights=weights)
    require_operands(name, dtypes=(torch.float32,), row_scale=row_scale, weight_scale=weight_scale)
    require_contiguous(name, row_scale=row_scale, weight_scale=weight_scale)
    require_integers(name, dtype=torch.int32, dims=1, like=rows, offsets=offsets)
    require_equal(name, "rows' and weights' K", rows=rows.shape[1], weights=weights.shape[2])
    require_equal(name, "the rows", rows=(len(rows),), row_scale=tuple(row_scale.shape))
    require_equal(
        name,
        "the output channels",
        weights=tuple(weights.shape[:2]),
        weight_scale=tuple(weight_scale.shape),
    )
    require_equal(name, "the experts", weights=len(weights), offsets=len(offsets) - 1)
    require_equal(name, "the devices", rows=rows.device, row_scale=row_scale.device)
    return _fp8_grouped_gemm_op(rows, row_scale, weights, weight_scale, offsets)


@fp8_grouped_gemm_spec.implementation("torch", directions=["fwd"], compile=True)
def fp8_grouped_gemm_torch(
    rows: Tensor, row_scale: Tensor, weights: Tensor, weight_scale: Tensor, offsets: Tensor
) -> Tensor:
    """Multiply in bfloat16, which has every number of e4m3."""
    wide_weights = weights.bfloat16().transpose(1, 2).contiguous()
    product = grouped_gemm_torch(rows.bfloat16(), wide_weights, offsets)
    places = torch.arange(len(rows), device=rows.device, dtype=torch.int32)
    experts = torch.searchsorted(offsets[1:], places, right=True)
    return (product * row_scale[:, None] * weight_scale[experts]).bfloat16()


@fp8_grouped_gemm_spec.implementation("torch", name="scaled_grouped_mm", directions=["fwd"])
def fp8_grouped_gemm_scaled_grouped_mm(
    rows: Tensor, row_scale: Tensor, weights: Tensor, weight_scale: Tensor, offsets: Tensor
) -> Tensor:
    if (
        not rows.is_cuda
        or torch.version.hip
        or torch.cuda.get_device_capability(rows.device) != (9, 0)
    ):
        raise UnsupportedError(
            "needs a GPU of compute capability 9.0, for torch._scaled_grouped_mm"
        )
    if rows.shape[1] % 16 or weights.shape[1] % 16:
        raise UnsupportedError(
            "needs columns and output channels in multiples of 16, for torch._scaled_grouped_mm"
        )
    return torch._scaled_grouped_mm(
        rows,
        weights.transpose(1, 2),
        row_scale,
        weight_scale,
        offs=offsets[1:],
        out_dtype=torch.bfloat16,
        # as vLLM and torchao call it; torch's default is slower
        use_fast_accum=True,
    )

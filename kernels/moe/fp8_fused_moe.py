"""Fused mixture of experts in fp8: the SwiGLU blocks of the chosen experts of each token, forward.

Rows are sorted by expert and quantised to e4m3, each with its scale. One launch multiplies them
with both halves of the experts' first weight and applies scales and SwiGLU in registers. Its result
is quantised again for a grouped GEMM; a weighted sum over the experts of each token follows.

Sources: Gale et al., MegaBlocks, 2022 (arXiv 2211.15841), for products grouped by expert; Kwon et
al., vLLM, 2023 (arXiv 2309.06180), whose `fused_experts` quantises rows per token in this order.
"""

from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from roofwatch import Case, InputMaker, KernelSpec, Tolerance, cases
from roofwatch.kernels.building_blocks.exponential import fast_exp
from roofwatch.kernels.building_blocks.formats import E4M3_MAX, as_kernel_operand
from roofwatch.kernels.building_blocks.operands import (
    refuse_gradients,
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
from roofwatch.kernels.low_precision.quantise import (
    SMALLEST_ABSMAX,
    quantise_fp8,
    quantise_fp8_torch,
)
from roofwatch.kernels.moe.expert_tiles import (
    expert_of_tile,
    most_expert_tiles,
    tiles_up_to_experts,
)
from roofwatch.kernels.moe.fp8_grouped_gemm import (
    fp8_grouped_gemm,
    fp8_grouped_gemm_scaled_grouped_mm,
    fp8_grouped_gemm_torch,
)
from roofwatch.kernels.moe.fused_moe import fused_moe_flop_count
from roofwatch.kernels.moe.grouped_gemm import EXPERT_SHAPE, EXPERT_WORKLOADS, used_experts
from roofwatch.kernels.moe.moe_permute import (
    chosen_experts,
    moe_permute,
    moe_permute_torch,
    moe_unpermute,
    moe_unpermute_torch,
    routed,
)

_TOLERANCE = Tolerance(elementwise=0.28, rmse_ratio=4e-2, elementwise_floor=0.28, rmse_floor=1e-2)
"""The usual one of e4m3, but twice as large for an element: two roundings follow each other, and a
different first one changes many of the second.
"""


@triton.jit
def _fp8_gate_up_kernel(
    rows_ptr,  # [n_rows, K], sorted by expert
    row_scale_ptr,  # [n_rows]
    weights_ptr,  # [n_experts, 2 N, K]: the channels of the gate, and those of up
    weight_scale_ptr,  # [n_experts, 2 N]
    offsets_ptr,
    out_ptr,  # [n_rows, N]
    n_experts,
    N,
    K,
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
        expert = expert.to(tl.int64)
        offs_m = first_m + tl.arange(0, BLOCK_M)
        offs_n = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
        offs_k = tl.arange(0, BLOCK_K)
        # rows and channels past the end are clamped or wrapped, and not stored
        row = tl.minimum(offs_m, end_row - 1).to(tl.int64)
        channel = (offs_n % N).to(tl.int64)
        row_ptrs = rows_ptr + row[:, None] * K + offs_k[None, :]
        gate_ptrs = weights_ptr + expert * weights_expert_stride
        gate_ptrs += channel[None, :] * weights_row_stride + offs_k[:, None]
        up_ptrs = gate_ptrs + tl.cast(N, tl.int64) * weights_row_stride
        gate = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
        up = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
        for first_k in range(0, K, BLOCK_K):
            a, b = load_factors(row_ptrs, gate_ptrs, K - first_k, K_IS_EVEN)
            gate = dot_8_bit(a, b, gate)
            a, b = load_factors(row_ptrs, up_ptrs, K - first_k, K_IS_EVEN)
            up = dot_8_bit(a, b, up)
            row_ptrs += BLOCK_K
            gate_ptrs += BLOCK_K
            up_ptrs += BLOCK_K
        row_scale = tl.load(row_scale_ptr + row)  # [BLOCK_M]
        scale_ptrs = weight_scale_ptr + expert * 2 * N + channel
        gate = gate * row_scale[:, None] * tl.load(scale_ptrs)[None, :]
        up = up * row_scale[:, None] * tl.load(scale_ptrs + N)[None, :]
        out = gate / (1.0 + fast_exp(-gate)) * up
        store_product(out_ptr, out, offs_m, offs_n, end_row, N, N)


def fp8_gate_up_config(rows_per_expert: int, target: DeviceTarget) -> dict[str, int]:
    """Choose tiles by the average rows per expert. Both accumulators stay in registers."""
    is_small = rows_per_expert < 64
    block_m = 128
    if is_small:
        block_m = min(max(triton.next_power_of_2(rows_per_expert), 16), 64)
    return {
        "BLOCK_M": block_m,
        "BLOCK_N": 64,
        "BLOCK_K": 64 if target.arch == "sm_80" else 128,
        "num_warps": 4 if is_small else 8,
        "num_stages": 2 if target.backend == "hip" or target.arch == "sm_80" else 3,
    }


def _empty_out(
    rows: Tensor, row_scale: Tensor, weights: Tensor, weight_scale: Tensor, offsets: Tensor
) -> Tensor:
    return rows.new_empty(rows.shape[0], weights.shape[1] // 2, dtype=torch.bfloat16)


@operator("fp8_moe_gate_up", _empty_out)
def _gate_up_op(rows, row_scale, weights, weight_scale, offsets, out):
    n_rows, K = rows.shape
    n_experts, both, _ = weights.shape
    N = both // 2
    config = fp8_gate_up_config(triton.cdiv(n_rows, n_experts), current_target())
    most_tiles = most_expert_tiles(n_rows, n_experts, N, config)
    _fp8_gate_up_kernel[(persistent_program_count(rows, most_tiles),)](
        as_kernel_operand(rows),
        row_scale,
        as_kernel_operand(weights),
        weight_scale,
        offsets,
        out,
        n_experts,
        N,
        K,
        weights.stride(0),
        weights.stride(1),
        EXPERTS=triton.next_power_of_2(max(n_experts, 2)),
        K_IS_EVEN=K % config["BLOCK_K"] == 0,
        **config,
    )


def fp8_fused_moe_reference(
    x: Tensor,
    gate_up: Tensor,
    gate_up_scale: Tensor,
    down: Tensor,
    down_scale: Tensor,
    experts: Tensor,
    shares: Tensor,
) -> Tensor:
    """Compute the block of each chosen expert for each token, and their weighted sum, with factors
    rounded to e4m3.
    """
    out = torch.zeros_like(x)
    rows = _rounded_to_e4m3(x)
    for choice in range(experts.shape[1]):
        for expert in range(len(gate_up)):
            tokens = (experts[:, choice] == expert).nonzero().flatten()
            first_weight = gate_up[expert] * gate_up_scale[expert, :, None]
            gate, up = (rows[tokens] @ first_weight.t()).chunk(2, dim=1)
            activated = gate / (1 + (-gate).exp()) * up
            factors = _rounded_to_e4m3(activated.bfloat16().to(x.dtype))
            block = factors @ (down[expert] * down_scale[expert, :, None]).t()
            out[tokens] += shares[tokens, choice, None] * block
    return out


def _rounded_to_e4m3(rows: Tensor) -> Tensor:
    absmax = rows.abs().amax(dim=1, keepdim=True)
    scale = absmax.clamp(min=SMALLEST_ABSMAX) / E4M3_MAX
    return (rows / scale).to(torch.float8_e4m3fn).to(rows.dtype) * scale


def _inputs(case: Case, make: InputMaker) -> dict[str, Any]:
    T, E, hidden, ffn = case["T"], case["E"], case["hidden"], case["ffn"]
    shares = make.uniform(T, case["top_k"], low=0.1, high=1.0, dtype="float32")

    def channel_scale(n_channels: int, n_terms: int) -> Tensor:
        unit = n_terms**-0.5 / 64.0
        return make.uniform(E, n_channels, low=unit, high=2 * unit, dtype="float32")

    return {
        "x": make.normal(T, hidden, dtype="bfloat16"),
        "gate_up": make.weights(E, 2 * ffn, hidden, scale=64.0),
        "gate_up_scale": channel_scale(2 * ffn, hidden),
        "down": make.weights(E, hidden, ffn, scale=64.0),
        "down_scale": channel_scale(hidden, ffn),
        "experts": chosen_experts(case, make),
        "shares": shares / shares.sum(dim=1, keepdim=True),
    }


def fp8_fused_moe_flop_count(case: Case) -> float:
    """Count as of `fused_moe`, and two multiplications by scales per product's result; rounding is
    not counted.
    """
    n_rows = case["T"] * case["top_k"]
    return fused_moe_flop_count(case) + 2 * n_rows * (2 * case["ffn"] + case["hidden"])


def fp8_fused_moe_memory_bytes(case: Case) -> float:
    """Reads x of two bytes, the weights of experts with tokens and their 4-byte scales, and 4-byte
    experts and shares; writes two bytes per result.

    What the launches pass on is not counted.
    """
    T, hidden, ffn = case["T"], case["hidden"], case["ffn"]
    bytes_per_expert = 3 * hidden * ffn * case.itemsize + 4 * (2 * ffn + hidden)
    return 4 * T * hidden + used_experts(case) * bytes_per_expert + 8 * T * case["top_k"]


_DTYPES = ["float8_e4m3fn"]
fp8_fused_moe_spec = KernelSpec(
    name="fp8_fused_moe",
    family="MoE",
    inputs=_inputs,
    reference=fp8_fused_moe_reference,
    cases=[
        *small_cases(
            {"T": 128, "E": 8, "top_k": 2, "hidden": 128, "ffn": 256, "routing": "zipf"},
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
    flop_count=fp8_fused_moe_flop_count,
    memory_bytes=fp8_fused_moe_memory_bytes,
    token_count=lambda case: case["T"],
    tolerances={"float8_e4m3fn": _TOLERANCE},
    formula="out[t] = sum over e in experts[t] of share[t, e] swiglu(x[t] gate_up[e]) down[e] in "
    "e4m3",
    source="Gale et al., MegaBlocks, 2022 (arXiv 2211.15841); Micikevicius et al., 2022 "
    "(arXiv 2209.05433)",
    interpreted_shape={"T": 40, "E": 4, "top_k": 2, "hidden": 72, "ffn": 72},
)


@fp8_fused_moe_spec.implementation("triton", directions=["fwd"], deterministic=True)
def fp8_fused_moe(
    x: Tensor,
    gate_up: Tensor,
    gate_up_scale: Tensor,
    down: Tensor,
    down_scale: Tensor,
    experts: Tensor,
    shares: Tensor,
) -> Tensor:
    """Compute the SwiGLU blocks of the chosen experts of each token, and their weighted sum.

    Args:
        x: [T, hidden] bfloat16, contiguous along its last dim.
        gate_up: [n_experts, 2 ffn, hidden] float8_e4m3fn, finite, contiguous along its last dim:
            the channels of the gate, then those of up.
        gate_up_scale: [n_experts, 2 ffn] float32, contiguous.
        down: [n_experts, hidden, ffn] float8_e4m3fn, finite, contiguous along its last dim.
        down_scale: [n_experts, hidden] float32, contiguous.
        experts: [T, top_k] int32, each from 0 to n_experts - 1; this is not checked.
        shares: [T, top_k], contiguous along its last dim.

    Returns:
        [T, hidden] bfloat16.
    """
    name = "fp8_fused_moe"
    require_operands(name, dims=2, dtypes=(torch.bfloat16,), x=x)
    require_operands(name, dims=2, x=x, shares=shares)
    require_operands(name, dims=3, dtypes=(torch.float8_e4m3fn,), gate_up=gate_up, down=down)
    require_operands(
        name, dims=2, dtypes=(torch.float32,), gate_up_scale=gate_up_scale, down_scale=down_scale
    )
    require_contiguous(name, gate_up_scale=gate_up_scale, down_scale=down_scale)
    require_integers(name, dtype=torch.int32, dims=2, like=x, experts=experts)
    require_equal(name, "the choices", experts=tuple(experts.shape), shares=tuple(shares.shape))
    require_equal(name, "the tokens", x=len(x), experts=len(experts))
    n_experts, hidden, ffn = down.shape
    require_equal(
        name, "the shapes", gate_up=tuple(gate_up.shape), down=(n_experts, 2 * ffn, hidden)
    )
    require_equal(
        name, "the scales", gate_up=tuple(gate_up_scale.shape), channels=(n_experts, 2 * ffn)
    )
    require_equal(name, "the scales", down=tuple(down_scale.shape), channels=(n_experts, hidden))
    require_equal(name, "the widths", x=x.shape[1], down=hidden)
    require_equal(name, "the devices", x=x.device, gate_up=gate_up.device, scale=down_scale.device)
    refuse_gradients(name, x=x, shares=shares)
    rows, positions, offsets = moe_permute(x, experts, n_experts)
    levels, row_scale = quantise_fp8(rows)
    activated = _gate_up_op(levels, row_scale, gate_up, gate_up_scale, offsets)
    levels, row_scale = quantise_fp8(activated)
    blocks = fp8_grouped_gemm(levels, row_scale.flatten(), down, down_scale, offsets)
    return moe_unpermute(blocks, positions, shares)


def _in_torch(
    grouped_gemm: Callable[..., Tensor],
    x: Tensor,
    gate_up: Tensor,
    gate_up_scale: Tensor,
    down: Tensor,
    down_scale: Tensor,
    experts: Tensor,
    shares: Tensor,
) -> Tensor:
    """Compute it with a grouped GEMM of quantised rows."""
    rows, positions, offsets = moe_permute_torch(x, experts, len(gate_up))
    levels, row_scale = quantise_fp8_torch(rows)
    products = grouped_gemm(levels, row_scale.flatten(), gate_up, gate_up_scale, offsets)
    gate, up = products.chunk(2, dim=1)
    activated = torch.nn.functional.silu(gate.float()) * up
    levels, row_scale = quantise_fp8_torch(activated.bfloat16())
    blocks = grouped_gemm(levels, row_scale.flatten(), down, down_scale, offsets)
    return moe_unpermute_torch(blocks, positions, shares)


@fp8_fused_moe_spec.implementation("torch", directions=["fwd"], compile=True)
def _fp8_fused_moe_torch(
    x: Tensor,
    gate_up: Tensor,
    gate_up_scale: Tensor,
    down: Tensor,
    down_scale: Tensor,
    experts: Tensor,
    shares: Tensor,
) -> Tensor:
    return _in_torch(
        fp8_grouped_gemm_torch, x, gate_up, gate_up_scale, down, down_scale, experts, shares
    )


@fp8_fused_moe_spec.implementation("torch", name="scaled_grouped_mm", directions=["fwd"])
def _fp8_fused_moe_scaled_grouped_mm(
    x: Tensor,
    gate_up: Tensor,
    gate_up_scale: Tensor,
    down: Tensor,
    down_scale: Tensor,
    experts: Tensor,
    shares: Tensor,
) -> Tensor:
    return _in_torch(
        fp8_grouped_gemm_scaled_grouped_mm,
        x,
        gate_up,
        gate_up_scale,
        down,
        down_scale,
        experts,
        shares,
    )

"""Grouped GEMM: one matrix product per expert over rows sorted by expert, in one launch; forward.

Programs find the experts of their tiles on the GPU. So there is no synchronisation with the host,
and any distribution of rows over experts is balanced.
"""

from itertools import pairwise
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from roofwatch import Case, InputMaker, KernelSpec, UnsupportedError, cases
from roofwatch.kernels.building_blocks.models import DEEPSEEK_V3, MIXTRAL_8X7B, QWEN3_235B_A22B
from roofwatch.kernels.building_blocks.operands import (
    require_equal,
    require_integers,
    require_operands,
)
from roofwatch.kernels.building_blocks.operators import operator
from roofwatch.kernels.building_blocks.shapes import expert_tokens, model_cases, small_cases
from roofwatch.kernels.building_blocks.target import (
    DeviceTarget,
    current_target,
    persistent_program_count,
)
from roofwatch.kernels.building_blocks.tiles import dot, load_factors, store_product
from roofwatch.kernels.moe.expert_tiles import (
    expert_of_tile,
    expert_operands,
    most_expert_tiles,
    tiles_up_to_experts,
)
from roofwatch.kernels.moe.moe_permute import chosen_experts, expert_offsets, routed

_PROGRAMS_PER_MULTIPROCESSOR = 2
"""Loads and stores of one overlap with products of the other."""


@triton.jit
def _grouped_gemm_kernel(
    tokens,
    weights,
    offsets_ptr,
    out_ptr,
    n_experts,
    N,
    K,
    tokens_row_stride,
    weights_expert_stride,
    weights_row_stride,
    EXPERTS: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    IS_COPIED: tl.constexpr,
    K_IS_EVEN: tl.constexpr,
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
        acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
        if IS_COPIED:
            for first_k in range(0, K, BLOCK_K):
                # may include rows of the next expert, which are not stored
                a = tokens.load([first_m, first_k])  # [BLOCK_M, BLOCK_K]
                b = weights.load([expert, first_k, first_n]).reshape(
                    BLOCK_K, BLOCK_N
                )  # [BLOCK_K, BLOCK_N]
                acc = dot(a, b, acc)
        else:
            offs_k = tl.arange(0, BLOCK_K)
            # rows and columns past the end are clamped or wrapped, and not stored
            rows = tl.minimum(offs_m, end_row - 1).to(tl.int64)
            a_ptrs = tokens + rows[:, None] * tokens_row_stride + offs_k[None, :]
            b_ptrs = weights + expert.to(tl.int64) * weights_expert_stride
            b_ptrs += offs_k.to(tl.int64)[:, None] * weights_row_stride + (offs_n % N)[None, :]
            for first_k in range(0, K, BLOCK_K):
                a, b = load_factors(
                    a_ptrs, b_ptrs, K - first_k, K_IS_EVEN
                )  # [BLOCK_M, BLOCK_K], [BLOCK_K, BLOCK_N]
                acc = dot(a, b, acc)
                a_ptrs += BLOCK_K
                b_ptrs += tl.cast(weights_row_stride, tl.int64) * BLOCK_K
        store_product(out_ptr, acc, offs_m, offs_n, end_row, N, N)


def grouped_gemm_config(
    rows_per_expert: int, itemsize: int, target: DeviceTarget
) -> dict[str, int]:
    """Choose tiles by the average rows per expert, so that two programs fit on a multiprocessor."""
    is_amd = target.backend == "hip"
    if itemsize == 4:
        return {
            "BLOCK_M": 64,
            "BLOCK_N": 64,
            "BLOCK_K": 16,
            "num_warps": 8,
            "num_stages": 2 if is_amd else 4,
        }
    if rows_per_expert < 64:
        block_m = min(max(triton.next_power_of_2(rows_per_expert), 16), 64)
        return {
            "BLOCK_M": block_m,
            "BLOCK_N": 128,
            "BLOCK_K": 64,
            "num_warps": 4,
            "num_stages": 2 if is_amd else 4,
        }
    if is_amd:
        return {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64, "num_warps": 4, "num_stages": 2}
    if target.arch == "sm_80":
        return {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 32, "num_warps": 8, "num_stages": 4}
    return {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64, "num_warps": 8, "num_stages": 3}


def _empty_out(tokens: Tensor, weights: Tensor, offsets: Tensor) -> Tensor:
    return tokens.new_empty(tokens.shape[0], weights.shape[2])


@operator("grouped_gemm", _empty_out)
def _grouped_gemm_op(tokens, weights, offsets, out):
    n_rows, K = tokens.shape
    n_experts, _, N = weights.shape
    target = current_target()
    config = grouped_gemm_config(triton.cdiv(n_rows, n_experts), tokens.element_size(), target)
    token_tiles, weight_tiles, is_copied = expert_operands(tokens, weights, config, target)
    most_tiles = most_expert_tiles(n_rows, n_experts, N, config)
    n_programs = persistent_program_count(
        tokens, triton.cdiv(most_tiles, _PROGRAMS_PER_MULTIPROCESSOR)
    )
    _grouped_gemm_kernel[(n_programs * _PROGRAMS_PER_MULTIPROCESSOR,)](
        token_tiles,
        weight_tiles,
        offsets,
        out,
        n_experts,
        N,
        K,
        tokens.stride(0),
        weights.stride(0),
        weights.stride(1),
        EXPERTS=triton.next_power_of_2(max(n_experts, 2)),
        IS_COPIED=is_copied,
        K_IS_EVEN=K % config["BLOCK_K"] == 0,
        **config,
    )


def grouped_gemm_reference(tokens: Tensor, weights: Tensor, offsets: Tensor) -> Tensor:
    """Compute `out[i] = tokens[i] @ weights[e]` for the rows i of expert e, from `offsets[e]` up to
    `offsets[e + 1]`.
    """
    bounds = pairwise(offsets.tolist())
    return torch.cat(
        [tokens[start:end] @ weight for (start, end), weight in zip(bounds, weights, strict=True)]
    )


def _inputs(case: Case, make: InputMaker) -> dict[str, Any]:
    return {
        "tokens": make.terms(case["T"] * case["top_k"], case["ffn"]),
        "weights": make.weights(case["E"], case["ffn"], case["hidden"]),
        "offsets": expert_offsets(chosen_experts(case, make), case["E"]),
    }


def used_experts(case: Case) -> int:
    """Experts with rows: all, unless routing is all_to_one."""
    n_most = case["top_k"] if case.choice("routing") == "all_to_one" else case["E"]
    return min(n_most, case["T"] * case["top_k"])


def grouped_gemm_flop_count(case: Case) -> float:
    """Count a multiplication and an addition per term, for any routing."""
    return 2 * case["T"] * case["top_k"] * case["ffn"] * case["hidden"]


def grouped_gemm_memory_bytes(case: Case) -> float:
    """Reads rows, offsets and the weights of experts with rows; writes results."""
    n_rows = case["T"] * case["top_k"]
    elements = n_rows * (case["ffn"] + case["hidden"])
    elements += used_experts(case) * case["ffn"] * case["hidden"]
    return elements * case.itemsize + 4 * (case["E"] + 1)


# Mixtral's experts fit on one GPU; those of the others are split over 8
EXPERT_WORKLOADS = [
    *expert_tokens([MIXTRAL_8X7B]),
    *expert_tokens([QWEN3_235B_A22B, DEEPSEEK_V3], expert_parallel=8),
]
EXPERT_SHAPE = ("T", "E", "top_k", "hidden", "ffn")

grouped_gemm_spec = KernelSpec(
    name="grouped_gemm",
    family="MoE",
    inputs=_inputs,
    reference=grouped_gemm_reference,
    cases=[
        *small_cases(
            {"T": 256, "E": 8, "top_k": 2, "hidden": 256, "ffn": 512, "routing": "uniform"},
            {"T": 256, "E": 8, "top_k": 2, "hidden": 256, "ffn": 512, "routing": "zipf"},
            dtypes=["bfloat16"],
        ),
        *model_cases(routed(EXPERT_WORKLOADS, *EXPERT_SHAPE)),
    ],
    edges=[
        # few rows per expert; unaligned rows; experts without rows
        *cases(
            shapes=[{"T": 9, "E": 5, "top_k": 2, "hidden": 63, "ffn": 35, "routing": "all_to_one"}],
            dtypes=["float32", "float16", "bfloat16"],
        ),
        *cases(
            shapes=[
                {"T": 1, "E": 1, "top_k": 1, "hidden": 8, "ffn": 16, "routing": "uniform"},
                {"T": 0, "E": 3, "top_k": 1, "hidden": 8, "ffn": 16, "routing": "uniform"},
                {"T": 100, "E": 3, "top_k": 1, "hidden": 131, "ffn": 70, "routing": "zipf"},
            ],
            dtypes=["bfloat16"],
        ),
    ],
    flop_count=grouped_gemm_flop_count,
    memory_bytes=grouped_gemm_memory_bytes,
    token_count=lambda case: case["T"],
    formula="out[i] = tokens[i] @ weights[e] for offsets[e] <= i < offsets[e + 1]",
    source="Gale et al., MegaBlocks: efficient sparse training with mixture-of-experts, 2022 "
    "(arXiv 2211.15841)",
    interpreted_shape={"T": 210, "E": 6, "top_k": 2, "hidden": 136, "ffn": 72},
)


@grouped_gemm_spec.implementation("triton", directions=["fwd"], deterministic=True)
def grouped_gemm(tokens: Tensor, weights: Tensor, offsets: Tensor) -> Tensor:
    """`tokens[i] @ weights[e]` for the rows of each expert e, accumulated in float32.

    Args:
        tokens: [n_rows, K], sorted by expert, contiguous along its last dim.
        weights: [n_experts, K, N] of tokens' dtype, contiguous along its last dim.
        offsets: [n_experts + 1] int32: first row of each expert, and n_rows at the end, as
            `moe_permute` returns them. Rows past the last offset are not written.

    Returns:
        [n_rows, N] in tokens' dtype.
    """
    require_operands("grouped_gemm", dims=2, tokens=tokens)
    require_operands("grouped_gemm", tokens=tokens, weights=weights)
    require_operands("grouped_gemm", dims=3, weights=weights)
    require_integers("grouped_gemm", dtype=torch.int32, dims=1, like=tokens, offsets=offsets)
    require_equal("grouped_gemm", "the dtypes", tokens=tokens.dtype, weights=weights.dtype)
    require_equal(
        "grouped_gemm", "tokens' and weights' K", tokens=tokens.shape[1], weights=weights.shape[1]
    )
    require_equal(
        "grouped_gemm", "the experts", weights=weights.shape[0], offsets=offsets.shape[0] - 1
    )
    return _grouped_gemm_op(tokens, weights, offsets)


@grouped_gemm_spec.implementation("torch", compile=True)
def grouped_gemm_torch(tokens: Tensor, weights: Tensor, offsets: Tensor) -> Tensor:
    if torch.compiler.is_compiling() and tokens.dtype != torch.bfloat16:
        raise UnsupportedError("torch.compile accepts grouped products of bfloat16 only")
    K, N = weights.shape[1:]
    multiple = 16 // tokens.element_size()  # torch requires 16-byte aligned rows
    more_k, more_n = -K % multiple, -N % multiple
    if more_k or more_n:
        tokens = torch.nn.functional.pad(tokens, (0, more_k))
        weights = torch.nn.functional.pad(weights, (0, more_n, 0, more_k))
    if tokens.stride(0) % multiple:
        tokens = tokens.contiguous()
    if weights.stride(1) % multiple or weights.stride(0) % multiple:
        weights = weights.contiguous()
    return torch.nn.functional.grouped_mm(tokens, weights, offs=offsets[1:])[:, :N]


@grouped_gemm_spec.implementation("torch", name="loop")
def _grouped_gemm_loop(tokens: Tensor, weights: Tensor, offsets: Tensor) -> Tensor:
    """Compute one product per expert, as models without a grouped GEMM;
    synchronises with the host.
    """
    out = tokens.new_empty(tokens.shape[0], weights.shape[2])
    for weight, (start, end) in zip(weights, pairwise(offsets.tolist()), strict=True):
        torch.mm(tokens[start:end], weight, out=out[start:end])
    return out

"""Matrix product `a @ b` with few rows, as in decoding, bound by reading b; forward.

Few rows give too few tiles to saturate the memory, so K is split over programs. Each stores a
float32 partial sum, and a second kernel adds them in a fixed order, so the result is deterministic.
b may be a transposed view; it is not copied.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from roofwatch import KernelSpec, cases
from roofwatch.kernels.building_blocks.models import LLAMA_3_1_8B
from roofwatch.kernels.building_blocks.operands import is_stored_transposed
from roofwatch.kernels.building_blocks.operators import operator
from roofwatch.kernels.building_blocks.shapes import (
    model_cases,
    only,
    projections,
    small_cases,
    with_choice,
)
from roofwatch.kernels.building_blocks.target import (
    DeviceTarget,
    current_target,
    multiprocessor_count,
)
from roofwatch.kernels.building_blocks.tiles import product_of, store_product, sum_shares
from roofwatch.kernels.gemm.matmul import (
    empty_product,
    factors,
    matmul_flop_count,
    matmul_memory_bytes,
    matmul_reference,
    require_factors,
)

_PROGRAMS_PER_MULTIPROCESSOR = 2
_MIN_STEPS_PER_SPLIT = 4
"""Fewer would not fill the load pipeline."""


@triton.jit
def _split_kernel(
    a_ptr,
    b_ptr,
    partial_ptr,
    M,
    N,
    K,
    a_row_stride,
    b_row_stride,
    k_per_split,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    B_IS_TRANSPOSED: tl.constexpr,
    K_IS_EVEN: tl.constexpr,
):
    split = tl.program_id(1)
    first_k = split * k_per_split
    offs_m = tl.program_id(2) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    end_k = tl.minimum(first_k + k_per_split, K)
    acc = product_of(
        a_ptr,
        b_ptr,
        offs_m,
        offs_n,
        first_k,
        end_k,
        M,
        N,
        K,
        a_row_stride,
        b_row_stride,
        B_IS_TRANSPOSED,
        K_IS_EVEN,
        BLOCK_K,
    )
    store_product(partial_ptr + split.to(tl.int64) * M * N, acc, offs_m, offs_n, M, N, N)


def matmul_split_k_config(M: int, itemsize: int, target: DeviceTarget) -> dict[str, int]:
    """Choose tiles of b with at least 32 KiB in flight per multiprocessor, which saturates 5 TB/s
    at 800 ns latency.
    """
    block_m = min(max(triton.next_power_of_2(M), 16), 64)
    n_stages = 2 if target.backend == "hip" else 4
    if itemsize == 4:
        return {
            "BLOCK_M": block_m,
            "BLOCK_N": 64,
            "BLOCK_K": 32,
            "num_warps": 4,
            "num_stages": n_stages,
        }
    return {
        "BLOCK_M": block_m,
        "BLOCK_N": 128,
        "BLOCK_K": 64,
        "num_warps": 4,
        "num_stages": n_stages,
    }


def split_length(K: int, block_k: int, n_tiles: int, n_multiprocessors: int) -> int:
    """Columns of a per program, in whole blocks, with `_PROGRAMS_PER_MULTIPROCESSOR` programs per
    multiprocessor.
    """
    n_steps = triton.cdiv(K, block_k)
    n_useful_splits = n_multiprocessors * _PROGRAMS_PER_MULTIPROCESSOR // n_tiles
    n_splits = max(1, min(n_useful_splits, n_steps // _MIN_STEPS_PER_SPLIT))
    return int(triton.cdiv(n_steps, n_splits)) * block_k


@operator("matmul_split_k", empty_product)
def _matmul_split_k_op(a, b, out):
    M, K = a.shape
    N = b.shape[1]
    if not K:
        out.zero_()
        return
    is_transposed = is_stored_transposed(b)
    config = matmul_split_k_config(M, a.element_size(), current_target())
    n_tiles_m, n_tiles_n = triton.cdiv(M, config["BLOCK_M"]), triton.cdiv(N, config["BLOCK_N"])
    k_per_split = split_length(K, config["BLOCK_K"], n_tiles_m * n_tiles_n, multiprocessor_count(a))
    n_splits = triton.cdiv(K, k_per_split)
    # one split writes its product at once
    partials = out
    if n_splits > 1:
        partials = a.new_empty(n_splits, M, N, dtype=torch.float32)
    _split_kernel[(n_tiles_n, n_splits, n_tiles_m)](
        a,
        b,
        partials,
        M,
        N,
        K,
        a.stride(0),
        b.stride(1 if is_transposed else 0),
        k_per_split,
        B_IS_TRANSPOSED=is_transposed,
        K_IS_EVEN=K % config["BLOCK_K"] == 0,
        **config,
    )
    if n_splits > 1:
        sum_shares(partials, out)


_DECODE = only(projections(), "decode")

matmul_split_k_spec = KernelSpec(
    name="matmul_split_k",
    family="GEMM",
    inputs=factors,
    reference=matmul_reference,
    cases=[
        *small_cases({"M": 16, "N": 2048, "K": 2048}),
        *model_cases(_DECODE),
        # a single sequence
        *cases(
            shapes=[
                dict(workload.shape)
                for workload in with_choice(only(projections([LLAMA_3_1_8B]), "decode", "tp1"), M=1)
            ],
            dtypes=["bfloat16"],
            tags=["full", "decode", *LLAMA_3_1_8B.tags, "tp1"],
        ),
    ],
    edges=[
        *cases(shapes=[{"M": 1, "N": 63, "K": 1000}], dtypes=["float32", "float16"]),
        # one split, and more rows than a tile
        *cases(
            shapes=[{"M": 3, "N": 129, "K": 8}, {"M": 65, "N": 40, "K": 515}], dtypes=["bfloat16"]
        ),
        *cases(shapes=[{"M": 0, "N": 63, "K": 16}, {"M": 3, "N": 0, "K": 16}], dtypes=["bfloat16"]),
    ],
    flop_count=matmul_flop_count,
    memory_bytes=matmul_memory_bytes,
    formula="out = a @ b, K split among programs",
    source="Kerr et al., CUTLASS: fast linear algebra in CUDA C++, 2017 (parallel reduction over "
    "K)",
    interpreted_shape={"M": 20, "N": 200, "K": 1100},
)


@matmul_split_k_spec.implementation("triton", directions=["fwd"], deterministic=True)
def matmul_split_k(a: Tensor, b: Tensor) -> Tensor:
    """Compute `a @ b`, accumulated in float32. Meant for M up to 64; each further tile of rows
    reads b again.

    Args:
        a: [M, K], contiguous along its last dim.
        b: [K, N] of a's dtype, contiguous along one of its dims.

    Returns:
        [M, N] in a's dtype.
    """
    require_factors("matmul_split_k", a, b)
    return _matmul_split_k_op(a, b)


@matmul_split_k_spec.implementation("torch", compile=True)
def _matmul_split_k_torch(a: Tensor, b: Tensor) -> Tensor:
    return a @ b

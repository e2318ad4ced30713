"""Product of a block-sparse weight in BSR format and a dense matrix, forward.

Only nonzero square blocks are stored, by rows, with row pointers and column indices. A program
computes one tile of the result and iterates over the blocks of its row.

Source: Gray, Radford and Kingma, GPU Kernels for Block-Sparse Weights, 2017.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from roofwatch import Case, InputMaker, KernelSpec, UnsupportedError, cases
from roofwatch.kernels.building_blocks.errors import KernelError
from roofwatch.kernels.building_blocks.models import LLAMA_3_1_8B, LLAMA_3_1_70B
from roofwatch.kernels.building_blocks.operands import (
    require_contiguous,
    require_equal,
    require_integers,
    require_operands,
)
from roofwatch.kernels.building_blocks.operators import operator
from roofwatch.kernels.building_blocks.shapes import (
    model_cases,
    only,
    small_cases,
    weights_first,
    with_choice,
)
from roofwatch.kernels.building_blocks.target import DeviceTarget, current_target
from roofwatch.kernels.building_blocks.tiles import dot, tile_of

BLOCK_SIZES = (32, 64, 128)
_MAX_BLOCK_K = 64


@triton.jit
def _block_sparse_matmul_kernel(
    blocks_ptr,
    row_pointers_ptr,
    column_indices_ptr,
    x_ptr,
    out_ptr,
    n_block_rows,
    N,
    x_row_stride,
    out_row_stride,
    BLOCK: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    block_row, tile_n = tile_of(tl.program_id(0), n_block_rows, tl.cdiv(N, BLOCK_N))
    offs_m = tl.arange(0, BLOCK)
    offs_n = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    offs_k = tl.arange(0, BLOCK_K)
    first = tl.load(row_pointers_ptr + block_row)
    last = tl.load(row_pointers_ptr + block_row + 1)
    steps_per_block: tl.constexpr = BLOCK // BLOCK_K
    block_ptrs = blocks_ptr + offs_m[:, None] * BLOCK + offs_k[None, :]
    # columns past the end wrap around and are not stored
    x_ptrs = x_ptr + offs_k.to(tl.int64)[:, None] * x_row_stride + (offs_n % N)[None, :]
    acc = tl.zeros((BLOCK, BLOCK_N), tl.float32)
    for step in range(first * steps_per_block, last * steps_per_block):
        block = step // steps_per_block
        k_in_block = step % steps_per_block * BLOCK_K
        column = tl.load(column_indices_ptr + block).to(tl.int64) * BLOCK + k_in_block
        weight = tl.load(
            block_ptrs + block.to(tl.int64) * (BLOCK * BLOCK) + k_in_block
        )  # [BLOCK, BLOCK_K]
        x = tl.load(x_ptrs + column * x_row_stride)  # [BLOCK_K, BLOCK_N]
        acc = dot(weight, x, acc)
    out_rows = block_row.to(tl.int64) * BLOCK + offs_m
    out_ptrs = out_ptr + out_rows[:, None] * out_row_stride + offs_n[None, :]
    tl.store(
        out_ptrs, acc.to(out_ptr.dtype.element_ty), mask=(offs_n < N)[None, :]
    )  # [BLOCK, BLOCK_N]


def block_sparse_matmul_config(
    block: int, N: int, itemsize: int, target: DeviceTarget
) -> dict[str, int]:
    """Choose tiles of one block by up to 128 columns, narrower for float32.

    On NVIDIA two of the stages cover the latency of the column index.
    """
    block_n = min(max(triton.next_power_of_2(N), 16), 128 if itemsize == 2 else 64)
    block_k = min(block, _MAX_BLOCK_K if itemsize == 2 else 16)
    return {
        "BLOCK_N": block_n,
        "BLOCK_K": block_k,
        "num_warps": 8 if block * block_n > 64 * 128 else 4,
        "num_stages": 3 if target.backend == "hip" else 5,
    }


def _empty_out(blocks: Tensor, row_pointers: Tensor, column_indices: Tensor, x: Tensor) -> Tensor:
    return x.new_empty((row_pointers.shape[0] - 1) * blocks.shape[-1], x.shape[1])


@operator("block_sparse_matmul", _empty_out)
def _block_sparse_matmul_op(blocks, row_pointers, column_indices, x, out):
    block, N = blocks.shape[-1], x.shape[1]
    n_block_rows = row_pointers.shape[0] - 1
    config = block_sparse_matmul_config(block, N, x.element_size(), current_target())
    _block_sparse_matmul_kernel[(n_block_rows * triton.cdiv(N, config["BLOCK_N"]),)](
        blocks,
        row_pointers,
        column_indices,
        x,
        out,
        n_block_rows,
        N,
        x.stride(0),
        out.stride(0),
        BLOCK=block,
        **config,
    )


def unfold_blocks(
    blocks: Tensor, row_pointers: Tensor, column_indices: Tensor, n_columns: int
) -> Tensor:
    """Return the dense weight [M, n_columns]."""
    block, n_block_rows = blocks.shape[-1], row_pointers.shape[0] - 1
    rows = torch.repeat_interleave(
        torch.arange(n_block_rows, device=blocks.device), row_pointers.diff()
    )
    weight = blocks.new_zeros(n_block_rows, n_columns // block, block, block)
    weight[rows, column_indices.long()] = blocks
    return weight.transpose(1, 2).reshape(n_block_rows * block, n_columns)


def block_sparse_matmul_reference(
    blocks: Tensor, row_pointers: Tensor, column_indices: Tensor, x: Tensor, weight: Tensor
) -> Tensor:
    """Compute `out[m, n] = sum over k of weight[m, k] * x[k, n]`, with the dense weight."""
    return torch.einsum(
        "mk,kn->mn", unfold_blocks(blocks, row_pointers, column_indices, x.shape[0]), x
    )


def _kept_count(case: Case) -> int:
    """Number of stored blocks: `percent` of all, at least one."""
    n_all = case["M"] // case["block"] * (case["K"] // case["block"])
    return max(n_all * case["percent"] // 100, min(n_all, 1))


def _inputs(case: Case, make: InputMaker) -> dict[str, Any]:
    block, K = case["block"], case["K"]
    n_rows, n_columns, n_kept = case["M"] // block, K // block, _kept_count(case)
    stored_positions = make.permutation(n_rows * n_columns)[:n_kept].sort().values
    row_lengths = torch.bincount(stored_positions // n_columns, minlength=n_rows)
    row_pointers = torch.nn.functional.pad(row_lengths.cumsum(0), (1, 0)).int()
    column_indices = (stored_positions % n_columns).int()
    blocks = make.normal(n_kept, block, block)
    return {
        "blocks": blocks,
        "row_pointers": row_pointers,
        "column_indices": column_indices,
        "x": make.terms(K, case["N"]),
        "weight": unfold_blocks(blocks, row_pointers, column_indices, K),
    }


def block_sparse_matmul_flop_count(case: Case) -> float:
    """Count a multiplication and an addition per stored weight and column of x."""
    return 2 * _kept_count(case) * case["block"] ** 2 * case["N"]


def block_sparse_matmul_memory_bytes(case: Case) -> float:
    """Reads the stored blocks, 4-byte column indices and row pointers, and x once; writes the
    product.
    """
    M, N, K, block = case["M"], case["N"], case["K"], case["block"]
    n_kept = _kept_count(case)
    return (n_kept * block**2 + K * N + M * N) * case.itemsize + 4 * (n_kept + M // block + 1)


block_sparse_matmul_spec = KernelSpec(
    name="block_sparse_matmul",
    family="sparsity",
    inputs=_inputs,
    reference=block_sparse_matmul_reference,
    cases=[
        *small_cases({"M": 1024, "N": 256, "K": 1024, "block": 64, "percent": 20}),
        *model_cases(
            with_choice(
                only(weights_first([LLAMA_3_1_8B, LLAMA_3_1_70B]), "tp1"), block=64, percent=20
            )
            + with_choice(
                only(weights_first([LLAMA_3_1_8B]), "tp1", "prefill"), block=128, percent=20
            )
        ),
    ],
    edges=[
        # rows without a block
        *cases(
            shapes=[{"M": 384, "N": 70, "K": 128, "block": 64, "percent": 15}],
            dtypes=["float16", "float32"],
        ),
        *cases(
            shapes=[
                {"M": 128, "N": 1, "K": 256, "block": 128, "percent": 100},
                {"M": 64, "N": 63, "K": 96, "block": 32, "percent": 50},
                {"M": 0, "N": 5, "K": 64, "block": 64, "percent": 20},
                {"M": 64, "N": 0, "K": 64, "block": 64, "percent": 20},
            ],
            dtypes=["bfloat16"],
        ),
    ],
    flop_count=block_sparse_matmul_flop_count,
    memory_bytes=block_sparse_matmul_memory_bytes,
    formula="out = weight @ x with a block-sparse weight",
    source="Gray, Radford and Kingma, GPU Kernels for Block-Sparse Weights, 2017",
    interpreted_shape={"M": 256, "N": 140, "K": 384, "percent": 30},
)


def block_sparse_matmul(
    blocks: Tensor, row_pointers: Tensor, column_indices: Tensor, x: Tensor
) -> Tensor:
    """Compute `weight @ x` from the nonzero blocks of the weight, accumulated in float32.

    Args:
        blocks: [n_blocks, block, block], contiguous, sorted by row; block is one of `BLOCK_SIZES`.
        row_pointers: [M / block + 1] int32, contiguous: first block of each row of blocks, and the
            total.
        column_indices: [n_blocks] int32, contiguous: block column of each block, below K / block.
        x: [K, N] of blocks' dtype, contiguous along its last dim, K a multiple of block.

    Returns:
        [M, N] in blocks' dtype.
    """
    name = "block_sparse_matmul"
    require_operands(name, blocks=blocks, x=x)
    require_operands(name, dims=3, blocks=blocks)
    require_operands(name, dims=2, x=x)
    require_equal(name, "the dtypes", blocks=blocks.dtype, x=x.dtype)
    require_integers(
        name,
        dtype=torch.int32,
        dims=1,
        like=blocks,
        row_pointers=row_pointers,
        column_indices=column_indices,
    )
    n_blocks, height, width = blocks.shape
    if height != width or width not in BLOCK_SIZES:
        sizes = ", ".join(map(str, BLOCK_SIZES))
        raise KernelError(
            f"{name}: blocks of {height} x {width} are not supported; use square blocks of {sizes}"
        )
    require_contiguous(name, blocks=blocks)
    if x.shape[0] % width:
        raise KernelError(
            f"{name}: x has {x.shape[0]} rows; pad it and the weight to a multiple of {width}"
        )
    require_equal(
        name, "blocks and column indices", blocks=n_blocks, column_indices=column_indices.shape[0]
    )
    if not row_pointers.shape[0]:
        raise KernelError(
            f"{name}: row_pointers is empty; pass torch.zeros(1) for a weight without rows"
        )
    return _block_sparse_matmul_op(blocks, row_pointers, column_indices, x)


@block_sparse_matmul_spec.implementation("triton", directions=["fwd"], deterministic=True)
def _block_sparse_matmul_triton(
    blocks: Tensor, row_pointers: Tensor, column_indices: Tensor, x: Tensor, weight: Tensor
) -> Tensor:
    return block_sparse_matmul(blocks, row_pointers, column_indices, x)


@block_sparse_matmul_spec.implementation("torch", directions=["fwd"], compile=True)
def _block_sparse_matmul_dense(
    blocks: Tensor, row_pointers: Tensor, column_indices: Tensor, x: Tensor, weight: Tensor
) -> Tensor:
    return weight @ x


@block_sparse_matmul_spec.implementation("torch", name="bsr", directions=["fwd"])
def _block_sparse_matmul_bsr(
    blocks: Tensor, row_pointers: Tensor, column_indices: Tensor, x: Tensor, weight: Tensor
) -> Tensor:
    sparse = torch.sparse_bsr_tensor(
        row_pointers, column_indices, blocks, size=weight.shape, check_invariants=False
    )
    try:
        product: Tensor = sparse @ x
    except RuntimeError as error:
        if isinstance(error, NotImplementedError) or "MKL" in str(error):
            raise UnsupportedError(
                f"torch cannot multiply blocks of {blocks.dtype} here: {error}"
            ) from error
        raise
    return product

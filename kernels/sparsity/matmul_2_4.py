"""Product of a 2:4 sparse weight (two nonzeros of every four in a row) and a dense matrix, forward.

The weight is compressed: the two values of each group of four, and four bits for their positions. A
program expands a tile in registers and multiplies it as a dense one, so it reads 9/16 of the bytes
in half precision, which bound decoding. Triton has no instruction for sparse tensor cores; the
vendor's path, `semi_structured`, uses them.

Source: Mishra et al., Accelerating Sparse Deep Neural Networks, 2021 (arXiv 2104.08378).
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from roofwatch import Case, InputMaker, KernelSpec, UnsupportedError, cases
from roofwatch.kernels.building_blocks.errors import KernelError
from roofwatch.kernels.building_blocks.models import LLAMA_3_1_8B, LLAMA_3_1_70B
from roofwatch.kernels.building_blocks.operands import (
    require_equal,
    require_integers,
    require_operands,
)
from roofwatch.kernels.building_blocks.operators import operator
from roofwatch.kernels.building_blocks.shapes import model_cases, small_cases, weights_first
from roofwatch.kernels.building_blocks.tiles import dot, store_product, tile_of

_K_PER_BYTE = 8
"""Dense columns per byte of metadata."""
_KEPT_PAIRS = ((0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3))


@triton.jit
def _matmul_2_4_kernel(
    values_ptr,
    metadata_ptr,
    x_ptr,
    out_ptr,
    M,
    N,
    K,
    values_row_stride,
    metadata_row_stride,
    x_row_stride,
    out_row_stride,
    K_IS_EVEN: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    tile_m, tile_n = tile_of(tl.program_id(0), tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N))
    offs_m = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    offs_k = tl.arange(0, BLOCK_K)
    offs_kept = tl.arange(0, BLOCK_K // 2)
    offs_byte = tl.arange(0, BLOCK_K // 8)
    # rows and columns past the end wrap around and are not stored
    rows = (offs_m % M).to(tl.int64)[:, None]
    values_ptrs = values_ptr + rows * values_row_stride + offs_kept[None, :]
    metadata_ptrs = metadata_ptr + rows * metadata_row_stride + offs_byte[None, :]
    x_ptrs = x_ptr + offs_k.to(tl.int64)[:, None] * x_row_stride + (offs_n % N)[None, :]
    x_step = tl.cast(x_row_stride, tl.int64) * BLOCK_K
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, K, BLOCK_K):
        if K_IS_EVEN:
            values = tl.load(values_ptrs)  # [BLOCK_M, BLOCK_K / 2]
            metadata = tl.load(metadata_ptrs)  # [BLOCK_M, BLOCK_K / 8]
            x = tl.load(x_ptrs)  # [BLOCK_K, BLOCK_N]
        else:
            mask_kept = (offs_kept < (K - start) // 2)[None, :]
            values = tl.load(values_ptrs, mask=mask_kept, other=0.0)  # [BLOCK_M, BLOCK_K / 2]
            mask_byte = (offs_byte < (K - start) // 8)[None, :]
            metadata = tl.load(metadata_ptrs, mask=mask_byte, other=0)  # [BLOCK_M, BLOCK_K / 8]
            x = tl.load(x_ptrs, mask=(offs_k < K - start)[:, None], other=0.0)  # [BLOCK_K, BLOCK_N]
        acc = dot(_unfolded(values, metadata, BLOCK_M, BLOCK_K), x, acc)
        values_ptrs += BLOCK_K // 2
        metadata_ptrs += BLOCK_K // 8
        x_ptrs += x_step
    store_product(out_ptr, acc, offs_m, offs_n, M, N, out_row_stride)


@triton.jit
def _unfolded(values, metadata, BLOCK_M: tl.constexpr, BLOCK_K: tl.constexpr):
    """Return the dense tile, with each pair of values at the two positions in the metadata."""
    first, second = values.reshape(BLOCK_M, BLOCK_K // 4, 2).split()
    places = tl.interleave(metadata & 15, metadata >> 4)  # [BLOCK_M, BLOCK_K / 4]
    first_place, second_place = places & 3, places >> 2
    zero = tl.zeros_like(first)
    at_0 = tl.where(
        first_place == 0, first, zero
    )  # the first is never last, the second never first
    at_1 = tl.where(first_place == 1, first, tl.where(second_place == 1, second, zero))
    at_2 = tl.where(first_place == 2, first, tl.where(second_place == 2, second, zero))
    at_3 = tl.where(second_place == 3, second, zero)
    return tl.interleave(tl.interleave(at_0, at_2), tl.interleave(at_1, at_3))


def matmul_2_4_config(N: int) -> dict[str, int]:
    """Choose short, deep tiles for few columns, to load the weight with more programs, else the
    largest.
    """
    if N <= 64:
        block_n = max(triton.next_power_of_2(N), 16)
        return {"BLOCK_M": 32, "BLOCK_N": block_n, "BLOCK_K": 128, "num_warps": 4, "num_stages": 3}
    return {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64, "num_warps": 8, "num_stages": 3}


def _empty_out(values: Tensor, metadata: Tensor, x: Tensor) -> Tensor:
    return values.new_empty(values.shape[0], x.shape[1])


@operator("matmul_2_4", _empty_out)
def _matmul_2_4_op(values, metadata, x, out):
    M, (K, N) = values.shape[0], x.shape
    config = matmul_2_4_config(N)
    grid = (triton.cdiv(M, config["BLOCK_M"]) * triton.cdiv(N, config["BLOCK_N"]),)
    _matmul_2_4_kernel[grid](
        values,
        metadata,
        x,
        out,
        M,
        N,
        K,
        values.stride(0),
        metadata.stride(0),
        x.stride(0),
        out.stride(0),
        K_IS_EVEN=K % config["BLOCK_K"] == 0,
        **config,
    )


def unfold_2_4(values: Tensor, metadata: Tensor) -> Tensor:
    """Return the dense weight [M, K] of values [M, K / 2] and metadata [M, K / 8]."""
    M, n_kept = values.shape
    group_bits = torch.stack([metadata & 15, metadata >> 4], dim=-1).reshape(M, n_kept // 2)
    places = torch.stack([group_bits & 3, group_bits >> 2], dim=-1).long()
    groups = values.new_zeros(M, n_kept // 2, 4)
    return groups.scatter(2, places, values.reshape(M, n_kept // 2, 2)).reshape(M, 2 * n_kept)


def matmul_2_4_reference(values: Tensor, metadata: Tensor, x: Tensor, weight: Tensor) -> Tensor:
    """Compute `out[m, n] = sum over k of weight[m, k] * x[k, n]`, with the dense weight."""
    return torch.einsum("mk,kn->mn", unfold_2_4(values, metadata), x)


def _inputs(case: Case, make: InputMaker) -> dict[str, Any]:
    M, N, K = case["M"], case["N"], case["K"]
    bits = torch.tensor(
        [first | second << 2 for first, second in _KEPT_PAIRS],
        dtype=torch.uint8,
        device=make.device,
    )
    low, high = (
        bits[make.integers(M, K // 4, high=len(_KEPT_PAIRS), dtype="int32")]
        .reshape(M, K // 8, 2)
        .unbind(-1)
    )
    values, metadata = make.normal(M, K // 2), low | high << 4
    return {
        "values": values,
        "metadata": metadata,
        "x": make.terms(K, N),
        "weight": unfold_2_4(values, metadata),
    }


def matmul_2_4_flop_count(case: Case) -> float:
    """Count a multiplication and an addition for each of the M * N * K / 2 nonzero terms.

    The Triton kernel multiplies the zeros too, so it reaches at most half of the roofline.
    """
    return case["M"] * case["N"] * case["K"]


def matmul_2_4_memory_bytes(case: Case) -> float:
    """Reads the values, a byte of metadata per eight columns and x; writes the product."""
    M, N, K = case["M"], case["N"], case["K"]
    return (M * K // 2 + K * N + M * N) * case.itemsize + M * K // _K_PER_BYTE


matmul_2_4_spec = KernelSpec(
    name="matmul_2_4",
    family="sparsity",
    inputs=_inputs,
    reference=matmul_2_4_reference,
    cases=[
        *small_cases({"M": 1024, "N": 256, "K": 1024}, dtypes=["bfloat16"]),
        *model_cases(weights_first([LLAMA_3_1_8B, LLAMA_3_1_70B])),
    ],
    edges=[
        *cases(shapes=[{"M": 63, "N": 100, "K": 200}], dtypes=["float16", "bfloat16"]),
        *cases(
            shapes=[{"M": 1, "N": 1, "K": 8}, {"M": 0, "N": 3, "K": 8}, {"M": 3, "N": 0, "K": 8}],
            dtypes=["float16"],
        ),
    ],
    flop_count=matmul_2_4_flop_count,
    memory_bytes=matmul_2_4_memory_bytes,
    formula="out = weight @ x with two of every four weights of a row zero",
    source="Mishra et al., Accelerating Sparse Deep Neural Networks, 2021 (arXiv 2104.08378)",
    interpreted_shape={"M": 150, "N": 140, "K": 136},
)


def matmul_2_4(values: Tensor, metadata: Tensor, x: Tensor) -> Tensor:
    """Compute `weight @ x` from a compressed 2:4 sparse weight, accumulated in float32.

    Args:
        values: [M, K / 2] of float16 or bfloat16, contiguous along its last dim: the two nonzeros
            of each four.
        metadata: [M, K / 8] uint8, contiguous: four bits for each group of four columns, low bits
            first. The lower two bits are the position of the first value, the upper two that of the
            second, which is larger.
        x: [K, N] of values' dtype, contiguous along its last dim, K a multiple of 8.

    Returns:
        [M, N] in values' dtype.
    """
    require_operands("matmul_2_4", dims=2, values=values, x=x)
    require_equal("matmul_2_4", "the dtypes", values=values.dtype, x=x.dtype)
    if values.dtype == torch.float32:
        raise KernelError(
            "matmul_2_4: values is torch.float32, must be float16 or bfloat16; call "
            "values.bfloat16()"
        )
    require_integers("matmul_2_4", dtype=torch.uint8, dims=2, like=values, metadata=metadata)
    M, (K, _) = values.shape[0], x.shape
    if K % _K_PER_BYTE:
        raise KernelError(
            f"matmul_2_4: x has {K} rows; pad it and the weight to a multiple of {_K_PER_BYTE}"
        )
    require_equal(
        "matmul_2_4", "the shapes of values", expected=(M, K // 2), values=tuple(values.shape)
    )
    require_equal(
        "matmul_2_4", "the shapes of metadata", expected=(M, K // 8), metadata=tuple(metadata.shape)
    )
    return _matmul_2_4_op(values, metadata, x)


@matmul_2_4_spec.implementation("triton", directions=["fwd"], deterministic=True)
def _matmul_2_4_triton(values: Tensor, metadata: Tensor, x: Tensor, weight: Tensor) -> Tensor:
    return matmul_2_4(values, metadata, x)


@matmul_2_4_spec.implementation("torch", directions=["fwd"], compile=True)
def _matmul_2_4_dense(values: Tensor, metadata: Tensor, x: Tensor, weight: Tensor) -> Tensor:
    return weight @ x


_semi_structured = WeakTensorKeyDictionary()
"""The vendor's format by weight, converted once; freed with the weight."""


@matmul_2_4_spec.implementation("torch", name="semi_structured", directions=["fwd"])
def _matmul_2_4_vendor(values: Tensor, metadata: Tensor, x: Tensor, weight: Tensor) -> Tensor:
    if not weight.is_cuda:
        raise UnsupportedError(
            "needs a GPU with sparse tensor cores, of compute capability 8.0 or newer"
        )
    if weight not in _semi_structured:
        try:
            _semi_structured[weight] = torch.sparse.to_sparse_semi_structured(weight)
        except torch.OutOfMemoryError:
            raise
        except (RuntimeError, ValueError) as error:
            raise UnsupportedError(f"torch cannot compress this weight here: {error}") from error
    product: Tensor = _semi_structured[weight] @ x
    return product

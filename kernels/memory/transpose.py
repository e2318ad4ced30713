"""Transpose of a matrix, materialised.

Triton transposes each tile in shared memory, so loads and stores both use whole cache lines.

Source: Ruetsch and Micikevicius, Optimizing Matrix Transpose in CUDA, 2009.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from roofwatch import Case, InputMaker, KernelSpec, cases
from roofwatch.kernels.building_blocks.operators import operator
from roofwatch.kernels.building_blocks.tiles import tile_of
from roofwatch.kernels.operands import require_operands
from roofwatch.kernels.shapes import model_cases, weight_matrices


@triton.jit
def _transpose_kernel(
    x_ptr,
    out_ptr,
    x_row_stride,
    out_row_stride,
    M,
    N,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    GROUP_M: tl.constexpr,
):
    tile_m, tile_n = tile_of(tl.program_id(0), tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N), GROUP_M)
    offs_m = tile_m.to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tile_n.to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    mask_m = offs_m < M
    mask_n = offs_n < N
    x_ptrs = x_ptr + offs_m[:, None] * x_row_stride + offs_n[None, :]
    x = tl.load(x_ptrs, mask=mask_m[:, None] & mask_n[None, :])  # [BLOCK_M, BLOCK_N]
    out_ptrs = out_ptr + offs_n[:, None] * out_row_stride + offs_m[None, :]
    tl.store(out_ptrs, tl.trans(x), mask=mask_n[:, None] & mask_m[None, :])  # [BLOCK_N, BLOCK_M]


def transpose_config() -> dict[str, int]:
    """Tiles of 64 x 64: a cache line of 128 bytes in half precision, two in float32."""
    return {"BLOCK_M": 64, "BLOCK_N": 64, "GROUP_M": 8, "num_warps": 4}


def _empty_out(x: Tensor) -> Tensor:
    M, N = x.shape
    return x.new_empty(N, M)


@operator("transpose", _empty_out)
def _transpose_op(x, out):
    M, N = x.shape
    config = transpose_config()
    grid = (triton.cdiv(M, config["BLOCK_M"]) * triton.cdiv(N, config["BLOCK_N"]),)
    _transpose_kernel[grid](x, out, x.stride(0), out.stride(0), M, N, **config)


def transpose_reference(x: Tensor) -> Tensor:
    """Compute `out[n, m] = x[m, n]`."""
    return torch.einsum("mn->nm", x).contiguous()


def _inputs(case: Case, make: InputMaker) -> dict[str, Any]:
    return {"x": make.normal(case["M"], case["N"])}


def transpose_flop_count(case: Case) -> float:
    """Nothing is computed."""
    return 0


def transpose_memory_bytes(case: Case) -> float:
    """Reads x and writes out."""
    return 2 * case["M"] * case["N"] * case.itemsize


transpose_spec = KernelSpec(
    name="transpose",
    family="memory",
    inputs=_inputs,
    reference=transpose_reference,
    cases=[
        *cases(shapes=[{"M": 1024, "N": 2048}], dtypes=["float32", "bfloat16"], tags=["small"]),
        *model_cases(weight_matrices()),
    ],
    edges=[
        *cases(shapes=[{"M": 63, "N": 1000}, {"M": 1, "N": 63}, {"M": 63, "N": 1}, {"M": 0, "N": 5}]),
        *cases(shapes=[{"M": 130, "N": 65}], dtypes=["float16", "bfloat16"]),
    ],
    flop_count=transpose_flop_count,
    memory_bytes=transpose_memory_bytes,
    formula="out[n, m] = x[m, n]",
    source="Ruetsch and Micikevicius, Optimizing Matrix Transpose in CUDA, 2009",
    interpreted_shape={"M": 600, "N": 140},
)


@transpose_spec.implementation("triton", directions=["fwd"], deterministic=True)
def transpose(x: Tensor) -> Tensor:
    """Compute `out[n, m] = x[m, n]`, a contiguous copy.

    Args:
        x: [M, N], contiguous along its last dim.

    Returns:
        [N, M] in x's dtype.
    """
    require_operands("transpose", dims=2, x=x)
    return _transpose_op(x)


@transpose_spec.implementation("torch", directions=["fwd"], compile=True)
def _transpose_torch(x: Tensor) -> Tensor:
    return x.t().contiguous()

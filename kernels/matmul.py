"""Matrix product `a @ b` with a float32 accumulator, forward.

Programs are numbered so that those that run together work on a block of `GROUP_M` rows of tiles and share their
columns of b in the L2 cache.
"""

from typing import Any

import torch
import triton
import triton.language as tl

from kernels.dots import dot
from kernels.operands import refuse_gradients, require_equal, require_operands
from roofwatch import Case, InputMaker, KernelSpec, cases


@triton.jit
def _matmul_kernel(
    a_ptr,
    b_ptr,
    out_ptr,
    M,
    N,
    K,
    a_row_stride,
    b_row_stride,
    out_row_stride,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
):
    program = tl.program_id(0)
    n_tiles_m = tl.cdiv(M, BLOCK_M)
    n_tiles_n = tl.cdiv(N, BLOCK_N)
    group = program // (GROUP_M * n_tiles_n)
    first_tile_m = group * GROUP_M
    group_rows = tl.minimum(n_tiles_m - first_tile_m, GROUP_M)  # the last group may have fewer
    in_group = program % (GROUP_M * n_tiles_n)
    offs_m = (first_tile_m + in_group % group_rows) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = (in_group // group_rows) * BLOCK_N + tl.arange(0, BLOCK_N)
    offs_k = tl.arange(0, BLOCK_K)
    mask_m = offs_m < M
    mask_n = offs_n < N

    a_ptrs = a_ptr + offs_m.to(tl.int64)[:, None] * a_row_stride + offs_k[None, :]
    b_ptrs = b_ptr + offs_k.to(tl.int64)[:, None] * b_row_stride + offs_n[None, :]
    b_step = tl.cast(b_row_stride, tl.int64) * BLOCK_K
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, K, BLOCK_K):
        mask_k = offs_k < K - start
        a = tl.load(a_ptrs, mask=mask_m[:, None] & mask_k[None, :], other=0.0)  # [BLOCK_M, BLOCK_K]
        b = tl.load(b_ptrs, mask=mask_k[:, None] & mask_n[None, :], other=0.0)  # [BLOCK_K, BLOCK_N]
        acc = dot(a, b, acc)
        a_ptrs += BLOCK_K
        b_ptrs += b_step
    out_ptrs = out_ptr + offs_m.to(tl.int64)[:, None] * out_row_stride + offs_n[None, :]
    mask_out = mask_m[:, None] & mask_n[None, :]
    tl.store(out_ptrs, acc.to(out_ptr.dtype.element_ty), mask=mask_out)  # [BLOCK_M, BLOCK_N]


def matmul_config(M: int, N: int, itemsize: int) -> dict[str, int]:
    """The largest tiles tried that spill no register and fit the shared memory of all six targets.

    Float32 products, which take three, need small ones; so does a small result, to give every multiprocessor one.
    """
    if itemsize == 4:
        return {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 16, "GROUP_M": 8, "num_warps": 8, "num_stages": 4}
    if M * N <= 512 * 512:
        return {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32, "GROUP_M": 8, "num_warps": 4, "num_stages": 4}
    return {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 32, "GROUP_M": 8, "num_warps": 8, "num_stages": 4}


def matmul_reference(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The formula, `out[m, n] = sum over k of a[m, k] * b[k, n]`."""
    return torch.einsum("mk,kn->mn", a, b)


def _inputs(case: Case, make: InputMaker) -> dict[str, Any]:
    return {"a": make.normal(case["M"], case["K"]), "b": make.normal(case["K"], case["N"])}


def matmul_flop_count(case: Case) -> float:
    """One multiplication and one addition for each of M * N * K terms."""
    return 2 * case["M"] * case["N"] * case["K"]


def matmul_memory_bytes(case: Case) -> float:
    """Reads a and b once each and writes the product."""
    M, N, K = case["M"], case["N"], case["K"]
    return (M * K + K * N + M * N) * case.itemsize


matmul_spec = KernelSpec(
    name="matmul",
    family="matrix product",
    inputs=_inputs,
    reference=matmul_reference,
    cases=[
        *cases(shapes=[{"M": 1024, "N": 1024, "K": 1024}], dtypes=["float32", "bfloat16"]),
        *cases(shapes=[{"M": 63, "N": 1000, "K": 515}], dtypes=["float32"]),
    ],
    flop_count=matmul_flop_count,
    memory_bytes=matmul_memory_bytes,
    interpreted_shape={"M": 200, "N": 150, "K": 130},
)


@matmul_spec.implementation("triton", directions=["fwd"])
def matmul(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """`a @ b`, accumulated in float32.

    Args:
        a: [M, K], contiguous along its last dim.
        b: [K, N] of a's dtype, contiguous along its last dim.

    Returns:
        [M, N] in a's dtype.

    Raises:
        KernelError: an operand has another layout, shape or dtype, or requires a gradient.
    """
    require_operands("matmul", dims=2, a=a, b=b)
    require_equal("matmul", "the dtypes", a=a.dtype, b=b.dtype)
    require_equal("matmul", "a's columns and b's rows", a=a.shape[1], b=b.shape[0])
    refuse_gradients("matmul", a=a, b=b)
    M, K = a.shape
    N = b.shape[1]
    out = a.new_empty(M, N)
    if not out.numel():
        return out  # a grid of no programs cannot be launched
    config = matmul_config(M, N, a.element_size())
    grid = (triton.cdiv(M, config["BLOCK_M"]) * triton.cdiv(N, config["BLOCK_N"]),)
    with torch.cuda.device_of(a):
        _matmul_kernel[grid](a, b, out, M, N, K, a.stride(0), b.stride(0), out.stride(0), **config)
    return out


@matmul_spec.implementation("torch", compile=True)
def _matmul_torch(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a @ b

"""A matmul whose launcher takes the configurations of a tuned table."""

import torch
import triton
import triton.language as tl

from roofwatch import KernelSpec, cases

matmul = KernelSpec(
    name="table_matmul",
    inputs=lambda case, make: {
        "a": make.normal(case["M"], case["K"]),
        "b": make.normal(case["K"], case["N"]),
    },
    reference=lambda a, b: a @ b,
    cases=cases(shapes=[{"M": 512, "N": 1024, "K": 2048}], dtypes=["bfloat16"]),
    flop_count=lambda case: 2 * case["M"] * case["N"] * case["K"],
    memory_bytes=lambda case: 2 * case["K"] * (case["M"] + case["N"]),
)


@triton.jit
def _table_kernel(
    a_ptr, b_ptr, c_ptr, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr
):
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, K, BLOCK_K):
        offs_k = start + tl.arange(0, BLOCK_K)
        a = tl.load(a_ptr + offs_m[:, None] * K + offs_k[None, :])  # [BLOCK_M, BLOCK_K]
        b = tl.load(b_ptr + offs_k[:, None] * N + offs_n[None, :])  # [BLOCK_K, BLOCK_N]
        total = tl.dot(a, b, total)
    tl.store(c_ptr + offs_m[:, None] * N + offs_n[None, :], total.to(tl.bfloat16))


@matmul.implementation("triton", directions=["fwd"])
def table_matmul(
    a,
    b,
    BLOCK_SIZE_M=64,
    BLOCK_SIZE_N=64,
    BLOCK_SIZE_K=32,
    GROUP_SIZE_M=1,
    num_warps=4,
    num_stages=2,
):
    (m, k), n = a.shape, b.shape[1]
    c = torch.empty((m, n), device=a.device, dtype=a.dtype)
    grid = (triton.cdiv(m, BLOCK_SIZE_M), triton.cdiv(n, BLOCK_SIZE_N))
    _table_kernel[grid](
        a,
        b,
        c,
        n,
        k,
        BLOCK_M=BLOCK_SIZE_M,
        BLOCK_N=BLOCK_SIZE_N,
        BLOCK_K=BLOCK_SIZE_K,
        num_warps=num_warps,
        num_stages=num_stages,
    )
    return c

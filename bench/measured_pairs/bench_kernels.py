"""Kernels written after descriptions of changes that were measured in public.

Each has implementations for the two sides of a change. They are compiled and never run.
"""

from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl

from roofwatch import Case, InputMaker, KernelSpec, cases


def kernel(name: str, launches: dict[str, Callable[..., Any]], **declared: Any) -> KernelSpec:
    """Declare a kernel with one implementation for each side of its changes."""
    spec = KernelSpec(
        name=name,
        reference=next(iter(launches.values())),
        flop_count=lambda _case: 0.0,
        memory_bytes=lambda _case: 0.0,
        **declared,
    )
    for implementation, launch in launches.items():
        spec.implementation("triton", name=implementation)(launch)
    return spec


# --- softmax backward, 32 rows in two passes or one row at once


@triton.jit
def _softmax_grad_rows_kernel(
    y_ptr,
    dy_ptr,
    dx_ptr,
    n_cols,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """Gradient of BLOCK_M rows; each pass loads both operands."""
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)  # [BLOCK_M]
    row_starts = rows[:, None] * n_cols  # [BLOCK_M, 1]
    sums = tl.zeros([BLOCK_M], dtype=tl.float32)
    # the first pass adds up what the second one subtracts
    for start in range(0, n_cols, BLOCK_N):
        cols = start + tl.arange(0, BLOCK_N)  # [BLOCK_N]
        offsets = row_starts + cols[None, :]  # [BLOCK_M, BLOCK_N]
        mask = cols[None, :] < n_cols
        y = tl.load(y_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
        dy = tl.load(dy_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
        sums += tl.sum(y * dy, axis=1)
    for start in range(0, n_cols, BLOCK_N):
        cols = start + tl.arange(0, BLOCK_N)
        offsets = row_starts + cols[None, :]
        mask = cols[None, :] < n_cols
        y = tl.load(y_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
        dy = tl.load(dy_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
        tl.store(dx_ptr + offsets, y * (dy - sums[:, None]), mask=mask)


@triton.jit
def _softmax_grad_row_kernel(
    y_ptr,
    dy_ptr,
    dx_ptr,
    n_cols,
    BLOCK_N: tl.constexpr,
):
    """Gradient of one row, whose operands are loaded once."""
    cols = tl.arange(0, BLOCK_N)  # [BLOCK_N]
    offsets = tl.program_id(0) * n_cols + cols
    mask = cols < n_cols
    y = tl.load(y_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    dy = tl.load(dy_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    total = tl.sum(y * dy, axis=0)
    tl.store(dx_ptr + offsets, y * (dy - total), mask=mask)


def softmax_grad_of_rows(y: torch.Tensor, dy: torch.Tensor) -> torch.Tensor:
    """Gradient of a softmax, 32 rows in a program. y, dy and dx are [n_rows, n_cols]."""
    dx = torch.empty_like(y)
    n_rows, n_cols = y.shape
    block_n = triton.next_power_of_2(n_cols)
    grid = (triton.cdiv(n_rows, 32),)
    _softmax_grad_rows_kernel[grid](
        y,
        dy,
        dx,
        n_cols,
        BLOCK_M=32,
        BLOCK_N=block_n,
    )
    return dx


def softmax_grad_of_row(y: torch.Tensor, dy: torch.Tensor) -> torch.Tensor:
    """Gradient of a softmax, a row in a program. y, dy and dx are [n_rows, n_cols]."""
    dx = torch.empty_like(y)
    n_rows, n_cols = y.shape
    block_n = triton.next_power_of_2(n_cols)
    _softmax_grad_row_kernel[(n_rows,)](
        y,
        dy,
        dx,
        n_cols,
        BLOCK_N=block_n,
    )
    return dx


softmax_grad = kernel(
    "softmax_grad",
    {"rows_twice": softmax_grad_of_rows, "row": softmax_grad_of_row},
    inputs=lambda case, make: {
        "y": make.normal(case["rows"], case["cols"]),
        "dy": make.normal(case["rows"], case["cols"]),
    },
    cases=cases(shapes=[{"rows": 4096, "cols": 1024}], dtypes=["float16"], directions=("fwd",)),
)


# --- gradient of the weights of a mixture of experts


@triton.jit
def _expert_grad_kernel(
    dy_ptr,
    x_ptr,
    dw_ptr,
    ends_ptr,
    n_experts,
    n_out,
    n_in,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    PROGRAMS: tl.constexpr,
):
    """dw[e] = dy[tokens of e]ᵀ x[tokens of e], in float32; a program takes tile after tile."""
    tiles_m = tl.cdiv(n_out, BLOCK_M)
    tiles_n = tl.cdiv(n_in, BLOCK_N)
    tiles_of_expert = tiles_m * tiles_n
    for tile in range(tl.program_id(0), n_experts * tiles_of_expert, PROGRAMS):
        expert = tile // tiles_of_expert
        pid_m = tile % tiles_of_expert // tiles_n
        pid_n = tile % tiles_n
        # the tokens of an expert lie one after another
        start = tl.load(ends_ptr + expert)
        n_tokens = (tl.load(ends_ptr + expert + 1) - start).to(tl.int32)
        offs_m = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)  # [BLOCK_M]
        offs_n = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)  # [BLOCK_N]
        offs_k = tl.arange(0, BLOCK_K)  # [BLOCK_K]
        dy_ptrs = dy_ptr + (start + offs_k[None, :]) * n_out + (offs_m % n_out)[:, None]
        x_ptrs = x_ptr + (start + offs_k[:, None]) * n_in + (offs_n % n_in)[None, :]
        total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for k in range(tl.cdiv(n_tokens, BLOCK_K)):
            mask = k * BLOCK_K + offs_k < n_tokens
            dy = tl.load(dy_ptrs, mask=mask[None, :], other=0.0)  # [BLOCK_M, BLOCK_K]
            x = tl.load(x_ptrs, mask=mask[:, None], other=0.0)  # [BLOCK_K, BLOCK_N]
            total += tl.dot(dy, x)
            dy_ptrs += BLOCK_K * n_out
            x_ptrs += BLOCK_K * n_in
        # all experts together may have more than 2^31 weights
        expert_start = expert.to(tl.int64) * n_out * n_in
        offsets = expert_start + offs_m[:, None] * n_in + offs_n[None, :]  # [BLOCK_M, BLOCK_N]
        mask = (offs_m[:, None] < n_out) & (offs_n[None, :] < n_in)
        tl.store(dw_ptr + offsets, total.to(dw_ptr.dtype.element_ty), mask=mask)


def expert_grad_with(block_k: int) -> Callable[..., torch.Tensor]:
    """A launcher with a tile length along the tokens of an expert."""

    def launch(dy: torch.Tensor, x: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
        n_experts = len(ends) - 1
        n_out = dy.shape[1]
        n_in = x.shape[1]
        dw = dy.new_empty(n_experts, n_out, n_in)
        _expert_grad_kernel[(304,)](
            dy,
            x,
            dw,
            ends,
            n_experts,
            n_out,
            n_in,
            BLOCK_M=256,
            BLOCK_N=256,
            BLOCK_K=block_k,
            PROGRAMS=304,
            num_warps=8,
            num_stages=2,
            waves_per_eu=0,
            matrix_instr_nonkdim=16,
            kpack=1,
        )
        return dw

    return launch


def expert_inputs(case: Case, make: InputMaker) -> dict[str, Any]:
    """Upstream dy [tokens, n_out], x [tokens, n_in], and where the tokens of experts end."""
    return {
        "dy": make.normal(case["tokens"], case["n_out"]),
        "x": make.normal(case["tokens"], case["n_in"]),
        "ends": make.integers(case["experts"] + 1, high=case["tokens"]),
    }


expert_grad = kernel(
    "expert_grad",
    {"k64": expert_grad_with(64), "k32": expert_grad_with(32)},
    inputs=expert_inputs,
    cases=cases(
        shapes=[
            {
                "tokens": 65536,
                "experts": 64,
                "n_out": 1408,
                "n_in": 2048,
            }
        ],
        dtypes=["bfloat16"],
        directions=("fwd",),
    ),
)


# --- attention of wide heads, in fp8


@triton.jit
def _wide_attention_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    out_ptr,
    n_tokens,
    n_heads,
    scale,
    GROUP: tl.constexpr,
    D: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """Causal attention of GROUP query heads to one of keys, which share the rows of a block."""
    kv_head = tl.program_id(1)
    rows = tl.arange(0, BLOCK_M)  # [BLOCK_M]
    first = tl.program_id(0) * (BLOCK_M // GROUP)
    tokens = first + rows // GROUP
    heads = kv_head * GROUP + rows % GROUP
    offs_d = tl.arange(0, D)  # [D]
    offsets = (tokens * n_heads + heads)[:, None] * D + offs_d[None, :]  # [BLOCK_M, D]
    mask = tokens[:, None] < n_tokens
    q = tl.load(q_ptr + offsets, mask=mask, other=0.0)
    largest = tl.full([BLOCK_M], float("-inf"), dtype=tl.float32)
    norm = tl.zeros([BLOCK_M], dtype=tl.float32)
    total = tl.zeros([BLOCK_M, D], dtype=tl.float32)
    n_kv_heads = n_heads // GROUP
    for start in range(0, first + BLOCK_M // GROUP, BLOCK_N):
        keys = start + tl.arange(0, BLOCK_N)  # [BLOCK_N]
        kv = (keys * n_kv_heads + kv_head) * D
        is_key = keys < n_tokens
        k_offsets = kv[None, :] + offs_d[:, None]  # [D, BLOCK_N]
        k = tl.load(k_ptr + k_offsets, mask=is_key[None, :], other=0.0)
        scores = tl.dot(q, k) * scale  # [BLOCK_M, BLOCK_N]
        scores = tl.where(keys[None, :] <= tokens[:, None], scores, float("-inf"))
        # the sums so far are scaled to the new maximum
        new_largest = tl.maximum(largest, tl.max(scores, axis=1))
        weights = tl.exp2(scores - new_largest[:, None])
        shrink = tl.exp2(largest - new_largest)
        norm = norm * shrink + tl.sum(weights, axis=1)
        v_offsets = kv[:, None] + offs_d[None, :]  # [BLOCK_N, D]
        v = tl.load(v_ptr + v_offsets, mask=is_key[:, None], other=0.0)
        total = total * shrink[:, None] + tl.dot(weights.to(v.dtype), v)
        largest = new_largest
    tl.store(out_ptr + offsets, total / norm[:, None], mask=mask)


def wide_attention_with(block_m: int, block_n: int, warps: int) -> Callable[..., torch.Tensor]:
    """A launcher with tile lengths along the queries and the keys."""

    def launch(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        n_tokens, n_heads, width = q.shape
        n_kv_heads = k.shape[1]
        group = n_heads // n_kv_heads
        out = torch.empty(q.shape, dtype=torch.bfloat16, device=q.device)
        # the query heads of a group share the rows of a block
        tokens_of_block = block_m // group
        grid = (triton.cdiv(n_tokens, tokens_of_block), n_kv_heads)
        _wide_attention_kernel[grid](
            q,
            k,
            v,
            out,
            n_tokens,
            n_heads,
            0.06,
            GROUP=group,
            D=width,
            BLOCK_M=block_m,
            BLOCK_N=block_n,
            num_warps=warps,
            num_stages=1,
            waves_per_eu=2,
        )
        return out

    return launch


def wide_attention_inputs(case: Case, make: InputMaker) -> dict[str, Any]:
    """Queries [tokens, heads, width], keys and values [tokens, kv_heads, width], in fp8."""
    tokens = case["tokens"]
    width = case["width"]
    fp8 = torch.float8_e4m3fnuz
    return {
        "q": make.normal(tokens, case["heads"], width).to(fp8),
        "k": make.normal(tokens, case["kv_heads"], width).to(fp8),
        "v": make.normal(tokens, case["kv_heads"], width).to(fp8),
    }


wide_attention = kernel(
    "wide_attention",
    {
        "m16_n32_w4": wide_attention_with(16, 32, 4),
        "m64_n16_w4": wide_attention_with(64, 16, 4),
        "m128_n16_w4": wide_attention_with(128, 16, 4),
        "m128_n16_w8": wide_attention_with(128, 16, 8),
    },
    inputs=wide_attention_inputs,
    cases=cases(
        shapes=[
            {
                "tokens": 16384,
                "heads": 32,
                "kv_heads": 4,
                "width": 512,
            }
        ],
        dtypes=["bfloat16"],
        directions=("fwd",),
    ),
)

"""Causal attention with an online softmax, forward: the T × T matrix of scores never leaves the chip.

A program owns `BLOCK_M` queries of one head and walks over the keys in tiles. Tiles below the diagonal need no mask;
those on it do.

Source: Dao, FlashAttention-2, 2023 (arXiv 2307.08691), algorithm 1. Ours takes powers of two throughout, whose
exponential is one instruction: the scale carries the factor log2(e).
"""

import math
from typing import Any

import torch
import triton
import triton.language as tl

from kernels.dots import dot
from kernels.errors import KernelError
from kernels.operands import refuse_gradients, require_equal, require_operands
from roofwatch import Case, InputMaker, KernelSpec, cases

MAX_HEAD_DIM = 128
"""More would not leave the accumulator in registers."""


@triton.jit
def _attend(
    acc,  # [BLOCK_M, BLOCK_D]
    row_max,  # [BLOCK_M]
    row_sum,  # [BLOCK_M]
    q,  # [BLOCK_M, BLOCK_D]
    k_ptr,
    v_ptr,
    k_t_stride,
    v_t_stride,
    first_query,
    start,
    stop,
    T,
    scale,
    D: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
    IS_DIAGONAL: tl.constexpr,
):
    offs_d = tl.arange(0, BLOCK_D)
    for first_key in range(start, stop, BLOCK_N):
        offs_n = first_key + tl.arange(0, BLOCK_N)
        k_ptrs = k_ptr + offs_n.to(tl.int64)[None, :] * k_t_stride + offs_d[:, None]
        v_ptrs = v_ptr + offs_n.to(tl.int64)[:, None] * v_t_stride + offs_d[None, :]
        if IS_DIAGONAL or D != BLOCK_D:
            mask_n = offs_n < T
            mask_d = offs_d < D
            k = tl.load(k_ptrs, mask=mask_d[:, None] & mask_n[None, :], other=0.0)  # [BLOCK_D, BLOCK_N]
            v = tl.load(v_ptrs, mask=mask_n[:, None] & mask_d[None, :], other=0.0)  # [BLOCK_N, BLOCK_D]
        else:
            k = tl.load(k_ptrs)  # [BLOCK_D, BLOCK_N]
            v = tl.load(v_ptrs)  # [BLOCK_N, BLOCK_D]
        scores = dot(q, k, tl.zeros((BLOCK_M, BLOCK_N), tl.float32)) * scale
        if IS_DIAGONAL:
            offs_m = first_query + tl.arange(0, BLOCK_M)
            is_seen = (offs_m[:, None] >= offs_n[None, :]) & (offs_n[None, :] < T)
            scores = tl.where(is_seen, scores, -float("inf"))
        # finite: every query has seen a key by its first tile, itself at the latest
        new_max = tl.maximum(row_max, tl.max(scores, axis=1))
        exps = tl.exp2(scores - new_max[:, None])
        correction = tl.exp2(row_max - new_max)
        row_sum = row_sum * correction + tl.sum(exps, axis=1)
        acc = dot(exps.to(v.dtype), v, acc * correction[:, None])
        row_max = new_max
    return acc, row_max, row_sum


@triton.jit
def _attention_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    out_ptr,
    q_b_stride,
    q_h_stride,
    q_t_stride,
    k_b_stride,
    k_h_stride,
    k_t_stride,
    v_b_stride,
    v_h_stride,
    v_t_stride,
    H,
    T,
    scale,
    D: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
):
    n_tiles = tl.cdiv(T, BLOCK_M)
    head = (tl.program_id(0) // n_tiles).to(tl.int64)
    # the last queries see the most keys: start with them
    first_query = (n_tiles - 1 - tl.program_id(0) % n_tiles) * BLOCK_M
    b = head // H
    h = head % H
    q_ptr += b * q_b_stride + h * q_h_stride
    k_ptr += b * k_b_stride + h * k_h_stride
    v_ptr += b * v_b_stride + h * v_h_stride
    out_ptr += head * T * D

    offs_m = first_query + tl.arange(0, BLOCK_M)
    offs_d = tl.arange(0, BLOCK_D)
    mask = (offs_m[:, None] < T) & (offs_d[None, :] < D)
    q_offs = offs_m.to(tl.int64)[:, None] * q_t_stride + offs_d[None, :]
    q = tl.load(q_ptr + q_offs, mask=mask, other=0.0)  # [BLOCK_M, BLOCK_D]
    acc = tl.zeros((BLOCK_M, BLOCK_D), tl.float32)
    row_max = tl.full((BLOCK_M,), -float("inf"), tl.float32)
    row_sum = tl.zeros((BLOCK_M,), tl.float32)
    # fmt: off
    acc, row_max, row_sum = _attend(
        acc, row_max, row_sum, q, k_ptr, v_ptr, k_t_stride, v_t_stride,
        first_query, 0, first_query, T, scale, D, BLOCK_M, BLOCK_N, BLOCK_D, False,
    )
    acc, row_max, row_sum = _attend(
        acc, row_max, row_sum, q, k_ptr, v_ptr, k_t_stride, v_t_stride,
        first_query, first_query, tl.minimum(first_query + BLOCK_M, T), T, scale, D, BLOCK_M, BLOCK_N, BLOCK_D, True,
    )
    # fmt: on
    out = acc / row_sum[:, None]
    out_offs = offs_m.to(tl.int64)[:, None] * D + offs_d[None, :]
    tl.store(out_ptr + out_offs, out.to(out_ptr.dtype.element_ty), mask=mask)  # [BLOCK_M, BLOCK_D]


def attention_config(D: int, itemsize: int) -> dict[str, int]:
    """The largest tiles tried that spill no register and fit the shared memory of all six targets; float32
    products, which take three, need small ones.

    `BLOCK_M` is a multiple of `BLOCK_N`, so that the diagonal starts at a tile's edge.
    """
    is_wide = D > 64
    if itemsize == 4:
        block_m, block_n, num_warps = (16, 16, 4) if is_wide else (32, 32, 4)
    else:
        block_m, block_n, num_warps = (128, 32, 8) if is_wide else (128, 64, 8)
    block_d = max(triton.next_power_of_2(D), 16)  # a matrix product has at least 16 terms
    return {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_D": block_d, "num_warps": num_warps, "num_stages": 2}


def attention_reference(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """The formula, `softmax(q kᵀ / sqrt(D)) v` where query t sees keys 0 to t."""
    T, D = q.shape[-2:]
    scores = q @ k.transpose(-1, -2) / math.sqrt(D)
    is_later = torch.ones(T, T, dtype=torch.bool, device=q.device).triu(diagonal=1)
    return scores.masked_fill(is_later, -math.inf).softmax(dim=-1) @ v


def _inputs(case: Case, make: InputMaker) -> dict[str, Any]:
    shape = case["B"], case["H"], case["T"], case["D"]
    return {"q": make.normal(*shape), "k": make.normal(*shape), "v": make.normal(*shape)}


def attention_flop_count(case: Case) -> float:
    """Two products of 2 D FLOP for each of the T (T + 1) / 2 pairs of a query and a key that it sees, in each head.

    The softmax is left out, as is usual. FlashAttention's own benchmark counts T² / 2 pairs, half the diagonal less.
    """
    B, H, T, D = case["B"], case["H"], case["T"], case["D"]
    return 4 * D * (T * (T + 1) // 2) * B * H


def attention_memory_bytes(case: Case) -> float:
    """Reads q, k and v once each and writes out."""
    return 4 * case["B"] * case["H"] * case["T"] * case["D"] * case.itemsize


attention_spec = KernelSpec(
    name="attention",
    family="attention",
    inputs=_inputs,
    reference=attention_reference,
    cases=[
        *cases(shapes=[{"B": 1, "H": 8, "T": 1024, "D": 64}], dtypes=["bfloat16"]),
        *cases(shapes=[{"B": 1, "H": 4, "T": 1000, "D": 64}], dtypes=["float32"]),
    ],
    flop_count=attention_flop_count,
    memory_bytes=attention_memory_bytes,
    interpreted_shape={"B": 1, "H": 2, "T": 200},
)


@attention_spec.implementation("triton", directions=["fwd"])
def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """`softmax(q kᵀ / sqrt(D)) v` where query t sees keys 0 to t, accumulated in float32.

    Args:
        q: [B, H, T, D], contiguous along its last dim, D at most `MAX_HEAD_DIM`.
        k: [B, H, T, D] of q's dtype.
        v: [B, H, T, D] of q's dtype.

    Returns:
        [B, H, T, D] in q's dtype, contiguous.

    Raises:
        KernelError: an operand has another layout, shape or dtype, or requires a gradient.
    """
    require_operands("attention", dims=4, q=q, k=k, v=v)
    require_equal("attention", "the shapes", q=tuple(q.shape), k=tuple(k.shape), v=tuple(v.shape))
    require_equal("attention", "the dtypes", q=q.dtype, k=k.dtype, v=v.dtype)
    refuse_gradients("attention", q=q, k=k, v=v)
    B, H, T, D = q.shape
    if D > MAX_HEAD_DIM:
        raise KernelError(
            f"attention: a head has {D} dims, at most {MAX_HEAD_DIM} stay in registers; "
            "call torch.nn.functional.scaled_dot_product_attention"
        )
    out = q.new_empty(B, H, T, D)
    if not out.numel():
        return out  # a grid of no programs cannot be launched
    config = attention_config(D, q.element_size())
    scale = math.log2(math.e) / math.sqrt(D)
    strides = (*q.stride()[:3], *k.stride()[:3], *v.stride()[:3])
    with torch.cuda.device_of(q):
        _attention_kernel[(triton.cdiv(T, config["BLOCK_M"]) * B * H,)](
            q, k, v, out, *strides, H, T, scale, D, **config
        )
    return out


@attention_spec.implementation("torch", compile=True)
def _attention_torch(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)

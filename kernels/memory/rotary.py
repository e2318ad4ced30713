"""Rotary position embedding of queries and keys, forward and backward.

Llama's convention: element i of a head is rotated together with element i + D / 2. One launch
rotates queries and keys; a program processes several heads of one token, which share its angles.
The backward pass rotates the gradients by the negative angles.

Source: Su et al., RoFormer: Enhanced Transformer with Rotary Position Embedding, 2021 (arXiv
2104.09864).
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from roofwatch import Case, InputMaker, KernelSpec, cases
from roofwatch.kernels.building_blocks.errors import KernelError
from roofwatch.kernels.building_blocks.operands import (
    require_contiguous,
    require_equal,
    require_operands,
)
from roofwatch.kernels.building_blocks.operators import backward_operator, operator
from roofwatch.kernels.building_blocks.shapes import model_cases, rotated_heads, small_cases

_BASE = 500_000.0
"""Base of the frequencies. Source: Llama 3 (arXiv 2407.21783), section 3.2."""
_MAX_POSITION = 131_072
_TILE_PAIRS = 2048


@triton.jit
def _rotary_kernel(
    q_ptr,
    k_ptr,
    cos_ptr,
    sin_ptr,
    q_out_ptr,
    k_out_ptr,
    q_batch_stride,
    q_token_stride,
    q_head_stride,
    k_batch_stride,
    k_token_stride,
    k_head_stride,
    T,
    H,
    H_KV,
    half,
    IS_BACK: tl.constexpr,
    BLOCK_H: tl.constexpr,
    BLOCK_HALF: tl.constexpr,
):
    n_q_tiles = tl.cdiv(H, BLOCK_H)
    n_tiles = n_q_tiles + tl.cdiv(H_KV, BLOCK_H)
    program = tl.program_id(0)
    token = (program // n_tiles).to(tl.int64)  # over all sequences
    tile = program % n_tiles
    batch, t = token // T, token % T
    offs = tl.arange(0, BLOCK_HALF)
    mask_half = offs < half
    cos = tl.load(cos_ptr + t * half + offs, mask=mask_half, other=0.0).to(tl.float32)[
        None, :
    ]  # [1, BLOCK_HALF]
    sin = tl.load(sin_ptr + t * half + offs, mask=mask_half, other=0.0).to(tl.float32)[
        None, :
    ]  # [1, BLOCK_HALF]
    if IS_BACK:
        sin = -sin
    if tile < n_q_tiles:
        _rotate_heads(
            q_ptr + batch * q_batch_stride + t * q_token_stride,
            q_out_ptr + token * H * half * 2,
            tile * BLOCK_H + tl.arange(0, BLOCK_H),
            q_head_stride,
            H,
            half,
            cos,
            sin,
            offs,
        )
    else:
        _rotate_heads(
            k_ptr + batch * k_batch_stride + t * k_token_stride,
            k_out_ptr + token * H_KV * half * 2,
            (tile - n_q_tiles) * BLOCK_H + tl.arange(0, BLOCK_H),
            k_head_stride,
            H_KV,
            half,
            cos,
            sin,
            offs,
        )


@triton.jit
def _rotate_heads(x_ptr, out_ptr, heads, head_stride, n_heads, half, cos, sin, offs):
    mask = (heads < n_heads)[:, None] & (offs < half)[None, :]
    x_ptrs = x_ptr + heads[:, None] * head_stride + offs[None, :]
    first = tl.load(x_ptrs, mask=mask, other=0.0).to(tl.float32)  # [BLOCK_H, BLOCK_HALF]
    second = tl.load(x_ptrs + half, mask=mask, other=0.0).to(tl.float32)  # [BLOCK_H, BLOCK_HALF]
    out_ptrs = out_ptr + heads[:, None] * (2 * half) + offs[None, :]
    out_type = out_ptr.dtype.element_ty
    tl.store(
        out_ptrs, (first * cos - second * sin).to(out_type), mask=mask
    )  # [BLOCK_H, BLOCK_HALF]
    tl.store(
        out_ptrs + half, (second * cos + first * sin).to(out_type), mask=mask
    )  # [BLOCK_H, BLOCK_HALF]


def rotary_config(n_heads: int, head_dim: int) -> dict[str, int]:
    """Up to 2048 pairs per program, 16 per thread of an NVIDIA GPU: two 16-byte loads per half of a
    head.
    """
    block_half = triton.next_power_of_2(head_dim // 2)
    block_heads = min(triton.next_power_of_2(n_heads), max(_TILE_PAIRS // block_half, 1))
    return {
        "BLOCK_H": block_heads,
        "BLOCK_HALF": block_half,
        "num_warps": min(max(block_heads * block_half // 512, 1), 4),
    }


def _launch(q, k, cos, sin, q_out, k_out, *, is_back):
    B, T, H, D = q.shape
    H_KV = k.shape[2]
    config = rotary_config(max(H, H_KV), D)
    n_tiles = triton.cdiv(H, config["BLOCK_H"]) + triton.cdiv(H_KV, config["BLOCK_H"])
    _rotary_kernel[(B * T * n_tiles,)](
        q,
        k,
        cos,
        sin,
        q_out,
        k_out,
        *q.stride()[:3],
        *k.stride()[:3],
        T,
        H,
        H_KV,
        D // 2,
        IS_BACK=is_back,
        **config,
    )


def _empty_gradients(
    grad_q_out: Tensor, grad_k_out: Tensor, cos: Tensor, sin: Tensor
) -> tuple[Tensor, Tensor]:
    return grad_q_out.new_empty(grad_q_out.shape), grad_k_out.new_empty(grad_k_out.shape)


@backward_operator("rotary", _empty_gradients)
def _rotary_backward(grad_q_out, grad_k_out, cos, sin, grad_q, grad_k):
    # autograd may pass an expanded scalar
    gradients = [
        grad if grad.stride(-1) == 1 else grad.contiguous() for grad in (grad_q_out, grad_k_out)
    ]
    _launch(*gradients, cos, sin, grad_q, grad_k, is_back=True)


def _empty_heads(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    return q.new_empty(q.shape), k.new_empty(k.shape)


@operator("rotary", _empty_heads, backward=_rotary_backward)
def _rotary_op(q, k, cos, sin, q_out, k_out):
    _launch(q, k, cos, sin, q_out, k_out, is_back=False)


def rotary_angles(positions: Tensor, head_dim: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Cosine and sine of the angles, [T, head_dim / 2] in float32 or wider."""
    wide = torch.promote_types(dtype, torch.float32)
    frequencies = _BASE ** (
        -torch.arange(0, head_dim, 2, device=positions.device).to(wide) / head_dim
    )
    angles = positions[:, None].to(wide) * frequencies
    return angles.cos(), angles.sin()


def rotary_reference(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    """Compute `(x[i] + j x[i + D/2]) * (cos[i] + j sin[i])` in complex numbers."""
    turn = torch.complex(cos, sin)[:, None, :]

    def turned(x: Tensor) -> Tensor:
        first, second = x.chunk(2, dim=-1)
        pairs = torch.complex(first, second) * turn
        return torch.cat([pairs.real, pairs.imag], dim=-1)

    return turned(q), turned(k)


def _inputs(case: Case, make: InputMaker) -> dict[str, Any]:
    B, T, D = case["B"], case["T"], case["D"]
    cos, sin = rotary_angles(make.integers(T, high=_MAX_POSITION), D, torch.float64)
    return {
        "q": make.normal(B, T, case["H"], D),
        "k": make.normal(B, T, case["H_KV"], D),
        "cos": cos.float(),
        "sin": sin.float(),
    }


def rotary_flop_count(case: Case) -> float:
    """Four multiplications and two additions per pair of elements, forward and backward."""
    return 3 * case["B"] * case["T"] * (case["H"] + case["H_KV"]) * case["D"]


def rotary_memory_bytes(case: Case) -> float:
    """Reads q and k, or the gradients of the results, and float32 cosines and sines; writes as many
    results.
    """
    n_elements = case["B"] * case["T"] * (case["H"] + case["H_KV"]) * case["D"]
    return 2 * n_elements * case.itemsize + 4 * case["T"] * case["D"]


rotary_spec = KernelSpec(
    name="rotary",
    family="memory",
    inputs=_inputs,
    reference=rotary_reference,
    cases=[
        *small_cases({"B": 2, "T": 256, "H": 16, "H_KV": 4, "D": 64}, directions=["fwd", "bwd"]),
        *model_cases(rotated_heads(), directions=["fwd", "bwd"]),
    ],
    edges=[
        *cases(
            shapes=[
                {"B": 3, "T": 1, "H": 1, "H_KV": 1, "D": 2},
                {"B": 0, "T": 5, "H": 3, "H_KV": 1, "D": 6},
            ],
            directions=["fwd", "bwd"],
        ),
        # heads that are no power of two
        *cases(
            shapes=[{"B": 1, "T": 3, "H": 7, "H_KV": 3, "D": 96}],
            dtypes=["float16", "bfloat16"],
            directions=["bwd"],
        ),
    ],
    flop_count=rotary_flop_count,
    memory_bytes=rotary_memory_bytes,
    token_count=lambda case: case["B"] * case["T"],
    gradients=("q", "k"),
    formula="out[i] = x[i] cos[i] - x[i + D/2] sin[i]; out[i + D/2] = x[i + D/2] cos[i] + x[i] "
    "sin[i]",
    source="Su et al., RoFormer: Enhanced Transformer with Rotary Position Embedding, 2021 (arXiv "
    "2104.09864)",
    interpreted_shape={"B": 2, "T": 3, "H": 40, "H_KV": 5},
)


@rotary_spec.implementation("triton", deterministic=True)
def rotary(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    """Rotate each pair `x[i], x[i + D/2]` of every head by angle i of its token, in float32.

    Args:
        q: [B, T, H, D], D even, contiguous along its last dim, for example a slice of a joint
            projection.
        k: [B, T, H_KV, D], contiguous along its last dim.
        cos: [T, D / 2] of any floating-point dtype, contiguous. Angles have no gradient.
        sin: [T, D / 2] of cos' dtype, contiguous.

    Returns:
        Contiguous tensors of the shapes and dtypes of q and k.
    """
    require_operands("rotary", q=q, k=k, cos=cos, sin=sin)
    require_operands("rotary", dims=4, q=q, k=k)
    require_operands("rotary", dims=2, cos=cos, sin=sin)
    B, T, _, D = q.shape
    if not q.shape[2]:
        raise KernelError("rotary: q has no heads; pass at least one")
    if D % 2:
        raise KernelError(f"rotary: the head dim must be even, got {D}; pad q and k to {D + 1}")
    require_equal("rotary", "batch, tokens and head dim", q=(B, T, D), k=(*k.shape[:2], k.shape[3]))
    require_equal(
        "rotary", "tokens and pairs", q=(T, D // 2), cos=tuple(cos.shape), sin=tuple(sin.shape)
    )
    require_contiguous("rotary", cos=cos, sin=sin)
    for name, angles in {"cos": cos, "sin": sin}.items():
        if torch.is_grad_enabled() and angles.requires_grad:
            raise KernelError(
                f"rotary: {name} requires a gradient, which is not computed; pass {name}.detach()"
            )
    return _rotary_op(q, k, cos, sin)


@rotary_spec.implementation("torch", compile=True)
def _rotary_torch(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    cos, sin = cos[:, None, :], sin[:, None, :]

    def turned(x: Tensor) -> Tensor:
        first, second = x.to(torch.promote_types(x.dtype, torch.float32)).chunk(2, dim=-1)
        return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1).to(
            x.dtype
        )

    return turned(q), turned(k)

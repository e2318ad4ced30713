"""Attention, forward and backward: causal, sliding window or full, with grouped key heads; and over
packed sequences.

The scores are not stored in memory. Packed sequences have different lengths and are concatenated
without padding, as in a batch of prompts or documents; a program finds its sequence by the
cumulative lengths, and returns at once if its tile is past the end.

Source: Dao, FlashAttention-2, 2023 (arXiv 2307.08691); Ainslie et al., GQA, 2023 (arXiv
2305.13245); Beltagy et al., Longformer, 2020 (arXiv 2004.05150), for the window.
"""

import inspect
import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from roofwatch import Case, InputMaker, KernelSpec, UnsupportedError, cases
from roofwatch.kernels.attention.forward import attention_op
from roofwatch.kernels.attention.masks import window_of
from roofwatch.kernels.attention.tiling import as_heads, require_heads
from roofwatch.kernels.building_blocks.errors import KernelError
from roofwatch.kernels.building_blocks.models import DENSE_MODELS, GEMMA_2_9B
from roofwatch.kernels.building_blocks.operands import (
    require_equal,
    require_integers,
    require_operands,
)
from roofwatch.kernels.building_blocks.rivals import fla
from roofwatch.kernels.building_blocks.shapes import (
    image_attention,
    model_cases,
    only,
    self_attention,
    small_cases,
    with_choice,
)


def attention_reference(
    q: Tensor, k: Tensor, v: Tensor, is_causal: bool = True, window: int = 0
) -> Tensor:
    """Compute `softmax(q kᵀ / sqrt(D)) v` over the visible keys; each key head serves `H / H_KV`
    query heads.
    """
    T, D = q.shape[2:]
    group = q.shape[1] // k.shape[1]
    scores = q @ k.repeat_interleave(group, dim=1).transpose(-1, -2) / math.sqrt(D)
    age = torch.arange(T, device=q.device)[:, None] - torch.arange(k.shape[2], device=q.device)
    if is_causal:
        scores = scores.masked_fill(age < 0, -math.inf)
    if window:
        scores = scores.masked_fill(age >= window, -math.inf)
    return scores.softmax(dim=-1) @ v.repeat_interleave(group, dim=1)


def _inputs(case: Case, make: InputMaker) -> dict[str, Any]:
    B, T, D = case["B"], case["T"], case["D"]
    return {
        "q": make.scores(B, case["H"], T, D),
        "k": make.scores(B, case["H_KV"], T, D),
        "v": make.normal(B, case["H_KV"], T, D),
        "is_causal": case.choice("mask") != "full",
        "window": window_of(case),
    }


def visible_pairs(T: int, *, is_causal: bool = True, window: int = 0) -> int:
    """Number of pairs of a query and a visible key among `T` tokens."""
    if not is_causal:
        return T * T
    window = min(window or T, T)
    return window * (window + 1) // 2 + (T - window) * window


def attention_flop_count(case: Case) -> float:
    """Count products of 2 D FLOP per visible pair and head: 2 forward (scores, weighted sum), 5
    backward.

    Backward recomputes the scores and has one product for each gradient: probabilities, q, k and v.
    The softmax is not counted. FlashAttention's benchmark counts the same products, with T² / 2
    pairs for a causal mask.
    """
    is_causal = case.choice("mask") != "full"
    pairs = visible_pairs(case["T"], is_causal=is_causal, window=window_of(case))
    n_products = 5 if case.is_backward else 2
    return n_products * 2 * case["D"] * pairs * case["B"] * case["H"]


def attention_memory_bytes(case: Case) -> float:
    """Forward reads q, k and v; writes out. The log-sum-exp is not counted.

    Backward reads these four and the gradient of out; writes the gradients of q, k and v.
    """
    n_query_tensors, n_key_tensors = (4, 4) if case.is_backward else (2, 2)
    n_heads = n_query_tensors * case["H"] + n_key_tensors * case["H_KV"]
    return n_heads * case["B"] * case["T"] * case["D"] * case.itemsize


attention_spec = KernelSpec(
    name="attention",
    family="attention",
    inputs=_inputs,
    reference=attention_reference,
    cases=[
        *small_cases(
            {"B": 1, "H": 8, "H_KV": 2, "T": 512, "D": 64, "mask": "causal"},
            directions=["fwd", "bwd"],
        ),
        *model_cases(
            [
                *with_choice(self_attention(), mask="causal"),
                # every other layer of this model has this window
                *with_choice(
                    self_attention([GEMMA_2_9B], lengths=[8192]), mask="window", window=4096
                ),
                *with_choice(image_attention(), mask="full"),
            ],
            directions=["fwd", "bwd"],
        ),
    ],
    edges=[
        *cases(
            shapes=[
                {"B": 1, "H": 2, "H_KV": 1, "T": 63, "D": 63, "mask": "causal"},
                {"B": 0, "H": 2, "H_KV": 2, "T": 5, "D": 16, "mask": "full"},
                {"B": 1, "H": 1, "H_KV": 1, "T": 130, "D": 40, "mask": "window", "window": 17},
            ],
            dtypes=["float16"],
            directions=["bwd"],
        ),
        *cases(
            shapes=[
                {"B": 2, "H": 1, "H_KV": 1, "T": 1, "D": 16, "mask": "causal"},
                {"B": 1, "H": 1, "H_KV": 1, "T": 1000, "D": 64, "mask": "window", "window": 100},
            ],
            dtypes=["bfloat16"],
        ),
    ],
    flop_count=attention_flop_count,
    memory_bytes=attention_memory_bytes,
    token_count=lambda case: case["B"] * case["T"],
    formula="out = softmax(q kᵀ / sqrt(D) + mask) v",
    source="Dao, FlashAttention-2, 2023 (arXiv 2307.08691)",
    interpreted_shape={"B": 1, "H": 2, "H_KV": 1, "T": 70, "window": 40},
)


@attention_spec.implementation("triton", deterministic=True)
def attention(q: Tensor, k: Tensor, v: Tensor, is_causal: bool = True, window: int = 0) -> Tensor:
    """Compute `softmax(q kᵀ / sqrt(D)) v` over the visible keys, accumulated in float32.

    Args:
        q: [B, H, T, D], contiguous along its last dim, D at most `MAX_HEAD_DIM`.
        k: [B, H_KV, S, D] of q's dtype; each head serves `H / H_KV` consecutive heads of q.
        v: [B, H_KV, S, D] of q's dtype.
        is_causal: Query t sees keys 0 to t, and S is T.
        window: Maximum number of keys per causal query, including its own; 0 for no limit.

    Returns:
        [B, H, T, D] in q's dtype, contiguous.
    """
    require_operands("attention", dims=4, q=q, k=k, v=v)
    require_equal("attention", "the shapes", k=tuple(k.shape), v=tuple(v.shape))
    require_equal(
        "attention", "batch and head dim", q=(q.shape[0], q.shape[3]), k=(k.shape[0], k.shape[3])
    )
    require_equal("attention", "the dtypes", q=q.dtype, k=k.dtype, v=v.dtype)
    if is_causal:
        require_equal("attention", "the lengths under a causal mask", q=q.shape[2], k=k.shape[2])
    require_heads("attention", q.shape[1], k.shape[1], q.shape[3])
    if window < 0 or (window and not is_causal):
        raise KernelError(
            f"attention: window={window} with is_causal={is_causal}; a window needs 1 or more "
            f"keys, or 0 for "
            "no limit, and a causal mask: pass is_causal=True"
        )
    return attention_op(q, k, v, is_causal, window, None, None)[0]


@attention_spec.implementation("torch", compile=True)
def _attention_torch(
    q: Tensor, k: Tensor, v: Tensor, is_causal: bool = True, window: int = 0
) -> Tensor:
    mask = None
    if window:
        T = q.shape[2]
        mask = torch.ones(T, T, dtype=torch.bool, device=q.device).tril().triu(1 - window)
    return torch.nn.functional.scaled_dot_product_attention(
        q,
        k,
        v,
        attn_mask=mask,
        is_causal=is_causal and mask is None,
        enable_gqa=q.shape[1] != k.shape[1],
    )


def _sdpa(backend: SDPBackend, can_use: Callable[[Any], bool]) -> Callable[..., Tensor]:
    """Make a launcher of one backend of `scaled_dot_product_attention`, without fallback."""

    def launch(q: Tensor, k: Tensor, v: Tensor, is_causal: bool = True, window: int = 0) -> Tensor:
        if not q.is_cuda:
            raise UnsupportedError("needs a GPU")
        if window:
            raise UnsupportedError("has no sliding window")
        is_grouped = q.shape[1] != k.shape[1]
        if not can_use(torch.backends.cuda.SDPAParams(q, k, v, None, 0.0, is_causal, is_grouped)):
            grouped = "grouped " if is_grouped else ""
            raise UnsupportedError(
                f"does not support {grouped}{q.dtype} heads of {q.shape[3]} dims on this GPU"
            )
        with sdpa_kernel(backend):
            return torch.nn.functional.scaled_dot_product_attention(
                q, k, v, is_causal=is_causal, enable_gqa=is_grouped
            )

    return launch


for _name, _backend, _can_use in (
    ("sdpa_flash", SDPBackend.FLASH_ATTENTION, torch.backends.cuda.can_use_flash_attention),
    ("sdpa_cudnn", SDPBackend.CUDNN_ATTENTION, torch.backends.cuda.can_use_cudnn_attention),
    (
        "sdpa_efficient",
        SDPBackend.EFFICIENT_ATTENTION,
        torch.backends.cuda.can_use_efficient_attention,
    ),
):
    attention_spec.implementation("torch", name=_name)(_sdpa(_backend, _can_use))


def attention_varlen_reference(
    q: Tensor, k: Tensor, v: Tensor, cu_seqlens: Tensor, max_seqlen: int
) -> Tensor:
    """Compute causal attention of each sequence separately."""
    bounds = cu_seqlens.tolist()
    assert max_seqlen >= max(stop - start for start, stop in pairwise(bounds))
    q_heads, k_heads, v_heads = (as_heads(packed) for packed in (q, k, v))
    outs = [
        attention_reference(
            q_heads[:, :, start:stop], k_heads[:, :, start:stop], v_heads[:, :, start:stop]
        )
        for start, stop in pairwise(bounds)
    ]
    return torch.cat(outs, dim=2)[0].transpose(0, 1)


def sequence_lengths(case: Case) -> list[int]:
    """Lengths of B sequences, at most T: evenly spaced from 0 (`spread`), or each half of the last
    one (`halving`).
    """
    B, T = case["B"], case["T"]
    if case.choice("lengths") == "spread":
        return [T * n // max(B - 1, 1) for n in range(B)]
    return [T >> n for n in range(B)]


def _varlen_inputs(case: Case, make: InputMaker) -> dict[str, Any]:
    lengths = torch.tensor(sequence_lengths(case), device=make.device)[make.permutation(case["B"])]
    total, D = sum(sequence_lengths(case)), case["D"]
    return {
        "q": make.scores(total, case["H"], D),
        "k": make.scores(total, case["H_KV"], D),
        "v": make.normal(total, case["H_KV"], D),
        "cu_seqlens": torch.nn.functional.pad(lengths.cumsum(0), (1, 0)).to(torch.int32),
        "max_seqlen": case["T"],
    }


def attention_varlen_flop_count(case: Case) -> float:
    """Count as for attention: 2 products of 2 D FLOP per visible pair, 5 backward."""
    pairs = sum(visible_pairs(length) for length in sequence_lengths(case))
    return (5 if case.is_backward else 2) * 2 * case["D"] * pairs * case["H"]


def attention_varlen_memory_bytes(case: Case) -> float:
    """As for attention: q, k, v and out; backward also their gradients. Cumulative lengths are not
    counted.
    """
    n_heads = (4 if case.is_backward else 2) * (case["H"] + case["H_KV"])
    return n_heads * sum(sequence_lengths(case)) * case["D"] * case.itemsize


attention_varlen_spec = KernelSpec(
    name="attention_varlen",
    family="attention",
    inputs=_varlen_inputs,
    reference=attention_varlen_reference,
    cases=[
        *small_cases(
            {"B": 5, "H": 8, "H_KV": 2, "T": 256, "D": 64, "lengths": "spread"},
            directions=["fwd", "bwd"],
        ),
        *model_cases(
            [
                workload
                for lengths in ("spread", "halving")
                for workload in with_choice(
                    only(self_attention(DENSE_MODELS, lengths=[4096], batch=9), "tp1"),
                    lengths=lengths,
                )
            ],
            directions=["fwd", "bwd"],
        ),
    ],
    edges=[
        *cases(
            shapes=[
                {"B": 1, "H": 2, "H_KV": 1, "T": 63, "D": 40, "lengths": "halving"},
                {"B": 9, "H": 1, "H_KV": 1, "T": 130, "D": 16, "lengths": "halving"},
                {"B": 1, "H": 1, "H_KV": 1, "T": 0, "D": 16, "lengths": "halving"},
            ],
            dtypes=["float16"],
            directions=["bwd"],
        )
    ],
    flop_count=attention_varlen_flop_count,
    memory_bytes=attention_varlen_memory_bytes,
    token_count=lambda case: sum(sequence_lengths(case)),
    formula="out = softmax(q kᵀ / sqrt(D) + causal mask) v in each sequence",
    source="Dao, FlashAttention-2, 2023 (arXiv 2307.08691)",
    interpreted_shape={"B": 3, "H": 2, "H_KV": 1, "T": 70},
)


@attention_varlen_spec.implementation("triton", deterministic=True)
def attention_varlen(
    q: Tensor, k: Tensor, v: Tensor, cu_seqlens: Tensor, max_seqlen: int
) -> Tensor:
    """Compute `softmax(q kᵀ / sqrt(D)) v` with a causal mask in each sequence, accumulated in
    float32.

    Args:
        q: [total, H, D], the tokens of all sequences, contiguous along its last dim, D at most 256.
        k: [total, H_KV, D] of q's dtype; each head serves `H / H_KV` consecutive heads of q.
        v: [total, H_KV, D] of q's dtype.
        cu_seqlens: [n + 1] int32 on the device: first token of each sequence, and `total`.
        max_seqlen: At least the length of the longest sequence; later tokens are not computed.

    Returns:
        [total, H, D] in q's dtype, contiguous.
    """
    require_operands("attention_varlen", dims=3, q=q, k=k, v=v)
    require_equal("attention_varlen", "the shapes", k=tuple(k.shape), v=tuple(v.shape))
    require_equal(
        "attention_varlen",
        "tokens and head dim",
        q=(q.shape[0], q.shape[2]),
        k=(k.shape[0], k.shape[2]),
    )
    require_equal("attention_varlen", "the dtypes", q=q.dtype, k=k.dtype, v=v.dtype)
    require_heads("attention_varlen", q.shape[1], k.shape[1], q.shape[2])
    require_integers("attention_varlen", dtype=torch.int32, dims=1, like=q, cu_seqlens=cu_seqlens)
    return attention_op(q, k, v, True, 0, cu_seqlens, max_seqlen)[0]


@attention_varlen_spec.implementation("torch", compile=True)
def _attention_varlen_torch(
    q: Tensor, k: Tensor, v: Tensor, cu_seqlens: Tensor, max_seqlen: int
) -> Tensor:
    sequence = torch.bucketize(
        torch.arange(q.shape[0], device=q.device), cu_seqlens[1:], right=True
    )
    mask = (sequence[:, None] == sequence).tril()
    out = torch.nn.functional.scaled_dot_product_attention(
        as_heads(q), as_heads(k), as_heads(v), attn_mask=mask, enable_gqa=q.shape[1] != k.shape[1]
    )
    return out[0].transpose(0, 1)


@attention_varlen_spec.implementation("torch", name="flash")
def _attention_varlen_flash(
    q: Tensor, k: Tensor, v: Tensor, cu_seqlens: Tensor, max_seqlen: int
) -> Tensor:
    if not q.is_cuda:
        raise UnsupportedError("needs a GPU")
    if q.dtype == torch.float32:
        raise UnsupportedError("supports only float16 and bfloat16")
    from torch.nn.attention.varlen import varlen_attn

    options: dict[str, Any] = {"window_size": (-1, 0)}
    if q.shape[1] != k.shape[1]:
        # torch 2.11 has no such argument
        if "enable_gqa" not in inspect.signature(varlen_attn).parameters:
            raise UnsupportedError(
                "this torch has no grouped heads in varlen_attn; use a newer one"
            )
        options["enable_gqa"] = True
    out = varlen_attn(q, k, v, cu_seqlens, cu_seqlens, max_seqlen, max_seqlen, **options)
    assert isinstance(out, Tensor)  # a tuple only with more requested outputs
    return out


@fla(attention_spec, "ops.attn")
def _attention_fla(
    attention: Any, q: Tensor, k: Tensor, v: Tensor, is_causal: bool = True, window: int = 0
) -> Any:
    if not is_causal:
        raise UnsupportedError("supports only causal masks")
    q, k, v = (heads.transpose(1, 2) for heads in (q, k, v))
    return attention.parallel_attn(q, k, v, window_size=window or None).transpose(1, 2)

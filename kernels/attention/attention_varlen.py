"""Causal attention over packed sequences of different lengths, forward and backward.

The sequences are concatenated without padding, as in a batch of prompts or documents. The kernels are those of
attention: a program finds its sequence by the cumulative lengths, and returns at once if its tile is past the end.

Source: Dao, FlashAttention-2, 2023 (arXiv 2307.08691).
"""

from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from roofwatch import Case, InputMaker, KernelSpec, UnsupportedError, cases
from roofwatch.kernels.attention.attention import attention_reference, visible_pairs
from roofwatch.kernels.attention.forward import attention_op
from roofwatch.kernels.attention.tiling import as_heads, require_heads
from roofwatch.kernels.models import DENSE_MODELS
from roofwatch.kernels.operands import require_equal, require_integers, require_operands
from roofwatch.kernels.shapes import model_cases, only, self_attention, with_choice


def attention_varlen_reference(q: Tensor, k: Tensor, v: Tensor, cu_seqlens: Tensor, max_seqlen: int) -> Tensor:
    """Compute causal attention of each sequence separately."""
    bounds = cu_seqlens.tolist()
    assert max_seqlen >= max(stop - start for start, stop in pairwise(bounds))
    q_heads, k_heads, v_heads = (as_heads(packed) for packed in (q, k, v))
    outs = [
        attention_reference(q_heads[:, :, start:stop], k_heads[:, :, start:stop], v_heads[:, :, start:stop])
        for start, stop in pairwise(bounds)
    ]
    return torch.cat(outs, dim=2)[0].transpose(0, 1)


def sequence_lengths(case: Case) -> list[int]:
    """Lengths of B sequences, at most T: evenly spaced from 0 (`spread`), or each half of the last one (`halving`)."""
    B, T = case["B"], case["T"]
    if case.choice("lengths") == "spread":
        return [T * n // max(B - 1, 1) for n in range(B)]
    return [T >> n for n in range(B)]


def _inputs(case: Case, make: InputMaker) -> dict[str, Any]:
    lengths = torch.tensor(sequence_lengths(case), device=make.device)[make.permutation(case["B"])]
    total, D = sum(sequence_lengths(case)), case["D"]
    return {
        "q": make.normal(total, case["H"], D),
        "k": make.normal(total, case["H_KV"], D),
        "v": make.normal(total, case["H_KV"], D),
        "cu_seqlens": torch.nn.functional.pad(lengths.cumsum(0), (1, 0)).to(torch.int32),
        "max_seqlen": case["T"],
    }


def attention_varlen_flop_count(case: Case) -> float:
    """Count as for attention: 2 products of 2 D FLOP per visible pair, 5 backward."""
    pairs = sum(visible_pairs(length) for length in sequence_lengths(case))
    return (5 if case.is_backward else 2) * 2 * case["D"] * pairs * case["H"]


def attention_varlen_memory_bytes(case: Case) -> float:
    """As for attention: q, k, v and out; backward also their gradients. Cumulative lengths are not counted."""
    n_heads = (4 if case.is_backward else 2) * (case["H"] + case["H_KV"])
    return n_heads * sum(sequence_lengths(case)) * case["D"] * case.itemsize


attention_varlen_spec = KernelSpec(
    name="attention_varlen",
    family="attention",
    inputs=_inputs,
    reference=attention_varlen_reference,
    cases=[
        *cases(
            shapes=[{"B": 5, "H": 8, "H_KV": 2, "T": 256, "D": 64, "lengths": "spread"}],
            dtypes=["float32", "bfloat16"],
            directions=["fwd", "bwd"],
            tags=["small"],
        ),
        *model_cases(
            [
                workload
                for lengths in ("spread", "halving")
                for workload in with_choice(
                    only(self_attention(DENSE_MODELS, lengths=[4096], batch=9), "tp1"), lengths=lengths
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
def attention_varlen(q: Tensor, k: Tensor, v: Tensor, cu_seqlens: Tensor, max_seqlen: int) -> Tensor:
    """Compute `softmax(q kᵀ / sqrt(D)) v` with a causal mask in each sequence, accumulated in float32.

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
    require_equal("attention_varlen", "tokens and head dim", q=(q.shape[0], q.shape[2]), k=(k.shape[0], k.shape[2]))
    require_equal("attention_varlen", "the dtypes", q=q.dtype, k=k.dtype, v=v.dtype)
    require_heads("attention_varlen", q.shape[1], k.shape[1], q.shape[2])
    require_integers("attention_varlen", dtype=torch.int32, dims=1, like=q, cu_seqlens=cu_seqlens)
    return attention_op(q, k, v, True, 0, cu_seqlens, max_seqlen)[0]


@attention_varlen_spec.implementation("torch", compile=True)
def _attention_varlen_torch(q: Tensor, k: Tensor, v: Tensor, cu_seqlens: Tensor, max_seqlen: int) -> Tensor:
    sequence = torch.bucketize(torch.arange(q.shape[0], device=q.device), cu_seqlens[1:], right=True)
    mask = (sequence[:, None] == sequence).tril()
    out = torch.nn.functional.scaled_dot_product_attention(
        as_heads(q), as_heads(k), as_heads(v), attn_mask=mask, enable_gqa=q.shape[1] != k.shape[1]
    )
    return out[0].transpose(0, 1)


@attention_varlen_spec.implementation("torch", name="flash")
def _attention_varlen_flash(q: Tensor, k: Tensor, v: Tensor, cu_seqlens: Tensor, max_seqlen: int) -> Tensor:
    if not q.is_cuda:
        raise UnsupportedError("needs a GPU")
    if q.dtype == torch.float32:
        raise UnsupportedError("supports only float16 and bfloat16")
    from torch.nn.attention.varlen import varlen_attn

    is_grouped = q.shape[1] != k.shape[1]
    ends = (cu_seqlens, cu_seqlens, max_seqlen, max_seqlen)
    out = varlen_attn(q, k, v, *ends, window_size=(-1, 0), enable_gqa=is_grouped)
    assert isinstance(out, Tensor)  # a tuple only with more requested outputs
    return out

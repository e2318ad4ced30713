"""Causal attention with sinks, and a sliding window or none, forward and backward.

A sink is a learned score of each head that takes part in the softmax and has no value, so a query
can attend to nothing. The kernels of attention start the running maximum and sum with it. The
backward pass needs no other kernel: the log-sum-exp contains the sink.

Source: OpenAI, gpt-oss model card, 2025 (arXiv 2508.10925), section 2; Xiao et al., Efficient
Streaming Language Models with Attention Sinks, 2023 (arXiv 2309.17453).
"""

import math
from typing import Any

import torch
from torch import Tensor

from roofwatch import Case, InputMaker, KernelSpec, Tolerance, cases
from roofwatch.kernels.attention.attention import (
    attention_flop_count,
    attention_memory_bytes,
)
from roofwatch.kernels.attention.forward import attention_sinks_op
from roofwatch.kernels.attention.masks import hidden_pairs, window_of
from roofwatch.kernels.attention.tiling import require_heads
from roofwatch.kernels.building_blocks.errors import KernelError
from roofwatch.kernels.building_blocks.models import GPT_OSS_120B
from roofwatch.kernels.building_blocks.operands import require_equal, require_operands
from roofwatch.kernels.building_blocks.shapes import (
    model_cases,
    self_attention,
    small_cases,
    with_choice,
)


def attention_sinks_reference(
    q: Tensor, k: Tensor, v: Tensor, sinks: Tensor, window: int = 0
) -> Tensor:
    """Compute the softmax over the visible keys and the sink, and the sum of the keys' values."""
    T, D = q.shape[2:]
    group = q.shape[1] // k.shape[1]
    scores = q @ k.repeat_interleave(group, dim=1).transpose(-1, -2) / math.sqrt(D)
    age = torch.arange(T, device=q.device)[:, None] - torch.arange(T, device=q.device)
    exps = scores.masked_fill(hidden_pairs(age, window), -math.inf)
    sink = sinks[:, None, None].expand(*scores.shape[:3], 1)
    probabilities = torch.cat([exps, sink], dim=-1).softmax(dim=-1)[..., :-1]
    return probabilities @ v.repeat_interleave(group, dim=1)


def _inputs(case: Case, make: InputMaker) -> dict[str, Any]:
    B, T, D = case["B"], case["T"], case["D"]
    return {
        "q": make.scores(B, case["H"], T, D),
        "k": make.scores(B, case["H_KV"], T, D),
        "v": make.normal(B, case["H_KV"], T, D),
        "sinks": make.weights(case["H"], dtype="float32"),
        "window": window_of(case),
    }


_BFLOAT16_TOLERANCE = Tolerance(
    elementwise=4e-2, rmse_ratio=1e-2, elementwise_floor=1.6e-2, rmse_floor=4e-3
)
"""Twice the usual elementwise floor, for tokens with equal values, as in an expanded v.

The gradient of a score is then a small difference between the products of grad_out with v and with
out. As in FlashAttention-2, out is rounded to bfloat16; eager torch subtracts a sum of products
that all have the same rounding. With other values the rounding of the gradient itself is larger.
"""

attention_sinks_spec = KernelSpec(
    name="attention_sinks",
    family="attention",
    inputs=_inputs,
    reference=attention_sinks_reference,
    cases=[
        *small_cases(
            {"B": 1, "H": 8, "H_KV": 2, "T": 512, "D": 64, "mask": "window", "window": 128},
            dtypes=["bfloat16"],
            directions=["fwd", "bwd"],
        ),
        *model_cases(
            [
                # every other layer has the window
                *with_choice(
                    self_attention([GPT_OSS_120B], lengths=[8192]), mask="window", window=128
                ),
                *with_choice(self_attention([GPT_OSS_120B], lengths=[8192]), mask="causal"),
            ],
            directions=["fwd", "bwd"],
        ),
    ],
    edges=[
        *cases(
            shapes=[
                {"B": 1, "H": 2, "H_KV": 1, "T": 63, "D": 40, "mask": "causal"},
                {"B": 0, "H": 2, "H_KV": 2, "T": 5, "D": 16, "mask": "causal"},
            ],
            dtypes=["float16"],
            directions=["bwd"],
        ),
        *cases(
            shapes=[{"B": 2, "H": 1, "H_KV": 1, "T": 130, "D": 16, "mask": "window", "window": 17}],
            dtypes=["float32"],
        ),
    ],
    flop_count=attention_flop_count,
    memory_bytes=attention_memory_bytes,
    token_count=lambda case: case["B"] * case["T"],
    tolerances={"bfloat16": _BFLOAT16_TOLERANCE},
    formula="out = softmax([q kᵀ / sqrt(D) + mask, sink])[:-1] v",
    source="OpenAI, gpt-oss model card, 2025 (arXiv 2508.10925), section 2",
    interpreted_shape={"B": 1, "H": 2, "H_KV": 1, "T": 70, "window": 40},
)


@attention_sinks_spec.implementation("triton", deterministic=True)
def attention_sinks(q: Tensor, k: Tensor, v: Tensor, sinks: Tensor, window: int = 0) -> Tensor:
    """Compute causal attention whose softmax has one more score per head, accumulated in float32.

    Args:
        q: [B, H, T, D], contiguous along its last dim, D at most 256.
        k: [B, H_KV, T, D] of q's dtype; each head serves `H / H_KV` consecutive heads of q.
        v: [B, H_KV, T, D] of q's dtype.
        sinks: [H] float32.
        window: Maximum number of keys per query, including its own; 0 for no limit.

    Returns:
        [B, H, T, D] in q's dtype, contiguous.
    """
    name = "attention_sinks"
    require_operands(name, dims=4, q=q, k=k, v=v)
    require_operands(name, dims=1, dtypes=(torch.float32,), sinks=sinks)
    B, H, T, D = q.shape
    require_equal(name, "the shapes", k=tuple(k.shape), v=tuple(v.shape))
    require_equal(name, "batch, length and head dim", q=(B, T, D), k=(k.shape[0], *k.shape[2:]))
    require_equal(name, "the dtypes", q=q.dtype, k=k.dtype, v=v.dtype)
    require_equal(name, "heads and device", q=(H, q.device), sinks=(len(sinks), sinks.device))
    require_heads(name, H, k.shape[1], D)
    if window < 0:
        raise KernelError(f"{name}: window is {window}, must be at least 0; pass 0 for no limit")
    return attention_sinks_op(q, k, v, sinks, window)[0]


@attention_sinks_spec.implementation("torch", compile=True)
def _attention_sinks_torch(
    q: Tensor, k: Tensor, v: Tensor, sinks: Tensor, window: int = 0
) -> Tensor:
    # as eager attention of gpt-oss in transformers: scores in q's dtype
    B, H, T, D = q.shape
    k, v = (heads.repeat_interleave(H // heads.shape[1], dim=1) for heads in (k, v))
    is_seen = torch.ones(T, T, dtype=torch.bool, device=q.device).tril()
    if window:
        is_seen = is_seen.triu(1 - window)
    scores = (q @ k.transpose(2, 3) / math.sqrt(D)).masked_fill(~is_seen, -math.inf)
    sink = sinks.to(q.dtype)[:, None, None].expand(B, H, T, 1)
    probabilities = torch.cat([scores, sink], dim=-1).softmax(dim=-1)
    return probabilities[..., :-1] @ v

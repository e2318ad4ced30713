"""Attention, forward and backward: causal, sliding window or full, with grouped key heads.

The scores are not stored in memory. The kernels also process packed sequences (attention_varlen.py).

Source: Dao, FlashAttention-2, 2023 (arXiv 2307.08691); Ainslie et al., GQA, 2023 (arXiv 2305.13245); Beltagy et al.,
Longformer, 2020 (arXiv 2004.05150), for the window.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from roofwatch import Case, InputMaker, KernelSpec, UnsupportedError, cases
from roofwatch.kernels import KernelError
from roofwatch.kernels.attention.forward import attention_op
from roofwatch.kernels.attention.tiling import require_heads
from roofwatch.kernels.models import GEMMA_2_9B
from roofwatch.kernels.operands import require_equal, require_operands
from roofwatch.kernels.shapes import image_attention, model_cases, self_attention, with_choice


def attention_reference(q: Tensor, k: Tensor, v: Tensor, is_causal: bool = True, window: int = 0) -> Tensor:
    """Compute `softmax(q kᵀ / sqrt(D)) v` over the visible keys; each key head serves `H / H_KV` query heads."""
    T, D = q.shape[2:]
    group = q.shape[1] // k.shape[1]
    scores = q @ k.repeat_interleave(group, dim=1).transpose(-1, -2) / math.sqrt(D)
    age = torch.arange(T, device=q.device)[:, None] - torch.arange(k.shape[2], device=q.device)
    if is_causal:
        scores = scores.masked_fill(age < 0, -math.inf)
    if window:
        scores = scores.masked_fill(age >= window, -math.inf)
    return scores.softmax(dim=-1) @ v.repeat_interleave(group, dim=1)


def _window(case: Case) -> int:
    return case["window"] if case.choice("mask") == "window" else 0


def _inputs(case: Case, make: InputMaker) -> dict[str, Any]:
    B, T, D = case["B"], case["T"], case["D"]
    return {
        "q": make.normal(B, case["H"], T, D),
        "k": make.normal(B, case["H_KV"], T, D),
        "v": make.normal(B, case["H_KV"], T, D),
        "is_causal": case.choice("mask") != "full",
        "window": _window(case),
    }


def visible_pairs(T: int, *, is_causal: bool = True, window: int = 0) -> int:
    """Number of pairs of a query and a visible key among `T` tokens."""
    if not is_causal:
        return T * T
    window = min(window or T, T)
    return window * (window + 1) // 2 + (T - window) * window


def attention_flop_count(case: Case) -> float:
    """Count products of 2 D FLOP per visible pair and head: 2 forward (scores, weighted sum), 5 backward.

    Backward recomputes the scores and has one product for each gradient: probabilities, q, k and v. The softmax is not
    counted. FlashAttention's benchmark counts the same products, with T² / 2 pairs for a causal mask.
    """
    pairs = visible_pairs(case["T"], is_causal=case.choice("mask") != "full", window=_window(case))
    return (5 if case.is_backward else 2) * 2 * case["D"] * pairs * case["B"] * case["H"]


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
        *cases(
            shapes=[{"B": 1, "H": 8, "H_KV": 2, "T": 512, "D": 64, "mask": "causal"}],
            dtypes=["float32", "bfloat16"],
            directions=["fwd", "bwd"],
            tags=["small"],
        ),
        *model_cases(
            [
                *with_choice(self_attention(), mask="causal"),
                # every other layer of this model has this window
                *with_choice(self_attention([GEMMA_2_9B], lengths=[8192]), mask="window", window=4096),
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
    require_equal("attention", "batch and head dim", q=(q.shape[0], q.shape[3]), k=(k.shape[0], k.shape[3]))
    require_equal("attention", "the dtypes", q=q.dtype, k=k.dtype, v=v.dtype)
    if is_causal:
        require_equal("attention", "the lengths under a causal mask", q=q.shape[2], k=k.shape[2])
    require_heads("attention", q.shape[1], k.shape[1], q.shape[3])
    if window < 0 or (window and not is_causal):
        raise KernelError(
            f"attention: window={window} with is_causal={is_causal}; a window needs 1 or more keys, or 0 for "
            "no limit, and a causal mask: pass is_causal=True"
        )
    return attention_op(q, k, v, is_causal, window, None, None)[0]


@attention_spec.implementation("torch", compile=True)
def _attention_torch(q: Tensor, k: Tensor, v: Tensor, is_causal: bool = True, window: int = 0) -> Tensor:
    mask = None
    if window:
        T = q.shape[2]
        mask = torch.ones(T, T, dtype=torch.bool, device=q.device).tril().triu(1 - window)
    return torch.nn.functional.scaled_dot_product_attention(
        q, k, v, attn_mask=mask, is_causal=is_causal and mask is None, enable_gqa=q.shape[1] != k.shape[1]
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
            raise UnsupportedError(f"does not support {grouped}{q.dtype} heads of {q.shape[3]} dims on this GPU")
        with sdpa_kernel(backend):
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=is_causal, enable_gqa=is_grouped)

    return launch


for _name, _backend, _can_use in (
    ("sdpa_flash", SDPBackend.FLASH_ATTENTION, torch.backends.cuda.can_use_flash_attention),
    ("sdpa_cudnn", SDPBackend.CUDNN_ATTENTION, torch.backends.cuda.can_use_cudnn_attention),
    ("sdpa_efficient", SDPBackend.EFFICIENT_ATTENTION, torch.backends.cuda.can_use_efficient_attention),
):
    attention_spec.implementation("torch", name=_name)(_sdpa(_backend, _can_use))

"""Top-k routing of each token: softmax over expert logits and the top_k largest; forward.

Logit and expert are packed into one integer that sorts by logit, then by lower expert, so the
choice is deterministic.

The weights are normalised to sum to 1, as in Mixtral and Qwen3, so they are the softmax of the
chosen logits. (DeepSeek-V3 uses a sigmoid and chooses in groups.)
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from roofwatch import Case, InputMaker, KernelSpec, cases
from roofwatch.kernels.building_blocks.errors import KernelError
from roofwatch.kernels.building_blocks.operands import require_operands
from roofwatch.kernels.building_blocks.operators import operator
from roofwatch.kernels.building_blocks.shapes import (
    expert_tokens,
    model_cases,
    small_cases,
    with_dimensions,
)

MAX_EXPERTS = 4096
"""A longer row would not fit into registers."""


@triton.jit
def _topk_routing_kernel(
    logits_ptr,
    weights_ptr,
    experts_ptr,
    logits_row_stride,
    n_tokens,
    n_experts,
    TOP_K: tl.constexpr,
    CHOICES: tl.constexpr,
    EXPERTS: tl.constexpr,
    TOKENS: tl.constexpr,
):
    tokens = (tl.program_id(0) * TOKENS + tl.arange(0, TOKENS)).to(tl.int64)
    offs = tl.arange(0, EXPERTS)
    is_expert = (offs < n_experts)[None, :]
    mask = (tokens < n_tokens)[:, None] & is_expert
    logits_ptrs = logits_ptr + tokens[:, None] * logits_row_stride + offs[None, :]
    logits = tl.load(logits_ptrs, mask=mask, other=0.0).to(tl.float32)  # [TOKENS, EXPERTS]
    bits = tl.where(logits == 0, 0.0, logits).to(tl.int32, bitcast=True)  # -0 equals 0
    # flip the bits of negative floats, so integers sort like the logits
    ordered = bits ^ ((bits >> 31) & 0x7FFFFFFF)
    keys = (ordered.to(tl.int64) << 32) | (EXPERTS - 1 - offs)[None, :]
    lowest = tl.full((), -(2**63), tl.int64)
    keys = tl.where(is_expert, keys, lowest)

    choices = tl.arange(0, CHOICES)[None, :]
    chosen = tl.full((TOKENS, CHOICES), -(2**63), tl.int64)
    for choice in tl.static_range(TOP_K):
        best = tl.max(keys, axis=1)[:, None]
        chosen = tl.where(choices == choice, best, chosen)
        keys = tl.where(keys == best, lowest, keys)
    experts = EXPERTS - 1 - (chosen & 0xFFFFFFFF).to(tl.int32)
    ordered = (chosen >> 32).to(tl.int32)
    logits = (ordered ^ ((ordered >> 31) & 0x7FFFFFFF)).to(tl.float32, bitcast=True)
    # the first choice is the largest
    largest = tl.max(tl.where(choices == 0, logits, -float("inf")), axis=1)[:, None]
    exps = tl.where(choices < TOP_K, tl.exp(logits - largest), 0.0)
    weights = exps / tl.sum(exps, axis=1)[:, None]
    offs_out = tokens[:, None] * TOP_K + choices
    mask_out = (tokens < n_tokens)[:, None] & (choices < TOP_K)
    tl.store(weights_ptr + offs_out, weights, mask=mask_out)  # [TOKENS, CHOICES]
    tl.store(experts_ptr + offs_out, experts, mask=mask_out)  # [TOKENS, CHOICES]


def moe_topk_routing_config(n_experts: int) -> dict[str, int]:
    """Tokens per program: 8 keys per thread of an NVIDIA GPU,
    and if possible whole rows per warp.
    """
    experts = triton.next_power_of_2(max(n_experts, 2))
    return {
        "EXPERTS": experts,
        "TOKENS": max(1024 // experts, 1),
        "num_warps": max(4, experts // 256),
    }


def _empty_choices(logits: Tensor, top_k: int) -> tuple[Tensor, Tensor]:
    n_tokens = logits.shape[0]
    return (
        logits.new_empty(n_tokens, top_k, dtype=torch.float32),
        logits.new_empty(n_tokens, top_k, dtype=torch.int32),
    )


@operator("moe_topk_routing", _empty_choices)
def _moe_topk_routing_op(logits, top_k, weights, experts):
    n_tokens, n_experts = logits.shape
    config = moe_topk_routing_config(n_experts)
    _topk_routing_kernel[(triton.cdiv(n_tokens, config["TOKENS"]),)](
        logits,
        weights,
        experts,
        logits.stride(0),
        n_tokens,
        n_experts,
        TOP_K=top_k,
        CHOICES=triton.next_power_of_2(top_k),
        **config,
    )


def moe_topk_routing_reference(logits: Tensor, top_k: int) -> tuple[Tensor, Tensor]:
    """Sort experts by logit, lower expert first among equals, and renormalise the softmax of the
    first top_k.
    """
    order = logits.argsort(dim=-1, descending=True, stable=True)[:, :top_k]
    exps = (logits - logits.amax(dim=-1, keepdim=True)).exp()
    probabilities = (exps / exps.sum(dim=-1, keepdim=True)).gather(1, order)
    return probabilities / probabilities.sum(dim=-1, keepdim=True), order


def _inputs(case: Case, make: InputMaker) -> dict[str, Any]:
    T, E = case["T"], case["E"]
    # shuffled quantiles of a normal distribution: no two logits are close enough for rounding to
    # swap them
    places = make.integers(T, E, high=2**31).argsort(dim=1)
    logits = torch.special.ndtri((places.double() + 0.5) / E)
    spread = make.uniform(T, 1, low=0.5, high=2.0, dtype="float32")
    return {
        "logits": (logits * spread + make.normal(T, 1, dtype="float32")).float(),
        "top_k": case["top_k"],
    }


def moe_topk_routing_flop_count(case: Case) -> float:
    """Count a comparison per logit and choice; per choice a subtraction, exponential, addition and
    division.
    """
    return case["T"] * case["top_k"] * (case["E"] + 4)


def moe_topk_routing_memory_bytes(case: Case) -> float:
    """Reads the logits, writes a weight and an expert of 4 bytes each for every choice."""
    return case["T"] * (case["E"] * case.itemsize + 8 * case["top_k"])


moe_topk_routing_spec = KernelSpec(
    name="moe_topk_routing",
    family="MoE",
    inputs=_inputs,
    reference=moe_topk_routing_reference,
    cases=[
        *small_cases({"T": 1024, "E": 64, "top_k": 6}, dtypes=["float32"]),
        *model_cases(with_dimensions(expert_tokens(), "T", "E", "top_k"), dtypes=["float32"]),
    ],
    edges=cases(
        shapes=[
            {"T": 63, "E": 100, "top_k": 3},
            {"T": 1, "E": 5, "top_k": 5},
            {"T": 3, "E": 1, "top_k": 1},
            {"T": 2, "E": 1000, "top_k": 8},
            {"T": 0, "E": 8, "top_k": 2},
        ]
    ),
    flop_count=moe_topk_routing_flop_count,
    memory_bytes=moe_topk_routing_memory_bytes,
    token_count=lambda case: case["T"],
    formula="weights, experts = top_k(softmax(logits)), weights / sum weights",
    source="Jiang et al., Mixtral of Experts, 2024 (arXiv 2401.04088), section 2.1",
    interpreted_shape={"T": 70},
)


@moe_topk_routing_spec.implementation("triton", directions=["fwd"], deterministic=True)
def moe_topk_routing(logits: Tensor, top_k: int) -> tuple[Tensor, Tensor]:
    """Return the `top_k` most probable experts of each token, with weights that sum to 1.

    Args:
        logits: [n_tokens, n_experts], contiguous along its last dim, at most `MAX_EXPERTS` experts;
            no NaN, and at least one logit per row above -inf.
        top_k: 1 to n_experts.

    Returns:
        Weights [n_tokens, top_k] float32 in descending order, and experts [n_tokens, top_k] int32.
    """
    require_operands("moe_topk_routing", dims=2, logits=logits)
    n_experts = logits.shape[1]
    if n_experts > MAX_EXPERTS:
        raise KernelError(
            f"moe_topk_routing: logits has {n_experts} experts, at most {MAX_EXPERTS} are "
            f"supported; "
            "call torch.topk(torch.softmax(logits, dim=-1), top_k)"
        )
    if not 1 <= top_k <= n_experts:
        raise KernelError(
            f"moe_topk_routing: top_k is {top_k}; choose 1 to {n_experts}, the number of experts"
        )
    return _moe_topk_routing_op(logits, top_k)


@moe_topk_routing_spec.implementation("torch", compile=True)
def _moe_topk_routing_torch(logits: Tensor, top_k: int) -> tuple[Tensor, Tensor]:
    weights, experts = torch.softmax(logits, dim=-1, dtype=torch.float32).topk(top_k, dim=-1)
    return weights / weights.sum(dim=-1, keepdim=True), experts.to(torch.int32)

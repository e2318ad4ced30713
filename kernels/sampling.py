"""Sampling of the next token from logits, limited to the most probable tokens (top-k, top-p).

A row is read twice and not sorted. The first pass keeps the maximum of each of 4096 lanes. The k-th
largest of them bounds the k-th largest logit from below, so the second pass collects a few
candidates. Two searches then narrow an interval until all of its candidates are equal: one by the
number of larger logits, one by their probability. Only without a useful limit do they pass over the
row again. The token is drawn by the inverse of the cumulative distribution, in the order of the
vocabulary, from a uniform number that the caller draws.

The cycle model does not know how often the searches pass, and adds the search in the candidates to
that in the row, although a row takes only one. For 64 rows of 128,256 logits on sm_90 it predicts
1.2 ms, and 0.5 ms without the search in the row.

Source: Holtzman et al., The Curious Case of Neural Text Degeneration, 2019 (arXiv 1904.09751), for
top-p; Ye et al., FlashInfer, 2025 (arXiv 2501.01005), and its `top_p_renorm_probs`, for the search
with two pivots.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from roofwatch import Case, InputMaker, KernelSpec, cases
from roofwatch.kernels.building_blocks.operands import require_equal, require_operands
from roofwatch.kernels.building_blocks.operators import operator
from roofwatch.kernels.building_blocks.shapes import (
    DECODE_SEQUENCES,
    Workload,
    model_cases,
    small_cases,
    vocabulary_rows,
)
from roofwatch.kernels.building_blocks.token_search import (
    NEGLIGIBLE,
    bound_of_candidates,
    choose_token,
    load_logits,
    weight_of,
)

_MAX_CANDIDATES = 8192
_MOST_WANTED = tl.constexpr(3072)
"""Maximum number of lanes above the bound of candidates. Then about 5,700 elements of a long row in
random order are above it."""


@triton.jit
def _sampling_kernel(
    logits_ptr,
    temperature_ptr,
    top_k_ptr,
    top_p_ptr,
    uniform_ptr,
    candidate_ptr,  # [n_rows, MAX_CANDIDATES]
    index_ptr,  # [n_rows, MAX_CANDIDATES]
    tokens_ptr,
    row_stride,
    n_cols,
    MAX_CANDIDATES: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    logits_ptr += row * row_stride
    candidate_ptr += row * MAX_CANDIDATES
    index_ptr += row * MAX_CANDIDATES
    factor = 1.0 / tl.load(temperature_ptr + row)
    top_k = tl.load(top_k_ptr + row).to(tl.float32)
    top_p = tl.load(top_p_ptr + row)
    uniform = tl.load(uniform_ptr + row)
    lane_max = tl.full((BLOCK,), -float("inf"), tl.float32)
    for start in range(0, n_cols, BLOCK):
        lane_max = tl.maximum(lane_max, load_logits(logits_ptr, start, n_cols, factor, BLOCK))
    row_max = tl.max(lane_max, axis=0)
    low = bound_of_candidates(lane_max, row_max, tl.minimum(top_k, _MOST_WANTED))

    lane_sum = tl.zeros((BLOCK,), tl.float32)
    lane_sum_above = tl.zeros((BLOCK,), tl.float32)
    n_candidates = 0
    for start in range(0, n_cols, BLOCK):
        x = load_logits(logits_ptr, start, n_cols, factor, BLOCK)
        is_above = x > low
        weight = weight_of(x, row_max, True)
        lane_sum += weight
        lane_sum_above += tl.where(is_above, weight, 0.0)
        n_above = tl.sum(is_above.to(tl.int32), axis=0)
        if (n_above > 0) & (n_candidates + n_above <= MAX_CANDIDATES):
            offs = n_candidates + tl.cumsum(is_above.to(tl.int32), axis=0) - 1
            tl.store(candidate_ptr + offs, x, mask=is_above)  # [BLOCK]
            tl.store(index_ptr + offs, start + tl.arange(0, BLOCK), mask=is_above)  # [BLOCK]
        n_candidates += n_above
    total = tl.sum(lane_sum, axis=0)
    # the candidates contain every token that can be drawn
    is_limited = top_k < n_cols
    has_top_k = top_k <= _MOST_WANTED
    has_top_p = (not is_limited) & (tl.sum(lane_sum_above, axis=0) >= top_p * total)
    if (n_candidates <= MAX_CANDIDATES) & (has_top_k | has_top_p):
        tl.debug_barrier()  # other threads of the program wrote them
        chosen = choose_token(
            candidate_ptr,
            n_candidates,
            1.0,
            row_max,
            low,
            is_limited,
            top_k,
            top_p,
            total,
            uniform,
            BLOCK,
        )
        token = tl.load(index_ptr + chosen)
    else:
        low = row_max - NEGLIGIBLE
        token = choose_token(
            logits_ptr,
            n_cols,
            factor,
            row_max,
            low,
            is_limited,
            top_k,
            top_p,
            total,
            uniform,
            BLOCK,
        )
    tl.store(tokens_ptr + row, token.to(tl.int64))


def top_k_top_p_sampling_config(n_cols: int) -> dict[str, int]:
    """Eight elements per thread, the most without spills: a row has a whole multiprocessor."""
    block = min(triton.next_power_of_2(n_cols), 4096)
    return {"BLOCK": block, "num_warps": max(block // 256, 1)}


def _empty_tokens(
    logits: Tensor, temperature: Tensor, top_k: Tensor, top_p: Tensor, uniform: Tensor
) -> Tensor:
    return logits.new_empty(logits.shape[0], dtype=torch.int64)


@operator("top_k_top_p_sampling", _empty_tokens)
def _top_k_top_p_sampling_op(logits, temperature, top_k, top_p, uniform, tokens):
    n_rows, n_cols = logits.shape
    candidates = logits.new_empty(n_rows, _MAX_CANDIDATES, dtype=torch.float32)
    indices = logits.new_empty(n_rows, _MAX_CANDIDATES, dtype=torch.int32)
    _sampling_kernel[(n_rows,)](
        logits,
        temperature,
        top_k,
        top_p,
        uniform,
        candidates,
        indices,
        tokens,
        logits.stride(0),
        n_cols,
        MAX_CANDIDATES=_MAX_CANDIDATES,
        **top_k_top_p_sampling_config(n_cols),
    )


def top_k_top_p_sampling_reference(
    logits: Tensor, temperature: Tensor, top_k: Tensor, top_p: Tensor, uniform: Tensor
) -> Tensor:
    """Sort each row, drop tokens after the k-th largest logit, then those after the probability p,
    and invert the cumulative distribution of the others in the order of the vocabulary.
    """
    scaled = logits / temperature[:, None]
    ordered = scaled.sort(dim=1, descending=True).values
    last = (top_k.long() - 1).clamp(max=logits.shape[1] - 1)
    scaled = scaled.masked_fill(scaled < ordered.gather(1, last[:, None]), -torch.inf)
    ordered = scaled.sort(dim=1, descending=True).values
    larger = ordered.softmax(dim=1).cumsum(dim=1).roll(1, dims=1)
    larger[:, 0] = 0
    smallest = ordered.where(larger < top_p[:, None], torch.inf).amin(dim=1, keepdim=True)
    cumulative = scaled.masked_fill(scaled < smallest, -torch.inf).softmax(dim=1).cumsum(dim=1)
    return (cumulative > uniform[:, None]).int().argmax(dim=1)


def _inputs(case: Case, make: InputMaker) -> dict[str, Any]:
    """Every row has another temperature and other limits; some have none."""
    n_rows, n_cols = case["n_rows"], case["n_cols"]
    rows = torch.arange(n_rows, device=make.device)
    limits = torch.tensor([50, 1, n_cols, 200, 3000], dtype=torch.int32, device=make.device)
    shares = torch.tensor([0.9, 0.95, 0.3, 1.0], device=make.device)
    return {
        "logits": make.normal(n_rows, n_cols, scale=3.0),
        "temperature": make.uniform(n_rows, low=0.6, high=1.2, dtype="float32"),
        "top_k": limits[rows % len(limits)],
        "top_p": shares[rows % len(shares)],
        "uniform": make.uniform(n_rows, low=0.0, high=1.0, dtype="float32"),
    }


def top_k_top_p_sampling_flop_count(case: Case) -> float:
    """Count per element: multiply, compare, subtract, exp, add."""
    return 5 * case["n_rows"] * case["n_cols"]


def top_k_top_p_sampling_memory_bytes(case: Case) -> float:
    """Reads the logits once, and four numbers of 4 bytes per row; writes a token of 8 bytes."""
    return case["n_rows"] * (case["n_cols"] * case.itemsize + 4 * 4 + 8)


def _decoded_rows() -> list[Workload]:
    """`n_rows` sequences of a decode step, `n_cols` = vocabulary."""
    return [
        Workload(
            {"n_rows": DECODE_SEQUENCES, "n_cols": rows.shape["n_cols"]},
            (rows.tags - {"train"}) | {"decode"},
        )
        for rows in vocabulary_rows()
    ]


top_k_top_p_sampling_spec = KernelSpec(
    name="top_k_top_p_sampling",
    family="sampling",
    inputs=_inputs,
    reference=top_k_top_p_sampling_reference,
    cases=[
        *small_cases({"n_rows": 20, "n_cols": 8192}),
        *model_cases(_decoded_rows(), dtypes=["float32"]),
    ],
    edges=[
        *cases(shapes=[{"n_rows": 4, "n_cols": 1}, {"n_rows": 0, "n_cols": 63}]),
        *cases(shapes=[{"n_rows": 3, "n_cols": 1000}], dtypes=["float16"]),
    ],
    flop_count=top_k_top_p_sampling_flop_count,
    memory_bytes=top_k_top_p_sampling_memory_bytes,
    token_count=lambda case: case["n_rows"],
    formula="token ~ softmax(logits / temperature) of the top_k largest, of these the top_p",
    source="Holtzman et al., The Curious Case of Neural Text Degeneration, 2019 (arXiv 1904.09751)",
    interpreted_shape={"n_rows": 8, "n_cols": 9000},
)


@top_k_top_p_sampling_spec.implementation("triton", directions=["fwd"], deterministic=True)
def top_k_top_p_sampling(
    logits: Tensor, temperature: Tensor, top_k: Tensor, top_p: Tensor, uniform: Tensor
) -> Tensor:
    """Draw a token of each row from the `top_k` largest logits, and of these from the smallest set
    with probability `top_p`.

    Tokens with equal logits are kept or dropped together.

    Args:
        logits: [n_rows, n_cols], contiguous along its last dim, without NaN, and one above -inf in
            each row.
        temperature: [n_rows] float32, above 0; divides the logits.
        top_k: [n_rows] int32, at least 1; n_cols for no limit.
        top_p: [n_rows] float32, above 0; 1 for no limit.
        uniform: [n_rows] float32, drawn from [0, 1).

    Returns:
        [n_rows] int64.
    """
    name = "top_k_top_p_sampling"
    require_operands(name, dims=2, logits=logits)
    of_rows = {"temperature": temperature, "top_p": top_p, "uniform": uniform}
    require_operands(name, dims=1, dtypes=(torch.float32,), **of_rows)
    require_operands(name, dims=1, dtypes=(torch.int32,), top_k=top_k)
    require_equal(
        name,
        "rows and devices",
        logits=(len(logits), logits.device),
        top_k=(len(top_k), top_k.device),
        temperature=(len(temperature), temperature.device),
        top_p=(len(top_p), top_p.device),
        uniform=(len(uniform), uniform.device),
    )
    return _top_k_top_p_sampling_op(logits, temperature, top_k, top_p, uniform)


@top_k_top_p_sampling_spec.implementation("torch", directions=["fwd"], compile=True)
def _top_k_top_p_sampling_torch(
    logits: Tensor, temperature: Tensor, top_k: Tensor, top_p: Tensor, uniform: Tensor
) -> Tensor:
    ordered, tokens = (logits.float() / temperature[:, None]).sort(
        dim=1, descending=True, stable=True
    )
    n_cols = logits.shape[1]
    kth = ordered.gather(1, (top_k.long() - 1).clamp(max=n_cols - 1)[:, None])
    probabilities = ordered.masked_fill(ordered < kth, -torch.inf).softmax(dim=1)
    larger = probabilities.cumsum(dim=1) - probabilities
    # equal logits are dropped together
    is_first = torch.ones_like(ordered, dtype=torch.bool)
    is_first[:, 1:] = ordered[:, 1:] < ordered[:, :-1]
    larger = torch.where(is_first, larger, 0.0).cummax(dim=1).values
    probabilities = probabilities.where(larger < top_p[:, None], 0.0)
    by_token = torch.zeros_like(probabilities).scatter(1, tokens, probabilities)
    cumulative = by_token.cumsum(dim=1)
    drawn = uniform[:, None] * cumulative[:, -1:]
    return (cumulative > drawn).int().argmax(dim=1)

"""Scan of the state-space layer of Mamba-2 (SSD) in chunks, forward; ssd_scan_backward.py has the
gradient.

A program keeps the state of a head in registers and walks down the sequence. In a chunk, the terms
between its tokens are a masked matrix product, as in attention without a softmax; the tokens before
it are in the state. Chunks of a sequence are processed one after another, so a few long
sequences leave multiprocessors idle. In return no state is stored between chunks.

    state[t] = exp(dt[t] a) state[t - 1] + dt[t] x[t] b[t]ᵀ        out[t] = state[t] c[t]

Source: Dao and Gu, Transformers are SSMs, 2024 (arXiv 2405.21060), section 6.
"""

import math
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from roofwatch import Case, InputMaker, KernelSpec, cases
from roofwatch.kernels.building_blocks.errors import KernelError
from roofwatch.kernels.building_blocks.operands import (
    refuse_gradients,
    require_contiguous,
    require_equal,
    require_operands,
)
from roofwatch.kernels.building_blocks.operators import operator
from roofwatch.kernels.building_blocks.rivals import fla
from roofwatch.kernels.building_blocks.shapes import Workload, model_cases, small_cases
from roofwatch.kernels.building_blocks.target import DeviceTarget, current_target
from roofwatch.kernels.building_blocks.tiles import dot
from roofwatch.kernels.state_space.chunks import (
    decay_between,
    decays_of,
    load_chunk,
    load_steps,
)
from roofwatch.kernels.state_space.ssd_scan_backward import ssd_scan_backward

_MAX_STATES = 256
_MAX_HEAD_DIM_BACKWARD = 128
_TORCH_CHUNK = 64
_LAYERS = {
    "mamba2_2.7b": {"H": 80, "P": 64, "G": 1, "N": 128},
    "codestral_mamba_7b": {"H": 128, "P": 64, "G": 8, "N": 128},
}
"""Source: config.json of state-spaces/mamba2-2.7b and mistralai/Mamba-Codestral-7B-v0.1."""


@triton.jit
def _ssd_scan_kernel(
    x_ptr,  # [B, T, H, P]
    dt_ptr,  # [B, T, H]
    a_ptr,  # [H]
    b_ptr,  # [B, T, G, N]
    c_ptr,  # [B, T, G, N]
    out_ptr,  # [B, T, H, P]
    state_ptr,  # [B, H, P, N]
    x_strides,
    b_strides,
    c_strides,
    T,
    H,
    group,
    log2_e,
    P: tl.constexpr,
    N: tl.constexpr,
    BLOCK_T: tl.constexpr,
    BLOCK_P: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    N_BLOCKS_P: tl.constexpr = (P + BLOCK_P - 1) // BLOCK_P
    first_p = tl.program_id(0) % N_BLOCKS_P * BLOCK_P
    offs_p = first_p + tl.arange(0, BLOCK_P)
    offs_n = tl.arange(0, BLOCK_N)
    h = (tl.program_id(0) // N_BLOCKS_P % H).to(tl.int64)
    batch = (tl.program_id(0) // N_BLOCKS_P // H).to(tl.int64)
    x_ptr += batch * x_strides[0] + h * x_strides[2]
    b_ptr += batch * b_strides[0] + h // group * b_strides[2]
    c_ptr += batch * c_strides[0] + h // group * c_strides[2]
    dt_ptr += batch * T * H + h
    out_ptr += (batch * T * H + h) * P
    rate = tl.load(a_ptr + h) * log2_e
    state = tl.zeros((BLOCK_N, BLOCK_P), tl.float32)
    steps = tl.arange(0, BLOCK_T)
    for start in range(0, T, BLOCK_T):
        n_left = T - start
        # fmt: off
        x = load_chunk(
            x_ptr, start, steps, x_strides[1], n_left, first_p, P, BLOCK_P
        )  # [BLOCK_T, BLOCK_P]
        b = load_chunk(
            b_ptr, start, steps, b_strides[1], n_left, 0, N, BLOCK_N
        )  # [BLOCK_T, BLOCK_N]
        c = load_chunk(
            c_ptr, start, steps, c_strides[1], n_left, 0, N, BLOCK_N
        )  # [BLOCK_T, BLOCK_N]
        # fmt: on
        dt = load_steps(dt_ptr, start, steps, H, n_left)  # [BLOCK_T]
        decay, chunk_decay = decays_of(dt, rate)
        weights = dot(c, b.T, tl.zeros((BLOCK_T, BLOCK_T), tl.float32))
        weights *= decay_between(decay, steps, FROM_ROWS=False) * dt[None, :]
        out = dot(c, state.to(c.dtype), tl.zeros((BLOCK_T, BLOCK_P), tl.float32))
        out = dot(weights.to(x.dtype), x, out * tl.exp2(decay)[:, None])
        # by store_chunk, scalar registers are spilled on gfx950
        out_ptrs = (
            out_ptr + tl.cast(start, tl.int64) * H * P + steps[:, None] * H * P + offs_p[None, :]
        )
        mask = (steps < n_left)[:, None] & (offs_p < P)[None, :]
        tl.store(out_ptrs, out.to(out_ptr.dtype.element_ty), mask=mask)  # [BLOCK_T, BLOCK_P]
        added = x.to(tl.float32) * (dt * tl.exp2(chunk_decay - decay))[:, None]
        state = dot(b.T, added.to(x.dtype), state * tl.exp2(chunk_decay))
    state_ptr += (batch * H + h) * P * N
    state_ptrs = state_ptr + offs_p[None, :] * N + offs_n[:, None]
    tl.store(state_ptrs, state, mask=(offs_n < N)[:, None] & (offs_p < P)[None, :])


def ssd_scan_config(P: int, N: int, itemsize: int, target: DeviceTarget) -> dict[str, int]:
    """Choose the share of the head dim with a state that stays in registers.

    Chunks of 64 tokens would be predicted faster on sm_90, but spill registers.
    """
    width = max(int(triton.next_power_of_2(P)), 16)
    n_states = max(int(triton.next_power_of_2(N)), 16)
    has_wide_product = target.arch in {"sm_90", "sm_100"}
    is_small = itemsize == 2 and n_states <= 128
    return {
        "BLOCK_T": 32,
        "BLOCK_P": min(width, 64 if has_wide_product and is_small else 32),
        "BLOCK_N": n_states,
        "num_warps": 4,
        "num_stages": 1 if target.backend == "hip" or target.arch == "sm_120" else 2,
    }


def _empty_results(x: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    B, _, H, P = x.shape
    return x.new_empty(x.shape), x.new_empty(B, H, P, b.shape[3], dtype=torch.float32)


@operator("ssd_scan", _empty_results, backward=ssd_scan_backward)
def _ssd_scan_op(x, dt, a, b, c, out, state):
    B, T, H, P = x.shape
    G, N = b.shape[2:]
    config = ssd_scan_config(P, N, x.element_size(), current_target())
    _ssd_scan_kernel[(B * H * triton.cdiv(P, config["BLOCK_P"]),)](
        x,
        dt,
        a,
        b,
        c,
        out,
        state,
        x.stride()[:3],
        b.stride()[:3],
        c.stride()[:3],
        T,
        H,
        H // G,
        math.log2(math.e),
        P=P,
        N=N,
        **config,
    )


def ssd_scan_reference(
    x: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor
) -> tuple[Tensor, Tensor]:
    """Compute the recurrence token by token."""
    B, T, H, P = x.shape
    group = H // b.shape[2]
    b, c = (heads.repeat_interleave(group, dim=2) for heads in (b, c))
    state = x.new_zeros(B, H, P, b.shape[3])
    out = torch.empty_like(x)
    for t in range(T):
        added = (dt[:, t, :, None] * x[:, t])[..., None] * b[:, t, :, None]
        state = (dt[:, t] * a).exp()[..., None, None] * state + added
        out[:, t] = (state * c[:, t, :, None]).sum(dim=-1)
    return out, state


def _inputs(case: Case, make: InputMaker) -> dict[str, Any]:
    B, T, H = case["B"], case["T"], case["H"]
    return {
        "x": make.normal(B, T, H, case["P"]),
        # ranges of the initial values of Mamba-2
        "dt": make.uniform(B, T, H, low=1e-3, high=0.1, dtype="float32"),
        "a": -make.uniform(H, low=1.0, high=16.0, dtype="float32"),
        "b": make.normal(B, T, case["G"], case["N"]),
        "c": make.normal(B, T, case["G"], case["N"]),
    }


def ssd_scan_flop_count(case: Case) -> float:
    """Count per token and element of the state, forward: its decay, 2 for the token and 2 for the
    product with c. Backward: the state and its gradient, 3 each, and 2 for each product of x, b, c
    and the decay. A chunked scan computes more.
    """
    per_element = 14 if case.is_backward else 5
    return per_element * case["B"] * case["T"] * case["H"] * case["P"] * case["N"]


def ssd_scan_memory_bytes(case: Case) -> float:
    """Forward reads x, b and c, and dt and a of 4 bytes; writes out and the last state of 4 bytes.
    Backward reads the inputs and the gradients of both results; writes those of the inputs.
    """
    n_tokens, H, P, N = case["B"] * case["T"], case["H"], case["P"], case["N"]
    n_passes = 2 if case.is_backward else 1
    n_half = n_tokens * (H * P + n_passes * (H * P + 2 * case["G"] * N))
    n_single = n_passes * (n_tokens * H + H) + case["B"] * H * P * N
    return n_half * case.itemsize + 4 * n_single


def _sequences() -> list[Workload]:
    """16,384 tokens of a training step or prefill, in eight sequences or in one."""
    return [
        Workload({"B": B, "T": 16_384 // B, **layer}, frozenset({model, "prefill", "train"}))
        for model, layer in _LAYERS.items()
        for B in (8, 1)
    ]


ssd_scan_spec = KernelSpec(
    name="ssd_scan",
    family="state space",
    inputs=_inputs,
    reference=ssd_scan_reference,
    cases=[
        *small_cases(
            {"B": 2, "T": 256, "H": 8, "P": 64, "G": 1, "N": 64},
            dtypes=["bfloat16"],
            directions=["fwd", "bwd"],
        ),
        *model_cases(_sequences(), directions=["fwd", "bwd"]),
    ],
    edges=[
        *cases(
            shapes=[
                {"B": 1, "T": 67, "H": 3, "P": 40, "G": 3, "N": 20},
                {"B": 0, "T": 4, "H": 2, "P": 16, "G": 1, "N": 16},
            ],
            dtypes=["float16"],
            directions=["fwd", "bwd"],
        ),
        *cases(
            shapes=[{"B": 2, "T": 1, "H": 2, "P": 5, "G": 1, "N": 3}], directions=["fwd", "bwd"]
        ),
    ],
    flop_count=ssd_scan_flop_count,
    memory_bytes=ssd_scan_memory_bytes,
    token_count=lambda case: case["B"] * case["T"],
    formula="state[t] = exp(dt[t] a) state[t - 1] + dt[t] x[t] b[t]ᵀ, out[t] = state[t] c[t]",
    source="Dao and Gu, Transformers are SSMs, 2024 (arXiv 2405.21060), section 6",
    interpreted_shape={"B": 1, "T": 70, "H": 2, "P": 32, "G": 1, "N": 16},
)


@ssd_scan_spec.implementation("triton", deterministic=True)
def ssd_scan(x: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    """Scan a sequence with a state per head, accumulated in float32.

    Args:
        x: [B, T, H, P], contiguous along its last dim, for example a slice of a joint projection;
            P at most 128 if a gradient is needed.
        dt: [B, T, H] float32, contiguous, not negative: the step after softplus.
        a: [H] float32, negative.
        b: [B, T, G, N] of x's dtype; each group serves `H / G` consecutive heads. N at most 256.
        c: [B, T, G, N] of x's dtype.

    Returns:
        out: [B, T, H, P] in x's dtype, contiguous.
        state: [B, H, P, N] float32, after the last token.
    """
    name = "ssd_scan"
    require_operands(name, dims=4, x=x, b=b, c=c)
    require_operands(name, dims=3, dtypes=(torch.float32,), dt=dt)
    require_operands(name, dims=1, dtypes=(torch.float32,), a=a)
    require_contiguous(name, dt=dt)
    B, T, H, P = x.shape
    G, N = b.shape[2:]
    require_equal(name, "the shapes", b=tuple(b.shape), c=tuple(c.shape))
    require_equal(name, "batch, length, dtype and device", x=_kind(x), b=_kind(b), c=_kind(c))
    require_equal(name, "batch, length and heads", x=(B, T, H), dt=tuple(dt.shape))
    require_equal(name, "heads and devices", x=(H, x.device), a=(len(a), a.device))
    require_equal(name, "the devices", x=x.device, dt=dt.device)
    if H and (G == 0 or H % G):
        raise KernelError(f"{name}: {H} heads of x are no multiple of the {G} groups of b")
    if N > _MAX_STATES:
        raise KernelError(
            f"{name}: b has {N} states, at most {_MAX_STATES} stay in registers; split the states "
            "and add the results"
        )
    if P > _MAX_HEAD_DIM_BACKWARD:
        refuse_gradients(name, x=x, dt=dt, a=a, b=b, c=c)
    return _ssd_scan_op(x, dt, a, b, c)


def _kind(tokens: Tensor) -> tuple[Any, ...]:
    return (*tokens.shape[:2], tokens.dtype, tokens.device)


def _decays(logarithms: Tensor) -> Tensor:
    """Return exp of the sum of logarithms [..., L] after s up to t, [..., t, s]; 0 for later s."""
    total = logarithms.cumsum(dim=-1)
    between = total[..., :, None] - total[..., None, :]
    is_before = torch.ones_like(between, dtype=torch.bool).tril()
    return between.masked_fill(~is_before, -math.inf).exp()


@ssd_scan_spec.implementation("torch", compile=True)
def _ssd_scan_torch(
    x: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor
) -> tuple[Tensor, Tensor]:
    # as listing 1 of the paper
    T, H = x.shape[1:3]
    padding = -T % _TORCH_CHUNK
    x = (x * dt[..., None]).to(x.dtype)
    x, b, c = (
        torch.nn.functional.pad(tokens, (0, 0, 0, 0, 0, padding)).unflatten(1, (-1, _TORCH_CHUNK))
        for tokens in (x, b, c)
    )
    b, c = (tokens.repeat_interleave(H // b.shape[3], dim=3) for tokens in (b, c))
    logarithms = torch.nn.functional.pad(dt * a, (0, 0, 0, padding))
    logarithms = logarithms.unflatten(1, (-1, _TORCH_CHUNK)).permute(0, 3, 1, 2)  # [B, H, z, t]
    total = logarithms.cumsum(dim=-1)
    scores = torch.einsum("zcthn,zcshn->zhcts", c, b) * _decays(logarithms)
    out = torch.einsum("zhcts,zcshp->zcthp", scores.to(x.dtype), x)
    remaining = (total[..., -1:] - total).exp().to(x.dtype)
    states = torch.einsum("zcshn,zhcs,zcshp->zchpn", b, remaining, x)
    # decay of each chunk's state until the start of a later chunk
    of_chunks = _decays(torch.nn.functional.pad(total[..., -1], (1, 0)))[..., 1:]
    states = torch.einsum("zhdc,zchpn->zdhpn", of_chunks, states.float())
    before = states[:, :-1].to(x.dtype)
    from_before = torch.einsum("zcthn,zchpn,zhct->zcthp", c, before, total.exp().to(x.dtype))
    return (out + from_before).flatten(1, 2)[:, :T], states[:, -1]


@fla(ssd_scan_spec, "ops.simple_gla")
def _ssd_scan_fla(gated: Any, x: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor) -> Any:
    group = x.shape[2] // b.shape[2]
    b, c = (tokens.repeat_interleave(group, dim=2) for tokens in (b, c))
    x = (x * dt[..., None]).to(x.dtype)
    return gated.chunk_simple_gla(
        c, b, x, dt * a, scale=1.0, output_final_state=True, state_v_first=True
    )

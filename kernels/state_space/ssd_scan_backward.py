"""Gradient of the scan of Mamba-2 (SSD), in chunks.

Two walks store a state for each chunk: one computes the state before the chunk again, so the
forward pass stores none; the other goes back with the gradient of the state after it. The gradients
of a chunk then depend on its own tokens and on these two states. Those of b and c are summed in
registers over all heads of a group, so results per head are not stored.

With g the gradient of out, L the logarithm of the decay since the start of the chunk, l its last
value, and S and R the stored state and gradient:

    y[s] = sum over t >= s of exp(L[t] - L[s]) (c[t] b[s]) g[t] + exp(l - L[s]) R b[s]
    grad_x[s] = dt[s] y[s]
    grad_c[t] = sum over s <= t of exp(L[t] - L[s]) dt[s] (g[t] x[s]) b[s] + exp(L[t]) g[t] S
    grad_b[s] = sum over t >= s of exp(L[t] - L[s]) dt[s] (g[t] x[s]) c[t]
                + exp(l - L[s]) dt[s] x[s] R
    grad_dt[s] = x[s] y[s] + a grad_log[s]

The decay of token r is a factor of all that passes from before r to r or after it. So `grad_log[r]`
is the sum of these terms; with sums over a chunk only, rounding does not grow with the sequence.

Source: Dao and Gu, Transformers are SSMs, 2024 (arXiv 2405.21060), section 6, for the chunks.
"""

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from roofwatch.kernels.building_blocks.operators import backward_operator
from roofwatch.kernels.building_blocks.target import current_target
from roofwatch.kernels.building_blocks.tiles import dot
from roofwatch.kernels.state_space.chunks import (
    decay_between,
    decays_of,
    load_chunk,
    load_steps,
    store_chunk,
)


@triton.jit
def _load_state(
    ptr,
    state,
    first_p,
    P: tl.constexpr,
    N: tl.constexpr,
    BLOCK_P: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """Load columns of a stored state [BLOCK_N, BLOCK_P] by its number."""
    offs_n = tl.arange(0, BLOCK_N)
    offs_p = first_p + tl.arange(0, BLOCK_P)
    mask = (offs_n < N)[:, None] & (offs_p < P)[None, :]
    ptr += state * N * P
    return tl.load(ptr + offs_n[:, None] * P + offs_p[None, :], mask=mask, other=0.0)


@triton.jit
def _chunk_states_kernel(
    x_ptr,  # [B, T, H, P]: x, or the gradient of out
    dt_ptr,  # [B, T, H]
    a_ptr,  # [H]
    b_ptr,  # [B, T, G, N]: b, or c
    last_ptr,  # [B, H, P, N]: the gradient of the last state; only read to walk back
    states_ptr,  # [B, n_chunks, H, N, P]
    x_strides,
    b_strides,
    T,
    H,
    group,
    log2_e,
    IS_GRADIENT: tl.constexpr,
    P: tl.constexpr,
    N: tl.constexpr,
    BLOCK_T: tl.constexpr,
    BLOCK_P: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    h = (tl.program_id(0) % H).to(tl.int64)
    batch = (tl.program_id(0) // H).to(tl.int64)
    x_ptr += batch * x_strides[0] + h * x_strides[2]
    b_ptr += batch * b_strides[0] + h // group * b_strides[2]
    dt_ptr += batch * T * H + h
    n_chunks = tl.cdiv(T, BLOCK_T)
    states_ptr += (batch * n_chunks * H + h) * N * P
    offs_n = tl.arange(0, BLOCK_N)
    offs_p = tl.arange(0, BLOCK_P)
    mask = (offs_n < N)[:, None] & (offs_p < P)[None, :]
    rate = tl.load(a_ptr + h) * log2_e
    if IS_GRADIENT:
        last_ptrs = last_ptr + (batch * H + h) * P * N + offs_p[None, :] * N + offs_n[:, None]
        state = tl.load(last_ptrs, mask=mask, other=0.0).to(tl.float32)  # [BLOCK_N, BLOCK_P]
    else:
        state = tl.zeros((BLOCK_N, BLOCK_P), tl.float32)
    steps = tl.arange(0, BLOCK_T)
    for i in range(n_chunks):
        chunk = n_chunks - 1 - i if IS_GRADIENT else i
        start = chunk * BLOCK_T
        n_left = T - start
        state_ptrs = states_ptr + tl.cast(chunk, tl.int64) * H * N * P
        state_ptrs += offs_n[:, None] * P + offs_p[None, :]
        tl.store(state_ptrs, state.to(states_ptr.dtype.element_ty), mask=mask)
        # fmt: off
        x = load_chunk(
            x_ptr, start, steps, x_strides[1], n_left, 0, P, BLOCK_P
        )  # [BLOCK_T, BLOCK_P]
        b = load_chunk(
            b_ptr, start, steps, b_strides[1], n_left, 0, N, BLOCK_N
        )  # [BLOCK_T, BLOCK_N]
        # fmt: on
        dt = load_steps(dt_ptr, start, steps, H, n_left)  # [BLOCK_T]
        decay, chunk_decay = decays_of(dt, rate)
        weight = tl.exp2(decay) if IS_GRADIENT else dt * tl.exp2(chunk_decay - decay)
        added = x.to(tl.float32) * weight[:, None]
        state = dot(b.T, added.to(x.dtype), state * tl.exp2(chunk_decay))


@triton.jit
def _token_gradient_kernel(
    x_ptr,  # [B, T, H, P]
    dt_ptr,  # [B, T, H]
    a_ptr,  # [H]
    b_ptr,  # [B, T, G, N]
    c_ptr,  # [B, T, G, N]
    grad_out_ptr,  # [B, T, H, P]
    states_ptr,  # [B, n_chunks, H, N, P]
    grad_states_ptr,  # [B, n_chunks, H, N, P]
    grad_x_ptr,  # [B, T, H, P]
    grad_dt_ptr,  # [B, T, H]
    share_ptr,  # [B, n_chunks, H]: of the gradient of a
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
    n_chunks = tl.cdiv(T, BLOCK_T)
    h = (tl.program_id(0) % H).to(tl.int64)
    chunk = tl.program_id(0) // H % n_chunks
    batch = (tl.program_id(0) // H // n_chunks).to(tl.int64)
    start = chunk * BLOCK_T
    n_left = T - start
    steps = tl.arange(0, BLOCK_T)
    x_ptr += batch * x_strides[0] + h * x_strides[2]
    b_ptr += batch * b_strides[0] + h // group * b_strides[2]
    c_ptr += batch * c_strides[0] + h // group * c_strides[2]
    dt_ptr += batch * T * H + h
    grad_out_ptr += (batch * T * H + h) * P
    state = (batch * n_chunks + chunk) * H + h
    a = tl.load(a_ptr + h)
    dt = load_steps(dt_ptr, start, steps, H, n_left)  # [BLOCK_T]
    decay, chunk_decay = decays_of(dt, a * log2_e)
    b = load_chunk(b_ptr, start, steps, b_strides[1], n_left, 0, N, BLOCK_N)  # [BLOCK_T, BLOCK_N]
    c = load_chunk(c_ptr, start, steps, c_strides[1], n_left, 0, N, BLOCK_N)  # [BLOCK_T, BLOCK_N]
    grad_x_ptr += (batch * T * H + h) * P

    # a row per token s, a column per later token t
    weights = dot(b, c.T, tl.zeros((BLOCK_T, BLOCK_T), tl.float32))
    weights *= decay_between(decay, steps, FROM_ROWS=True)
    pairs = tl.zeros((BLOCK_T, BLOCK_T), tl.float32)
    from_before = tl.zeros((BLOCK_T,), tl.float32)
    to_later = tl.zeros((BLOCK_T,), tl.float32)
    grad_dt = tl.zeros((BLOCK_T,), tl.float32)
    passed = tl.zeros((BLOCK_N,), tl.float32)
    # a share of the head dim at a time, to save registers
    for first_p in range(0, P, BLOCK_P):
        # fmt: off
        x = load_chunk(
            x_ptr, start, steps, x_strides[1], n_left, first_p, P, BLOCK_P
        )  # [BLOCK_T, BLOCK_P]
        grad_out = load_chunk(
            grad_out_ptr, start, steps, H * P, n_left, first_p, P, BLOCK_P
        )  # [BLOCK_T, BLOCK_P]
        before = _load_state(
            states_ptr, state, first_p, P, N, BLOCK_P, BLOCK_N
        )  # [BLOCK_N, BLOCK_P]
        grad_after = _load_state(
            grad_states_ptr, state, first_p, P, N, BLOCK_P, BLOCK_N
        )  # [BLOCK_N, BLOCK_P]
        # fmt: on
        pairs = dot(x, grad_out.T, pairs)
        passed += tl.sum(before.to(tl.float32) * grad_after.to(tl.float32), axis=1)
        from_state = dot(c, before, tl.zeros((BLOCK_T, BLOCK_P), tl.float32))
        from_before += tl.sum(from_state * grad_out.to(tl.float32), axis=1)
        y = dot(b, grad_after, tl.zeros((BLOCK_T, BLOCK_P), tl.float32))
        y *= tl.exp2(chunk_decay - decay)[:, None]
        to_later += tl.sum(y * x.to(tl.float32), axis=1)
        y = dot(weights.to(x.dtype), grad_out, y)
        grad_dt += tl.sum(y * x.to(tl.float32), axis=1)
        store_chunk(grad_x_ptr, y * dt[:, None], start, steps, H * P, n_left, first_p, P)

    terms = weights * pairs * dt[:, None]
    from_before *= tl.exp2(decay)
    to_later *= dt
    # a token's term of itself is in both sums of terms: nothing decays in between
    from_before += tl.sum(terms, axis=0) - tl.sum(terms, axis=1)
    grad_log = tl.cumsum(from_before, axis=0, reverse=True)
    grad_log += tl.cumsum(to_later, axis=0) - to_later
    grad_log += tl.sum(passed, axis=0) * tl.exp2(chunk_decay)
    grad_dt += a * grad_log
    grad_dt_ptrs = grad_dt_ptr + (batch * T + start) * H + h + steps * H
    tl.store(grad_dt_ptrs, grad_dt, mask=steps < n_left)  # [BLOCK_T]
    tl.store(share_ptr + state, tl.sum(dt * grad_log, axis=0))


@triton.jit
def _group_gradient_kernel(
    x_ptr,  # [B, T, H, P]: x for the gradient of b, the gradient of out for that of c
    other_ptr,  # [B, T, H, P]: the other of these
    dt_ptr,  # [B, T, H]
    a_ptr,  # [H]
    b_ptr,  # [B, T, G, N]: c for the gradient of b, b for that of c
    states_ptr,  # [B, n_chunks, H, N, P]: gradients of states for the gradient of b
    grad_ptr,  # [B, T, G, N]
    x_strides,
    other_strides,
    b_strides,
    T,
    H,
    group,
    log2_e,
    IS_OF_B: tl.constexpr,
    P: tl.constexpr,
    N: tl.constexpr,
    BLOCK_T: tl.constexpr,
    BLOCK_P: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    G = H // group
    n_chunks = tl.cdiv(T, BLOCK_T)
    g = (tl.program_id(0) % G).to(tl.int64)
    chunk = tl.program_id(0) // G % n_chunks
    batch = (tl.program_id(0) // G // n_chunks).to(tl.int64)
    start = chunk * BLOCK_T
    n_left = T - start
    steps = tl.arange(0, BLOCK_T)
    x_ptr += batch * x_strides[0]
    other_ptr += batch * other_strides[0]
    b_ptr += batch * b_strides[0] + g * b_strides[2]
    b = load_chunk(b_ptr, start, steps, b_strides[1], n_left, 0, N, BLOCK_N)  # [BLOCK_T, BLOCK_N]
    acc = tl.zeros((BLOCK_T, BLOCK_N), tl.float32)
    for h in range(g * group, (g + 1) * group):
        dt = load_steps(dt_ptr + batch * T * H + h, start, steps, H, n_left)  # [BLOCK_T]
        decay, chunk_decay = decays_of(dt, tl.load(a_ptr + h) * log2_e)
        # fmt: off
        x = load_chunk(
            x_ptr + h * x_strides[2], start, steps, x_strides[1], n_left, 0, P, BLOCK_P
        )  # [BLOCK_T, BLOCK_P]
        partner = load_chunk(
            other_ptr + h * other_strides[2], start, steps, other_strides[1], n_left, 0, P, BLOCK_P
        )  # [BLOCK_T, BLOCK_P]
        # fmt: on
        weight = dt * tl.exp2(chunk_decay - decay) if IS_OF_B else tl.exp2(decay)
        weighted = x.to(tl.float32) * weight[:, None]
        state = (batch * n_chunks + chunk) * H + h
        state_tile = _load_state(states_ptr, state, 0, P, N, BLOCK_P, BLOCK_N)  # [BLOCK_N, BLOCK_P]
        acc = dot(weighted.to(x.dtype), state_tile.T, acc)
        pairs = dot(x, partner.T, tl.zeros((BLOCK_T, BLOCK_T), tl.float32))
        pairs *= decay_between(decay, steps, IS_OF_B) * (dt[:, None] if IS_OF_B else dt[None, :])
        acc = dot(pairs.to(b.dtype), b, acc)
    grad_ptr += (batch * T * G + g) * N
    store_chunk(grad_ptr, acc, start, steps, G * N, n_left, 0, N)


_SHARE_OF_HEAD = 32
"""Of the head dim, in a step of the gradients of tokens."""


def ssd_scan_backward_config(P: int, N: int, itemsize: int) -> dict[str, int]:
    """Choose chunks whose gradients of b and c stay in registers.

    Chunks of 64 tokens and eight warps would be predicted slower on sm_90.
    """
    return {
        "BLOCK_T": 32,
        "BLOCK_P": max(int(triton.next_power_of_2(P)), 16),
        "BLOCK_N": max(int(triton.next_power_of_2(N)), 16),
        "num_warps": 4 if itemsize == 2 and N <= 128 else 8,
        "num_stages": 1,
    }


def _empty_gradients(
    x: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor, grad_out: Tensor, grad_state: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    return (
        x.new_empty(x.shape),
        dt.new_empty(dt.shape),
        a.new_empty(a.shape),
        b.new_empty(b.shape),
        c.new_empty(c.shape),
    )


@backward_operator("ssd_scan", _empty_gradients)
def ssd_scan_backward(
    x, dt, a, b, c, grad_out, grad_state, grad_x, grad_dt, grad_a, grad_b, grad_c
):
    B, T, H, P = x.shape
    G, N = b.shape[2:]
    config = ssd_scan_backward_config(P, N, x.element_size())
    n_chunks = triton.cdiv(T, config["BLOCK_T"])
    # autograd may pass expanded scalars
    grad_out, grad_state = grad_out.contiguous(), grad_state.contiguous()
    states, grad_states = (x.new_empty(B, n_chunks, H, N, P) for _ in range(2))
    shares = a.new_empty(B, n_chunks, H)
    x_strides, out_strides, b_strides, c_strides = (
        operand.stride()[:3] for operand in (x, grad_out, b, c)
    )
    sizes = (T, H, H // G, math.log2(math.e))
    shared = {"P": P, "N": N, **config}
    walks = (
        (x, b, states, x_strides, b_strides),
        (grad_out, c, grad_states, out_strides, c_strides),
    )
    for tokens, of_group, stored, *strides in walks:
        _chunk_states_kernel[(B * H,)](
            tokens,
            dt,
            a,
            of_group,
            grad_state,
            stored,
            *strides,
            *sizes,
            IS_GRADIENT=stored is grad_states,
            **shared,
        )
    _token_gradient_kernel[(B * n_chunks * H,)](
        x,
        dt,
        a,
        b,
        c,
        grad_out,
        states,
        grad_states,
        grad_x,
        grad_dt,
        shares,
        x_strides,
        b_strides,
        c_strides,
        *sizes,
        **dict(shared, BLOCK_P=min(config["BLOCK_P"], _SHARE_OF_HEAD)),
    )
    torch.sum(shares, dim=(0, 1), out=grad_a)
    if current_target().backend == "hip":
        # bound to more waves, a scalar register is spilled on gfx942 with Triton 3.6
        shared["waves_per_eu"] = 1
    groups = (
        (x, grad_out, c, grad_states, grad_b, x_strides, out_strides, c_strides),
        (grad_out, x, b, states, grad_c, out_strides, x_strides, b_strides),
    )
    for tokens, others, of_group, stored, gradient, *strides in groups:
        _group_gradient_kernel[(B * n_chunks * G,)](
            tokens,
            others,
            dt,
            a,
            of_group,
            stored,
            gradient,
            *strides,
            *sizes,
            IS_OF_B=gradient is grad_b,
            **shared,
        )

"""Causal convolution of each channel over four tokens, with bias and SiLU, forward and backward.

It mixes neighbouring tokens before a state-space layer. A program walks down the tokens of a few
channels and keeps the last inputs in registers, so each is read once. The backward pass recomputes
the result before SiLU.

    pre[t] = bias + sum over i of weight[i] x[t - 3 + i]        out = pre * sigmoid(pre)

Source: Gu and Dao, Mamba, 2023 (arXiv 2312.00752), section 3.4; Dao and Gu, Transformers are SSMs,
2024 (arXiv 2405.21060), for its channels.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from roofwatch import Case, InputMaker, KernelSpec, cases
from roofwatch.kernels.building_blocks.exponential import fast_exp
from roofwatch.kernels.building_blocks.operands import (
    require_contiguous,
    require_equal,
    require_operands,
)
from roofwatch.kernels.building_blocks.operators import backward_operator, operator
from roofwatch.kernels.building_blocks.rivals import fla
from roofwatch.kernels.building_blocks.shapes import Workload, model_cases, small_cases

WIDTH = 4
"""Tokens of the window. Source: the models of both papers."""
_BLOCK = 1024
_ROWS = 64
_ROWS_BACKWARD = 128
"""Tokens of a program. The three before or after them are read twice."""
_CHANNELS = {"mamba2_2.7b": 5376, "codestral_mamba_7b": 10_240}
"""2 hidden + 2 groups states. Source: config.json of state-spaces/mamba2-2.7b and
mistralai/Mamba-Codestral-7B-v0.1."""


@triton.jit
def _load_token(x_ptr, t, T, row_stride, cols, mask_cols):
    """Load the channels of a token, zero outside of the sequence."""
    mask = mask_cols & (t >= 0) & (t < T)
    return tl.load(x_ptr + t * row_stride + cols, mask=mask, other=0.0).to(tl.float32)  # [BLOCK]


@triton.jit
def _load_weights(weight_ptr, cols, mask_cols):
    w0 = tl.load(weight_ptr + cols * 4, mask=mask_cols, other=0.0).to(tl.float32)  # [BLOCK]
    w1 = tl.load(weight_ptr + cols * 4 + 1, mask=mask_cols, other=0.0).to(tl.float32)  # [BLOCK]
    w2 = tl.load(weight_ptr + cols * 4 + 2, mask=mask_cols, other=0.0).to(tl.float32)  # [BLOCK]
    w3 = tl.load(weight_ptr + cols * 4 + 3, mask=mask_cols, other=0.0).to(tl.float32)  # [BLOCK]
    return w0, w1, w2, w3


@triton.jit
def _place_of(T, D, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """Return batch entry, first token and channels [BLOCK] of this program."""
    n_blocks = tl.cdiv(D, BLOCK)
    n_chunks = tl.cdiv(T, ROWS)
    cols = tl.program_id(0) % n_blocks * BLOCK + tl.arange(0, BLOCK)
    chunk = tl.program_id(0) // n_blocks
    return (chunk // n_chunks).to(tl.int64), (chunk % n_chunks).to(tl.int64) * ROWS, cols


@triton.jit
def _causal_conv1d_kernel(
    x_ptr,
    weight_ptr,
    bias_ptr,
    out_ptr,
    x_batch_stride,
    x_row_stride,
    T,
    D,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    b, first, cols = _place_of(T, D, ROWS, BLOCK)
    mask = cols < D
    x_ptr += b * x_batch_stride
    out_ptr += b * T * D
    w0, w1, w2, w3 = _load_weights(weight_ptr, cols, mask)
    bias = tl.load(bias_ptr + cols, mask=mask, other=0.0).to(tl.float32)  # [BLOCK]
    x0 = _load_token(x_ptr, first - 3, T, x_row_stride, cols, mask)
    x1 = _load_token(x_ptr, first - 2, T, x_row_stride, cols, mask)
    x2 = _load_token(x_ptr, first - 1, T, x_row_stride, cols, mask)
    for t in tl.range(first, tl.minimum(first + ROWS, T), num_stages=4):
        x3 = _load_token(x_ptr, t, T, x_row_stride, cols, mask)
        pre = bias + w0 * x0 + w1 * x1 + w2 * x2 + w3 * x3
        out = pre / (1.0 + fast_exp(-pre))
        tl.store(out_ptr + t * D + cols, out.to(out_ptr.dtype.element_ty), mask=mask)  # [BLOCK]
        x0, x1, x2 = x1, x2, x3


@triton.jit
def _causal_conv1d_grad_kernel(
    x_ptr,
    weight_ptr,
    bias_ptr,
    grad_out_ptr,
    grad_x_ptr,
    share_ptr,  # [B * n_chunks, 5, D]: gradients of the weights and of the bias
    x_batch_stride,
    x_row_stride,
    T,
    D,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    b, first, cols = _place_of(T, D, ROWS, BLOCK)
    end = tl.minimum(first + ROWS, T)
    mask = cols < D
    x_ptr += b * x_batch_stride
    grad_out_ptr += b * T * D
    grad_x_ptr += b * T * D
    w0, w1, w2, w3 = _load_weights(weight_ptr, cols, mask)
    bias = tl.load(bias_ptr + cols, mask=mask, other=0.0).to(tl.float32)  # [BLOCK]
    x0 = _load_token(x_ptr, first - 3, T, x_row_stride, cols, mask)
    x1 = _load_token(x_ptr, first - 2, T, x_row_stride, cols, mask)
    x2 = _load_token(x_ptr, first - 1, T, x_row_stride, cols, mask)
    zeros = tl.zeros((BLOCK,), tl.float32)
    grad0, grad1, grad2 = zeros, zeros, zeros
    sum0, sum1, sum2, sum3, bias_sum = zeros, zeros, zeros, zeros, zeros
    # x of a token reaches the results of this token and the next three
    for t in tl.range(first, end + 3, num_stages=3):
        x3 = _load_token(x_ptr, t, T, x_row_stride, cols, mask)
        grad_out = _load_token(grad_out_ptr, t, T, D, cols, mask)
        pre = bias + w0 * x0 + w1 * x1 + w2 * x2 + w3 * x3
        gate = 1.0 / (1.0 + fast_exp(-pre))
        grad3 = grad_out * gate * (1.0 + pre * (1.0 - gate))
        # the next program adds the gradients of its own tokens
        added = tl.where(t < end, grad3, 0.0)
        sum0 += added * x0
        sum1 += added * x1
        sum2 += added * x2
        sum3 += added * x3
        bias_sum += added
        grad_x = w3 * grad0 + w2 * grad1 + w1 * grad2 + w0 * grad3
        grad_ptrs = grad_x_ptr + (t - 3) * D + cols
        is_stored = mask & (t - 3 >= first)
        tl.store(grad_ptrs, grad_x.to(grad_x_ptr.dtype.element_ty), mask=is_stored)  # [BLOCK]
        x0, x1, x2 = x1, x2, x3
        grad0, grad1, grad2 = grad1, grad2, grad3
    share_ptr += (b * tl.cdiv(T, ROWS) + first // ROWS) * 5 * D
    tl.store(share_ptr + cols, sum0, mask=mask)  # [BLOCK]
    tl.store(share_ptr + D + cols, sum1, mask=mask)  # [BLOCK]
    tl.store(share_ptr + 2 * D + cols, sum2, mask=mask)  # [BLOCK]
    tl.store(share_ptr + 3 * D + cols, sum3, mask=mask)  # [BLOCK]
    tl.store(share_ptr + 4 * D + cols, bias_sum, mask=mask)  # [BLOCK]


def causal_conv1d_config(D: int) -> dict[str, int]:
    """Eight channels per thread of an NVIDIA GPU: a 16-byte load in half precision."""
    block = min(triton.next_power_of_2(D), _BLOCK)
    return {"BLOCK": block, "num_warps": max(block // 256, 1)}


def _empty_gradients(
    x: Tensor, weight: Tensor, bias: Tensor, grad_out: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    return x.new_empty(x.shape), weight.new_empty(weight.shape), bias.new_empty(bias.shape)


@backward_operator("causal_conv1d", _empty_gradients)
def _causal_conv1d_backward(x, weight, bias, grad_out, grad_x, grad_weight, grad_bias):
    B, T, D = x.shape
    config = causal_conv1d_config(D)
    n_chunks = B * triton.cdiv(T, _ROWS_BACKWARD)
    shares = x.new_empty(n_chunks, WIDTH + 1, D, dtype=torch.float32)
    _causal_conv1d_grad_kernel[(n_chunks * triton.cdiv(D, config["BLOCK"]),)](
        x,
        weight,
        bias,
        grad_out.contiguous(),  # autograd may pass an expanded scalar
        grad_x,
        shares,
        x.stride(0),
        x.stride(1),
        T,
        D,
        ROWS=_ROWS_BACKWARD,
        **config,
    )
    sums = shares.sum(dim=0)  # [WIDTH + 1, D]
    grad_weight.copy_(sums[:WIDTH].t())
    grad_bias.copy_(sums[WIDTH])


def _empty_out(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return x.new_empty(x.shape)


@operator("causal_conv1d", _empty_out, backward=_causal_conv1d_backward)
def _causal_conv1d_op(x, weight, bias, out):
    B, T, D = x.shape
    config = causal_conv1d_config(D)
    grid = (B * triton.cdiv(T, _ROWS) * triton.cdiv(D, config["BLOCK"]),)
    _causal_conv1d_kernel[grid](
        x, weight, bias, out, x.stride(0), x.stride(1), T, D, ROWS=_ROWS, **config
    )


def causal_conv1d_reference(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Compute the formula with the sequence padded by three zeros in front."""
    T = x.shape[1]
    padded = torch.cat([x.new_zeros(x.shape[0], WIDTH - 1, x.shape[2]), x], dim=1)
    pre = bias + sum(weight[:, i] * padded[:, i : i + T] for i in range(WIDTH))
    return pre / (1 + (-pre).exp())


def _inputs(case: Case, make: InputMaker) -> dict[str, Any]:
    D = case["D"]
    return {
        "x": make.gates(case["B"], case["T"], D),
        "weight": make.weights(D, WIDTH, scale=0.5),
        "bias": make.weights(D, scale=0.1),
    }


def causal_conv1d_flop_count(case: Case) -> float:
    """Count per element, forward: 2 for each of four terms, and 4 for SiLU. Backward: these, 5 more
    for the derivative, and 2 for each of four terms of both gradients, and 1 for the bias.
    """
    return (8 + 4 + 5 + 8 + 8 + 1 if case.is_backward else 12) * _element_count(case)


def causal_conv1d_memory_bytes(case: Case) -> float:
    """Forward reads x and writes out; backward reads x and the gradient of out and writes x's.
    Weights and bias are read and, backward, their gradients written.
    """
    n_parameters = (WIDTH + 1) * case["D"]
    if case.is_backward:
        return (3 * _element_count(case) + 2 * n_parameters) * case.itemsize
    return (2 * _element_count(case) + n_parameters) * case.itemsize


def _element_count(case: Case) -> int:
    return case["B"] * case["T"] * case["D"]


def _sequences() -> list[Workload]:
    """`B T D` of a training step or prefill: 16,384 tokens, in one sequence or in eight."""
    return [
        Workload({"B": B, "T": 16_384 // B, "D": D}, frozenset({model, "train"}))
        for model, D in _CHANNELS.items()
        for B in (8, 1)
    ]


causal_conv1d_spec = KernelSpec(
    name="causal_conv1d",
    family="state space",
    inputs=_inputs,
    reference=causal_conv1d_reference,
    cases=[
        *small_cases({"B": 2, "T": 256, "D": 512}, directions=["fwd", "bwd"]),
        *model_cases(_sequences(), directions=["fwd", "bwd"]),
    ],
    edges=[
        *cases(
            shapes=[
                {"B": 1, "T": 2, "D": 5},
                {"B": 0, "T": 4, "D": 8},
                {"B": 1, "T": 131, "D": 72},
            ],
            dtypes=["float16"],
            directions=["bwd"],
        ),
        *cases(shapes=[{"B": 2, "T": 1, "D": 63}], dtypes=["bfloat16"]),
    ],
    flop_count=causal_conv1d_flop_count,
    memory_bytes=causal_conv1d_memory_bytes,
    token_count=lambda case: case["B"] * case["T"],
    formula="out[t] = silu(bias + sum over i of weight[i] x[t - 3 + i])",
    source="Gu and Dao, Mamba, 2023 (arXiv 2312.00752), section 3.4",
    interpreted_shape={"B": 2, "T": 66, "D": 80},
)


@causal_conv1d_spec.implementation("triton", deterministic=True)
def causal_conv1d(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """`silu(bias + sum over i of weight[i] x[t - 3 + i])` of each channel, in float32.

    Args:
        x: [B, T, D], contiguous along its last dim, for example a slice of a joint projection.
        weight: [D, 4] of any floating-point dtype, contiguous; the last is that of the token.
        bias: [D], contiguous.

    Returns:
        [B, T, D] in x's dtype, contiguous.
    """
    require_operands("causal_conv1d", dims=3, x=x)
    require_operands("causal_conv1d", x=x, weight=weight, bias=bias)
    D = x.shape[2]
    require_equal("causal_conv1d", "the shapes", weight=tuple(weight.shape), channels=(D, WIDTH))
    require_equal("causal_conv1d", "the shapes", bias=tuple(bias.shape), channels=(D,))
    require_contiguous("causal_conv1d", weight=weight, bias=bias)
    return _causal_conv1d_op(x, weight, bias)


@causal_conv1d_spec.implementation("torch", compile=True)
def _causal_conv1d_torch(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    T, D = x.shape[1:]
    pre = torch.nn.functional.conv1d(
        x.transpose(1, 2), weight[:, None], bias, padding=WIDTH - 1, groups=D
    )
    return torch.nn.functional.silu(pre[..., :T]).transpose(1, 2)


@fla(causal_conv1d_spec, "modules.causal_conv1d")
def _causal_conv1d_fla(convolution: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Any:
    return convolution.causal_conv1d(x, weight, bias, activation="silu")[0]

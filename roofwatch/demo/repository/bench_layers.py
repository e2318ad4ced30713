"""The layers of a small language model, and how roofwatch measures them."""

import torch
import triton
import triton.language as tl
from roofwatch import KernelSpec, cases

EPSILON = 1e-6


# ---- rms_norm: y = x / sqrt(mean(x^2) + epsilon) * weight


@triton.jit
def _rms_norm_kernel(
    x_ptr, weight_ptr, y_ptr, inverse_rms_ptr, n_cols, epsilon, BLOCK: tl.constexpr,
):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < n_cols
    x = tl.load(x_ptr + row * n_cols + cols, mask=mask, other=0.0)  # [BLOCK]
    inverse_rms = 1.0 / tl.sqrt(tl.sum(x * x, axis=0) / n_cols + epsilon)
    weight = tl.load(weight_ptr + cols, mask=mask)  # [BLOCK]
    tl.store(inverse_rms_ptr + row, inverse_rms)
    tl.store(y_ptr + row * n_cols + cols, x * inverse_rms * weight, mask=mask)


@triton.jit
def _rms_norm_grad_kernel(
    grad_y_ptr, x_ptr, weight_ptr, inverse_rms_ptr, grad_x_ptr, n_cols, BLOCK: tl.constexpr,
):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < n_cols
    x = tl.load(x_ptr + row * n_cols + cols, mask=mask, other=0.0)
    weight = tl.load(weight_ptr + cols, mask=mask, other=0.0)
    grad_y = tl.load(grad_y_ptr + row * n_cols + cols, mask=mask, other=0.0)
    inverse_rms = tl.load(inverse_rms_ptr + row)
    normalised = x * inverse_rms
    weighted = grad_y * weight
    mean = tl.sum(weighted * normalised, axis=0) / n_cols
    tl.store(
        grad_x_ptr + row * n_cols + cols, (weighted - normalised * mean) * inverse_rms, mask=mask
    )


class _RmsNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        y = torch.empty_like(x)
        inverse_rms = torch.empty(x.shape[0], device=x.device)
        block = triton.next_power_of_2(x.shape[1])
        _rms_norm_kernel[(x.shape[0],)](x, weight, y, inverse_rms, x.shape[1], EPSILON, BLOCK=block)
        ctx.save_for_backward(x, weight, inverse_rms)
        return y

    @staticmethod
    def backward(ctx, grad_y):
        x, weight, inverse_rms = ctx.saved_tensors
        grad_x = torch.empty_like(x)
        block = triton.next_power_of_2(x.shape[1])
        _rms_norm_grad_kernel[(x.shape[0],)](
            grad_y, x, weight, inverse_rms, grad_x, x.shape[1], BLOCK=block
        )
        return grad_x, (grad_y * x * inverse_rms[:, None]).sum(0)


rms_norm = KernelSpec(
    name="rms_norm",
    inputs=lambda case, make: {
        "x": make.normal(case["n_rows"], case["n_cols"]),
        "weight": make.normal(case["n_cols"]),
    },
    reference=lambda x, weight: (
        x * torch.rsqrt(x.square().mean(-1, keepdim=True) + EPSILON) * weight
    ),
    cases=cases(shapes=[{"n_rows": 128, "n_cols": 768}], directions=["fwd", "bwd"]),
    flop_count=lambda case: (10 if case.is_backward else 4) * case["n_rows"] * case["n_cols"],
    memory_bytes=lambda case: (
        (3 if case.is_backward else 2) * case["n_rows"] * case["n_cols"] * case.itemsize
    ),
    interpreted_shape={"n_rows": 4},
    family="normalisation",
)


@rms_norm.implementation("torch")
def rms_norm_eager(x, weight):
    return torch.nn.functional.rms_norm(x, (x.shape[-1],), weight, EPSILON)


@rms_norm.implementation("triton")
def rms_norm_triton(x, weight):
    return _RmsNorm.apply(x, weight)


# ---- layer_norm: y = (x - mean(x)) / sqrt(var(x) + epsilon) * weight + bias

layer_norm = KernelSpec(
    name="layer_norm",
    inputs=lambda case, make: {
        "x": make.normal(case["n_rows"], case["n_cols"]),
        "weight": make.normal(case["n_cols"]),
        "bias": make.normal(case["n_cols"]),
    },
    reference=lambda x, weight, bias: torch.nn.functional.layer_norm(
        x, (x.shape[-1],), weight, bias, EPSILON
    ),
    cases=cases(shapes=[{"n_rows": 128, "n_cols": 2048}]),
    flop_count=lambda case: 8 * case["n_rows"] * case["n_cols"],
    memory_bytes=lambda case: 2 * case["n_rows"] * case["n_cols"] * case.itemsize,
    family="normalisation",
)


@layer_norm.implementation("torch")
def layer_norm_eager(x, weight, bias):
    return torch.nn.functional.layer_norm(x, (x.shape[-1],), weight, bias, EPSILON)


# ---- gated_mlp: gelu(gate) * up

gated_mlp = KernelSpec(
    name="gated_mlp",
    inputs=lambda case, make: {
        name: make.normal(case["n_rows"], case["n_cols"]) for name in ("gate", "up")
    },
    reference=lambda gate, up: torch.nn.functional.gelu(gate) * up,
    cases=cases(shapes=[{"n_rows": 128, "n_cols": 2048}]),
    flop_count=lambda case: 8 * case["n_rows"] * case["n_cols"],
    memory_bytes=lambda case: 3 * case["n_rows"] * case["n_cols"] * case.itemsize,
    family="mlp",
)


@gated_mlp.implementation("torch")
def gated_mlp_eager(gate, up):
    return 0.5 * gate * (1.0 + torch.erf(gate / 2**0.5)) * up


# ---- projection: y = x @ w

BLOCK_M, BLOCK_N, BLOCK_K, NUM_WARPS = 128, 128, 32, 8


@triton.jit
def _projection_kernel(
    x_ptr,
    w_ptr,
    y_ptr,
    M,
    N,
    K,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    offs_k = tl.arange(0, BLOCK_K)
    accumulator = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        ks = start + offs_k
        x = tl.load(
            x_ptr + offs_m[:, None] * K + ks[None, :],
            mask=(offs_m < M)[:, None] & (ks < K)[None, :],
            other=0.0,
        )
        w = tl.load(
            w_ptr + ks[:, None] * N + offs_n[None, :],
            mask=(ks < K)[:, None] & (offs_n < N)[None, :],
            other=0.0,
        )
        accumulator = tl.dot(x, w, accumulator)
    y = accumulator.to(y_ptr.dtype.element_ty)  # [BLOCK_M, BLOCK_N]
    tl.store(
        y_ptr + offs_m[:, None] * N + offs_n[None, :],
        y,
        mask=(offs_m < M)[:, None] & (offs_n < N)[None, :],
    )


projection = KernelSpec(
    name="projection",
    inputs=lambda case, make: {
        "x": make.normal(case["M"], case["K"]),
        "w": make.normal(case["K"], case["N"]),
    },
    reference=lambda x, w: x @ w,
    cases=cases(shapes=[{"M": 256, "N": 256, "K": 256}], dtypes=["float16"]),
    flop_count=lambda case: 2 * case["M"] * case["N"] * case["K"],
    memory_bytes=lambda case: (
        (case["M"] * case["K"] + case["K"] * case["N"] + case["M"] * case["N"]) * case.itemsize
    ),
    interpreted_shape={"M": 16, "N": 16, "K": 48},
    family="gemm",
)


@projection.implementation("torch")
def projection_eager(x, w):
    return x @ w


@projection.implementation("triton")
def projection_triton(x, w):
    y = torch.empty(x.shape[0], w.shape[1], device=x.device, dtype=x.dtype)
    grid = (triton.cdiv(x.shape[0], BLOCK_M), triton.cdiv(w.shape[1], BLOCK_N))
    sizes = {"BLOCK_M": BLOCK_M, "BLOCK_N": BLOCK_N, "BLOCK_K": BLOCK_K}
    _projection_kernel[grid](
        x, w, y, x.shape[0], w.shape[1], x.shape[1], **sizes, num_warps=NUM_WARPS,
    )
    return y

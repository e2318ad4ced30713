"""Linear layer with bias, activation and residual in one launch, forward and backward.

The accumulator is still in registers when the bias and the residual are added, so the product is
written once and never read. The backward pass computes the product again, and multiplies the
gradient by the slope of the activation in the same way. So nothing but the inputs is saved. Its
other two products are the vendor's.

Sources: NVIDIA, CUTLASS, 2017, for epilogues; Hendrycks and Gimpel, Gaussian Error Linear Units,
2016 (arXiv 1606.08415), section 2, for the tanh form of GELU.
"""

import math
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from roofwatch import Case, InputMaker, KernelSpec, cases
from roofwatch.kernels.building_blocks.errors import KernelError
from roofwatch.kernels.building_blocks.exponential import fast_exp
from roofwatch.kernels.building_blocks.models import DIT_XL_2, FLUX_1
from roofwatch.kernels.building_blocks.operands import (
    require_contiguous,
    require_equal,
    require_operands,
    supports_tma,
)
from roofwatch.kernels.building_blocks.operators import backward_operator, operator
from roofwatch.kernels.building_blocks.shapes import Workload, model_cases, small_cases
from roofwatch.kernels.building_blocks.target import current_target, multiprocessor_count
from roofwatch.kernels.building_blocks.tiles import dot, product_of, store_product, tile_of_program
from roofwatch.kernels.gemm.matmul import matmul_config

ACTIVATIONS = ("none", "relu", "gelu", "silu")
_GELU_SLOPE = tl.constexpr(2 * math.sqrt(2 / math.pi))
_GELU_CUBIC = tl.constexpr(0.044715)
_IMAGES = 4


@triton.jit
def _activated(pre, ACTIVATION: tl.constexpr):
    if ACTIVATION == "none":
        out = pre
    elif ACTIVATION == "relu":
        out = tl.maximum(pre, 0.0)
    elif ACTIVATION == "gelu":
        cubic = pre * pre * _GELU_CUBIC
        out = pre / (1.0 + fast_exp(-(pre * _GELU_SLOPE * (1.0 + cubic))))
    else:
        out = pre / (1.0 + fast_exp(-pre))
    return out


@triton.jit
def _slope(pre, ACTIVATION: tl.constexpr):
    """Return the derivative of the activation; of ReLU at zero it is zero, as in torch."""
    if ACTIVATION == "relu":
        slope = tl.where(pre > 0, 1.0, 0.0)
    elif ACTIVATION == "gelu":
        cubic = pre * pre * _GELU_CUBIC
        gate = 1.0 / (1.0 + fast_exp(-(pre * _GELU_SLOPE * (1.0 + cubic))))
        slope = gate * (1.0 + pre * _GELU_SLOPE * (1.0 + 3.0 * cubic) * (1.0 - gate))
    else:
        gate = 1.0 / (1.0 + fast_exp(-pre))
        slope = gate * (1.0 + pre * (1.0 - gate))
    return slope


@triton.jit
def _linear_epilogue_kernel(
    x,
    weight,
    bias_ptr,
    operand_ptr,  # [M, N]: the residual, the gradient of the result, or None
    out_ptr,
    M,
    N,
    K,
    x_row_stride,
    weight_row_stride,
    operand_row_stride,
    ACTIVATION: tl.constexpr,
    IS_GRADIENT: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    IS_COPIED: tl.constexpr,
    K_IS_EVEN: tl.constexpr,
    N_CHIPLETS: tl.constexpr,
):
    tile_m, tile_n = tile_of_program(M, N, BLOCK_M, BLOCK_N, N_CHIPLETS)
    offs_m = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    if IS_COPIED:
        acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
        for first_k in range(0, K, BLOCK_K):
            x_tile = x.load([tile_m * BLOCK_M, first_k])  # [BLOCK_M, BLOCK_K]
            weight_tile = weight.load([tile_n * BLOCK_N, first_k])  # [BLOCK_N, BLOCK_K]
            acc = dot(x_tile, weight_tile.T, acc)
    else:
        # fmt: off
        acc = product_of(
            x, weight, offs_m, offs_n, 0, K, M, N, K, x_row_stride, weight_row_stride,
            True, K_IS_EVEN, BLOCK_K,
        )
        # fmt: on
    bias = tl.load(bias_ptr + offs_n, mask=offs_n < N, other=0.0).to(tl.float32)  # [BLOCK_N]
    pre = acc + bias[None, :]
    result = _slope(pre, ACTIVATION) if IS_GRADIENT else _activated(pre, ACTIVATION)
    if operand_ptr is not None:
        mask = (offs_m < M)[:, None] & (offs_n < N)[None, :]
        operand_ptrs = (
            operand_ptr + offs_m.to(tl.int64)[:, None] * operand_row_stride + offs_n[None, :]
        )
        operand = tl.load(operand_ptrs, mask=mask, other=0.0).to(tl.float32)  # [BLOCK_M, BLOCK_N]
        result = result * operand if IS_GRADIENT else result + operand
    store_product(out_ptr, result, offs_m, offs_n, M, N, N)


def _launch(x, weight, bias, operand, activation, out, *, is_gradient):
    M, K = x.shape
    N = weight.shape[0]
    target = current_target()
    is_copied = (
        target.has_tma and x.element_size() == 2 and supports_tma(x) and supports_tma(weight)
    )
    tiling = matmul_config(
        M, N, x.element_size(), target, multiprocessor_count(x), is_copied=is_copied
    )
    if operand is not None:  # takes registers beside the accumulator
        tiling = tiling._replace(BLOCK_M=min(tiling.BLOCK_M, 128), BLOCK_N=min(tiling.BLOCK_N, 128))
    # with matrix instructions of 16 rows, the activation spills on gfx950 with Triton 3.6
    tiling = tiling._replace(matrix_instr_nonkdim=0)
    block_k = tiling.BLOCK_K
    _linear_epilogue_kernel[(triton.cdiv(M, tiling.BLOCK_M) * triton.cdiv(N, tiling.BLOCK_N),)](
        TensorDescriptor.from_tensor(x, [tiling.BLOCK_M, block_k]) if is_copied else x,
        TensorDescriptor.from_tensor(weight, [tiling.BLOCK_N, block_k]) if is_copied else weight,
        bias,
        operand,
        out,
        M,
        N,
        K,
        x.stride(0),
        weight.stride(0),
        0 if operand is None else operand.stride(0),
        ACTIVATION=activation,
        IS_GRADIENT=is_gradient,
        IS_COPIED=is_copied,
        K_IS_EVEN=K % block_k == 0,
        N_CHIPLETS=target.chiplet_count,
        **tiling.launch_options(),
    )


def _empty_gradients(
    x: Tensor, weight: Tensor, bias: Tensor, activation: str, grad_out: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    return x.new_empty(x.shape), weight.new_empty(weight.shape), bias.new_empty(bias.shape)


@backward_operator("linear_epilogue", _empty_gradients)
def _linear_epilogue_backward(
    x, weight, bias, activation, grad_out, grad_x, grad_weight, grad_bias
):
    grad_out = grad_out.contiguous()  # autograd may pass an expanded scalar
    grad_pre = grad_out
    if activation != "none":
        grad_pre = torch.empty_like(grad_out)
        _launch(x, weight, bias, grad_out, activation, grad_pre, is_gradient=True)
    torch.mm(grad_pre, weight, out=grad_x)
    torch.mm(grad_pre.t(), x, out=grad_weight)
    grad_bias.copy_(grad_pre.sum(dim=0, dtype=torch.float32))


def _empty_out(
    x: Tensor, weight: Tensor, bias: Tensor, residual: Tensor | None, activation: str
) -> Tensor:
    return x.new_empty(x.shape[0], weight.shape[0])


@operator(
    "linear_epilogue",
    _empty_out,
    backward=_linear_epilogue_backward,
    same_gradient={"residual": "out"},
)
def _linear_epilogue_op(x, weight, bias, residual, activation, out):
    _launch(x, weight, bias, residual, activation, out, is_gradient=False)


def linear_epilogue_reference(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    residual: Tensor | None = None,
    activation: str = "none",
) -> Tensor:
    """Compute the formula from the definition of each activation."""
    pre = torch.einsum("mk,nk->mn", x, weight) + bias
    if activation == "relu":
        pre = pre.clamp(min=0)
    elif activation == "gelu":
        inner = math.sqrt(2 / math.pi) * (pre + 0.044715 * pre.pow(3))
        pre = pre * (1 + inner.tanh()) / 2
    elif activation == "silu":
        pre = pre / (1 + (-pre).exp())
    return pre if residual is None else pre + residual


def _inputs(case: Case, make: InputMaker) -> dict[str, Any]:
    M, N, K = case["M"], case["N"], case["K"]
    inputs: dict[str, Any] = {
        "x": make.normal(M, K),
        "weight": make.weights(N, K, scale=max(K, 1) ** -0.5),
        "bias": make.weights(N, scale=0.1),
        "activation": case.choice("activation"),
    }
    if case.choice("residual") == "yes":
        inputs["residual"] = make.normal(M, N)
    return inputs


def linear_epilogue_flop_count(case: Case) -> float:
    """Count the products: one forward; backward both gradients, and the forward one again if there
    is an activation. The few operations on each result are not counted.
    """
    n_products = 1
    if case.is_backward:
        n_products = 2 if case.choice("activation") == "none" else 3
    return n_products * 2 * case["M"] * case["N"] * case["K"]


def linear_epilogue_memory_bytes(case: Case) -> float:
    """Forward reads x, weight, bias and the residual and writes out. Backward reads x, weight, bias
    and the gradient of out, which is the residual's too, and writes those of the first three.
    """
    M, N, K = case["M"], case["N"], case["K"]
    n_parameters = M * K + N * K + N
    if case.is_backward:
        return (2 * n_parameters + M * N) * case.itemsize
    n_results = 2 if case.choice("residual") == "yes" else 1
    return (n_parameters + n_results * M * N) * case.itemsize


def _feed_forward_layers(n_out: int, n_in: int, **choice: str) -> list[Workload]:
    """`M N K` of a layer of a diffusion transformer's feed-forward block: N and K are multiples of
    the width.
    """
    workloads = []
    for model in (FLUX_1, DIT_XL_2):
        N, K = n_out * model.hidden, n_in * model.hidden
        shape: dict[str, int | str] = {"M": _IMAGES * model.n_tokens, "N": N, "K": K, **choice}
        workloads.append(Workload(shape, frozenset({model.name, "tp1"})))
    return workloads


# four times the width inside, with biases and the tanh form of GELU (arXiv 2212.09748)
_UP = _feed_forward_layers(4, 1, activation="gelu", residual="no")
_DOWN = _feed_forward_layers(1, 4, activation="none", residual="yes")

linear_epilogue_spec = KernelSpec(
    name="linear_epilogue",
    family="GEMM",
    inputs=_inputs,
    reference=linear_epilogue_reference,
    cases=[
        *small_cases(
            {"M": 256, "N": 512, "K": 512, "activation": "gelu", "residual": "yes"},
            dtypes=["bfloat16"],
            directions=["fwd", "bwd"],
        ),
        *model_cases(_UP, directions=["fwd", "bwd"]),
        # the vendor's products are its whole backward pass
        *model_cases(_DOWN),
    ],
    edges=[
        *cases(
            shapes=[
                {"M": 63, "N": 100, "K": 115, "activation": "silu", "residual": "no"},
                {"M": 1, "N": 63, "K": 33, "activation": "none", "residual": "yes"},
                {"M": 0, "N": 63, "K": 16, "activation": "relu", "residual": "yes"},
            ],
            dtypes=["float16"],
            directions=["bwd"],
        ),
        *cases(
            shapes=[{"M": 70, "N": 72, "K": 40, "activation": "gelu", "residual": "no"}],
            directions=["bwd"],
        ),
        *cases(
            shapes=[{"M": 30, "N": 65, "K": 40, "activation": "relu", "residual": "yes"}],
        ),
    ],
    flop_count=linear_epilogue_flop_count,
    memory_bytes=linear_epilogue_memory_bytes,
    formula="out = activation(x weightᵀ + bias) + residual",
    source="NVIDIA, CUTLASS, 2017 (github.com/NVIDIA/cutlass), for epilogues",
    interpreted_shape={"M": 72, "N": 80, "K": 72},
)


@linear_epilogue_spec.implementation("triton", deterministic=True)
def linear_epilogue(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    residual: Tensor | None = None,
    activation: str = "none",
) -> Tensor:
    """`activation(x weightᵀ + bias) + residual`, accumulated in float32.

    Args:
        x: [M, K], contiguous along its last dim.
        weight: [N, K] of x's dtype, contiguous along its last dim.
        bias: [N] of any floating-point dtype, contiguous.
        residual: [M, N] of x's dtype, contiguous along its last dim; None adds nothing.
        activation: One of `ACTIVATIONS`; GELU in its tanh form.

    Returns:
        [M, N] in x's dtype.
    """
    name = "linear_epilogue"
    require_operands(name, dims=2, x=x, weight=weight)
    require_operands(name, x=x, bias=bias)
    require_operands(name, dims=1, bias=bias)
    require_equal(name, "the dtypes", x=x.dtype, weight=weight.dtype)
    require_equal(name, "the columns", x=x.shape[1], weight=weight.shape[1])
    require_equal(name, "the output channels", weight=len(weight), bias=len(bias))
    require_contiguous(name, bias=bias)
    if residual is not None:
        require_operands(name, dims=2, x=x, residual=residual)
        require_equal(name, "the dtypes", x=x.dtype, residual=residual.dtype)
        require_equal(name, "the shapes", out=(len(x), len(weight)), residual=tuple(residual.shape))
    if activation not in ACTIVATIONS:
        raise KernelError(
            f"{name}: activation is {activation!r}, must be one of {', '.join(ACTIVATIONS)}"
        )
    return _linear_epilogue_op(x, weight, bias, residual, activation)


@linear_epilogue_spec.implementation("torch", compile=True)
def _linear_epilogue_torch(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    residual: Tensor | None = None,
    activation: str = "none",
) -> Tensor:
    pre = torch.nn.functional.linear(x, weight, bias)
    if activation == "relu":
        pre = torch.nn.functional.relu(pre)
    elif activation == "gelu":
        pre = torch.nn.functional.gelu(pre, approximate="tanh")
    elif activation == "silu":
        pre = torch.nn.functional.silu(pre)
    return pre if residual is None else pre + residual

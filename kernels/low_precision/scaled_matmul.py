"""Matrix products of 8-bit operands with a scale per row, fp8_matmul_rowwise and int8_matmul,
forward.

    out[m, n] = x_scale[m] * weight_scale[n] * sum over k of x[m, k] * weight[n, k]

The scales do not depend on k, so the tensor cores add the raw 8-bit products, and the scales are
applied to the result. int8 products are added exactly in int32. On sm_80, without 8-bit floats,
e4m3 is converted to float16 in registers, which is exact; see building_blocks/formats.py for CDNA
3. Both operands are contiguous along K.

Sources: Dettmers et al., LLM.int8(): 8-bit Matrix Multiplication for Transformers at Scale, 2022
(arXiv 2208.07339), section 2.1 (vector-wise quantisation); Micikevicius et al., FP8 Formats for
Deep Learning, 2022 (arXiv 2209.05433), section 3.
"""

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from roofwatch import Case, InputMaker, KernelSpec, UnsupportedError, cases
from roofwatch.kernels.building_blocks.errors import KernelError
from roofwatch.kernels.building_blocks.formats import as_kernel_operand
from roofwatch.kernels.building_blocks.operands import require_equal, require_operands
from roofwatch.kernels.building_blocks.operators import operator
from roofwatch.kernels.building_blocks.shapes import model_cases, projections, small_cases
from roofwatch.kernels.building_blocks.target import (
    DeviceTarget,
    current_target,
    multiprocessor_count,
)
from roofwatch.kernels.building_blocks.tiles import (
    dot_8_bit,
    load_factors,
    store_product,
    tile_of_program,
)

MAX_K = 131_072
"""Longest sum of int8 products that always fits into int32."""
MAX_DECODE_ROWS = 64
"""Up to so many rows of x, one narrow tile holds all rows: weights are read once, by many programs.
"""


@triton.jit
def _scaled_matmul_kernel(
    x_ptr,
    x_scale_ptr,
    weight_ptr,
    weight_scale_ptr,
    out_ptr,
    M,
    N,
    K,
    x_row_stride,
    weight_row_stride,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    K_IS_EVEN: tl.constexpr,
    N_CHIPLETS: tl.constexpr,
):
    tile_m, tile_n = tile_of_program(M, N, BLOCK_M, BLOCK_N, N_CHIPLETS)
    offs_m = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    offs_k = tl.arange(0, BLOCK_K)
    # rows past the end wrap to the first rows and are not stored: cheaper than masked loads
    x_ptrs = x_ptr + (offs_m % M).to(tl.int64)[:, None] * x_row_stride + offs_k[None, :]
    weight_ptrs = (
        weight_ptr + (offs_n % N).to(tl.int64)[None, :] * weight_row_stride + offs_k[:, None]
    )
    acc = tl.zeros(
        (BLOCK_M, BLOCK_N), tl.int32 if x_ptr.dtype.element_ty == tl.int8 else tl.float32
    )
    for start in range(0, K, BLOCK_K):
        x, weight = load_factors(
            x_ptrs, weight_ptrs, K - start, K_IS_EVEN
        )  # [BLOCK_M, BLOCK_K], [BLOCK_K, BLOCK_N]
        acc = dot_8_bit(x, weight, acc)
        x_ptrs += BLOCK_K
        weight_ptrs += BLOCK_K
    x_scale = tl.load(x_scale_ptr + offs_m, mask=offs_m < M, other=0.0)  # [BLOCK_M]
    weight_scale = tl.load(weight_scale_ptr + offs_n, mask=offs_n < N, other=0.0)  # [BLOCK_N]
    out = acc.to(tl.float32) * x_scale[:, None] * weight_scale[None, :]
    store_product(out_ptr, out, offs_m, offs_n, M, N, N)


class ScaledTiling(NamedTuple):
    """Tile sizes and launch options."""

    BLOCK_M: int
    BLOCK_N: int
    BLOCK_K: int
    num_warps: int
    num_stages: int


# The largest tiles without register spills that fit the target's shared memory. Hopper accumulates
# fp8 in a second set of registers, so its tile is smaller than for int8. Data-centre Blackwell
# accumulates in tensor memory.
_FP8 = {
    "sm_80": ScaledTiling(128, 128, 64, 8, 2),
    "sm_100": ScaledTiling(128, 256, 128, 8, 4),
    "sm_120": ScaledTiling(128, 128, 128, 8, 3),
    "cuda": ScaledTiling(128, 128, 128, 8, 4),
    "hip": ScaledTiling(128, 128, 128, 8, 2),
    "interpreter": ScaledTiling(32, 32, 64, 4, 2),
}
_INT8 = {
    "sm_80": ScaledTiling(128, 128, 128, 8, 4),
    "sm_90": ScaledTiling(128, 256, 128, 8, 3),
    "sm_120": ScaledTiling(128, 128, 128, 8, 3),
    "cuda": ScaledTiling(128, 128, 128, 8, 4),
    "hip": ScaledTiling(128, 128, 128, 8, 2),
    "interpreter": ScaledTiling(32, 32, 64, 4, 2),
}


def scaled_matmul_config(
    M: int, N: int, dtype: torch.dtype, target: DeviceTarget, n_multiprocessors: int
) -> ScaledTiling:
    """Choose narrow tiles for a few rows of x, else the target's large tile, or a smaller one if
    tiles are too few.
    """
    if M <= MAX_DECODE_ROWS:
        block_m = max(16, triton.next_power_of_2(M))
        if target.backend == "cuda":
            return ScaledTiling(block_m, 32, 256, 4, 3 if target.arch == "sm_120" else 4)
        return ScaledTiling(block_m, 32, 128, 4, 2)
    tilings = _INT8 if dtype is torch.int8 else _FP8
    tiling = tilings.get(target.arch) or tilings[target.backend]
    if triton.cdiv(M, tiling.BLOCK_M) * triton.cdiv(N, tiling.BLOCK_N) < n_multiprocessors:
        return tiling._replace(BLOCK_M=64, BLOCK_N=64, num_warps=4)
    return tiling


def empty_scaled_product(
    x: Tensor, x_scale: Tensor, weight: Tensor, weight_scale: Tensor
) -> Tensor:
    return x.new_empty(x.shape[0], weight.shape[0], dtype=torch.bfloat16)


def _launch_scaled_matmul(x, x_scale, weight, weight_scale, out):
    M, K = x.shape
    N = weight.shape[0]
    is_fp8 = x.dtype is torch.float8_e4m3fn
    target = current_target()
    tiling = scaled_matmul_config(M, N, x.dtype, target, multiprocessor_count(x))
    _scaled_matmul_kernel[(triton.cdiv(M, tiling.BLOCK_M) * triton.cdiv(N, tiling.BLOCK_N),)](
        as_kernel_operand(x) if is_fp8 else x,
        x_scale,
        as_kernel_operand(weight) if is_fp8 else weight,
        weight_scale,
        out,
        M,
        N,
        K,
        x.stride(0),
        weight.stride(0),
        K_IS_EVEN=K % tiling.BLOCK_K == 0,
        N_CHIPLETS=target.chiplet_count,
        **tiling._asdict(),
    )


_fp8_matmul_rowwise_op = operator("fp8_matmul_rowwise", empty_scaled_product)(_launch_scaled_matmul)
_int8_matmul_op = operator("int8_matmul", empty_scaled_product)(_launch_scaled_matmul)


def _require_scaled_operands(
    kernel: str,
    dtype: torch.dtype,
    x: Tensor,
    x_scale: Tensor,
    weight: Tensor,
    weight_scale: Tensor,
) -> None:
    require_operands(kernel, dims=2, dtypes=(dtype,), x=x, weight=weight)
    require_equal(kernel, "the columns", x=x.shape[1], weight=weight.shape[1])
    require_row_scale(kernel, "x_scale", x_scale, x)
    require_row_scale(kernel, "weight_scale", weight_scale, weight)


def require_row_scale(kernel: str, name: str, scale: Tensor, matrix: Tensor) -> None:
    """Require one float32 scale per row of a matrix, contiguous and on its device."""
    shape = (matrix.shape[0], 1)
    if scale.shape != shape or scale.dtype != torch.float32 or not scale.is_contiguous():
        raise KernelError(
            f"{kernel}: {name} must be contiguous float32 of shape {shape}, got {scale.dtype} of "
            f"{tuple(scale.shape)}; "
            f"call {name}.float().reshape(-1, 1).contiguous()"
        )
    require_equal(
        kernel, f"the devices of {name} and its matrix", scale=scale.device, matrix=matrix.device
    )


def scaled_matmul_reference(
    x: Tensor, x_scale: Tensor, weight: Tensor, weight_scale: Tensor
) -> Tensor:
    """Compute `out[m, n] = x_scale[m] weight_scale[n] * sum over k of x[m, k] weight[n, k]`."""
    return torch.einsum("mk,nk->mn", x.double(), weight.double()) * x_scale * weight_scale.t()


def scaled_cases(dtype: str) -> list[Case]:
    """A small product, and the projections of the models."""
    small = small_cases({"M": 512, "N": 1024, "K": 1024}, dtypes=[dtype])
    return [*small, *model_cases(projections(), dtypes=[dtype])]


def scaled_edges(dtype: str) -> list[Case]:
    """Lengths that no tile divides, one row, few rows, no rows."""
    return cases(
        shapes=[
            {"M": 65, "N": 200, "K": 1000},
            {"M": 1, "N": 63, "K": 63},
            {"M": 20, "N": 40, "K": 512},
            {"M": 0, "N": 63, "K": 64},
        ],
        dtypes=[dtype],
    )


def scaled_matmul_flop_count(case: Case) -> float:
    """Count a multiplication and an addition for each of M * N * K terms; two multiplications per
    result.
    """
    return 2 * case["M"] * case["N"] * (case["K"] + 1)


def scaled_matmul_memory_bytes(case: Case) -> float:
    """Reads x, weight and a float32 per row of each; writes two bytes per result."""
    M, N, K = case["M"], case["N"], case["K"]
    return (M + N) * (K * case.itemsize + 4) + 2 * M * N


def _scaled_matmul_spec(name: str, dtype: str, *, spread: float, source: str) -> KernelSpec:
    """The spec of a kernel; `spread` is the standard deviation of the 8-bit levels."""

    def inputs(case: Case, make: InputMaker) -> dict[str, Tensor]:
        return {
            "x": make.normal(case["M"], case["K"], scale=spread),
            "x_scale": make.uniform(case["M"], 1, low=0.01, high=0.02, dtype="float32"),
            "weight": make.normal(case["N"], case["K"], scale=spread),
            "weight_scale": make.uniform(case["N"], 1, low=0.001, high=0.002, dtype="float32"),
        }

    spec = KernelSpec(
        name=name,
        family="low precision",
        inputs=inputs,
        reference=scaled_matmul_reference,
        cases=scaled_cases(dtype),
        edges=scaled_edges(dtype),
        flop_count=scaled_matmul_flop_count,
        memory_bytes=scaled_matmul_memory_bytes,
        formula="out = (x @ weight.T) * x_scale * weight_scale.T",
        source=source,
        interpreted_shape={"M": 70, "N": 72, "K": 144},
    )

    @spec.implementation("torch", directions=["fwd"], compile=True)
    def _(x: Tensor, x_scale: Tensor, weight: Tensor, weight_scale: Tensor) -> Tensor:
        return ((x.float() * x_scale) @ (weight.float() * weight_scale).t()).bfloat16()

    return spec


fp8_matmul_rowwise_spec = _scaled_matmul_spec(
    "fp8_matmul_rowwise",
    "float8_e4m3fn",
    spread=64.0,
    source="Micikevicius et al., FP8 Formats for Deep Learning, 2022 (arXiv 2209.05433), section 3",
)
int8_matmul_spec = _scaled_matmul_spec(
    "int8_matmul",
    "int8",
    spread=20.0,
    source="Dettmers et al., LLM.int8(), 2022 (arXiv 2208.07339), section 2.1",
)


@fp8_matmul_rowwise_spec.implementation("triton", directions=["fwd"], deterministic=True)
def fp8_matmul_rowwise(x: Tensor, x_scale: Tensor, weight: Tensor, weight_scale: Tensor) -> Tensor:
    """Compute `(x @ weight.T) * x_scale * weight_scale.T`, accumulated in float32.

    Args:
        x: [M, K] float8_e4m3fn, finite, contiguous along its last dim.
        x_scale: [M, 1] float32, as `quantise_fp8` returns it.
        weight: [N, K] float8_e4m3fn, finite, contiguous along its last dim; a row is one output
            channel.
        weight_scale: [N, 1] float32.

    Returns:
        [M, N] bfloat16.
    """
    _require_scaled_operands(
        "fp8_matmul_rowwise", torch.float8_e4m3fn, x, x_scale, weight, weight_scale
    )
    return _fp8_matmul_rowwise_op(x, x_scale, weight, weight_scale)


@fp8_matmul_rowwise_spec.implementation("torch", name="scaled_mm", directions=["fwd"])
def _fp8_matmul_rowwise_scaled_mm(
    x: Tensor, x_scale: Tensor, weight: Tensor, weight_scale: Tensor
) -> Tensor:
    if not x.is_cuda or torch.cuda.get_device_capability(x.device) < (8, 9):
        raise UnsupportedError(
            "needs a GPU of compute capability 8.9 or newer, for torch._scaled_mm"
        )
    if x.shape[1] % 16 or weight.shape[0] % 16:
        raise UnsupportedError(
            "needs columns and output channels in multiples of 16, for torch._scaled_mm"
        )
    return torch._scaled_mm(
        x,
        weight.t(),
        x_scale,
        weight_scale.t(),
        out_dtype=torch.bfloat16,
        # as vLLM and torchao call it; torch's default is slower
        use_fast_accum=True,
    )


@int8_matmul_spec.implementation("triton", directions=["fwd"], deterministic=True)
def int8_matmul(x: Tensor, x_scale: Tensor, weight: Tensor, weight_scale: Tensor) -> Tensor:
    """Compute `(x @ weight.T) * x_scale * weight_scale.T`, accumulated in int32.

    Args:
        x: [M, K] int8, contiguous along its last dim, K at most `MAX_K`.
        x_scale: [M, 1] float32, as `quantise_int8` returns it.
        weight: [N, K] int8, contiguous along its last dim; a row is one output channel.
        weight_scale: [N, 1] float32.

    Returns:
        [M, N] bfloat16.
    """
    _require_scaled_operands("int8_matmul", torch.int8, x, x_scale, weight, weight_scale)
    if x.shape[1] > MAX_K:
        raise KernelError(
            f"int8_matmul: x has {x.shape[1]} columns, at most {MAX_K} are exact; split the columns"
        )
    return _int8_matmul_op(x, x_scale, weight, weight_scale)


@int8_matmul_spec.implementation("torch", name="int_mm", directions=["fwd"])
def _int8_matmul_int_mm(x: Tensor, x_scale: Tensor, weight: Tensor, weight_scale: Tensor) -> Tensor:
    M, K = x.shape
    if x.is_cuda and (M <= 16 or K % 8 or weight.shape[0] % 8):
        raise UnsupportedError(
            "needs more than 16 rows, and columns and output channels in multiples of 8, for "
            "torch._int_mm"
        )
    return (torch._int_mm(x, weight.t()) * x_scale * weight_scale.t()).bfloat16()

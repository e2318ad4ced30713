"""Products of 8-bit matrices whose rows have scales: what fp8_matmul_rowwise and int8_matmul share.

    out[m, n] = x_scale[m] * weight_scale[n] * sum over k of x[m, k] * weight[n, k]

The scales do not depend on k, so the tensor cores add up the bare 8-bit numbers and the scales are applied once, to the
result. Both operands lie along K, as the tensor cores of every target want 8-bit numbers.
"""

from typing import NamedTuple

import torch
import triton
import triton.language as tl

from roofwatch import Case, InputMaker, cases
from roofwatch.kernels.building_blocks.dots import dot_8_bit
from roofwatch.kernels.building_blocks.fp8 import as_kernels_take_it
from roofwatch.kernels.building_blocks.tiles import load_factors, store_product, tile_of_program
from roofwatch.kernels.errors import KernelError
from roofwatch.kernels.operands import refuse_gradients, require_equal, require_operands
from roofwatch.kernels.shapes import model_cases, projections
from roofwatch.kernels.target import Target, current_target, multiprocessor_count

_GROUP_M = 8
MAX_DECODE_ROWS = 64
"""Of x, for tiles as high as x is and narrow: weights are read once, and by many programs."""


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
    GROUP_M: tl.constexpr,
    K_IS_EVEN: tl.constexpr,
    N_CHIPLETS: tl.constexpr,
):
    tile_m, tile_n = tile_of_program(M, N, BLOCK_M, BLOCK_N, GROUP_M, N_CHIPLETS)
    offs_m = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    offs_k = tl.arange(0, BLOCK_K)
    # past the end the first rows are read again and not stored: cheaper than a mask on every load
    x_ptrs = x_ptr + (offs_m % M).to(tl.int64)[:, None] * x_row_stride + offs_k[None, :]
    weight_ptrs = weight_ptr + (offs_n % N).to(tl.int64)[None, :] * weight_row_stride + offs_k[:, None]
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.int32 if x_ptr.dtype.element_ty == tl.int8 else tl.float32)
    for start in range(0, K, BLOCK_K):
        x, weight = load_factors(x_ptrs, weight_ptrs, K - start, K_IS_EVEN)  # [BLOCK_M, BLOCK_K], [BLOCK_K, BLOCK_N]
        acc = dot_8_bit(x, weight, acc)
        x_ptrs += BLOCK_K
        weight_ptrs += BLOCK_K
    x_scale = tl.load(x_scale_ptr + offs_m, mask=offs_m < M, other=0.0)  # [BLOCK_M]
    weight_scale = tl.load(weight_scale_ptr + offs_n, mask=offs_n < N, other=0.0)  # [BLOCK_N]
    out = acc.to(tl.float32) * x_scale[:, None] * weight_scale[None, :]
    store_product(out_ptr, out, offs_m, offs_n, M, N, N)


class Tiling(NamedTuple):
    """How a product is cut into tiles and launched."""

    BLOCK_M: int
    BLOCK_N: int
    BLOCK_K: int
    num_warps: int
    num_stages: int


# The largest tiles that spill no register and fit the target's shared memory. Hopper adds fp8 products into a second
# set of registers, so its tile is smaller there than for int8; data-centre Blackwell has an own memory for fp8 sums.
_FP8 = {
    "sm_80": Tiling(128, 128, 64, 8, 3),
    "sm_100": Tiling(128, 256, 128, 8, 4),
    "sm_120": Tiling(128, 128, 128, 8, 3),
    "cuda": Tiling(128, 128, 128, 8, 4),
    "hip": Tiling(128, 128, 128, 8, 2),
    "interpreter": Tiling(32, 32, 64, 4, 2),
}
_INT8 = {
    "sm_80": Tiling(128, 128, 128, 8, 4),
    "sm_90": Tiling(128, 256, 128, 8, 3),
    "sm_120": Tiling(128, 128, 128, 8, 3),
    "cuda": Tiling(128, 128, 128, 8, 4),
    "hip": Tiling(128, 128, 128, 8, 2),
    "interpreter": Tiling(32, 32, 64, 4, 2),
}


def scaled_matmul_config(M: int, N: int, dtype: torch.dtype, target: Target, n_multiprocessors: int) -> Tiling:
    """A few rows of x: a tile for all of them, as narrow as leaves a program for every multiprocessor. More: the
    target's large tile, or a quarter of it where there would be too few.
    """
    if M <= MAX_DECODE_ROWS:
        block_m = max(16, triton.next_power_of_2(M))
        if target.backend == "cuda":
            return Tiling(block_m, 32, 256, 4, 3 if target.arch == "sm_120" else 4)
        return Tiling(block_m, 32, 128, 4, 2)
    tilings = _INT8 if dtype is torch.int8 else _FP8
    tiling = tilings.get(target.arch) or tilings[target.backend]
    if triton.cdiv(M, tiling.BLOCK_M) * triton.cdiv(N, tiling.BLOCK_N) < n_multiprocessors:
        return tiling._replace(BLOCK_M=64, BLOCK_N=64, num_warps=4)
    return tiling


def scaled_matmul(
    x: torch.Tensor, x_scale: torch.Tensor, weight: torch.Tensor, weight_scale: torch.Tensor
) -> torch.Tensor:
    """Launch for operands that `require_scaled_operands` let pass; the result is bfloat16."""
    M, K = x.shape
    N = weight.shape[0]
    out = x.new_empty(M, N, dtype=torch.bfloat16)
    if not out.numel():
        return out  # a grid of no programs cannot be launched
    is_fp8 = x.dtype is torch.float8_e4m3fn
    with torch.cuda.device_of(x):
        target = current_target()
        tiling = scaled_matmul_config(M, N, x.dtype, target, multiprocessor_count(x))
        _scaled_matmul_kernel[(triton.cdiv(M, tiling.BLOCK_M) * triton.cdiv(N, tiling.BLOCK_N),)](
            as_kernels_take_it(x) if is_fp8 else x,
            x_scale,
            as_kernels_take_it(weight) if is_fp8 else weight,
            weight_scale,
            out,
            M,
            N,
            K,
            x.stride(0),
            weight.stride(0),
            GROUP_M=_GROUP_M,
            K_IS_EVEN=K % tiling.BLOCK_K == 0,
            N_CHIPLETS=target.chiplet_count,
            **tiling._asdict(),
        )
    return out


def empty_scaled_product(
    x: torch.Tensor,
    x_scale: torch.Tensor,  # noqa: ARG001  the operators' signature
    weight: torch.Tensor,
    weight_scale: torch.Tensor,  # noqa: ARG001
) -> torch.Tensor:
    """Where the product of any such operands goes, [M, N] bfloat16."""
    return x.new_empty(x.shape[0], weight.shape[0], dtype=torch.bfloat16)


def require_scaled_operands(
    kernel: str,
    dtype: torch.dtype,
    x: torch.Tensor,
    x_scale: torch.Tensor,
    weight: torch.Tensor,
    weight_scale: torch.Tensor,
    *,
    max_k: int | None = None,
) -> None:
    """Refuse what `scaled_matmul` would read wrongly.

    Raises:
        KernelError: an operand has another layout, shape or dtype, or requires a gradient.
    """
    require_operands(kernel, dims=2, dtypes=(dtype,), x=x, weight=weight)
    require_equal(kernel, "the columns", x=x.shape[1], weight=weight.shape[1])
    if max_k is not None and x.shape[1] > max_k:
        raise KernelError(f"{kernel}: x has {x.shape[1]} columns, at most {max_k} add up exactly; split the columns")
    require_row_scale(kernel, "x_scale", x_scale, x)
    require_row_scale(kernel, "weight_scale", weight_scale, weight)
    refuse_gradients(kernel, x=x, x_scale=x_scale, weight=weight, weight_scale=weight_scale)


def require_row_scale(kernel: str, name: str, scale: torch.Tensor, matrix: torch.Tensor) -> None:
    """Refuse scales that are not one float32 per row of a matrix, contiguous and on its device.

    Raises:
        KernelError: says what there is and what there must be.
    """
    shape = (matrix.shape[0], 1)
    if scale.shape != shape or scale.dtype != torch.float32 or not scale.is_contiguous():
        raise KernelError(
            f"{kernel}: {name} must be contiguous float32 of shape {shape}, got {scale.dtype} of {tuple(scale.shape)}; "
            f"call {name}.float().reshape(-1, 1).contiguous()"
        )
    require_equal(kernel, f"the devices of {name} and its matrix", scale=scale.device, matrix=matrix.device)


def scaled_matmul_reference(
    x: torch.Tensor, x_scale: torch.Tensor, weight: torch.Tensor, weight_scale: torch.Tensor
) -> torch.Tensor:
    """The formula, `out[m, n] = x_scale[m] weight_scale[n] * sum over k of x[m, k] weight[n, k]`."""
    return torch.einsum("mk,nk->mn", x.double(), weight.double()) * x_scale * weight_scale.t()


def dequantised_product(
    x: torch.Tensor, x_scale: torch.Tensor, weight: torch.Tensor, weight_scale: torch.Tensor
) -> torch.Tensor:
    """The same in torch's operations: both operands made float32, then multiplied."""
    return ((x.float() * x_scale) @ (weight.float() * weight_scale).t()).bfloat16()


def scaled_operands(case: Case, make: InputMaker, *, spread: float) -> dict[str, torch.Tensor]:
    """Operands as quantisation makes them: normally distributed levels, and positive scales.

    Args:
        case: Gives the lengths and the dtype.
        make: Draws the numbers.
        spread: Standard deviation of the levels; the largest level lies six of it away and more.
    """
    return {
        "x": make.normal(case["M"], case["K"], scale=spread),
        "x_scale": make.uniform(case["M"], 1, low=0.01, high=0.02, dtype="float32"),
        "weight": make.normal(case["N"], case["K"], scale=spread),
        "weight_scale": make.uniform(case["N"], 1, low=0.001, high=0.002, dtype="float32"),
    }


def scaled_cases(dtype: str) -> list[Case]:
    """A small product, and the projections of the models."""
    small = cases(shapes=[{"M": 512, "N": 1024, "K": 1024}], dtypes=[dtype], tags=["small"])
    return [*small, *model_cases(projections(), dtypes=[dtype])]


def scaled_edges(dtype: str) -> list[Case]:
    """Lengths that no tile divides, one row, few rows, none."""
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
    """One multiplication and one addition for each of M * N * K terms; two multiplications of each result."""
    return 2 * case["M"] * case["N"] * (case["K"] + 1)


def scaled_matmul_memory_bytes(case: Case) -> float:
    """Reads x, weight and a float32 per row of each; writes two bytes per result."""
    M, N, K = case["M"], case["N"], case["K"]
    return (M + N) * (K * case.itemsize + 4) + 2 * M * N

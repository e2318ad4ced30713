"""Matrix product of e4m3 activations and weights with scales per block of K, forward.

Activations have a scale per token and 128 columns, weights one per 128 x 128 block, so an outlier
reduces the precision of its block only. Tensor cores sum one block of K; the sum times both scales
is accumulated in float32.

Source: DeepSeek-AI, DeepSeek-V3 Technical Report, 2024 (arXiv 2412.19437), section 3.3.2.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from roofwatch import Case, InputMaker, KernelSpec, UnsupportedError
from roofwatch.kernels.building_blocks.errors import KernelError
from roofwatch.kernels.building_blocks.formats import as_kernel_operand
from roofwatch.kernels.building_blocks.operands import (
    require_equal,
    require_operands,
    supports_tma,
)
from roofwatch.kernels.building_blocks.operators import operator
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
from roofwatch.kernels.low_precision.scaled_matmul import (
    MAX_DECODE_ROWS,
    ScaledTiling,
    empty_scaled_product,
    scaled_cases,
    scaled_edges,
)

SCALE_BLOCK = 128
"""Columns per scale, and output channels per scale of the weights."""
_SCALE_BLOCK = tl.constexpr(SCALE_BLOCK)


@triton.jit
def _fp8_matmul_blockwise_kernel(
    x_source,
    x_scale_ptr,
    weight_source,
    weight_scale_ptr,
    out_ptr,
    M,
    N,
    K,
    x_row_stride,
    weight_row_stride,
    x_scale_row_stride,
    x_scale_col_stride,
    weight_scale_row_stride,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    IS_COPIED: tl.constexpr,
    K_IS_EVEN: tl.constexpr,
    N_CHIPLETS: tl.constexpr,
):
    tile_m, tile_n = tile_of_program(M, N, BLOCK_M, BLOCK_N, N_CHIPLETS)
    offs_m = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    # rows past the end wrap around and are not stored: cheaper than masked loads
    row = (offs_m % M).to(tl.int64)
    x_scale_ptrs = x_scale_ptr + row * x_scale_row_stride
    # BLOCK_N divides the scale block, so a tile has one scale of weights per block of K
    weight_scale_ptr += tile_n * BLOCK_N // _SCALE_BLOCK * weight_scale_row_stride
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    if IS_COPIED:
        for start in range(0, K, _SCALE_BLOCK):
            x = x_source.load([tile_m * BLOCK_M, start])  # [BLOCK_M, SCALE_BLOCK]
            weight = weight_source.load([tile_n * BLOCK_N, start]).T  # [SCALE_BLOCK, BLOCK_N]
            scale = tl.load(x_scale_ptrs) * tl.load(weight_scale_ptr)  # [BLOCK_M]
            acc += dot_8_bit(x, weight, tl.zeros((BLOCK_M, BLOCK_N), tl.float32)) * scale[:, None]
            x_scale_ptrs += x_scale_col_stride
            weight_scale_ptr += 1
    else:
        offs_k = tl.arange(0, _SCALE_BLOCK)
        x_ptrs = x_source + row[:, None] * x_row_stride + offs_k[None, :]
        channel = (offs_n % N).to(tl.int64)
        weight_ptrs = weight_source + channel[None, :] * weight_row_stride + offs_k[:, None]
        for start in range(0, K, _SCALE_BLOCK):
            x, weight = load_factors(
                x_ptrs, weight_ptrs, K - start, K_IS_EVEN
            )  # [BLOCK_M, SCALE_BLOCK], [SCALE_BLOCK, BLOCK_N]
            scale = tl.load(x_scale_ptrs) * tl.load(weight_scale_ptr)  # [BLOCK_M]
            acc += dot_8_bit(x, weight, tl.zeros((BLOCK_M, BLOCK_N), tl.float32)) * scale[:, None]
            x_ptrs += _SCALE_BLOCK
            weight_ptrs += _SCALE_BLOCK
            x_scale_ptrs += x_scale_col_stride
            weight_scale_ptr += 1
    store_product(out_ptr, acc, offs_m, offs_n, M, N, N)


# The largest tiles without register spills that fit the target's shared memory. The sum of a block
# and the total both stay in registers.
_TILINGS = {
    "sm_80": ScaledTiling(128, 64, SCALE_BLOCK, 8, 4),
    # three programs on a multiprocessor: one multiplies while another applies its scales
    "sm_100": ScaledTiling(128, 64, SCALE_BLOCK, 4, 3),
    "sm_120": ScaledTiling(128, 128, SCALE_BLOCK, 8, 3),
    "cuda": ScaledTiling(128, 128, SCALE_BLOCK, 8, 4),
    "hip": ScaledTiling(128, 128, SCALE_BLOCK, 8, 2),
    "interpreter": ScaledTiling(32, 32, SCALE_BLOCK, 4, 2),
}


def fp8_matmul_blockwise_config(
    M: int, N: int, target: DeviceTarget, n_multiprocessors: int
) -> ScaledTiling:
    """Choose narrow tiles for a few rows of x, else the target's large tile, or a smaller one if
    tiles are too few.
    """
    tiling = _TILINGS.get(target.arch) or _TILINGS[target.backend]
    if M <= MAX_DECODE_ROWS:
        return tiling._replace(BLOCK_M=max(16, triton.next_power_of_2(M)), BLOCK_N=32, num_warps=4)
    if triton.cdiv(M, tiling.BLOCK_M) * triton.cdiv(N, tiling.BLOCK_N) < n_multiprocessors:
        return tiling._replace(BLOCK_M=64, BLOCK_N=64, num_warps=4)
    return tiling


@operator("fp8_matmul_blockwise", empty_scaled_product)
def _fp8_matmul_blockwise_op(x, x_scale, weight, weight_scale, out):
    M, K = x.shape
    N = weight.shape[0]
    target = current_target()
    tiling = fp8_matmul_blockwise_config(M, N, target, multiprocessor_count(x))
    x_source = as_kernel_operand(x)
    weight_source = as_kernel_operand(weight)
    # on sm_90 the copy engine is predicted slower: all warps wait for each of its tiles
    is_copied = target.arch in {"sm_100", ""} and supports_tma(x) and supports_tma(weight)
    if is_copied:
        x_source = TensorDescriptor.from_tensor(x_source, [tiling.BLOCK_M, SCALE_BLOCK])
        weight_source = TensorDescriptor.from_tensor(weight_source, [tiling.BLOCK_N, SCALE_BLOCK])
    _fp8_matmul_blockwise_kernel[
        (triton.cdiv(M, tiling.BLOCK_M) * triton.cdiv(N, tiling.BLOCK_N),)
    ](
        x_source,
        x_scale,
        weight_source,
        weight_scale,
        out,
        M,
        N,
        K,
        x.stride(0),
        weight.stride(0),
        x_scale.stride(0),
        x_scale.stride(1),
        weight_scale.stride(0),
        BLOCK_M=tiling.BLOCK_M,
        BLOCK_N=tiling.BLOCK_N,
        IS_COPIED=is_copied,
        K_IS_EVEN=K % SCALE_BLOCK == 0,
        N_CHIPLETS=target.chiplet_count,
        num_warps=tiling.num_warps,
        num_stages=tiling.num_stages,
    )


def fp8_matmul_blockwise_reference(
    x: Tensor, x_scale: Tensor, weight: Tensor, weight_scale: Tensor
) -> Tensor:
    """Compute `out[m, n] = sum over k of x[m, k] x_scale[m, k / 128] weight[n, k] weight_scale[n /
    128, k / 128]`, with integer division.
    """
    out = x.new_zeros(x.shape[0], weight.shape[0])
    row_scale = weight_scale.repeat_interleave(SCALE_BLOCK, dim=0)[: weight.shape[0]]
    for block, start in enumerate(range(0, x.shape[1], SCALE_BLOCK)):
        columns = slice(start, start + SCALE_BLOCK)
        scaled_x = x[:, columns] * x_scale[:, block, None]
        scaled_weight = weight[:, columns] * row_scale[:, block, None]
        out += torch.einsum("mk,nk->mn", scaled_x, scaled_weight)
    return out


def _inputs(case: Case, make: InputMaker) -> dict[str, Any]:
    """Quantised operands; the scales of x are column-major, as cuBLAS requires."""
    M, N, K = case["M"], case["N"], case["K"]
    n_blocks = _block_count(K)
    weight_scale = make.uniform(_block_count(N), n_blocks, low=0.001, high=0.002, dtype="float32")
    return {
        "x": make.normal(M, K, scale=64.0),
        "x_scale": make.uniform(n_blocks, M, low=0.01, high=0.02, dtype="float32").t(),
        "weight": make.normal(N, K, scale=64.0),
        "weight_scale": weight_scale,
    }


def _block_count(length: int) -> int:
    return -(-length // SCALE_BLOCK)


def fp8_matmul_blockwise_flop_count(case: Case) -> float:
    """Count a multiplication and an addition for each of M * N * K terms, and for each block's sum
    and scales.
    """
    M, N, K = case["M"], case["N"], case["K"]
    return 2 * M * N * (K + _block_count(K))


def fp8_matmul_blockwise_memory_bytes(case: Case) -> float:
    """Reads x and weight, one byte each, and their float32 scales; writes two bytes per result."""
    M, N, K = case["M"], case["N"], case["K"]
    n_scales = (M + _block_count(N)) * _block_count(K)
    return (M + N) * K * case.itemsize + 4 * n_scales + 2 * M * N


fp8_matmul_blockwise_spec = KernelSpec(
    name="fp8_matmul_blockwise",
    family="low precision",
    inputs=_inputs,
    reference=fp8_matmul_blockwise_reference,
    cases=scaled_cases("float8_e4m3fn"),
    edges=scaled_edges("float8_e4m3fn"),
    flop_count=fp8_matmul_blockwise_flop_count,
    memory_bytes=fp8_matmul_blockwise_memory_bytes,
    formula="out = (x * x_scale by 1 x 128) @ (weight * weight_scale by 128 x 128).T",
    source="DeepSeek-V3 Technical Report, 2024 (arXiv 2412.19437), section 3.3.2",
    interpreted_shape={"M": 70, "N": 200, "K": 264},
)


@fp8_matmul_blockwise_spec.implementation("triton", directions=["fwd"], deterministic=True)
def fp8_matmul_blockwise(
    x: Tensor, x_scale: Tensor, weight: Tensor, weight_scale: Tensor
) -> Tensor:
    """Compute `(x * x_scale) @ (weight * weight_scale).T` with block scales, accumulated in
    float32.

    Args:
        x: [M, K] float8_e4m3fn, finite, contiguous along its last dim.
        x_scale: [M, K / 128 rounded up] float32 in any layout; fastest if contiguous along M.
        weight: [N, K] float8_e4m3fn, finite, contiguous along its last dim; a row is one output
            channel.
        weight_scale: [N / 128 rounded up, K / 128 rounded up] float32, contiguous along its last
            dim.

    Returns:
        [M, N] bfloat16.
    """
    name = "fp8_matmul_blockwise"
    require_operands(name, dims=2, dtypes=(torch.float8_e4m3fn,), x=x, weight=weight)
    require_operands(name, dtypes=(torch.float32,), weight_scale=weight_scale)
    require_equal(name, "the columns", x=x.shape[1], weight=weight.shape[1])
    n_blocks = _block_count(x.shape[1])
    for scale_name, scale, n_rows in (
        ("x_scale", x_scale, x.shape[0]),
        ("weight_scale", weight_scale, _block_count(weight.shape[0])),
    ):
        if (
            scale.shape != (n_rows, n_blocks)
            or scale.dtype != torch.float32
            or scale.device != x.device
        ):
            raise KernelError(
                f"{name}: {scale_name} must be float32 of shape {(n_rows, n_blocks)} on "
                f"{x.device}, got {scale.dtype} "
                f"of {tuple(scale.shape)} on {scale.device}; quantise by blocks of {SCALE_BLOCK}"
            )
    return _fp8_matmul_blockwise_op(x, x_scale, weight, weight_scale)


@fp8_matmul_blockwise_spec.implementation("torch", directions=["fwd"], compile=True)
def _fp8_matmul_blockwise_torch(
    x: Tensor, x_scale: Tensor, weight: Tensor, weight_scale: Tensor
) -> Tensor:
    N, K = weight.shape
    x_by_column = x_scale.repeat_interleave(SCALE_BLOCK, dim=1)[:, :K]
    by_column = weight_scale.repeat_interleave(SCALE_BLOCK, dim=1)[:, :K]
    by_row_and_column = by_column.repeat_interleave(SCALE_BLOCK, dim=0)[:N]
    return ((x.float() * x_by_column) @ (weight.float() * by_row_and_column).t()).bfloat16()


@fp8_matmul_blockwise_spec.implementation("torch", name="scaled_mm", directions=["fwd"])
def _fp8_matmul_blockwise_scaled_mm(
    x: Tensor, x_scale: Tensor, weight: Tensor, weight_scale: Tensor
) -> Tensor:
    """Use cuBLAS, which needs scales of x contiguous along M, and rows of weight scales in
    multiples of four.
    """
    if not x.is_cuda or torch.version.hip or torch.cuda.get_device_capability(x.device) != (9, 0):
        raise UnsupportedError(
            "needs a GPU of compute capability 9.0, for cuBLAS's products with block scales"
        )
    if tuple(int(part) for part in (torch.version.cuda or "0").split(".")) < (12, 9):
        raise UnsupportedError("needs CUDA 12.9, for cuBLAS's products with block scales")
    if x.shape[1] % SCALE_BLOCK or weight.shape[0] % SCALE_BLOCK:
        raise UnsupportedError(f"needs columns and output channels in blocks of {SCALE_BLOCK}")
    from torch.nn.functional import ScalingType, scaled_mm

    padded = torch.nn.functional.pad(weight_scale, (0, -weight_scale.shape[1] % 4))
    return scaled_mm(
        x,
        weight.t(),
        x_scale.t().contiguous().t(),
        ScalingType.BlockWise1x128,
        padded.t(),
        ScalingType.BlockWise128x128,
        output_dtype=torch.bfloat16,
    )

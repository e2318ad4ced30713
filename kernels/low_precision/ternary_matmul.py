"""Matrix product of int8 activations and ternary weights, forward.

The weights -1, 0 and 1 are packed four to a byte (formats.py) and unpacked in registers: a shift
moves one to the top of its byte, where it is 64 times the weight, and a mask removes the others.
Four bytes are processed at a time, so a weight takes half an instruction.

Activations are int8 with a scale per token, as in BitNet b1.58, and sums are exact. Weights have a
scale per output channel. With few tiles, K is split over programs, and a second kernel adds the
partial sums in a fixed order.

Source: Ma et al., The Era of 1-bit LLMs: All Large Language Models are in 1.58 Bits, 2024 (arXiv
2402.17764).
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from roofwatch import Case, InputMaker, KernelSpec, cases
from roofwatch.kernels.building_blocks.errors import KernelError
from roofwatch.kernels.building_blocks.formats import TERNARY_BLOCK_COLUMNS, unpack_ternary
from roofwatch.kernels.building_blocks.operands import require_equal, require_operands
from roofwatch.kernels.building_blocks.operators import operator
from roofwatch.kernels.building_blocks.shapes import (
    model_cases,
    only,
    projections,
    small_cases,
    with_choice,
)
from roofwatch.kernels.building_blocks.target import (
    IS_INTERPRETED,
    DeviceTarget,
    current_target,
    multiprocessor_count,
)
from roofwatch.kernels.building_blocks.tiles import (
    groups_per_split,
    store_product,
    sum_shares,
    tile_of_program,
)
from roofwatch.kernels.low_precision.scaled_matmul import (
    require_row_scale,
    scaled_matmul_flop_count,
)

MAX_K = 65_536
"""Longest sum of products of int8 and 64 that always fits into int32."""
MAX_FEW_ROWS = 16
"""Up to so many rows of x, a product is bound by reading the weights."""
_PROGRAMS_PER_MULTIPROCESSOR = 4


@triton.jit
def _levels_times_64(packed, POSITION: tl.constexpr):
    """Move the weight in bits 2 POSITION and 2 POSITION + 1 of each byte to the top of the byte."""
    if IS_INTERPRETED or not tl.target_info.is_cuda():
        levels = ((packed << (6 - 2 * POSITION)) & 0xC0).to(tl.int8, bitcast=True)
    else:
        # four bytes at a time; the compiler would process each byte separately
        levels = tl.inline_asm_elementwise(
            f"{{ .reg .b32 top; shl.b32 top, $1, {6 - 2 * POSITION}; and.b32 $0, top, 0xC0C0C0C0; "
            f"}}",
            "=r,r",
            [packed],
            dtype=tl.int8,
            is_pure=True,
            pack=4,
        )
    return levels


@triton.jit
def _ternary_matmul_kernel(
    x_ptr,
    x_scale_ptr,
    packed_ptr,
    weight_scale_ptr,
    share_ptr,
    M,
    N,
    n_bytes,
    x_row_stride,
    packed_row_stride,
    bytes_per_split,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_BYTES: tl.constexpr,
    N_CHIPLETS: tl.constexpr,
):
    tile_m, tile_n = tile_of_program(M, N, BLOCK_M, BLOCK_N, N_CHIPLETS)
    split = tl.program_id(1)
    first_byte = split * bytes_per_split
    end_byte = tl.minimum(first_byte + bytes_per_split, n_bytes)
    offs_m = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    offs_byte = tl.arange(0, BLOCK_BYTES)
    offs_k = tl.arange(0, 4 * BLOCK_BYTES)
    # rows past the end wrap around and are not stored
    x_ptrs = (
        x_ptr + (offs_m % M).to(tl.int64)[:, None] * x_row_stride + 4 * first_byte + offs_k[None, :]
    )
    packed_ptrs = (
        packed_ptr
        + (offs_n % N).to(tl.int64)[None, :] * packed_row_stride
        + first_byte
        + offs_byte[:, None]
    )
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.int32)
    for start in range(first_byte, end_byte, BLOCK_BYTES):
        x = tl.load(
            x_ptrs, mask=offs_k[None, :] < 4 * (end_byte - start), other=0
        )  # [BLOCK_M, 4 * BLOCK_BYTES]
        packed = tl.load(
            packed_ptrs, mask=offs_byte[:, None] < end_byte - start, other=0
        )  # [BLOCK_BYTES, BLOCK_N]
        # each join appends a bit to the position, highest first
        even = tl.join(_levels_times_64(packed, 0), _levels_times_64(packed, 2))
        odd = tl.join(_levels_times_64(packed, 1), _levels_times_64(packed, 3))
        weight = tl.join(even, odd).reshape(BLOCK_BYTES // 32, 32, BLOCK_N, 4)
        weight = weight.permute(0, 3, 1, 2).reshape(4 * BLOCK_BYTES, BLOCK_N)
        acc = tl.dot(x, weight, acc, out_dtype=tl.int32)
        x_ptrs += 4 * BLOCK_BYTES
        packed_ptrs += BLOCK_BYTES
    x_scale = tl.load(x_scale_ptr + offs_m, mask=offs_m < M, other=0.0) / 64.0  # [BLOCK_M]
    weight_scale = tl.load(weight_scale_ptr + offs_n, mask=offs_n < N, other=0.0)  # [BLOCK_N]
    share = acc.to(tl.float32) * x_scale[:, None] * weight_scale[None, :]
    store_product(share_ptr + split.to(tl.int64) * M * N, share, offs_m, offs_n, M, N, N)


def ternary_matmul_config(M: int, target: DeviceTarget) -> dict[str, int]:
    """Choose narrow tiles for few rows, else the largest that fit all targets without register
    spills.

    A byte has four weights.
    """
    num_stages = 2 if target.backend == "hip" else 4
    if M <= MAX_FEW_ROWS:
        return {
            "BLOCK_M": 16,
            "BLOCK_N": 64,
            "BLOCK_BYTES": 128,
            "num_warps": 4,
            "num_stages": num_stages,
        }
    block_m = min(triton.next_power_of_2(M), 128)
    n_warps = 8 if block_m == 128 else 4
    # at 32 rows a third stage is predicted no faster, and spills with Triton 3.9
    is_low_on_blackwell = block_m == 32 and target.arch == "sm_100"
    return {
        "BLOCK_M": block_m,
        "BLOCK_N": 128,
        "BLOCK_BYTES": 32,
        "num_warps": n_warps,
        "num_stages": 2 if is_low_on_blackwell else min(num_stages, 3),
    }


def _empty_out(x: Tensor, x_scale: Tensor, packed: Tensor, weight_scale: Tensor) -> Tensor:
    return x.new_empty(x.shape[0], packed.shape[0], dtype=torch.bfloat16)


@operator("ternary_matmul", _empty_out)
def _ternary_matmul_op(x, x_scale, packed, weight_scale, out):
    M = x.shape[0]
    N, n_bytes = packed.shape
    target = current_target()
    config = ternary_matmul_config(M, target)
    n_tiles = triton.cdiv(M, config["BLOCK_M"]) * triton.cdiv(N, config["BLOCK_N"])
    n_steps = triton.cdiv(n_bytes, config["BLOCK_BYTES"])
    steps = groups_per_split(
        n_steps, n_tiles, multiprocessor_count(x), _PROGRAMS_PER_MULTIPROCESSOR
    )
    n_splits = triton.cdiv(n_steps, steps)
    # one split writes its product at once
    shares = out
    if n_splits > 1:
        shares = x.new_empty(n_splits, M, N, dtype=torch.float32)
    _ternary_matmul_kernel[n_tiles, n_splits](
        x,
        x_scale,
        packed,
        weight_scale,
        shares,
        M,
        N,
        n_bytes,
        x.stride(0),
        packed.stride(0),
        steps * config["BLOCK_BYTES"],
        N_CHIPLETS=target.chiplet_count,
        **config,
    )
    if n_splits > 1:
        sum_shares(shares, out)


def ternary_matmul_reference(
    x: Tensor, x_scale: Tensor, packed: Tensor, weight_scale: Tensor
) -> Tensor:
    """Compute `out[m, n] = x_scale[m] weight_scale[n] * sum over k of x[m, k] weight[n, k]`."""
    weight = x_scale.new_empty(packed.shape[0], x.shape[1])
    for block, start in enumerate(range(0, x.shape[1], 128)):
        for position in range(4):
            codes = (packed[:, 32 * block : 32 * block + 32] >> (2 * position)) & 3
            columns = slice(start + 32 * position, start + 32 * position + 32)
            weight[:, columns] = torch.where(codes == 3, -1.0, codes.to(weight.dtype))
    return torch.einsum("mk,nk->mn", x.to(weight.dtype), weight) * x_scale * weight_scale.t()


def _inputs(case: Case, make: InputMaker) -> dict[str, Any]:
    """Normal activations and uniform ternary weights; in BitNet b1.58, 31 % of normal weights
    become zero.
    """
    M, N, K = case["M"], case["N"], case["K"]
    # the 81 bytes of four ternary weights
    digits = torch.cartesian_prod(*[torch.tensor([0, 1, 3])] * 4)
    codes = (
        (digits << torch.tensor([0, 2, 4, 6])).sum(dim=1).to(device=make.device, dtype=torch.uint8)
    )
    return {
        "x": make.normal(M, K, scale=20.0),
        "x_scale": make.uniform(M, 1, low=0.01, high=0.02, dtype="float32"),
        "packed": codes[make.integers(N, K // 4, high=81, dtype="int32")],
        "weight_scale": make.uniform(N, 1, low=0.01, high=0.02, dtype="float32"),
    }


def ternary_matmul_memory_bytes(case: Case) -> float:
    """Reads x, a quarter of a byte per weight, and a float32 per row of each; writes two bytes per
    result.
    """
    M, N, K = case["M"], case["N"], case["K"]
    return M * K * case.itemsize + N * K / 4 + 4 * (M + N) + 2 * M * N


_DECODE = only(projections(), "decode")

ternary_matmul_spec = KernelSpec(
    name="ternary_matmul",
    family="low precision",
    inputs=_inputs,
    reference=ternary_matmul_reference,
    cases=[
        *small_cases({"M": 16, "N": 1024, "K": 2048}, dtypes=["int8"]),
        *model_cases([*with_choice(_DECODE, M=1), *projections()], dtypes=["int8"]),
    ],
    edges=cases(
        shapes=[
            {"M": 65, "N": 200, "K": 384},
            {"M": 20, "N": 72, "K": 512},
            {"M": 1, "N": 63, "K": 128},
            {"M": 0, "N": 63, "K": 128},
        ],
        dtypes=["int8"],
    ),
    flop_count=scaled_matmul_flop_count,
    memory_bytes=ternary_matmul_memory_bytes,
    formula="out = (x @ weight.T) * x_scale * weight_scale.T, weight of -1, 0 and 1",
    source="Ma et al., The Era of 1-bit LLMs, 2024 (arXiv 2402.17764)",
    interpreted_shape={"M": 9, "N": 200, "K": 640},
)


@ternary_matmul_spec.implementation("triton", directions=["fwd"], deterministic=True)
def ternary_matmul(x: Tensor, x_scale: Tensor, packed: Tensor, weight_scale: Tensor) -> Tensor:
    """Compute `(x @ weight.T) * x_scale * weight_scale.T`, accumulated in int32.

    Args:
        x: [M, K] int8, contiguous along its last dim, K a multiple of 128 and at most `MAX_K`.
        x_scale: [M, 1] float32, as `quantise_int8` gives it.
        packed: [N, K / 4] uint8, contiguous along its last dim, from `formats.pack_ternary`; a row
            is one output channel.
        weight_scale: [N, 1] float32.

    Returns:
        [M, N] bfloat16.
    """
    name = "ternary_matmul"
    require_operands(name, dims=2, dtypes=(torch.int8,), x=x)
    require_operands(name, dims=2, dtypes=(torch.uint8,), packed=packed)
    if x.shape[1] % TERNARY_BLOCK_COLUMNS or not 0 < x.shape[1] <= MAX_K:
        raise KernelError(
            f"{name}: x has {x.shape[1]} columns, no multiple of {TERNARY_BLOCK_COLUMNS} up to "
            f"{MAX_K}; "
            "pad or split x and the weights"
        )
    require_equal(name, "the packed columns", x=x.shape[1] // 4, packed=packed.shape[1])
    require_row_scale(name, "x_scale", x_scale, x)
    require_row_scale(name, "weight_scale", weight_scale, packed)
    require_equal(name, "the devices", x=x.device, packed=packed.device)
    return _ternary_matmul_op(x, x_scale, packed, weight_scale)


@ternary_matmul_spec.implementation("torch", directions=["fwd"], compile=True)
def _ternary_matmul_torch(
    x: Tensor, x_scale: Tensor, packed: Tensor, weight_scale: Tensor
) -> Tensor:
    weight = unpack_ternary(packed)
    return ((x.float() * x_scale) @ (weight.float() * weight_scale).t()).bfloat16()

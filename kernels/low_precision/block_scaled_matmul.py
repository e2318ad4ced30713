"""Matrix products of block-scaled operands: MXFP8, MXFP4 and NVFP4, forward.

    out[m, n] = scale * sum over k of x[m, k] x_scale[m, k / G] weight[n, k] weight_scale[n, k / G]

| format | numbers | group G | scales |
|---|---|---|---|
| MXFP8 | e4m3 | 32 | e8m0, a power of two |
| MXFP4 | e2m1, two a byte | 32 | e8m0 |
| NVFP4 | e2m1, two a byte | 16 | e4m3 |

Tensor cores of Blackwell multiply by the scales themselves, and those of CDNA 4 by powers of two.
For other NVIDIA GPUs, Triton converts MXFP8 and MXFP4 to bfloat16 in registers.

Sources: OCP, Microscaling Formats (MX) Specification 1.0, 2023; NVIDIA, Pretraining Large Language
Models with NVFP4, 2025 (arXiv 2509.25149), for the scale of a whole tensor.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from roofwatch import Case, InputMaker, KernelSpec, Tolerance, UnsupportedError, cases
from roofwatch.kernels.building_blocks.errors import KernelError
from roofwatch.kernels.building_blocks.operands import require_equal, require_operands
from roofwatch.kernels.building_blocks.operators import operator
from roofwatch.kernels.building_blocks.shapes import model_cases, only, projections, small_cases
from roofwatch.kernels.building_blocks.target import DeviceTarget, current_target
from roofwatch.kernels.building_blocks.tiles import store_product, tile_of_program
from roofwatch.kernels.low_precision.scaled_matmul import MAX_DECODE_ROWS

E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
"""Magnitudes by the lower three bits of a code; the fourth is the sign."""
_E8M0_BIAS = 127
_TOLERANCE = Tolerance(elementwise=4e-2, rmse_ratio=1e-2, elementwise_floor=8e-3, rmse_floor=4e-3)
"""The usual one of bfloat16, the dtype of the result."""


@dataclass(frozen=True)
class BlockScaledFormat:
    """A number format with a scale per group of columns.

    Args:
        numbers: Triton's name of the numbers.
        group: Columns per scale.
        scale_dtype: uint8 stands for e8m0.
        unsupported_targets: Why Triton does not compile the product for a target, by target.
    """

    numbers: str
    group: int
    scale_dtype: torch.dtype
    unsupported_targets: Mapping[str, str]

    @property
    def numbers_per_byte(self) -> int:
        return 2 if self.numbers == "e2m1" else 1

    @property
    def dtype(self) -> torch.dtype:
        return torch.uint8 if self.numbers == "e2m1" else torch.float8_e4m3fn


_CDNA_3 = {"gfx942": "has no products of two block-scaled matrices in Triton"}
_ONLY_BLACKWELL = dict.fromkeys(
    ("sm_80", "sm_90", "gfx950"), "has no products with scales in e4m3 in Triton"
)
FORMATS: Mapping[str, BlockScaledFormat] = {
    "mxfp8_matmul": BlockScaledFormat(
        numbers="e4m3",
        group=32,
        scale_dtype=torch.uint8,
        unsupported_targets={"sm_80": "has no e4m3 in Triton", **_CDNA_3},
    ),
    "mxfp4_matmul": BlockScaledFormat(
        numbers="e2m1",
        group=32,
        scale_dtype=torch.uint8,
        unsupported_targets=_CDNA_3,
    ),
    "nvfp4_matmul": BlockScaledFormat(
        numbers="e2m1",
        group=16,
        scale_dtype=torch.float8_e4m3fn,
        unsupported_targets={**_ONLY_BLACKWELL, **_CDNA_3},
    ),
}


@triton.jit
def _block_scaled_matmul_kernel(
    x_ptr,
    x_scale_ptr,
    weight_ptr,
    weight_scale_ptr,
    scale_ptr,
    out_ptr,
    M,
    N,
    K,
    x_row_stride,
    x_scale_row_stride,
    weight_row_stride,
    weight_scale_row_stride,
    FORMAT: tl.constexpr,
    PER_BYTE: tl.constexpr,
    GROUP: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    K_IS_EVEN: tl.constexpr,
    N_CHIPLETS: tl.constexpr,
):
    tile_m, tile_n = tile_of_program(M, N, BLOCK_M, BLOCK_N, N_CHIPLETS)
    offs_m = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    offs_k = tl.arange(0, BLOCK_K // PER_BYTE)
    offs_g = tl.arange(0, BLOCK_K // GROUP)
    # rows past the end wrap around and are not stored: cheaper than masked loads
    row_m = (offs_m % M).to(tl.int64)
    row_n = (offs_n % N).to(tl.int64)
    x_ptrs = x_ptr + row_m[:, None] * x_row_stride + offs_k[None, :]
    weight_ptrs = weight_ptr + row_n[None, :] * weight_row_stride + offs_k[:, None]
    x_scale_ptrs = x_scale_ptr + row_m[:, None] * x_scale_row_stride + offs_g[None, :]
    weight_scale_ptrs = (
        weight_scale_ptr + row_n[:, None] * weight_scale_row_stride + offs_g[None, :]
    )
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for first_k in range(0, K, BLOCK_K):
        if K_IS_EVEN:
            x = tl.load(x_ptrs)  # [BLOCK_M, BLOCK_K / PER_BYTE]
            weight = tl.load(weight_ptrs)  # [BLOCK_K / PER_BYTE, BLOCK_N]
            x_scale = tl.load(x_scale_ptrs)  # [BLOCK_M, BLOCK_K / GROUP]
            weight_scale = tl.load(weight_scale_ptrs)  # [BLOCK_N, BLOCK_K / GROUP]
        else:
            mask_k = offs_k < (K - first_k) // PER_BYTE
            mask_g = (offs_g < (K - first_k) // GROUP)[None, :]
            x = tl.load(x_ptrs, mask=mask_k[None, :], other=0.0)
            weight = tl.load(weight_ptrs, mask=mask_k[:, None], other=0.0)
            x_scale = tl.load(x_scale_ptrs, mask=mask_g, other=0.0)
            weight_scale = tl.load(weight_scale_ptrs, mask=mask_g, other=0.0)
        acc = tl.dot_scaled(x, x_scale, FORMAT, weight, weight_scale, FORMAT, acc)
        x_ptrs += BLOCK_K // PER_BYTE
        weight_ptrs += BLOCK_K // PER_BYTE
        x_scale_ptrs += BLOCK_K // GROUP
        weight_scale_ptrs += BLOCK_K // GROUP
    store_product(out_ptr, acc * tl.load(scale_ptr), offs_m, offs_n, M, N, N)


_HAS_SCALED_PRODUCTS = {"sm_100", "sm_120", "gfx950"}


def block_scaled_matmul_config(M: int, target: DeviceTarget) -> dict[str, int]:
    """Choose narrow tiles for a few rows of x, else the largest that fit without spills."""
    is_native = target.arch in _HAS_SCALED_PRODUCTS
    is_narrow = M <= MAX_DECODE_ROWS
    return {
        "BLOCK_M": max(16, triton.next_power_of_2(M)) if is_narrow else 128,
        "BLOCK_N": 64 if is_narrow else 128,
        "BLOCK_K": 128 if is_native or is_narrow else 64,
        "num_warps": 4 if is_narrow else 8,
        "num_stages": 2 if target.backend == "hip" else 3,
    }


def _define_op(name: str) -> Callable[..., Tensor]:
    """Register `roofwatch::<name>`."""
    number_format = FORMATS[name]

    def empty_out(
        x: Tensor, x_scale: Tensor, weight: Tensor, weight_scale: Tensor, scale: Tensor
    ) -> Tensor:
        return x.new_empty(x.shape[0], weight.shape[0], dtype=torch.bfloat16)

    @operator(name, empty_out)
    def launch(x, x_scale, weight, weight_scale, scale, out):
        M, N = out.shape
        K = x.shape[1] * number_format.numbers_per_byte
        target = current_target()
        if target.arch in number_format.unsupported_targets:
            raise UnsupportedError(
                f"{target.arch} {number_format.unsupported_targets[target.arch]}"
            )
        config = block_scaled_matmul_config(M, target)
        n_tiles = triton.cdiv(M, config["BLOCK_M"]) * triton.cdiv(N, config["BLOCK_N"])
        _block_scaled_matmul_kernel[(n_tiles,)](
            x.view(torch.uint8),
            x_scale,
            weight.view(torch.uint8),
            weight_scale,
            scale,
            out,
            M,
            N,
            K,
            x.stride(0),
            x_scale.stride(0),
            weight.stride(0),
            weight_scale.stride(0),
            FORMAT=number_format.numbers,
            PER_BYTE=number_format.numbers_per_byte,
            GROUP=number_format.group,
            K_IS_EVEN=K % config["BLOCK_K"] == 0,
            N_CHIPLETS=target.chiplet_count,
            **config,
        )

    return launch


def unpack_e2m1(packed: Tensor, dtype: torch.dtype) -> Tensor:
    """Convert bytes [n_rows, n_bytes] of two e2m1 numbers, the first in the low bits, to
    [n_rows, 2 n_bytes].
    """
    numbers = torch.tensor([*E2M1, *(-number for number in E2M1)], device=packed.device)
    codes = torch.stack([packed & 0xF, packed >> 4], dim=-1)
    return numbers.to(dtype)[codes.long()].flatten(1)


def _dequantised(numbers: Tensor, scale: Tensor, name: str, dtype: torch.dtype) -> Tensor:
    """Numbers times their scales, [n_rows, K]."""
    number_format = FORMATS[name]
    wide = numbers.to(dtype)
    if number_format.numbers == "e2m1":
        wide = unpack_e2m1(numbers, dtype)
    factors = scale.to(dtype)
    if number_format.scale_dtype is torch.uint8:
        factors = torch.exp2(factors - _E8M0_BIAS)
    return wide * factors.repeat_interleave(number_format.group, dim=1)


def _number_bytes(case: Case, number_format: BlockScaledFormat) -> float:
    """Bytes of both operands with their one-byte scales, and of the float32 scale of the result."""
    n_numbers = (case["M"] + case["N"]) * case["K"]
    return n_numbers / number_format.numbers_per_byte + n_numbers / number_format.group + 4


def block_scaled_matmul_flop_count(case: Case) -> float:
    """Count a multiplication and an addition for each of M * N * K terms; scales are not counted,
    since tensor cores apply them.
    """
    return 2 * case["M"] * case["N"] * case["K"]


def _block_scaled_spec(name: str, *, formula: str, source: str) -> KernelSpec:
    number_format = FORMATS[name]
    dtype = str(number_format.dtype).removeprefix("torch.")

    def scales(make: InputMaker, n_rows: int, K: int) -> Tensor:
        n_groups = K // number_format.group
        if number_format.scale_dtype is torch.uint8:
            return make.integers(n_rows, n_groups, low=118, high=126, dtype="uint8")
        factors = make.uniform(n_rows, n_groups, low=0.5, high=2.0, dtype="float32")
        return factors.to(number_format.scale_dtype)

    def numbers(make: InputMaker, n_rows: int, K: int) -> Tensor:
        if number_format.numbers == "e2m1":
            return make.integers(n_rows, K // 2, high=256, dtype="uint8")
        return make.normal(n_rows, K, scale=64.0)

    def inputs(case: Case, make: InputMaker) -> dict[str, Any]:
        M, N, K = case["M"], case["N"], case["K"]
        return {
            "x": numbers(make, M, K),
            "x_scale": scales(make, M, K),
            "weight": numbers(make, N, K),
            "weight_scale": scales(make, N, K),
            "scale": make.uniform(1, low=0.1, high=0.2, dtype="float32"),
        }

    def reference(
        x: Tensor, x_scale: Tensor, weight: Tensor, weight_scale: Tensor, scale: Tensor
    ) -> Tensor:
        """Dequantise both operands and multiply."""
        wide_x = _dequantised(x, x_scale, name, torch.float64)
        wide_weight = _dequantised(weight, weight_scale, name, torch.float64)
        return torch.einsum("mk,nk->mn", wide_x, wide_weight) * scale

    spec = KernelSpec(
        name=name,
        family="low precision",
        inputs=inputs,
        reference=reference,
        cases=[
            *small_cases({"M": 256, "N": 512, "K": 1024}, dtypes=[dtype]),
            *model_cases(
                [*only(projections(), "prefill"), *only(projections(), "decode")], dtypes=[dtype]
            ),
        ],
        edges=cases(
            shapes=[
                {"M": 65, "N": 72, "K": 96},
                {"M": 1, "N": 63, "K": 32},
                {"M": 0, "N": 63, "K": 64},
            ],
            dtypes=[dtype],
        ),
        flop_count=block_scaled_matmul_flop_count,
        memory_bytes=lambda case: _number_bytes(case, number_format) + 2 * case["M"] * case["N"],
        tolerances={dtype: _TOLERANCE},
        formula=formula,
        source=source,
        interpreted_shape={"M": 70, "N": 72, "K": 160},
    )
    launch = _define_op(name)

    @spec.implementation(
        "triton",
        directions=["fwd"],
        deterministic=True,
        unsupported_targets=number_format.unsupported_targets,
    )
    def _(
        x: Tensor, x_scale: Tensor, weight: Tensor, weight_scale: Tensor, scale: Tensor
    ) -> Tensor:
        _require_block_scaled(name, "x", x, x_scale)
        _require_block_scaled(name, "weight", weight, weight_scale)
        require_equal(name, "the columns", x=x.shape[1], weight=weight.shape[1])
        require_operands(name, dims=1, dtypes=(torch.float32,), scale=scale)
        require_equal(name, "the lengths", scale=len(scale), expected=1)
        require_equal(name, "the devices", x=x.device, weight=weight.device, scale=scale.device)
        return launch(x, x_scale, weight, weight_scale, scale)

    @spec.implementation("torch", directions=["fwd"], compile=True)
    def _(
        x: Tensor, x_scale: Tensor, weight: Tensor, weight_scale: Tensor, scale: Tensor
    ) -> Tensor:
        wide_x = _dequantised(x, x_scale, name, torch.float32)
        wide_weight = _dequantised(weight, weight_scale, name, torch.float32)
        return (wide_x @ wide_weight.t() * scale).bfloat16()

    return spec


def _require_block_scaled(kernel: str, name: str, numbers: Tensor, scale: Tensor) -> None:
    """Require numbers [n_rows, K] in whole groups, with a scale per row and group."""
    number_format = FORMATS[kernel]
    require_operands(kernel, dims=2, dtypes=(number_format.dtype,), **{name: numbers})
    require_operands(
        kernel, dims=2, dtypes=(number_format.scale_dtype,), **{f"{name}_scale": scale}
    )
    n_rows, K = numbers.shape[0], numbers.shape[1] * number_format.numbers_per_byte
    if K % number_format.group:
        raise KernelError(
            f"{kernel}: {name} has {K} columns, must be a multiple of {number_format.group}; pad it"
        )
    require_equal(
        kernel,
        "the shapes",
        groups=(n_rows, K // number_format.group),
        **{f"{name}_scale": tuple(scale.shape)},
    )
    require_equal(kernel, "the devices", numbers=numbers.device, scale=scale.device)


_MX = "OCP, Microscaling Formats (MX) Specification 1.0, 2023"

mxfp8_matmul_spec = _block_scaled_spec(
    "mxfp8_matmul",
    formula="out = (x * x_scale by 1 x 32) @ (weight * weight_scale by 1 x 32).T, e4m3",
    source=_MX,
)
mxfp4_matmul_spec = _block_scaled_spec(
    "mxfp4_matmul",
    formula="out = (x * x_scale by 1 x 32) @ (weight * weight_scale by 1 x 32).T, e2m1",
    source=_MX,
)
nvfp4_matmul_spec = _block_scaled_spec(
    "nvfp4_matmul",
    formula="out = (x * x_scale by 1 x 16) @ (weight * weight_scale by 1 x 16).T, e2m1",
    source="NVIDIA, Pretraining Large Language Models with NVFP4, 2025 (arXiv 2509.25149)",
)

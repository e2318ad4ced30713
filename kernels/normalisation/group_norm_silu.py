"""Group normalisation of feature maps followed by SiLU, as in a diffusion model's U-Net; forward.

A group is too long for one program. The first kernel computes the moments of parts of each group.
The second combines them, normalises and applies SiLU to one tile of a channel per program. Sums
have a fixed order, so the result is deterministic. The second read of x comes from the L2 cache if
x fits.

Sources: Wu and He, Group Normalization, 2018 (arXiv 1803.08494); Podell et al., SDXL, 2023 (arXiv
2307.01952).
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from roofwatch import Case, InputMaker, KernelSpec, cases
from roofwatch.kernels.building_blocks.errors import KernelError
from roofwatch.kernels.building_blocks.operands import (
    require_contiguous,
    require_equal,
    require_operands,
)
from roofwatch.kernels.building_blocks.operators import operator
from roofwatch.kernels.building_blocks.rows import merge_parts, moments_of, piece_of_row
from roofwatch.kernels.building_blocks.shapes import (
    feature_maps,
    model_cases,
    small_cases,
    with_choice,
)

_GROUPS = 32
_TILE = 4_096
_MAX_PARTS = 64
"""Parts of a group: every program of the second kernel reads 512 bytes of moments."""


@triton.jit
def _group_moments_kernel(
    x_ptr,
    mean_ptr,
    square_sum_ptr,
    group_size,
    part_size,
    n_parts,
    PARTS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    group = (tl.program_id(0) // n_parts).to(tl.int64)
    part = tl.program_id(0) % n_parts
    first = part * part_size
    length = tl.minimum(part_size, group_size - first)
    x_ptr += group * group_size + first
    mean, square_sum = moments_of(x_ptr, length, BLOCK)
    tl.store(mean_ptr + group * PARTS + part, mean)
    tl.store(square_sum_ptr + group * PARTS + part, square_sum)


@triton.jit
def _group_norm_silu_kernel(
    x_ptr,
    weight_ptr,
    bias_ptr,
    mean_ptr,
    square_sum_ptr,
    out_ptr,
    n_channels,
    n_pixels,
    channels_per_group,
    part_size,
    eps,
    PARTS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    image_channel, offs, mask = piece_of_row(n_pixels, BLOCK)
    x = tl.load(x_ptr + image_channel * n_pixels + offs, mask=mask, other=0.0).to(
        tl.float32
    )  # [BLOCK]
    group_size = channels_per_group * n_pixels
    parts = tl.arange(0, PARTS)
    count = tl.minimum(tl.maximum(group_size - parts * part_size, 0), part_size).to(tl.float32)
    stat_offs = image_channel // channels_per_group * PARTS + parts
    part_mean = tl.load(mean_ptr + stat_offs, mask=count > 0, other=0.0)  # [PARTS]
    part_square_sum = tl.load(square_sum_ptr + stat_offs, mask=count > 0, other=0.0)  # [PARTS]
    mean, square_sum = merge_parts(count, part_mean, part_square_sum)
    rstd = tl.rsqrt(square_sum / group_size + eps)
    channel = image_channel % n_channels
    weight = tl.load(weight_ptr + channel).to(tl.float32)
    bias = tl.load(bias_ptr + channel).to(tl.float32)
    normed = (x - mean) * rstd * weight + bias
    out = normed * tl.sigmoid(normed)
    tl.store(
        out_ptr + image_channel * n_pixels + offs, out.to(out_ptr.dtype.element_ty), mask=mask
    )  # [BLOCK]


def group_norm_silu_config(length: int) -> dict[str, int]:
    """Sixteen elements per thread of an NVIDIA GPU, eight for short channels."""
    block = min(triton.next_power_of_2(length), _TILE)
    return {"BLOCK": block, "num_warps": max(min(block // 256, 8), 1)}


def part_length(group_size: int) -> int:
    """Elements of a part: whole tiles, with at most `_MAX_PARTS` parts per group."""
    return -(-group_size // (_MAX_PARTS * _TILE)) * _TILE


def _empty_out(x: Tensor, weight: Tensor, bias: Tensor, n_groups: int, eps: float) -> Tensor:
    return x.new_empty(x.shape)


@operator("group_norm_silu", _empty_out)
def _group_norm_silu_op(x, weight, bias, n_groups, eps, out):
    B, C, H, W = x.shape
    channels_per_group, n_pixels = C // n_groups, H * W
    group_size = channels_per_group * n_pixels
    part_size = part_length(group_size)
    n_parts = triton.cdiv(group_size, part_size)
    mean = x.new_empty(B * n_groups, _MAX_PARTS, dtype=torch.float32)
    square_sum = torch.empty_like(mean)
    config = group_norm_silu_config(n_pixels)
    _group_moments_kernel[(B * n_groups * n_parts,)](
        x,
        mean,
        square_sum,
        group_size,
        part_size,
        n_parts,
        PARTS=_MAX_PARTS,
        **group_norm_silu_config(group_size),
    )
    _group_norm_silu_kernel[(B * C * triton.cdiv(n_pixels, config["BLOCK"]),)](
        x,
        weight,
        bias,
        mean,
        square_sum,
        out,
        C,
        n_pixels,
        channels_per_group,
        part_size,
        eps,
        PARTS=_MAX_PARTS,
        **config,
    )


def group_norm_silu_reference(
    x: Tensor, weight: Tensor, bias: Tensor, n_groups: int = _GROUPS, eps: float = 1e-5
) -> Tensor:
    """Compute y = group_norm(x) * weight + bias over groups of channels,
    then `y / (1 + exp(-y))`.
    """
    groups = x.unflatten(1, (n_groups, -1))
    centred = groups - groups.mean(dim=(2, 3, 4), keepdim=True)
    normed = centred / (centred.square().mean(dim=(2, 3, 4), keepdim=True) + eps).sqrt()
    y: Tensor = normed.flatten(1, 2) * weight[:, None, None] + bias[:, None, None]
    return y / (1 + (-y).exp())


def _inputs(case: Case, make: InputMaker) -> dict[str, Any]:
    C = case["C"]
    return {
        "x": make.normal(case["B"], C, case["H"], case["W"]) + 0.5,
        "weight": make.uniform(C, low=0.5, high=1.5),
        "bias": make.weights(C, scale=0.5),
        "n_groups": case["G"],
    }


def group_norm_silu_flop_count(case: Case) -> float:
    """Count per element: mean (1), variance (3), subtract, times 1/std, times weight, plus bias,
    and SiLU (4).

    Operations per group are not counted.
    """
    return 12 * case["B"] * case["C"] * case["H"] * case["W"]


def group_norm_silu_memory_bytes(case: Case) -> float:
    """Reads x, weight and bias once and writes out: the second read of x can come from the L2
    cache.
    """
    return 2 * case["C"] * (case["B"] * case["H"] * case["W"] + 1) * case.itemsize


group_norm_silu_spec = KernelSpec(
    name="group_norm_silu",
    family="normalisation",
    inputs=_inputs,
    reference=group_norm_silu_reference,
    cases=[
        *small_cases({"B": 1, "C": 320, "H": 64, "W": 64, "G": _GROUPS}),
        *model_cases(with_choice(feature_maps(), G=_GROUPS), dtypes=["float16", "bfloat16"]),
    ],
    edges=[
        *cases(
            shapes=[
                {"B": 2, "C": 6, "H": 7, "W": 9, "G": 3},
                {"B": 0, "C": 6, "H": 7, "W": 9, "G": 3},
            ]
        ),
        *cases(shapes=[{"B": 1, "C": 8, "H": 1, "W": 1, "G": 2}], dtypes=["float16", "bfloat16"]),
    ],
    flop_count=group_norm_silu_flop_count,
    memory_bytes=group_norm_silu_memory_bytes,
    formula="y = (x - mean x) / sqrt(var x + eps) * weight + bias over each group; out = y / (1 + "
    "exp(-y))",
    source="Wu and He, Group Normalization, 2018 (arXiv 1803.08494)",
    interpreted_shape={"B": 2, "C": 4, "H": 33, "W": 63, "G": 2},
)


@group_norm_silu_spec.implementation("triton", deterministic=True, directions=["fwd"])
def group_norm_silu(
    x: Tensor, weight: Tensor, bias: Tensor, n_groups: int = _GROUPS, eps: float = 1e-5
) -> Tensor:
    """Apply group normalisation and SiLU in float32, forward only.

    Args:
        x: [B, C, H, W], contiguous.
        weight: [C].
        bias: [C].
        n_groups: Groups of adjacent channels; divides C.
        eps: Added to the variance.

    Returns:
        [B, C, H, W] in x's dtype.
    """
    require_operands("group_norm_silu", x=x, weight=weight, bias=bias)
    require_operands("group_norm_silu", dims=4, x=x)
    channels = tuple(x.shape[1:2])
    require_equal(
        "group_norm_silu",
        "the channels",
        weight=tuple(weight.shape),
        bias=tuple(bias.shape),
        x=channels,
    )
    require_contiguous("group_norm_silu", x=x)
    if n_groups < 1 or x.shape[1] % n_groups:
        raise KernelError(
            f"group_norm_silu: {x.shape[1]} channels cannot be split into {n_groups} groups; "
            "pass an n_groups that divides them"
        )
    return _group_norm_silu_op(x, weight, bias, n_groups, eps)


@group_norm_silu_spec.implementation("torch", compile=True, directions=["fwd"])
def _group_norm_silu_torch(
    x: Tensor, weight: Tensor, bias: Tensor, n_groups: int = _GROUPS, eps: float = 1e-5
) -> Tensor:
    return torch.nn.functional.silu(torch.nn.functional.group_norm(x, n_groups, weight, bias, eps))

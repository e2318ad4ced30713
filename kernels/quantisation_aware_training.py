"""Fake quantisation of weights for quantisation-aware training, ternary and nonary, forward and
backward.

Each row has a scale, the mean of its magnitudes. The result is the nearest level, clamped to
±highest, times the scale:

    scale = mean |x|,  level = clamp(round(x / scale), -highest, highest),  out = level * scale

highest = 1 (ternary) is the absmean quantisation of BitNet b1.58, by rows instead of whole tensors.
For highest = 4 (nonary) the scale is the initial value of learned step sizes, 2 mean |x| /
sqrt(highest).

The gradient passes through the rounding (straight-through estimator, Bengio et al., 2013). It is
zero where the level is clamped. The scale counts as a constant. Everything is computed in float32.

Sources: Ma et al., The Era of 1-bit LLMs, 2024 (arXiv 2402.17764), equations 1 to 3; Esser et al.,
Learned Step Size Quantization, 2019 (arXiv 1902.08153), section 2.1; Bengio et al., Estimating or
Propagating Gradients Through Stochastic Neurons, 2013 (arXiv 1308.3432).
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from roofwatch import Case, InputMaker, KernelSpec, cases
from roofwatch.kernels.building_blocks.errors import KernelError
from roofwatch.kernels.building_blocks.formats import round_half_even
from roofwatch.kernels.building_blocks.operands import require_operands
from roofwatch.kernels.building_blocks.operators import backward_operator, operator
from roofwatch.kernels.building_blocks.rows import MAX_COLS_IN_REGISTERS, whole_row_config
from roofwatch.kernels.building_blocks.shapes import model_cases, projection_weights, small_rows

SMALLEST_SCALE = 1e-30
"""Keeps a row of zeros finite."""
_SMALLEST_SCALE = tl.constexpr(SMALLEST_SCALE)
_TILE_COLS_BACKWARD = 2_048


@triton.jit
def _fake_quant_kernel(
    x_ptr,
    out_ptr,
    scale_ptr,
    x_row_stride,
    n_cols,
    HIGHEST: tl.constexpr,
    IS_LONG: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    if IS_LONG:
        x_ptr += row * x_row_stride
        out_ptr += row * n_cols
        lane_sum = tl.zeros((BLOCK,), tl.float32)
        for start in range(0, n_cols, BLOCK):
            offs = start + tl.arange(0, BLOCK)
            lane_sum += tl.abs(
                tl.load(x_ptr + offs, mask=offs < n_cols, other=0.0).to(tl.float32)
            )  # [BLOCK]
        scale = tl.maximum(tl.sum(lane_sum, axis=0) / n_cols, _SMALLEST_SCALE)
        inverse = 1.0 / scale
        for start in range(0, n_cols, BLOCK):
            offs = start + tl.arange(0, BLOCK)
            mask = offs < n_cols
            x = tl.load(x_ptr + offs, mask=mask, other=0.0).to(tl.float32)  # [BLOCK]
            out = (
                tl.clamp(round_half_even(_in_steps(x, inverse, HIGHEST)), -HIGHEST, HIGHEST) * scale
            )
            tl.store(out_ptr + offs, out.to(out_ptr.dtype.element_ty), mask=mask)  # [BLOCK]
    else:
        offs = tl.arange(0, BLOCK)
        mask = offs < n_cols
        x = tl.load(x_ptr + row * x_row_stride + offs, mask=mask, other=0.0).to(
            tl.float32
        )  # [BLOCK]
        scale = tl.maximum(tl.sum(tl.abs(x), axis=0) / n_cols, _SMALLEST_SCALE)
        out = (
            tl.clamp(round_half_even(_in_steps(x, 1.0 / scale, HIGHEST)), -HIGHEST, HIGHEST) * scale
        )
        tl.store(
            out_ptr + row * n_cols + offs, out.to(out_ptr.dtype.element_ty), mask=mask
        )  # [BLOCK]
    tl.store(scale_ptr + row, scale)


@triton.jit
def _fake_quant_grad_kernel(
    x_ptr,
    scale_ptr,
    grad_out_ptr,
    grad_x_ptr,
    x_row_stride,
    n_cols,
    HIGHEST: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    offs = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n_cols
    x = tl.load(x_ptr + row * x_row_stride + offs, mask=mask, other=0.0).to(tl.float32)  # [BLOCK]
    grad_out = tl.load(grad_out_ptr + row * n_cols + offs, mask=mask, other=0.0)  # [BLOCK]
    level = round_half_even(_in_steps(x, 1.0 / tl.load(scale_ptr + row), HIGHEST))
    grad_x = tl.where(tl.abs(level) <= HIGHEST, grad_out, 0.0)
    tl.store(
        grad_x_ptr + row * n_cols + offs, grad_x.to(grad_x_ptr.dtype.element_ty), mask=mask
    )  # [BLOCK]


@triton.jit
def _in_steps(x, inverse, HIGHEST: tl.constexpr):
    # clamp first: round_half_even is exact for small magnitudes only
    return tl.clamp(x * inverse, -HIGHEST - 1.0, HIGHEST + 1.0)


def fake_quant_grad_config(n_cols: int) -> dict[str, int]:
    """No row is reduced, so tiles are short: 16 elements for each thread of an NVIDIA GPU."""
    block = min(triton.next_power_of_2(n_cols), _TILE_COLS_BACKWARD)
    return {"BLOCK": block, "num_warps": max(block // 512, 1)}


def _empty_out(x: Tensor) -> tuple[Tensor, Tensor]:
    return x.new_empty(x.shape), x.new_empty(x.shape[0], dtype=torch.float32)


def _empty_gradient(x: Tensor, scale: Tensor, grad_out: Tensor) -> Tensor:
    return x.new_empty(x.shape)


def _define_operator(name: str, highest: int) -> Callable[[Tensor], Tensor]:
    """Register `roofwatch::<name>` and its backward,
    and return a launcher that checks its operand.
    """

    @backward_operator(name, _empty_gradient)
    def backward(x, scale, grad_out, grad_x):
        n_rows, n_cols = x.shape
        grad_out = grad_out.contiguous()  # autograd may pass an expanded scalar
        config = fake_quant_grad_config(n_cols)
        _fake_quant_grad_kernel[n_rows, triton.cdiv(n_cols, config["BLOCK"])](
            x, scale, grad_out, grad_x, x.stride(0), n_cols, HIGHEST=highest, **config
        )

    @operator(name, _empty_out, backward=backward)
    def forward(x, out, scale):
        n_rows, n_cols = x.shape
        _fake_quant_kernel[(n_rows,)](
            x, out, scale, x.stride(0), n_cols, HIGHEST=highest, **whole_row_config(n_cols)
        )

    def launch(x: Tensor) -> Tensor:
        require_operands(name, dims=2, x=x)
        if not x.shape[1]:
            raise KernelError(
                f"{name}: x has shape {tuple(x.shape)}, rows without a mean; pass at least one "
                f"column"
            )
        return forward(x)[0]

    return launch


def fake_quant_reference(x: Tensor, highest: int) -> Tensor:
    """Compute `clamp(round(x / mean |x|), -highest, highest) * mean |x|` with a straight-through
    gradient.
    """
    scale = x.detach().abs().mean(dim=-1, keepdim=True).clamp(min=SMALLEST_SCALE)
    rounded = torch.round(x / scale).detach()
    out = rounded.clamp(-highest, highest) * scale
    is_clamped = rounded.abs() > highest
    return out + torch.where(is_clamped, 0.0, x - x.detach())


def off_thresholds(case: Case, make: InputMaker, highest: int) -> dict[str, Any]:
    """Weights as layers have them, moved away from the boundary between two levels.

    Close to a boundary, float64 and float32 may round to different levels.
    """
    x = make.normal(case["n_rows"], case["n_cols"], scale=0.02)
    if make.only_integers:
        return {"x": x}
    steps = x.float() / x.float().abs().mean(dim=-1, keepdim=True)
    is_near = ((steps.abs() % 1.0 - 0.5).abs() < 1e-3) & (steps.abs() < highest + 1)
    return {"x": torch.where(is_near, 0.98 * x, x)}


def fake_quant_flop_count(case: Case) -> float:
    """Per element, forward: magnitude and addition for the mean, times the inverse scale, round,
    two comparisons for the clamp, times the scale. Backward: times the inverse scale, round,
    magnitude, comparison.
    """
    return (4 if case.is_backward else 7) * case["n_rows"] * case["n_cols"]


def fake_quant_memory_bytes(case: Case) -> float:
    """Forward reads x and writes out; backward reads x and out's gradient and writes x's. The saved
    scale is not counted.
    """
    return (3 if case.is_backward else 2) * case["n_rows"] * case["n_cols"] * case.itemsize


def _fake_quant_spec(name: str, highest: int, *, source: str) -> KernelSpec:
    """The spec of a kernel with levels up to ±highest."""
    spec = KernelSpec(
        name=name,
        family="quantisation-aware training",
        inputs=partial(off_thresholds, highest=highest),
        reference=partial(fake_quant_reference, highest=highest),
        cases=[*small_rows(), *model_cases(projection_weights(), directions=["fwd", "bwd"])],
        edges=[
            *cases(
                shapes=[{"n_rows": 1, "n_cols": 63}, {"n_rows": 0, "n_cols": 63}],
                directions=["bwd"],
            ),
            *cases(shapes=[{"n_rows": 3, "n_cols": 1000}], dtypes=["float16"], directions=["bwd"]),
            # the shortest row that is read twice
            *cases(
                shapes=[{"n_rows": 2, "n_cols": MAX_COLS_IN_REGISTERS + 1}],
                dtypes=["bfloat16"],
                directions=["bwd"],
            ),
        ],
        flop_count=fake_quant_flop_count,
        memory_bytes=fake_quant_memory_bytes,
        formula=f"out = clamp(round(x / scale), -{highest}, {highest}) * scale, scale = mean |x| "
        f"of each row",
        source=source,
        interpreted_shape={"n_rows": 3, "n_cols": 2100},
    )

    @spec.implementation("torch", compile=True)
    def _(x: Tensor) -> Tensor:
        wide = x.float()
        scale = wide.detach().abs().mean(dim=-1, keepdim=True).clamp(min=SMALLEST_SCALE)
        level = (wide.detach() / scale).round()
        passing = torch.where(level.abs() <= highest, wide, 0.0)
        # adds exactly zero, with a gradient of one
        straight_through = passing - passing.detach()
        return (level.clamp(-highest, highest) * scale + straight_through).to(x.dtype)

    return spec


_ternary_fake_quant = _define_operator("ternary_fake_quant", highest=1)
ternary_fake_quant_spec = _fake_quant_spec(
    "ternary_fake_quant",
    1,
    source="Ma et al., The Era of 1-bit LLMs, 2024 (arXiv 2402.17764), equations 1 to 3",
)


@ternary_fake_quant_spec.implementation("triton", deterministic=True)
def ternary_fake_quant(x: Tensor) -> Tensor:
    """Compute `clamp(round(x / scale), -1, 1) * scale` with `scale = mean |x|` along each row, in
    float32.

    Args:
        x: [n_rows, n_cols], finite, contiguous along its last dim; a row is one output channel of a
            layer.

    Returns:
        [n_rows, n_cols] in x's dtype.
    """
    return _ternary_fake_quant(x)


_nonary_fake_quant = _define_operator("nonary_fake_quant", highest=4)
nonary_fake_quant_spec = _fake_quant_spec(
    "nonary_fake_quant",
    4,
    source="Esser et al., Learned Step Size Quantization, 2019 (arXiv 1902.08153), section 2.1",
)


@nonary_fake_quant_spec.implementation("triton", deterministic=True)
def nonary_fake_quant(x: Tensor) -> Tensor:
    """Compute `clamp(round(x / scale), -4, 4) * scale` with `scale = mean |x|` along each row, in
    float32.

    Two ternary digits hold one of the nine levels.

    Args:
        x: [n_rows, n_cols], finite, contiguous along its last dim; a row is one output channel of a
            layer.

    Returns:
        [n_rows, n_cols] in x's dtype.
    """
    return _nonary_fake_quant(x)

"""Layer normalisation of rows, and the adaptive one of a diffusion transformer (adaLN), forward and
backward.

adaLN normalises tokens, then scales and shifts them by the conditioning of their image. The kernels
are in affine_norm.py; for adaLN with weight `1 + scale` and bias `shift` per image.

Sources: Ba, Kiros and Hinton, Layer Normalization, 2016 (arXiv 1607.06450); Peebles and Xie,
Scalable Diffusion Models with Transformers, 2022 (arXiv 2212.09748), section 3.2.
"""

from typing import Any

import torch
from torch import Tensor

from roofwatch import Case, InputMaker, KernelSpec, cases
from roofwatch.kernels.building_blocks.operands import require_equal, require_operands
from roofwatch.kernels.building_blocks.rivals import fla, flag_gems, liger
from roofwatch.kernels.building_blocks.rows import MAX_COLS_IN_REGISTERS, MAX_ROW_BYTES_BACKWARD
from roofwatch.kernels.building_blocks.shapes import (
    image_tokens,
    model_cases,
    only,
    small_cases,
    small_rows,
    token_rows,
)
from roofwatch.kernels.normalisation.affine_norm import define_affine_norm

_layer_norm = define_affine_norm("layer_norm", weight_offset=0.0)


def layer_norm_reference(x: Tensor, weight: Tensor, bias: Tensor, eps: float = 1e-5) -> Tensor:
    """Compute `(x - mean x) / sqrt(var x + eps) * weight + bias` along each row."""
    centred = x - x.mean(dim=-1, keepdim=True)
    return centred / (centred.square().mean(dim=-1, keepdim=True) + eps).sqrt() * weight + bias


def _inputs(case: Case, make: InputMaker) -> dict[str, Any]:
    n_cols = case["n_cols"]
    return {
        "x": make.normal(case["n_rows"], n_cols) + 0.5,
        "weight": make.uniform(n_cols, low=0.5, high=1.5),
        "bias": make.weights(n_cols, scale=0.5),
    }


def layer_norm_flop_count(case: Case) -> float:
    """Count per element, forward: mean (1), subtract, square, add, times 1/std, times weight, plus
    bias.

    Backward: normed (2), times weight (1), two sums (3), gradients of x (4), weight (2) and bias
    (1). Operations per row are not counted.
    """
    return (13 if case.is_backward else 7) * case["n_rows"] * case["n_cols"]


def layer_norm_memory_bytes(case: Case) -> float:
    """Forward reads x, weight and bias; writes out. The saved mean and 1/std are not counted.

    Backward reads x, weight and the gradient of out; writes the gradients of x, weight and bias.
    """
    n_cols = case["n_cols"]
    matrices, rows = (3, 3) if case.is_backward else (2, 2)
    return (matrices * case["n_rows"] * n_cols + rows * n_cols) * case.itemsize


layer_norm_spec = KernelSpec(
    name="layer_norm",
    family="normalisation",
    inputs=_inputs,
    reference=layer_norm_reference,
    cases=[
        *small_rows(),
        *model_cases(token_rows()),
        *model_cases(only(token_rows(), "prefill"), directions=["bwd"]),
    ],
    edges=[
        *cases(
            shapes=[{"n_rows": 63, "n_cols": 100}, {"n_rows": 0, "n_cols": 63}],
            directions=["fwd", "bwd"],
        ),
        *cases(shapes=[{"n_rows": 1, "n_cols": 1000}], dtypes=["float16"], directions=["bwd"]),
        # the shortest rows that are read in tiles: forward, and backward, where some programs work
        # on two tiles of them
        *cases(shapes=[{"n_rows": 3, "n_cols": MAX_COLS_IN_REGISTERS + 1}], dtypes=["bfloat16"]),
        *cases(
            shapes=[{"n_rows": 27, "n_cols": MAX_ROW_BYTES_BACKWARD // 4 + 1}], directions=["bwd"]
        ),
    ],
    flop_count=layer_norm_flop_count,
    memory_bytes=layer_norm_memory_bytes,
    token_count=lambda case: case["n_rows"],
    formula="out = (x - mean x) / sqrt(var x + eps) * weight + bias",
    source="Ba, Kiros and Hinton, Layer Normalization, 2016 (arXiv 1607.06450)",
    interpreted_shape={"n_rows": 7, "n_cols": 2100},
)


@layer_norm_spec.implementation("triton", deterministic=True)
def layer_norm(x: Tensor, weight: Tensor, bias: Tensor, eps: float = 1e-5) -> Tensor:
    """`(x - mean x) / sqrt(var x + eps) * weight + bias` along each row, computed in float32.

    Args:
        x: [n_rows, n_cols], contiguous along its last dim.
        weight: [n_cols].
        bias: [n_cols].
        eps: Added to the variance.

    Returns:
        [n_rows, n_cols] in x's dtype.
    """
    require_operands("layer_norm", x=x, weight=weight, bias=bias)
    require_operands("layer_norm", dims=2, x=x)
    columns = tuple(x.shape[1:])
    require_equal(
        "layer_norm", "the columns", weight=tuple(weight.shape), bias=tuple(bias.shape), x=columns
    )
    return _layer_norm(x.unsqueeze(0), weight.unsqueeze(0), bias.unsqueeze(0), eps)[0].squeeze(0)


@layer_norm_spec.implementation("torch", compile=True)
def _layer_norm_torch(x: Tensor, weight: Tensor, bias: Tensor, eps: float = 1e-5) -> Tensor:
    return torch.nn.functional.layer_norm(x, weight.shape, weight, bias, eps)


_adaln_modulate = define_affine_norm("adaln_modulate", weight_offset=1.0)


def adaln_modulate_reference(x: Tensor, scale: Tensor, shift: Tensor, eps: float = 1e-6) -> Tensor:
    """Compute `(x - mean x) / sqrt(var x + eps) * (1 + scale) + shift` along each token."""
    return layer_norm_reference(x, 1 + scale.unsqueeze(1), shift.unsqueeze(1), eps)


def _adaln_inputs(case: Case, make: InputMaker) -> dict[str, Any]:
    B, n_cols = case["B"], case["n_cols"]
    return {
        "x": make.normal(B, case["T"], n_cols) + 0.5,
        "scale": make.weights(B, n_cols, scale=0.5),
        "shift": make.weights(B, n_cols, scale=0.5),
    }


def adaln_modulate_flop_count(case: Case) -> float:
    """Count per element, forward: mean (1), subtract, square, add, times 1/std, times 1 + scale,
    plus shift.

    Backward: normed (2), times 1 + scale (1), two sums (3), gradients of x (4), scale (2) and shift
    (1). Operations per token or image are not counted.
    """
    return (13 if case.is_backward else 7) * case["B"] * case["T"] * case["n_cols"]


def adaln_modulate_memory_bytes(case: Case) -> float:
    """Forward reads x, scale and shift; writes out. The saved mean and 1/std are not counted.

    Backward reads x, scale and the gradient of out; writes the gradients of x, scale and shift.
    """
    tokens, rows = (3, 3) if case.is_backward else (2, 2)
    return (tokens * case["T"] + rows) * case["B"] * case["n_cols"] * case.itemsize


adaln_modulate_spec = KernelSpec(
    name="adaln_modulate",
    family="normalisation",
    inputs=_adaln_inputs,
    reference=adaln_modulate_reference,
    cases=[
        *small_cases({"B": 2, "T": 256, "n_cols": 1152}, directions=["fwd", "bwd"]),
        *model_cases(image_tokens(), directions=["fwd", "bwd"]),
    ],
    edges=[
        *cases(
            shapes=[
                {"B": 3, "T": 7, "n_cols": 63},
                {"B": 2, "T": 0, "n_cols": 63},
                {"B": 0, "T": 2, "n_cols": 63},
            ],
            directions=["bwd"],
        ),
        *cases(shapes=[{"B": 2, "T": 1, "n_cols": 1000}], dtypes=["float16"], directions=["bwd"]),
    ],
    flop_count=adaln_modulate_flop_count,
    memory_bytes=adaln_modulate_memory_bytes,
    token_count=lambda case: case["B"] * case["T"],
    formula="out = (x - mean x) / sqrt(var x + eps) * (1 + scale) + shift",
    source="Peebles and Xie, Scalable Diffusion Models with Transformers, 2022 (arXiv "
    "2212.09748), section 3.2",
    interpreted_shape={"B": 2, "T": 5},
)


@adaln_modulate_spec.implementation("triton", deterministic=True)
def adaln_modulate(x: Tensor, scale: Tensor, shift: Tensor, eps: float = 1e-6) -> Tensor:
    """`(x - mean x) / sqrt(var x + eps) * (1 + scale) + shift` along each token, computed in
    float32.

    Args:
        x: [B, T, n_cols], contiguous along its last dim.
        scale: [B, n_cols], contiguous along its last dim; may be a chunk of a wider matrix.
        shift: [B, n_cols], as scale.
        eps: Added to the variance.

    Returns:
        [B, T, n_cols] in x's dtype.
    """
    require_operands("adaln_modulate", x=x, scale=scale, shift=shift)
    require_operands("adaln_modulate", dims=3, x=x)
    per_image = (x.shape[0], x.shape[2])
    require_equal(
        "adaln_modulate",
        "images and columns",
        scale=tuple(scale.shape),
        shift=tuple(shift.shape),
        x=per_image,
    )
    return _adaln_modulate(x, scale, shift, eps)[0]


@adaln_modulate_spec.implementation("torch", compile=True)
def _adaln_modulate_torch(x: Tensor, scale: Tensor, shift: Tensor, eps: float = 1e-6) -> Tensor:
    normed = torch.nn.functional.layer_norm(x, x.shape[-1:], eps=eps)
    return normed * (1 + scale.unsqueeze(1)) + shift.unsqueeze(1)


@liger(layer_norm_spec)
def _layer_norm_liger(ops: Any, x: Tensor, weight: Tensor, bias: Tensor, eps: float = 1e-5) -> Any:
    return ops.LigerLayerNormFunction.apply(x, weight, bias, eps)


@fla(layer_norm_spec, "modules.norm.layernorm")
def _layer_norm_fla(norms: Any, x: Tensor, weight: Tensor, bias: Tensor, eps: float = 1e-5) -> Any:
    return norms.layer_norm(x, weight, bias, eps=eps)


@flag_gems(layer_norm_spec, directions=["fwd"])
def _layer_norm_flag_gems(
    gems: Any, x: Tensor, weight: Tensor, bias: Tensor, eps: float = 1e-5
) -> Any:
    return gems.layer_norm(x, weight.shape, weight, bias, eps)[0]

"""Layer normalisation of rows with a weight and a bias per column, forward and backward.

The kernels are in affine_norm.py.

Source: Ba, Kiros and Hinton, Layer Normalization, 2016 (arXiv 1607.06450).
"""

from typing import Any

import torch

from roofwatch import Case, InputMaker, KernelSpec, cases
from roofwatch.kernels.building_blocks.rows import MAX_COLS_IN_REGISTERS
from roofwatch.kernels.normalisation.affine_norm import define_affine_norm
from roofwatch.kernels.normalisation.reductions import MAX_ROW_BYTES_BACKWARD
from roofwatch.kernels.operands import require_equal, require_operands
from roofwatch.kernels.shapes import model_cases, only, small_rows, token_rows

_layer_norm = define_affine_norm("layer_norm", weight_offset=0.0)


def layer_norm_reference(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float = 1e-5) -> torch.Tensor:
    """Compute `(x - mean x) / sqrt(var x + eps) * weight + bias` along each row."""
    centred = x - x.mean(dim=-1, keepdim=True)
    return centred / (centred.square().mean(dim=-1, keepdim=True) + eps).sqrt() * weight + bias


def _inputs(case: Case, make: InputMaker) -> dict[str, Any]:
    n_cols = case["n_cols"]
    return {
        "x": make.normal(case["n_rows"], n_cols) + 0.5,
        "weight": make.uniform(n_cols, low=0.5, high=1.5),
        "bias": make.normal(n_cols, scale=0.5),
    }


def layer_norm_flop_count(case: Case) -> float:
    """Count per element, forward: mean (1), subtract, square, add, times 1/std, times weight, plus bias.

    Backward: normed (2), times weight (1), two sums (3), gradients of x (4), weight (2) and bias (1). Operations per
    row are not counted.
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
        *cases(shapes=[{"n_rows": 63, "n_cols": 100}, {"n_rows": 0, "n_cols": 63}], directions=["fwd", "bwd"]),
        *cases(shapes=[{"n_rows": 1, "n_cols": 1000}], dtypes=["float16"], directions=["bwd"]),
        # the shortest rows that are read in tiles: forward, and backward, where some programs work on two tiles of them
        *cases(shapes=[{"n_rows": 3, "n_cols": MAX_COLS_IN_REGISTERS + 1}], dtypes=["bfloat16"]),
        *cases(shapes=[{"n_rows": 27, "n_cols": MAX_ROW_BYTES_BACKWARD // 4 + 1}], directions=["bwd"]),
    ],
    flop_count=layer_norm_flop_count,
    memory_bytes=layer_norm_memory_bytes,
    formula="out = (x - mean x) / sqrt(var x + eps) * weight + bias",
    source="Ba, Kiros and Hinton, Layer Normalization, 2016 (arXiv 1607.06450)",
    interpreted_shape={"n_rows": 7, "n_cols": 2100},
)


@layer_norm_spec.implementation("triton", deterministic=True)
def layer_norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float = 1e-5) -> torch.Tensor:
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
    require_equal("layer_norm", "the columns", weight=tuple(weight.shape), bias=tuple(bias.shape), x=columns)
    return _layer_norm(x.unsqueeze(0), weight.unsqueeze(0), bias.unsqueeze(0), eps).squeeze(0)


@layer_norm_spec.implementation("torch", compile=True)
def _layer_norm_torch(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float = 1e-5) -> torch.Tensor:
    return torch.nn.functional.layer_norm(x, weight.shape, weight, bias, eps)

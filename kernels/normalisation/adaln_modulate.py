"""Adaptive layer normalisation of a diffusion transformer's tokens: normalised without a weight, then scaled and
shifted by what the image's conditioning says, forward and backward.

The kernels are those of affine_norm.py, with a weight `1 + scale` and a bias per image.

Source: Peebles and Xie, Scalable Diffusion Models with Transformers, 2022 (arXiv 2212.09748), section 3.2.
"""

from typing import Any

import torch

from roofwatch import Case, InputMaker, KernelSpec, cases
from roofwatch.kernels.normalisation.affine_norm import define_affine_norm
from roofwatch.kernels.operands import require_equal, require_operands
from roofwatch.kernels.shapes import image_tokens, model_cases

_adaln_modulate = define_affine_norm("adaln_modulate", weight_offset=1.0)


def adaln_modulate_reference(
    x: torch.Tensor, scale: torch.Tensor, shift: torch.Tensor, eps: float = 1e-6
) -> torch.Tensor:
    """Compute `(x - mean x) / sqrt(var x + eps) * (1 + scale) + shift` along each token."""
    centred = x - x.mean(dim=-1, keepdim=True)
    normed = centred / (centred.square().mean(dim=-1, keepdim=True) + eps).sqrt()
    return normed * (1 + scale.unsqueeze(1)) + shift.unsqueeze(1)


def _inputs(case: Case, make: InputMaker) -> dict[str, Any]:
    B, n_cols = case["B"], case["n_cols"]
    return {
        "x": make.normal(B, case["T"], n_cols) + 0.5,
        "scale": make.normal(B, n_cols, scale=0.5),
        "shift": make.normal(B, n_cols, scale=0.5),
    }


def adaln_modulate_flop_count(case: Case) -> float:
    """Per element, forward: the mean (1), subtract, square and add, times 1/std, times 1 + scale, plus shift. Backward:
    normed (2), times 1 + scale (1), the token's two sums (3), x's gradient (4), the scale's (2), the shift's (1). What
    is done once per token or image is left out.
    """
    return (13 if case.is_backward else 7) * case["B"] * case["T"] * case["n_cols"]


def adaln_modulate_memory_bytes(case: Case) -> float:
    """Forward reads x, scale and shift and writes out. Backward reads x, scale and out's gradient and writes the
    gradients of x, scale and shift. The eight bytes per token of the saved mean and 1/std are left out: they can be
    computed again.
    """
    tokens, rows = (3, 3) if case.is_backward else (2, 2)
    return (tokens * case["T"] + rows) * case["B"] * case["n_cols"] * case.itemsize


adaln_modulate_spec = KernelSpec(
    name="adaln_modulate",
    family="normalisation",
    inputs=_inputs,
    reference=adaln_modulate_reference,
    cases=[
        *cases(
            shapes=[{"B": 2, "T": 256, "n_cols": 1152}],
            dtypes=["float32", "bfloat16"],
            directions=["fwd", "bwd"],
            tags=["small"],
        ),
        *model_cases(image_tokens(), directions=["fwd", "bwd"]),
    ],
    edges=[
        *cases(
            shapes=[{"B": 3, "T": 7, "n_cols": 63}, {"B": 2, "T": 0, "n_cols": 63}, {"B": 0, "T": 2, "n_cols": 63}],
            directions=["bwd"],
        ),
        *cases(shapes=[{"B": 2, "T": 1, "n_cols": 1000}], dtypes=["float16"], directions=["bwd"]),
    ],
    flop_count=adaln_modulate_flop_count,
    memory_bytes=adaln_modulate_memory_bytes,
    formula="out = (x - mean x) / sqrt(var x + eps) * (1 + scale) + shift",
    source="Peebles and Xie, Scalable Diffusion Models with Transformers, 2022 (arXiv 2212.09748), section 3.2",
    interpreted_shape={"B": 2, "T": 5},
)


@adaln_modulate_spec.implementation("triton", deterministic=True)
def adaln_modulate(x: torch.Tensor, scale: torch.Tensor, shift: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    """`(x - mean x) / sqrt(var x + eps) * (1 + scale) + shift` along each token, computed in float32.

    Args:
        x: [B, T, n_cols], contiguous along its last dim.
        scale: [B, n_cols], contiguous along its last dim; a chunk of one wider matrix will do.
        shift: [B, n_cols], as scale.
        eps: Keeps a token of equal numbers finite.

    Returns:
        [B, T, n_cols] in x's dtype.
    """
    require_operands("adaln_modulate", x=x, scale=scale, shift=shift)
    require_operands("adaln_modulate", dims=3, x=x)
    per_image = (x.shape[0], x.shape[2])
    require_equal(
        "adaln_modulate", "images and columns", scale=tuple(scale.shape), shift=tuple(shift.shape), x=per_image
    )
    return _adaln_modulate(x, scale, shift, eps)


@adaln_modulate_spec.implementation("torch", compile=True)
def _adaln_modulate_torch(x: torch.Tensor, scale: torch.Tensor, shift: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    normed = torch.nn.functional.layer_norm(x, x.shape[-1:], eps=eps)
    return normed * (1 + scale.unsqueeze(1)) + shift.unsqueeze(1)

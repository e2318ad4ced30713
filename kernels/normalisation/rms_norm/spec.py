"""What rms_norm means, what it costs, at which shapes it is measured, and torch's own way."""

from typing import Any

import torch

from roofwatch import Case, InputMaker, KernelSpec, cases
from roofwatch.kernels.building_blocks.row_tiles import MAX_COLS_IN_REGISTERS
from roofwatch.kernels.operands import require_equal, require_operands
from roofwatch.kernels.shapes import model_cases, small_rows, token_rows


def rms_norm_reference(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    """The formula, `x / sqrt(mean(x²) + eps) * weight` along each row."""
    return x / (x.square().mean(dim=-1, keepdim=True) + eps).sqrt() * weight


def _inputs(case: Case, make: InputMaker) -> dict[str, Any]:
    return {
        "x": make.normal(case["n_rows"], case["n_cols"]),
        "weight": make.uniform(case["n_cols"], low=0.5, high=1.5),
    }


def rms_norm_flop_count(case: Case) -> float:
    """Per element, forward: square and add, times 1/rms, times weight. Backward: normed (1), times weight (1), the
    row's sum (2), x's gradient (3), the weight's (2). What is done once per row is left out.
    """
    return (9 if case.is_backward else 4) * case["n_rows"] * case["n_cols"]


def rms_norm_memory_bytes(case: Case) -> float:
    """Forward reads x and weight and writes out. Backward reads x, weight and out's gradient and writes the gradients
    of x and weight. The four bytes per row of the saved 1/rms are left out: it can be computed again.
    """
    n_cols = case["n_cols"]
    matrices, rows = (3, 2) if case.is_backward else (2, 1)
    return (matrices * case["n_rows"] * n_cols + rows * n_cols) * case.itemsize


rms_norm_spec = KernelSpec(
    name="rms_norm",
    family="normalisation",
    inputs=_inputs,
    reference=rms_norm_reference,
    cases=[
        *small_rows(),
        *model_cases(token_rows(), directions=["fwd", "bwd"]),
    ],
    edges=[
        *cases(shapes=[{"n_rows": 1, "n_cols": 63}, {"n_rows": 0, "n_cols": 63}], directions=["fwd", "bwd"]),
        *cases(shapes=[{"n_rows": 5, "n_cols": 1000}], dtypes=["float16"], directions=["bwd"]),
        # one column: forward alone, since its gradient is all cancellation
        *cases(shapes=[{"n_rows": 2, "n_cols": 1}], dtypes=["bfloat16"]),
        # more rows than programs: two of them for some, one for the others
        *cases(shapes=[{"n_rows": 300, "n_cols": 40}], directions=["bwd"]),
        # the longest row that is read once, and the shortest that is read twice
        *cases(
            shapes=[{"n_rows": 3, "n_cols": MAX_COLS_IN_REGISTERS}, {"n_rows": 3, "n_cols": MAX_COLS_IN_REGISTERS + 1}],
            dtypes=["bfloat16"],
            directions=["bwd"],
        ),
    ],
    flop_count=rms_norm_flop_count,
    memory_bytes=rms_norm_memory_bytes,
    formula="out = x / sqrt(mean(x²) + eps) * weight",
    source="Zhang and Sennrich, Root Mean Square Layer Normalization, 2019 (arXiv 1910.07467)",
    interpreted_shape={"n_rows": 5, "n_cols": 4096},
)


@rms_norm_spec.implementation("torch", compile=True)
def _rms_norm_torch(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    return torch.nn.functional.rms_norm(x, weight.shape, weight, eps)


def require_rms_norm_operands(x: torch.Tensor, weight: torch.Tensor) -> None:
    """Refuse what neither of our implementations reads.

    Raises:
        KernelError: an operand has another layout, shape or dtype.
    """
    require_operands("rms_norm", x=x, weight=weight)
    require_operands("rms_norm", dims=2, x=x)
    require_equal("rms_norm", "the columns", weight=tuple(weight.shape), x=tuple(x.shape[1:]))

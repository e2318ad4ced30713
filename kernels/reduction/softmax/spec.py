"""What softmax means, what it costs, at which shapes it is measured, and torch's own way."""

from typing import Any

import torch

from roofwatch import Case, InputMaker, KernelSpec, cases
from roofwatch.kernels.building_blocks.row_tiles import MAX_COLS_IN_REGISTERS
from roofwatch.kernels.shapes import model_cases, small_rows, vocabulary_rows


def softmax_reference(x: torch.Tensor) -> torch.Tensor:
    """The formula, `exp(x - max x) / sum exp(x - max x)` along each row."""
    exps = (x - x.amax(dim=-1, keepdim=True)).exp()
    return exps / exps.sum(dim=-1, keepdim=True)


def _inputs(case: Case, make: InputMaker) -> dict[str, Any]:
    return {"x": make.normal(case["n_rows"], case["n_cols"], scale=3.0)}


def softmax_flop_count(case: Case) -> float:
    """Per element, forward: compare, subtract, exp, add, divide. Backward: multiply and add for the row's sum,
    subtract, multiply.
    """
    return (4 if case.is_backward else 5) * case["n_rows"] * case["n_cols"]


def softmax_memory_bytes(case: Case) -> float:
    """Forward reads x and writes out; backward reads out and its gradient and writes x's."""
    return (3 if case.is_backward else 2) * case["n_rows"] * case["n_cols"] * case.itemsize


softmax_spec = KernelSpec(
    name="softmax",
    family="reduction",
    inputs=_inputs,
    reference=softmax_reference,
    cases=[
        *small_rows(),
        *model_cases(vocabulary_rows(), directions=["fwd", "bwd"]),
    ],
    edges=[
        *cases(shapes=[{"n_rows": 1, "n_cols": 63}, {"n_rows": 0, "n_cols": 63}], directions=["fwd", "bwd"]),
        *cases(shapes=[{"n_rows": 3, "n_cols": 1000}], dtypes=["float16"], directions=["bwd"]),
        *cases(shapes=[{"n_rows": 2, "n_cols": 1}], dtypes=["bfloat16"], directions=["bwd"]),
        # the longest row that is read once, and the shortest that is read twice
        *cases(
            shapes=[{"n_rows": 1, "n_cols": MAX_COLS_IN_REGISTERS}, {"n_rows": 2, "n_cols": MAX_COLS_IN_REGISTERS + 1}],
            dtypes=["bfloat16"],
            directions=["bwd"],
        ),
    ],
    flop_count=softmax_flop_count,
    memory_bytes=softmax_memory_bytes,
    formula="out = exp(x - max x) / sum exp(x - max x)",
    source="Milakov and Gimelshein, Online normalizer calculation for softmax, 2018 (arXiv 1805.02867)",
    interpreted_shape={"n_rows": 2, "n_cols": 20_000},
)


@softmax_spec.implementation("torch", compile=True)
def _softmax_torch(x: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.softmax(x, dim=-1)

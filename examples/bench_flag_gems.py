"""Fourteen operators of FlagGems, forward.

They need: pip install --no-deps flag-gems==5.0.2
"""

from collections.abc import Callable
from typing import Any

import flag_gems
import torch
from torch import Tensor
from torch.nn import functional

from roofwatch import Case, InputMaker, KernelSpec, cases


def memory_bytes_of_product(case: Case) -> float:
    """Both factors are read and their product is written."""
    left_elements = case["M"] * case["K"]
    right_elements = case["K"] * case["N"]
    product_elements = case["M"] * case["N"]
    return case.itemsize * (left_elements + right_elements + product_elements)


ROWS = {
    "cases": cases(shapes=[{"rows": 2048, "cols": 4096}], dtypes=["bfloat16"]),
    # An odd number of rows, and columns that are no power of two.
    "edges": cases(shapes=[{"rows": 3, "cols": 1000}]),
    # Triton's interpreter is slow.
    "interpreted_shape": {"rows": 4, "cols": 256},
    "flop_count": lambda case: 10 * case["rows"] * case["cols"],
    "memory_bytes": lambda case: 2 * case["rows"] * case["cols"] * case.itemsize,
}
PRODUCT = {
    "cases": cases(shapes=[{"M": 4096, "N": 4096, "K": 4096}], dtypes=["bfloat16"]),
    "edges": cases(shapes=[{"M": 3, "N": 65, "K": 33}]),
    "interpreted_shape": {"M": 16, "N": 32, "K": 64},
    "flop_count": lambda case: 2 * case["M"] * case["N"] * case["K"],
    "memory_bytes": memory_bytes_of_product,
}


def kernel(name: str, launch: Callable, **declared: Any) -> KernelSpec:
    """Declare an operator of the library; `launch` takes the inputs by name."""
    spec = KernelSpec(
        name=f"gems.{name}",
        family="flag_gems",
        **declared,
    )
    spec.implementation("triton")(launch)
    return spec


def only_matrix(case: Case, make: InputMaker) -> dict[str, Tensor]:
    return {"x": make.normal(case["rows"], case["cols"])}


def matrix_and_weight(case: Case, make: InputMaker) -> dict[str, Tensor]:
    return {**only_matrix(case, make), "weight": make.normal(case["cols"])}


def two_matrices(case: Case, make: InputMaker) -> dict[str, Tensor]:
    return {**only_matrix(case, make), "y": make.normal(case["rows"], case["cols"])}


def logits_and_target(case: Case, make: InputMaker) -> dict[str, Tensor]:
    return {
        "x": make.logits(case["rows"], case["cols"]),
        "target": make.integers(case["rows"], high=case["cols"]),
    }


def factors(case: Case, make: InputMaker) -> dict[str, Tensor]:
    return {
        "a": make.normal(case["M"], case["K"]),
        "b": make.normal(case["K"], case["N"]),
    }


def rms_norm_reference(x: Tensor, weight: Tensor) -> Tensor:
    return functional.rms_norm(x, x.shape[-1:], weight, 1e-6)


softmax = kernel(
    "softmax",
    lambda x: flag_gems.softmax(x, 1),
    inputs=only_matrix,
    reference=lambda x: x.softmax(-1),
    **ROWS,
)
log_softmax = kernel(
    "log_softmax",
    lambda x: flag_gems.log_softmax(x, 1),
    inputs=only_matrix,
    reference=lambda x: x.log_softmax(-1),
    **ROWS,
)
rms_norm = kernel(
    "rms_norm",
    lambda x, weight: flag_gems.rms_norm(x, x.shape[-1:], weight, 1e-6),
    inputs=matrix_and_weight,
    reference=rms_norm_reference,
    **ROWS,
)
layer_norm = kernel(
    "layer_norm",
    lambda x, weight: flag_gems.layer_norm(x, x.shape[-1:], weight)[0],
    inputs=matrix_and_weight,
    reference=lambda x, weight: functional.layer_norm(x, x.shape[-1:], weight),
    **ROWS,
)
silu_and_mul = kernel(
    "silu_and_mul",
    lambda x, y: flag_gems.silu_and_mul(x, y),
    inputs=two_matrices,
    reference=lambda x, y: functional.silu(x) * y,
    **ROWS,
)
gelu = kernel(
    "gelu",
    lambda x: flag_gems.gelu(x),
    inputs=only_matrix,
    reference=lambda x: functional.gelu(x),
    **ROWS,
)
cumsum = kernel(
    "cumsum",
    lambda x: flag_gems.cumsum(x, 1),
    inputs=only_matrix,
    reference=lambda x: x.cumsum(1),
    **ROWS,
)
row_sum = kernel(
    "sum",
    lambda x: flag_gems.sum_dim(x, [1]),
    inputs=only_matrix,
    reference=lambda x: x.sum(1),
    **ROWS,
)
argmax = kernel(
    "argmax",
    lambda x: flag_gems.argmax(x, 1),
    inputs=only_matrix,
    reference=lambda x: x.argmax(1),
    **ROWS,
)
var_mean = kernel(
    "var_mean",
    lambda x: flag_gems.var_mean(x, [1]),
    inputs=only_matrix,
    reference=lambda x: torch.var_mean(x, [1]),
    **ROWS,
)
nll_loss = kernel(
    "nll_loss",
    lambda x, target: flag_gems.nll_loss_forward(x, target)[0],
    inputs=logits_and_target,
    reference=lambda x, target: functional.nll_loss(x, target),
    **ROWS,
)
mm = kernel(
    "mm",
    lambda a, b: flag_gems.mm(a, b),
    inputs=factors,
    reference=lambda a, b: a @ b,
    **PRODUCT,
)
addmm = kernel(
    "addmm",
    lambda bias, a, b: flag_gems.addmm(bias, a, b),
    inputs=lambda case, make: {
        "bias": make.normal(case["N"]),
        **factors(case, make),
    },
    reference=lambda bias, a, b: torch.addmm(bias, a, b),
    **PRODUCT,
)
bmm = kernel(
    "bmm",
    lambda a, b: flag_gems.bmm(a[None], b[None])[0],
    inputs=factors,
    reference=lambda a, b: a @ b,
    **PRODUCT,
)

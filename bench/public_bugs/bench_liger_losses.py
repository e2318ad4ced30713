"""Losses and rotary embeddings of Liger-Kernel at sizes and with options where a release was
wrong.
"""

from importlib import import_module
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812  the usual name

from roofwatch import Case, InputMaker, KernelSpec, cases

BOTH = ["fwd", "bwd"]


def loss_inputs(case: Case, make: InputMaker) -> dict[str, Any]:
    return {
        "x": make.logits(case["n_rows"], case["n_cols"]),
        "target": make.integers(case["n_rows"], high=case["n_cols"]),
    }


loss_of_each_row = KernelSpec(
    name="loss_of_each_row",
    inputs=loss_inputs,
    reference=lambda x, target: F.cross_entropy(x, target, reduction="none"),
    cases=cases(
        shapes=[{"n_rows": 8, "n_cols": 100}],
        dtypes=["float32"],
        directions=BOTH,
        tags=["quick"],
    ),
    mutates=("x",),
    flop_count=lambda _case: 0,
    memory_bytes=lambda _case: 0,
    interpreted_shape={"n_rows": 8, "n_cols": 100},
)


@loss_of_each_row.implementation("triton")
def cross_entropy(x: torch.Tensor, target: torch.Tensor) -> Any:
    function = import_module("liger_kernel.ops.cross_entropy").LigerCrossEntropyFunction
    return function.apply(x, target, None, -100, 0.0, 0.0, "none")[0]


loss_without_gradient = KernelSpec(
    name="loss_without_gradient",
    inputs=loss_inputs,
    reference=lambda x, target: F.cross_entropy(x, target),
    cases=cases(
        shapes=[{"n_rows": 6, "n_cols": 500}],
        dtypes=["float32"],
        directions=["fwd"],
        tags=["quick"],
    ),
    flop_count=lambda _case: 0,
    memory_bytes=lambda _case: 0,
)


@loss_without_gradient.implementation("triton")
def mean_cross_entropy(x: torch.Tensor, target: torch.Tensor) -> Any:
    function = import_module("liger_kernel.ops.cross_entropy").LigerCrossEntropyFunction
    return function.apply(x, target, None, -100, 0.0, 0.0, "mean", None, False)[0]


def rotary_inputs(case: Case, make: InputMaker) -> dict[str, Any]:
    tokens, heads = case["tokens"], case["heads"]
    return {
        "q": make.normal(1, tokens, heads, 128),
        "k": make.normal(1, tokens, heads, 128),
        "angles": make.normal(tokens, 64, 2, dtype="float32"),
    }


def analysed_only(**_inputs: torch.Tensor) -> torch.Tensor:
    raise NotImplementedError("the case is analysed and not run")


llama4_rope = KernelSpec(
    name="llama4_rope",
    inputs=rotary_inputs,
    reference=analysed_only,
    cases=cases(
        shapes=[{"tokens": 1_048_576, "heads": 32}],
        dtypes=["bfloat16"],
        directions=["fwd"],
        tags=["large"],
    ),
    flop_count=lambda _case: 0,
    memory_bytes=lambda _case: 0,
)


@llama4_rope.implementation("triton")
def rotate(q: torch.Tensor, k: torch.Tensor, angles: torch.Tensor) -> Any:
    function = import_module("liger_kernel.ops.llama4_rope").LigerLlama4RopeFunction
    return function.apply(q, k, angles)

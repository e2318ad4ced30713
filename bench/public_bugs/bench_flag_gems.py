"""Operators of FlagGems at sizes and layouts where a release was wrong."""

from typing import Any

import flag_gems
import torch
import torch.nn.functional as F  # noqa: N812  the usual name

from roofwatch import Case, InputMaker, KernelSpec, cases


def declare(
    name: str,
    make_inputs: Any,
    reference: Any,
    launch: Any,
    shape: dict[str, int],
) -> None:
    """Declare an operator with one case."""
    spec = KernelSpec(
        name=name,
        inputs=make_inputs,
        reference=reference,
        cases=cases(shapes=[shape], dtypes=["bfloat16"], tags=["quick"]),
        flop_count=lambda _case: 0,
        memory_bytes=lambda _case: 0,
    )
    spec.implementation("triton")(launch)
    globals()[name] = spec


def matrix(case: Case, make: InputMaker) -> dict[str, Any]:
    return {"x": make.normal(case["n_rows"], case["n_cols"])}


declare(
    name="mean",
    make_inputs=matrix,
    reference=lambda x: x.mean(),
    launch=lambda x: flag_gems.mean(x),
    shape={"n_rows": 12, "n_cols": 50},
)


def slice_backward(x: torch.Tensor) -> torch.Tensor:
    """The gradient of the last rows but one of a matrix with four rows more."""
    n_rows, n_cols = x.shape
    size = [n_rows + 4, n_cols]
    start = -n_rows - 1
    return flag_gems.slice_backward(x, size, 0, start, -1, 1)


declare(
    name="slice_backward",
    make_inputs=matrix,
    reference=lambda x: F.pad(x, (0, 0, 3, 1)),
    launch=slice_backward,
    shape={"n_rows": 12, "n_cols": 50},
)


def broadcast_inputs(case: Case, make: InputMaker) -> dict[str, Any]:
    n_rows = case["n_rows"]
    n_cols = case["n_cols"]
    return {
        "x": make.normal(n_cols),
        "first": make.normal(n_rows, n_cols),
        "second": make.normal(n_rows, n_cols),
    }


declare(
    name="addcmul",
    make_inputs=broadcast_inputs,
    reference=lambda x, first, second: torch.addcmul(x, first, second),
    launch=lambda x, first, second: flag_gems.addcmul(x, first, second),
    shape={"n_rows": 12, "n_cols": 50},
)


def image_loss_inputs(case: Case, make: InputMaker) -> dict[str, Any]:
    batch = case["B"]
    classes = case["C"]
    height = case["H"]
    width = case["W"]
    return {
        "x": make.logits(batch, classes, height, width, dtype="float32"),
        "target": make.integers(batch, height, width, high=classes),
    }


declare(
    name="nll_loss2d",
    make_inputs=image_loss_inputs,
    reference=lambda x, target: F.nll_loss(x, target),
    launch=lambda x, target: flag_gems.nll_loss2d_forward(x, target)[0],
    shape={"B": 2, "C": 5, "H": 6, "W": 7},
)


def convolution_inputs(case: Case, make: InputMaker) -> dict[str, Any]:
    return {
        "x": make.normal(2, case["C"], case["T"]),
        "weight": make.weights(case["C"], case["C"], 3),
    }


declare(
    name="conv1d",
    make_inputs=convolution_inputs,
    reference=lambda x, weight: F.conv1d(x, weight, stride=(1,), dilation=(2,)),
    launch=lambda x, weight: flag_gems.conv1d(x, weight, stride=(1,), dilation=(2,)),
    shape={"C": 8, "T": 40},
)


declare(
    name="sum",
    make_inputs=matrix,
    reference=lambda x: x.sum(),
    launch=lambda x: flag_gems.sum(x),
    shape={"n_rows": 12, "n_cols": 50},
)
declare(
    name="contiguous",
    make_inputs=matrix,
    reference=lambda x: x.T.contiguous(),
    launch=lambda x: flag_gems.contiguous(x.T),
    shape={"n_rows": 12, "n_cols": 50},
)
declare(
    name="cat",
    make_inputs=matrix,
    reference=lambda x: torch.cat((x.new_empty(0), x)),
    launch=lambda x: flag_gems.cat((x.new_empty(0), x)),
    shape={"n_rows": 12, "n_cols": 50},
)
declare(
    name="truncated_division",
    make_inputs=lambda case, make: {
        "x": make.integers(case["n_rows"], high=2**40),
        "y": make.integers(case["n_rows"], low=1, high=100),
    },
    reference=lambda x, y: torch.div(x, y, rounding_mode="trunc"),
    launch=lambda x, y: flag_gems.div_mode(x, y, rounding_mode="trunc"),
    shape={"n_rows": 300},
)
declare(
    name="softmax_of_no_rows",
    make_inputs=matrix,
    reference=lambda x: x[:0].softmax(1),
    launch=lambda x: flag_gems.softmax(x[:0], 1),
    shape={"n_rows": 12, "n_cols": 50},
)
declare(
    name="arange",
    make_inputs=lambda case, make: {"x": make.integers(case["n"], high=100)},
    reference=lambda x: x + torch.arange(0, 7.5, 1, dtype=torch.int64, device=x.device),
    launch=lambda x: x + flag_gems.arange_start(0, 7.5, 1, dtype=torch.int64, device=x.device),
    shape={"n": 7},
)

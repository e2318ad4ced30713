"""Cross entropy of a linear layer's logits, forward and backward, without the logits in memory.

The rows are processed in chunks whose logits take `_LOGITS_BYTES`. Each chunk is a product of the
vendor's library and the cross entropy of `cross_entropy`. The backward pass computes the logits of
a chunk again, replaces them by their gradient, and adds two more products.

Source: Wijmans et al., Cut Your Losses in Large-Vocabulary Language Models, 2024 (arXiv
2411.09009), for the recomputation; Hsu et al., Liger Kernel, 2024 (arXiv 2410.10989), section 3.2,
for the chunks.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from roofwatch import Case, InputMaker, KernelSpec, cases
from roofwatch.kernels.building_blocks.errors import KernelError
from roofwatch.kernels.building_blocks.models import DENSE_MODELS
from roofwatch.kernels.building_blocks.operands import (
    require_equal,
    require_integers,
    require_operands,
)
from roofwatch.kernels.building_blocks.operators import backward_operator, operator
from roofwatch.kernels.building_blocks.shapes import Workload, model_cases, small_cases
from roofwatch.kernels.reduction.cross_entropy import (
    IGNORED,
    cross_entropy_reference,
    fill_gradients,
    fill_losses,
)

_LOGITS_BYTES = 256 * 2**20
"""Of a chunk: a few hundred rows, which is enough for the vendor's products to be efficient."""
_ROWS = 8192


def _chunks(x: Tensor, weight: Tensor) -> Iterator[slice]:
    n_rows = max(_LOGITS_BYTES // (weight.shape[0] * weight.element_size()), 1)
    for start in range(0, x.shape[0], n_rows):
        yield slice(start, start + n_rows)


def _empty_gradients(
    x: Tensor, weight: Tensor, labels: Tensor, lse: Tensor, grad_loss: Tensor
) -> tuple[Tensor, Tensor]:
    return x.new_empty(x.shape), weight.new_empty(weight.shape)


@backward_operator("linear_cross_entropy", _empty_gradients)
def _linear_cross_entropy_backward(x, weight, labels, lse, grad_loss, grad_x, grad_weight):
    # sums of many chunks: in float32, as within one product
    weight_sum = torch.zeros_like(weight, dtype=torch.float32)
    for rows in _chunks(x, weight):
        logits = x[rows] @ weight.t()
        gradient = torch.empty_like(logits)
        fill_gradients(logits, labels[rows], lse[rows], grad_loss[rows], IGNORED, gradient)
        torch.mm(gradient, weight, out=grad_x[rows])
        weight_sum += gradient.t() @ x[rows]
    grad_weight.copy_(weight_sum)


def _empty_loss(x: Tensor, weight: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    loss = x.new_empty(x.shape[0], dtype=torch.float32)
    return loss, torch.empty_like(loss)


@operator("linear_cross_entropy", _empty_loss, backward=_linear_cross_entropy_backward)
def _linear_cross_entropy_op(x, weight, labels, loss, lse):
    for rows in _chunks(x, weight):
        fill_losses(x[rows] @ weight.t(), labels[rows], IGNORED, loss[rows], lse[rows])


def linear_cross_entropy_reference(x: Tensor, weight: Tensor, labels: Tensor) -> Tensor:
    """Compute the cross entropy of `x weightᵀ`."""
    return cross_entropy_reference(torch.einsum("md,vd->mv", x, weight), labels)


def _inputs(case: Case, make: InputMaker) -> dict[str, Any]:
    n_rows, hidden, vocab = case["n_rows"], case["hidden"], case["vocab"]
    labels = make.integers(n_rows, high=vocab)
    labels[make.permutation(n_rows)[: _ignored_rows(case)]] = IGNORED
    return {
        "x": make.normal(n_rows, hidden),
        "weight": make.weights(vocab, hidden, scale=hidden**-0.5),
        "labels": labels,
    }


def _ignored_rows(case: Case) -> int:
    return case["n_rows"] // 8


def linear_cross_entropy_flop_count(case: Case) -> float:
    """Count the products: the logits forward; backward, the logits again and both gradients."""
    n_products = 3 if case.is_backward else 1
    return n_products * 2 * case["n_rows"] * case["hidden"] * case["vocab"]


def linear_cross_entropy_memory_bytes(case: Case) -> float:
    """Reads x, weight and labels; writes a float32 loss per row. Backward also reads its gradient,
    and writes those of x and weight instead. Logits need not be in memory.
    """
    n_operands = (case["n_rows"] + case["vocab"]) * case["hidden"]
    n_tensors = 2 if case.is_backward else 1
    return n_tensors * n_operands * case.itemsize + case["n_rows"] * (8 + 4)


def _heads() -> list[Workload]:
    """`n_rows hidden vocab` of the last layer of a training step."""
    return [
        Workload(
            {"n_rows": _ROWS, "hidden": model.hidden, "vocab": model.vocab},
            model.tags | {"train", "tp1"},
        )
        for model in DENSE_MODELS
    ]


linear_cross_entropy_spec = KernelSpec(
    name="linear_cross_entropy",
    family="reduction",
    inputs=_inputs,
    reference=linear_cross_entropy_reference,
    cases=[
        *small_cases({"n_rows": 64, "hidden": 256, "vocab": 8000}, directions=["fwd", "bwd"]),
        *model_cases(_heads(), directions=["fwd", "bwd"]),
    ],
    edges=[
        *cases(
            shapes=[
                {"n_rows": 9, "hidden": 40, "vocab": 1000},
                {"n_rows": 1, "hidden": 8, "vocab": 63},
                {"n_rows": 0, "hidden": 8, "vocab": 63},
            ],
            directions=["bwd"],
        )
    ],
    flop_count=linear_cross_entropy_flop_count,
    memory_bytes=linear_cross_entropy_memory_bytes,
    token_count=lambda case: case["n_rows"],
    formula="loss = log sum exp(x weightᵀ) - (x weightᵀ)[label]",
    source="Wijmans et al., Cut Your Losses in Large-Vocabulary Language Models, 2024 (arXiv "
    "2411.09009)",
    interpreted_shape={"n_rows": 16, "hidden": 48, "vocab": 700},
)


@linear_cross_entropy_spec.implementation("triton", deterministic=True)
def linear_cross_entropy(x: Tensor, weight: Tensor, labels: Tensor) -> Tensor:
    """Compute the cross entropy of each row's logits `x weightᵀ` with its label.

    Args:
        x: [n_rows, hidden], contiguous along its last dim.
        weight: [vocab, hidden] of x's dtype, contiguous along its last dim.
        labels: [n_rows] int64, each below vocab, or -100: no loss and no gradient.

    Returns:
        [n_rows] in float32.
    """
    name = "linear_cross_entropy"
    require_operands(name, dims=2, x=x, weight=weight)
    require_equal(name, "the dtypes", x=x.dtype, weight=weight.dtype)
    require_equal(name, "the columns", x=x.shape[1], weight=weight.shape[1])
    require_integers(name, dtype=torch.int64, dims=1, like=x, labels=labels)
    require_equal(name, "the rows", x=len(x), labels=len(labels))
    if not len(weight):
        raise KernelError(f"{name}: weight has no rows; pass at least one token")
    return _linear_cross_entropy_op(x, weight, labels)[0]


@linear_cross_entropy_spec.implementation("torch", compile=True)
def _linear_cross_entropy_torch(x: Tensor, weight: Tensor, labels: Tensor) -> Tensor:
    logits = torch.nn.functional.linear(x, weight)
    return torch.nn.functional.cross_entropy(
        logits.float(), labels, ignore_index=IGNORED, reduction="none"
    )

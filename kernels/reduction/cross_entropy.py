"""Cross entropy of each row's logits with its label, forward and backward, for vocabularies of any
length.

The probabilities are not stored. The forward pass reads a row once and saves its loss and
log-sum-exp. It has a running maximum and sum for every few columns of a tile, so an element costs
one exponential. The backward pass recomputes the probabilities from the logits and the log-sum-exp.
Ignored rows are not read.

Sources: Milakov and Gimelshein, Online normalizer calculation for softmax, 2018 (arXiv 1805.02867);
Wijmans et al., Cut Your Losses in Large-Vocabulary Language Models, 2024 (arXiv 2411.09009), for
what materialised logits cost.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from roofwatch import Case, InputMaker, KernelSpec, cases
from roofwatch.kernels.building_blocks.errors import KernelError
from roofwatch.kernels.building_blocks.exponential import BYTES_PER_LOAD, add_to_lanes, fast_exp
from roofwatch.kernels.building_blocks.operands import (
    require_contiguous,
    require_equal,
    require_operands,
)
from roofwatch.kernels.building_blocks.operators import backward_operator, operator
from roofwatch.kernels.building_blocks.rows import piece_of_row
from roofwatch.kernels.building_blocks.shapes import model_cases, small_cases, vocabulary_rows

_TILE_COLS = 4_096
_TILE_COLS_BACKWARD = 2_048
IGNORED = -100
_ROWS_PER_IGNORED_ROW = 8


@triton.jit
def _cross_entropy_kernel(
    logits_ptr,
    labels_ptr,
    loss_ptr,
    lse_ptr,
    row_stride,
    n_cols,
    ignore_index,
    LANES: tl.constexpr,
    WIDTH: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    logits_ptr += row * row_stride
    label = tl.load(labels_ptr + row)
    is_ignored = label == ignore_index
    lane_max = tl.full((LANES,), -float("inf"), tl.float32)
    lane_sum = tl.zeros((LANES,), tl.float32)
    for start in range(0, tl.where(is_ignored, 0, n_cols), LANES * WIDTH):
        offs = start + tl.arange(0, LANES)[:, None] * WIDTH + tl.arange(0, WIDTH)[None, :]
        x = tl.load(logits_ptr + offs, mask=offs < n_cols, other=-float("inf")).to(
            tl.float32
        )  # [LANES, WIDTH]
        lane_max, lane_sum = add_to_lanes(x, lane_max, lane_sum)
    row_max = tl.max(lane_max, axis=0)
    lse = row_max + tl.log(tl.sum(lane_sum * fast_exp(lane_max - row_max), axis=0))
    # a label out of range gives NaN
    label_logit = tl.load(
        logits_ptr + label, mask=(label >= 0) & (label < n_cols), other=float("nan")
    ).to(tl.float32)
    tl.store(loss_ptr + row, tl.where(is_ignored, 0.0, lse - label_logit))
    tl.store(lse_ptr + row, tl.where(is_ignored, 0.0, lse))


@triton.jit
def _cross_entropy_grad_kernel(
    logits_ptr,
    labels_ptr,
    lse_ptr,
    grad_loss_ptr,
    grad_logits_ptr,
    row_stride,
    grad_loss_stride,
    n_cols,
    ignore_index,
    BLOCK: tl.constexpr,
):
    row, offs, mask = piece_of_row(n_cols, BLOCK)
    label = tl.load(labels_ptr + row)
    is_kept = label != ignore_index
    logits = tl.load(logits_ptr + row * row_stride + offs, mask=mask & is_kept, other=0.0).to(
        tl.float32
    )  # [BLOCK]
    probability = fast_exp(logits - tl.load(lse_ptr + row))
    grad_loss = tl.load(grad_loss_ptr + row * grad_loss_stride)
    grad_loss = tl.where((label >= 0) & (label < n_cols), grad_loss, float("nan"))
    grad = tl.where(offs == label, probability - 1.0, probability) * grad_loss
    grad = tl.where(is_kept, grad, 0.0)
    tl.store(
        grad_logits_ptr + row * n_cols + offs, grad.to(grad_logits_ptr.dtype.element_ty), mask=mask
    )  # [BLOCK]


def cross_entropy_config(n_cols: int, itemsize: int) -> dict[str, int]:
    """A lane is one load of a thread, so its maximum needs no other thread;
    two lanes per thread.
    """
    block = min(triton.next_power_of_2(n_cols), _TILE_COLS)
    width = min(BYTES_PER_LOAD // itemsize, block)
    return {"LANES": block // width, "WIDTH": width, "num_warps": max(block // 512, 1)}


def cross_entropy_grad_config(n_cols: int) -> dict[str, int]:
    """Sixteen elements per thread of an NVIDIA GPU, to amortise the loads of label and sum."""
    block = min(triton.next_power_of_2(n_cols), _TILE_COLS_BACKWARD)
    return {"BLOCK": block, "num_warps": max(block // 512, 1)}


def _empty_gradient(
    logits: Tensor, labels: Tensor, lse: Tensor, grad_loss: Tensor, ignore_index: int
) -> Tensor:
    return logits.new_empty(logits.shape)


def fill_gradients(logits, labels, lse, grad_loss, ignore_index, grad_logits):
    """Compute the gradients of logits [n_rows, n_cols] with the saved log-sum-exp [n_rows]."""
    n_rows, n_cols = logits.shape
    config = cross_entropy_grad_config(n_cols)
    _cross_entropy_grad_kernel[(n_rows * triton.cdiv(n_cols, config["BLOCK"]),)](
        logits,
        labels,
        lse,
        grad_loss,
        grad_logits,
        logits.stride(0),
        grad_loss.stride(0),
        n_cols,
        ignore_index,
        **config,
    )


_cross_entropy_backward = backward_operator("cross_entropy", _empty_gradient)(fill_gradients)


def _empty_loss(logits: Tensor, labels: Tensor, ignore_index: int) -> tuple[Tensor, Tensor]:
    loss = logits.new_empty(logits.shape[0], dtype=torch.float32)
    return loss, torch.empty_like(loss)


def fill_losses(logits, labels, ignore_index, loss, lse):
    """Compute loss and log-sum-exp, [n_rows] float32, of logits [n_rows, n_cols]."""
    n_rows, n_cols = logits.shape
    config = cross_entropy_config(n_cols, logits.element_size())
    _cross_entropy_kernel[(n_rows,)](
        logits, labels, loss, lse, logits.stride(0), n_cols, ignore_index, **config
    )


_cross_entropy_op = operator("cross_entropy", _empty_loss, backward=_cross_entropy_backward)(
    fill_losses
)


def cross_entropy_reference(logits: Tensor, labels: Tensor, ignore_index: int = IGNORED) -> Tensor:
    """Compute `log sum exp logits - logits[label]` of each row, 0 where the label is ignored."""
    is_kept = labels != ignore_index
    label_logit = logits.gather(1, labels.where(is_kept, 0).unsqueeze(1)).squeeze(1)
    loss: Tensor = (logits.logsumexp(dim=1) - label_logit) * is_kept
    return loss


def _inputs(case: Case, make: InputMaker) -> dict[str, Any]:
    n_rows, n_cols = case["n_rows"], case["n_cols"]
    labels = make.integers(n_rows, high=n_cols)
    labels[make.permutation(n_rows)[: _ignored_rows(case)]] = IGNORED
    return {"logits": make.logits(n_rows, n_cols, scale=3.0), "labels": labels}


def _ignored_rows(case: Case) -> int:
    """Number of rows of prompt and padding, on which a model is not trained."""
    return case["n_rows"] // _ROWS_PER_IGNORED_ROW


def cross_entropy_flop_count(case: Case) -> float:
    """Count per element of a kept row, forward: compare, subtract, exp, add. Backward: subtract,
    exp, times gradient.

    Operations per row are not counted.
    """
    return (3 if case.is_backward else 4) * (case["n_rows"] - _ignored_rows(case)) * case["n_cols"]


def cross_entropy_memory_bytes(case: Case) -> float:
    """Forward reads the logits of kept rows and every label; writes a float32 loss per row.

    Backward reads the logits of kept rows, every label and the float32 gradient of kept losses;
    writes the gradients of all logits. The saved log-sum-exp is not counted.
    """
    n_rows, n_cols = case["n_rows"], case["n_cols"]
    kept_rows = n_rows - _ignored_rows(case)
    if case.is_backward:
        return (kept_rows + n_rows) * n_cols * case.itemsize + n_rows * 8 + kept_rows * 4
    return kept_rows * n_cols * case.itemsize + n_rows * (8 + 4)


cross_entropy_spec = KernelSpec(
    name="cross_entropy",
    family="reduction",
    inputs=_inputs,
    reference=cross_entropy_reference,
    cases=[
        *small_cases({"n_rows": 64, "n_cols": 32_000}, directions=["fwd", "bwd"]),
        *model_cases(vocabulary_rows(), directions=["fwd", "bwd"]),
    ],
    edges=[
        *cases(
            shapes=[{"n_rows": 1, "n_cols": 63}, {"n_rows": 0, "n_cols": 63}],
            directions=["fwd", "bwd"],
        ),
        *cases(shapes=[{"n_rows": 9, "n_cols": 1000}], dtypes=["float16"], directions=["bwd"]),
        *cases(shapes=[{"n_rows": 1, "n_cols": 50_257}], dtypes=["bfloat16"], directions=["bwd"]),
    ],
    flop_count=cross_entropy_flop_count,
    memory_bytes=cross_entropy_memory_bytes,
    token_count=lambda case: case["n_rows"],
    formula="loss = log sum exp logits - logits[label], 0 where label = ignore_index",
    source="Milakov and Gimelshein, Online normalizer calculation for softmax, 2018 (arXiv "
    "1805.02867)",
    interpreted_shape={"n_rows": 8, "n_cols": 5001},
)


@cross_entropy_spec.implementation("triton", deterministic=True)
def cross_entropy(logits: Tensor, labels: Tensor, ignore_index: int = IGNORED) -> Tensor:
    """`log sum exp logits - logits[label]` of each row, computed in float32.

    Args:
        logits: [n_rows, n_cols], contiguous along its last dim.
        labels: [n_rows] int64, each below n_cols; another label gives NaN in its row's loss and
            gradient.
        ignore_index: Label of rows with zero loss and gradient.

    Returns:
        [n_rows] in float32.
    """
    require_operands("cross_entropy", dims=2, logits=logits)
    require_equal(
        "cross_entropy", "the rows", labels=tuple(labels.shape), logits=tuple(logits.shape[:1])
    )
    require_equal("cross_entropy", "the devices", labels=labels.device, logits=logits.device)
    if labels.dtype != torch.int64:
        raise KernelError(
            f"cross_entropy: labels are {labels.dtype}, not torch.int64; call labels.long()"
        )
    require_contiguous("cross_entropy", labels=labels)
    if logits.shape[0] and not logits.shape[1]:
        raise KernelError("cross_entropy: logits have no columns; pass at least one")
    return _cross_entropy_op(logits, labels, ignore_index)[0]


@cross_entropy_spec.implementation("torch", compile=True)
def _cross_entropy_torch(logits: Tensor, labels: Tensor, ignore_index: int = IGNORED) -> Tensor:
    # in float32, as models are trained
    return torch.nn.functional.cross_entropy(
        logits.float(), labels, ignore_index=ignore_index, reduction="none"
    )

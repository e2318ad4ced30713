"""The same numbers lying otherwise in memory. A kernel reads raw pointers: it must follow the strides, or refuse."""

from __future__ import annotations

from dataclasses import replace

import torch

from roofwatch.collector.accuracy.check_report import Arrangement, Layout
from roofwatch.collector.accuracy.evaluation import PreparedCase, differentiated_names

UPSTREAM = "upstream"
"""Stands for the gradients that are handed to the backward pass."""


def layouts_of(prepared: PreparedCase) -> tuple[Layout, ...]:
    """What there is to try: every input of two dims or more, and the upstream gradients, in every arrangement that
    changes their strides.
    """
    tensors = {name: value for name, value in prepared.inputs.items() if isinstance(value, torch.Tensor)}
    if prepared.case.is_backward:
        gradients = {f"grad_{name}" for name in differentiated_names(prepared.spec, prepared.case, prepared.inputs)}
        outputs = [each for name, each in prepared.expected.items() if name not in gradients]
        tensors[UPSTREAM] = max(outputs, key=lambda output: output.ndim)
    return tuple(
        Layout(tensor=name, arrangement=arrangement)
        for name, tensor in tensors.items()
        for arrangement in Arrangement
        if tensor.ndim >= 2 and min(tensor.shape[-2:]) > 1 and tensor.numel()
    )


def in_layout(prepared: PreparedCase, layout: Layout) -> PreparedCase:
    """The case with one of its tensors laid out anew."""
    if layout.tensor == UPSTREAM:
        return replace(prepared, lay_out_upstream=lambda tensor: rearranged(tensor, layout.arrangement))
    tensor = prepared.inputs[layout.tensor]
    moved = rearranged(tensor.detach(), layout.arrangement).requires_grad_(tensor.requires_grad)
    return replace(prepared, inputs={**prepared.inputs, layout.tensor: moved})


def rearranged(tensor: torch.Tensor, arrangement: Arrangement) -> torch.Tensor:
    """A copy of a tensor in another arrangement; one of fewer than two dims as it is."""
    if tensor.ndim < 2:
        return tensor
    *leading, n_rows, n_cols = tensor.shape
    if arrangement is Arrangement.TRANSPOSED:
        return tensor.new_empty(*leading, n_cols, n_rows).mT.copy_(tensor)
    # what lies between the rows shows in a result that uses it. No NaN: to read it and multiply it by zero, as torch's
    # bfloat16 product does on a CPU, is fine
    wider = tensor.new_full((*leading, n_rows, n_cols + 1), _largest(tensor.dtype))
    return wider.narrow(-1, 1, n_cols).copy_(tensor)


def _largest(dtype: torch.dtype) -> float:
    if dtype == torch.bool:
        return True
    return torch.finfo(dtype).max if dtype.is_floating_point else torch.iinfo(dtype).max

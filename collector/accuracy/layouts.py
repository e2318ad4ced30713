"""Other memory layouts of a case: strided, transposed and expanded."""

from dataclasses import replace

import torch

from roofwatch.collector.accuracy.deviation import root_mean_square
from roofwatch.collector.accuracy.evaluation import (
    PreparedCase,
    differentiated_names,
    prepare_inputs,
)
from roofwatch.model.check_report import Arrangement, Layout

UPSTREAM = "upstream"
"""Names the gradients that are passed to the backward pass."""

_CANCELLED = 1e-6
"""Of the usual size of a result: what remains is rounding."""
_STRIDED = (Arrangement.ROW_STRIDED, Arrangement.TRANSPOSED)


def layouts_of(prepared: PreparedCase) -> tuple[Layout, ...]:
    """Layouts to try: each input with two or more dims, and the upstream gradients, in every
    arrangement.
    """
    tensors = {
        name: value for name, value in prepared.inputs.items() if isinstance(value, torch.Tensor)
    }
    if prepared.case.is_backward:
        differentiated = differentiated_names(prepared.spec, prepared.case, prepared.inputs)
        gradients = {f"grad_{name}" for name in differentiated}
        outputs = [tensor for name, tensor in prepared.expected.items() if name not in gradients]
        # Of several outputs, the one that most layouts exist for.
        tensors[UPSTREAM] = max(outputs, key=lambda output: output.ndim)
    layouts: list[Layout] = []
    for name, tensor in tensors.items():
        # A matrix of one row or column looks the same in all of them.
        is_matrix = tensor.ndim >= 2 and min(tensor.shape[-2:]) > 1
        if is_matrix and tensor.numel():
            layouts += [Layout(tensor=name, arrangement=arrangement) for arrangement in _STRIDED]
        if _can_be_expanded(prepared, name, tensor):
            layouts.append(Layout(tensor=name, arrangement=Arrangement.EXPANDED))
    return tuple(layouts)


def _can_be_expanded(prepared: PreparedCase, name: str, tensor: torch.Tensor) -> bool:
    # indices must often differ from each other, and programs that change an input write to it
    is_value = tensor.is_floating_point() and name not in prepared.spec.mutates
    return is_value and tensor.ndim >= 2 and _expanded_dim(tensor) is not None


def in_layout(prepared: PreparedCase, layout: Layout) -> PreparedCase:
    """The case with one tensor in another layout; an expanded one has other values too."""
    if layout.arrangement is Arrangement.EXPANDED:
        return _expanded(prepared, layout.tensor)
    if layout.tensor == UPSTREAM:
        upstream = replace(
            prepared.upstream,
            lay_out=lambda tensor: rearranged(tensor, layout.arrangement),
        )
        return replace(prepared, upstream=upstream)
    tensor = prepared.inputs[layout.tensor]
    moved = rearranged(tensor.detach(), layout.arrangement)
    moved.requires_grad_(tensor.requires_grad)
    return replace(prepared, inputs={**prepared.inputs, layout.tensor: moved})


def _expanded(prepared: PreparedCase, name: str) -> PreparedCase:
    """The case with one tensor's first slice repeated, which changes its values too."""
    inputs = dict(prepared.inputs)
    upstream = prepared.upstream
    if name == UPSTREAM:
        upstream = replace(upstream, lay_out=_as_of_a_sum)
    else:
        tensor = prepared.inputs[name]
        inputs[name] = _repeated(tensor.detach()).requires_grad_(tensor.requires_grad)
    case = prepared.case
    expanded = prepare_inputs(
        spec=prepared.spec,
        case=case,
        device=prepared.device,
        inputs=inputs,
        upstream=upstream,
    )
    least_rms: dict[str, float] = {}
    for output, expected in prepared.expected.items():
        usual = root_mean_square(expected)
        # Gradients of a sum may be zero but for rounding, as those of a softmax: then the error
        # is that of the terms that cancel.
        is_zero = root_mean_square(expanded.expected[output]) < _CANCELLED * usual
        if is_zero:
            least_rms[output] = float(expected.abs().max())
        else:
            least_rms[output] = usual
    return replace(expanded, least_rms=least_rms)


def _as_of_a_sum(upstream: torch.Tensor) -> torch.Tensor:
    """The gradient that `out.sum()` passes back: one number for all elements."""
    return upstream.new_ones(()).expand(upstream.shape)


def _repeated(tensor: torch.Tensor) -> torch.Tensor:
    """The first slice in place of all, along the first dim that is longer than one."""
    dim = _expanded_dim(tensor)
    assert dim is not None
    return tensor.narrow(dim, 0, 1).clone().expand(tensor.shape)


def _expanded_dim(tensor: torch.Tensor) -> int | None:
    """The first dim that is longer than one."""
    if tensor.numel():
        for dim, length in enumerate(tensor.shape):
            if length > 1:
                return dim
    return None


def rearranged(tensor: torch.Tensor, arrangement: Arrangement) -> torch.Tensor:
    """Copy a tensor into another arrangement; with fewer than two dims it is returned as it is."""
    if tensor.ndim < 2:
        return tensor
    *leading, n_rows, n_cols = tensor.shape
    if arrangement is Arrangement.TRANSPOSED:
        return tensor.new_empty(*leading, n_cols, n_rows).mT.copy_(tensor)
    # The gap between rows holds the largest number, which shows in a result that uses it. NaN would
    # also fail kernels that read the gap and multiply it by zero, as torch's bfloat16 matmul does
    # on a CPU.
    wider = tensor.new_full((*leading, n_rows, n_cols + 1), _largest_number(tensor.dtype))
    return wider.narrow(-1, 1, n_cols).copy_(tensor)


def _largest_number(dtype: torch.dtype) -> float:
    if dtype == torch.bool:
        return 1
    if dtype.is_floating_point:
        return torch.finfo(dtype).max
    return torch.iinfo(dtype).max

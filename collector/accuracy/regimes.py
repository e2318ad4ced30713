"""Other values for the inputs of a case, chosen by what its operation does with them.

Normally distributed inputs hide errors at values that occur in practice: a softmax where one logit
dominates, a variance of values far from zero, a gate that saturates.
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch

from roofwatch.collector.accuracy.evaluation import PreparedCase, prepare_inputs
from roofwatch.model.regime import Regime
from roofwatch.spec import Role

REGIMES: Mapping[Role, tuple[Regime, ...]] = {
    Role.VALUES: (Regime.SHIFTED, Regime.PEAKED, Regime.SPARSE),
    Role.LOGITS: (
        Regime.PEAKED,
        Regime.LOWERED,
        Regime.DISTANT,
        Regime.EQUAL,
        Regime.INFINITE,
    ),
    Role.SCORES: (Regime.SHARP, Regime.UNIFORM),
    Role.GATES: (Regime.SATURATED, Regime.SPARSE),
    Role.TERMS: (Regime.CANCELLING, Regime.DENORMAL),
    Role.WEIGHTS: (),
    Role.MASK: (Regime.MASKED,),
}
_MAX_REGIMES = 5
_INDEX_DTYPES = (torch.int32, torch.int64)
_SPARSE_EVERY = 10
_INFINITE_EVERY = 8
_EMPTY_EVERY = 4
_DENORMAL_FACTOR = 0.25
"""Of the smallest normal number."""


def regimes_of(prepared: PreparedCase) -> tuple[Regime, ...]:
    """Regimes to try for the roles of the case's inputs: at most five, and one of its masks."""
    roles: list[Role] = []
    has_mask = False
    for name, role in prepared.roles.items():
        tensor = prepared.inputs[name]
        if role is Role.MASK and _is_mask_of_rows(tensor):
            has_mask = True
        # Integers and empty tensors have no other values.
        if tensor.is_floating_point() and tensor.numel():
            roles.append(role)
    # Inputs with a special role say more about the operation than the others; weights say
    # nothing.
    special = [role for role in roles if role is not Role.VALUES and REGIMES[role]]
    regimes: list[Regime] = []
    for role in special or roles:
        regimes.extend(REGIMES[role])
    # Two inputs of one role have its regimes together.
    chosen = tuple(dict.fromkeys(regimes))[:_MAX_REGIMES]
    if has_mask:
        chosen += (Regime.MASKED,)
    return chosen


def in_regime(prepared: PreparedCase, regime: Regime) -> PreparedCase:
    """The case with other values in the inputs whose role has the regime, and its reference."""
    inputs: dict[str, Any] = dict(prepared.inputs)
    for name, role in prepared.roles.items():
        tensor = prepared.inputs[name]
        if regime is Regime.MASKED and role is Role.MASK and _is_mask_of_rows(tensor):
            inputs[name] = _masked(tensor)
            continue
        if regime not in REGIMES[role]:
            continue
        if not tensor.is_floating_point() or not tensor.numel():
            continue
        wide = tensor.detach().to(torch.float64)
        if regime is Regime.PEAKED:
            targets = None
            # In single precision, the reference loses its digits there too.
            if tensor.itemsize < 4:
                targets = _targets(prepared, wide)
            values = _peaked(wide, targets)
        else:
            values = _CHANGES[regime](wide, tensor.dtype)
        changed = values.to(tensor.dtype)
        inputs[name] = changed.requires_grad_(tensor.requires_grad)
    return prepare_inputs(
        spec=prepared.spec,
        case=prepared.case,
        device=prepared.device,
        inputs=inputs,
        upstream=prepared.upstream,
    )


def _is_mask_of_rows(tensor: torch.Tensor) -> bool:
    return tensor.dtype is torch.bool and tensor.ndim > 1 and tensor.numel() > 0


def _masked(mask: torch.Tensor) -> torch.Tensor:
    """Let the first row, and every fourth after it, keep nothing."""
    changed = mask.clone()
    changed.view(-1, mask.shape[-1])[::_EMPTY_EVERY] = False
    return changed


Change = Callable[[torch.Tensor, torch.dtype], torch.Tensor]


def _shifted(values: torch.Tensor, _dtype: torch.dtype) -> torch.Tensor:
    # A mean of 4 and a deviation of 1/4: a variance from squares loses eight bits.
    return values / 4 + 4


def _peaked(values: torch.Tensor, columns: torch.Tensor | None) -> torch.Tensor:
    """Add 12 to one element of each row: at the given column, or at another one in each row."""
    if values.ndim < 2:
        return values
    row_length = values.shape[-1]
    rows = values.reshape(-1, row_length).clone()
    numbers = torch.arange(len(rows), device=values.device)
    if columns is None:
        columns = (7 * numbers + 3) % row_length
    # exp(12) is 160,000: the rest of the row hardly counts.
    rows[numbers, columns] += 12
    return rows.view(values.shape)


def _targets(prepared: PreparedCase, values: torch.Tensor) -> torch.Tensor | None:
    """An integer input that names a column of each row, as the targets of a cross-entropy do.

    Gradients are small where the target dominates, and lose their digits if that of the largest
    probability is rounded.
    """
    row_count = values.numel() // values.shape[-1]
    n_cols = values.shape[-1]
    for tensor in prepared.inputs.values():
        is_index = isinstance(tensor, torch.Tensor) and tensor.dtype in _INDEX_DTYPES
        if not is_index or tensor.numel() != row_count:
            continue
        is_column = (tensor >= 0) & (tensor < n_cols)
        if bool(is_column.all()):
            columns: torch.Tensor = tensor.reshape(-1).long()
            return columns
    return None


def _sparse(values: torch.Tensor, _dtype: torch.dtype) -> torch.Tensor:
    return values * _every(values, _SPARSE_EVERY)


def _lowered(values: torch.Tensor, _dtype: torch.dtype) -> torch.Tensor:
    """Subtract 40: a softmax does not change, but elements past a row's end may count."""
    return values - 40


def _distant(values: torch.Tensor, _dtype: torch.dtype) -> torch.Tensor:
    return values * 64


def _equal(values: torch.Tensor, _dtype: torch.dtype) -> torch.Tensor:
    first = values[..., :1]
    return first.expand_as(values).clone()


def _infinite(values: torch.Tensor, _dtype: torch.dtype) -> torch.Tensor:
    # A row of infinities alone has no result.
    if values.ndim < 2 or values.shape[-1] <= _INFINITE_EVERY:
        return values
    return values.masked_fill(_every(values, _INFINITE_EVERY), -torch.inf)


def _every(values: torch.Tensor, period: int) -> torch.Tensor:
    """Marks every n-th element, at other places from row to row unless n divides their length."""
    numbers = torch.arange(values.numel(), device=values.device)
    is_marked = numbers % period == period - 1
    return is_marked.view(values.shape)


def _sharp(values: torch.Tensor, _dtype: torch.dtype) -> torch.Tensor:
    # The largest score takes nearly all of the softmax.
    return values * 4


def _uniform(values: torch.Tensor, _dtype: torch.dtype) -> torch.Tensor:
    # All scores take the same share.
    return values / 64


def _saturated(values: torch.Tensor, _dtype: torch.dtype) -> torch.Tensor:
    # Beyond 16, a sigmoid is 0 or 1 in every dtype.
    return values * 16


def _cancelling(values: torch.Tensor, _dtype: torch.dtype) -> torch.Tensor:
    """Neighbours along the last dim have opposite signs, but for one part in 16."""
    positions = torch.arange(values.shape[-1], device=values.device)
    signs = 1 - 2 * (positions % 2)
    return signs * 4 + values / 4


def _denormal(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    smallest_normal = torch.finfo(dtype).tiny
    return values * smallest_normal * _DENORMAL_FACTOR


_CHANGES: Mapping[Regime, Change] = {
    Regime.SHIFTED: _shifted,
    Regime.SPARSE: _sparse,
    Regime.LOWERED: _lowered,
    Regime.DISTANT: _distant,
    Regime.EQUAL: _equal,
    Regime.INFINITE: _infinite,
    Regime.SHARP: _sharp,
    Regime.UNIFORM: _uniform,
    Regime.SATURATED: _saturated,
    Regime.CANCELLING: _cancelling,
    Regime.DENORMAL: _denormal,
}

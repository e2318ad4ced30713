"""Measure how far one tensor is from another, in float64."""

from dataclasses import dataclass

import torch

from roofwatch.collector.accuracy.check_report import Errors

_TINY = 1e-30
_HUGE = 1e30


@dataclass(frozen=True)
class Deviation:
    """A result compared with its reference."""

    errors: Errors
    """Over the elements that are finite on both sides."""
    max_abs_error: float
    nonfinite_count: int
    """Elements that are NaN or infinite on one side and not the same on the other."""
    first_nonfinite: int | None
    """Flat position of the first of them."""
    is_all_zero: bool
    """The result is zero everywhere and the reference is not."""


def deviation(expected: torch.Tensor, actual: torch.Tensor) -> Deviation:
    """Compare a result of any dtype with a reference of the same shape."""
    error, is_nonfinite = _absolute_error(expected, actual)
    rms = _rms(expected)
    rmse = float(error.square().mean().sqrt()) if error.numel() else 0.0
    nonfinite_count = int(is_nonfinite.sum())
    return Deviation(
        errors=Errors(
            elementwise=_largest(_relative_error(error, expected, rms)), rmse_ratio=min(rmse / max(rms, _TINY), _HUGE)
        ),
        max_abs_error=_largest(error),
        nonfinite_count=nonfinite_count,
        first_nonfinite=int(is_nonfinite.int().argmax()) if nonfinite_count else None,
        is_all_zero=rms > 0 and not bool(actual.to(torch.float64).any()),
    )


def wrong_elements(
    expected: torch.Tensor, actual: torch.Tensor, limit: float, *, worst_count: int = 5
) -> tuple[torch.Tensor, tuple[int, ...]]:
    """Find elements whose relative error exceeds a limit, or that are NaN or infinite on one side.

    Returns:
        A mask of the tensor's shape, and flat positions of the worst elements, worst first.
    """
    error, is_nonfinite = _absolute_error(expected, actual)
    score = _relative_error(error, expected, _rms(expected)).masked_fill_(is_nonfinite, torch.inf)
    mask = score > limit
    wrong = mask.nonzero().reshape(-1)
    worst = wrong[score[wrong].argsort(descending=True, stable=True)[:worst_count]]
    return mask.reshape(expected.shape), tuple(worst.tolist())


def has_same_bits(before: torch.Tensor, after: torch.Tensor) -> bool:
    """Whether all elements have equal bits, for any dtype; NaN equals itself."""
    return torch.equal(_bytes(before), _bytes(after))


def count_different_bits(before: torch.Tensor, after: torch.Tensor) -> int:
    """Count elements whose bits differ."""
    differ = _bytes(before) != _bytes(after)
    return int(differ.reshape(before.numel(), before.itemsize).any(dim=1).sum())


def index_of(position: int, shape: torch.Size) -> tuple[int, ...]:
    """Convert a flat position to an index."""
    return tuple(int(each) for each in torch.unravel_index(torch.tensor(position), shape))


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().reshape(-1).view(torch.uint8)


def _absolute_error(expected: torch.Tensor, actual: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Absolute errors, zero where one side is not finite; and where one side is not finite and the other differs.

    Returns:
        Two tensors of shape [elements], float64 and bool.
    """
    expected = _wide(expected)
    actual = _wide(actual).to(expected.device)
    is_same = (actual == expected) | (actual.isnan() & expected.isnan())
    is_finite = actual.isfinite() & expected.isfinite()
    error = (actual - expected).abs_().masked_fill_(is_same | ~is_finite, 0.0)
    return error, ~is_same & ~is_finite


def _relative_error(error: torch.Tensor, expected: torch.Tensor, rms: float) -> torch.Tensor:
    """Errors relative to `|expected| + rms`; 0/0 is 0."""
    return (error / (_wide(expected).abs() + rms)).nan_to_num_(nan=0.0, posinf=_HUGE).clamp_(max=_HUGE)


def _rms(expected: torch.Tensor) -> float:
    """RMS of the finite elements."""
    values = _wide(expected)
    values = values[values.isfinite()]
    return float(values.square().mean().sqrt()) if values.numel() else 0.0


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().reshape(-1).to(torch.float64)


def _largest(values: torch.Tensor) -> float:
    return float(values.max()) if values.numel() else 0.0

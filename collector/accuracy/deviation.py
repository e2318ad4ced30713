"""Measure how far one tensor is from another, in float64, and describe where it is wrong and how.

The wrong elements are described by the smallest regular region that contains them: a box, a
triangle or a range of the flattened tensor. A few correct elements do not hide the pattern.
"""

from dataclasses import dataclass

import torch

from roofwatch.model.check_report import Errors

# Bounds that keep ratios finite, so that a record can hold them.
_TINY = 1e-30
_HUGE = 1e30
_WORST_COUNT = 5
"""Wrong elements that a report names."""
_ZERO = 1e-6
"""Results this much smaller than their usual RMS may be rounding errors of zero."""


@dataclass(frozen=True)
class Deviation:
    errors: Errors
    """Over the elements that are finite on both sides."""
    max_abs_error: float
    nonfinite_count: int
    """Elements that are NaN or infinite on one side and not the same on the other."""
    first_nonfinite: int | None
    """Flat position of the first of them."""
    is_all_zero: bool
    """The result is zero everywhere and the reference is not."""


def deviation(expected: torch.Tensor, actual: torch.Tensor, *, least_rms: float = 0.0) -> Deviation:
    """Compare a result of any dtype with a reference of the same shape.

    Errors are relative to the reference's RMS, or to `least_rms` if that is larger.
    """
    error, is_nonfinite = _absolute_error(expected, actual)
    reference_rms = root_mean_square(expected)
    rms = max(reference_rms, least_rms)
    rmse = 0.0
    if error.numel():
        rmse = float(error.square().mean().sqrt())
    nonfinite_count = int(is_nonfinite.sum())
    first_nonfinite = None
    if nonfinite_count:
        first_nonfinite = int(is_nonfinite.int().argmax())
    # A reference that is itself about zero has zero as its correct result.
    is_reference_zero = reference_rms <= _ZERO * rms
    return Deviation(
        errors=Errors(
            elementwise=_largest(_relative_error(error, expected, rms)),
            rmse_ratio=min(rmse / max(rms, _TINY), _HUGE),
        ),
        max_abs_error=_largest(error),
        nonfinite_count=nonfinite_count,
        first_nonfinite=first_nonfinite,
        is_all_zero=not is_reference_zero and not bool(actual.to(torch.float64).any()),
    )


def wrong_elements(
    expected: torch.Tensor,
    actual: torch.Tensor,
    limit: float,
    *,
    least_rms: float = 0.0,
) -> tuple[torch.Tensor, tuple[int, ...]]:
    """Find elements whose relative error exceeds a limit, or that are NaN or infinite on one side.

    Returns:
        A mask of the tensor's shape, and flat positions of the worst elements, worst first.
    """
    error, is_nonfinite = _absolute_error(expected, actual)
    rms = max(root_mean_square(expected), least_rms)
    score = _relative_error(error, expected, rms).masked_fill_(is_nonfinite, torch.inf)
    mask = score > limit
    wrong = mask.nonzero().reshape(-1)
    worst_first = score[wrong].argsort(descending=True, stable=True)
    worst = wrong[worst_first[:_WORST_COUNT]]
    return mask.reshape(expected.shape), tuple(worst.tolist())


def has_same_bits(before: torch.Tensor, after: torch.Tensor) -> bool:
    """Whether all elements have equal bits, for any dtype; NaN equals itself."""
    return torch.equal(_bytes(before), _bytes(after))


def count_different_bits(before: torch.Tensor, after: torch.Tensor) -> int:
    differ = _bytes(before) != _bytes(after)
    bytes_of_elements = differ.reshape(before.numel(), before.itemsize)
    return int(bytes_of_elements.any(dim=1).sum())


def index_of(position: int, shape: torch.Size) -> tuple[int, ...]:
    """Convert a flat position to an index."""
    coordinates = torch.unravel_index(torch.tensor(position), shape)
    return tuple(int(coordinate) for coordinate in coordinates)


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    """The elements of a tensor as bytes, uint8 [numel * itemsize]."""
    flat = tensor.detach().reshape(-1)
    # torch keeps the stride 0 of an expanded tensor, which has no bytes to view
    if flat.stride(0) == 1:
        dense = flat
    else:
        dense = flat.clone(memory_format=torch.contiguous_format)
    return dense.view(torch.uint8)


def _absolute_error(
    expected: torch.Tensor, actual: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Absolute errors, zero where one side is not finite; and where one side is not finite and the
    other differs.

    Returns:
        Two tensors of shape [elements], float64 and bool.
    """
    # infinite beyond the range of the result's dtype
    rounded = _wide(expected.to(actual.dtype))
    expected = _wide(expected)
    actual = _wide(actual).to(expected.device)
    # Equal infinities and two NaN are no error: the reference may overflow, too.
    is_same = (actual == expected) | (actual.isnan() & expected.isnan())
    is_same |= actual.isinf() & (actual == rounded)
    is_finite = actual.isfinite() & expected.isfinite()
    error = (actual - expected).abs_().masked_fill_(is_same | ~is_finite, 0.0)
    return error, ~is_same & ~is_finite


def _relative_error(error: torch.Tensor, expected: torch.Tensor, rms: float) -> torch.Tensor:
    """Errors relative to `|expected| + rms`; 0/0 is 0."""
    ratio = error / (_wide(expected).abs() + rms)
    return ratio.nan_to_num_(nan=0.0, posinf=_HUGE).clamp_(max=_HUGE)


def root_mean_square(expected: torch.Tensor) -> float:
    """RMS of the finite elements."""
    values = _wide(expected)
    is_finite = values.isfinite()
    # selecting copies, which takes longer than all the rest
    if not bool(is_finite.all()):
        values = values[is_finite]
    if values.numel():
        return float(values.square().mean().sqrt())
    return 0.0


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().reshape(-1).to(torch.float64)


def _largest(values: torch.Tensor) -> float:
    if values.numel():
        return float(values.max())
    return 0.0

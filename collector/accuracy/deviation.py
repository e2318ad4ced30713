"""Measure how far one tensor is from another, in chunks of float64 to limit memory."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from roofwatch.collector.accuracy.check_report import Errors

_CHUNK_ELEMENTS = 2**18
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


class _Chunk:
    """A part of both tensors, in float64.

    Args:
        start: Flat position.
        expected: From the reference, shape [elements].
        actual: Of the same shape.
    """

    def __init__(self, start: int, expected: torch.Tensor, actual: torch.Tensor) -> None:
        self.start = start
        self.expected = expected
        self.actual = actual
        self.error = (actual - expected).abs_()
        """Absolute; zero where one side is not finite."""
        self.is_nonfinite: torch.Tensor | None = None
        """Where one side is not finite and the other differs; None if everything is finite."""
        if not math.isfinite(float(self.error.sum())) or not math.isfinite(float(expected.sum())):
            is_same = (actual == expected) | (actual.isnan() & expected.isnan())
            is_finite = actual.isfinite() & expected.isfinite()
            self.error = torch.where(is_same | ~is_finite, 0.0, self.error)
            self.is_nonfinite = ~is_same & ~is_finite

    def relative_error(self, rms: float) -> torch.Tensor:
        """Error of each element relative to `|expected| + rms`; 0/0 is 0."""
        return (self.error / (self.expected.abs() + rms)).nan_to_num_(nan=0.0, posinf=_HUGE).clamp_(max=_HUGE)


def deviation(expected: torch.Tensor, actual: torch.Tensor) -> Deviation:
    """Compare a result of any dtype with a reference of the same shape."""
    rms = _rms(expected)
    square_sum = largest = largest_relative = 0.0
    nonfinite_count = 0
    first_nonfinite = None
    has_nonzero = False
    for chunk in _chunks(expected, actual):
        square_sum += float(chunk.error.dot(chunk.error))
        largest = max(largest, float(chunk.error.max()))
        largest_relative = max(largest_relative, float(chunk.relative_error(rms).max()))
        if chunk.is_nonfinite is not None:
            nonfinite_count += int(chunk.is_nonfinite.sum())
            if first_nonfinite is None and nonfinite_count:
                first_nonfinite = chunk.start + int(chunk.is_nonfinite.int().argmax())
        has_nonzero = has_nonzero or bool(chunk.actual.any())
    rmse = (square_sum / max(expected.numel(), 1)) ** 0.5
    return Deviation(
        errors=Errors(elementwise=largest_relative, rmse_ratio=min(rmse / max(rms, _TINY), _HUGE)),
        max_abs_error=largest,
        nonfinite_count=nonfinite_count,
        first_nonfinite=first_nonfinite,
        is_all_zero=not has_nonzero and rms > 0,
    )


def wrong_elements(
    expected: torch.Tensor, actual: torch.Tensor, limit: float, *, worst_count: int = 5
) -> tuple[torch.Tensor, tuple[int, ...]]:
    """Find elements whose relative error exceeds a limit, or that are NaN or infinite on one side.

    Returns:
        A mask of the tensor's shape, and flat positions of the worst elements, worst first.
    """
    rms = _rms(expected)
    masks = []
    worst: list[tuple[float, int]] = []
    for chunk in _chunks(expected, actual):
        score = chunk.relative_error(rms)
        if chunk.is_nonfinite is not None:
            score[chunk.is_nonfinite] = torch.inf
        masks.append(score > limit)
        values, positions = score.topk(min(worst_count, score.numel()))
        found = zip(values.tolist(), positions.tolist(), strict=True)
        worst += [(value, -(chunk.start + position)) for value, position in found if value > limit]
    mask = torch.cat(masks) if masks else torch.zeros(0, dtype=torch.bool, device=expected.device)
    return mask.reshape(expected.shape), tuple(-position for _, position in sorted(worst, reverse=True)[:worst_count])


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


def _chunks(expected: torch.Tensor, actual: torch.Tensor) -> Iterator[_Chunk]:
    flat_expected, flat_actual = expected.detach().reshape(-1), actual.detach().reshape(-1)
    for start in range(0, flat_expected.numel(), _CHUNK_ELEMENTS):
        here = slice(start, start + _CHUNK_ELEMENTS)
        yield _Chunk(
            start,
            flat_expected[here].to(torch.float64),
            flat_actual[here].to(device=expected.device, dtype=torch.float64),
        )


def _rms(expected: torch.Tensor) -> float:
    """RMS of the finite elements."""
    square_sum, count = 0.0, 0
    for chunk in torch.split(expected.detach().reshape(-1), _CHUNK_ELEMENTS):
        values = chunk.to(torch.float64)
        values = values[values.isfinite()]
        square_sum += float(values.dot(values))
        count += values.numel()
    return float((square_sum / count) ** 0.5) if count else 0.0

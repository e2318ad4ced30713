"""How far one tensor lies from another. Large tensors are gone through in pieces, since float64 takes four times the
memory of what a kernel returned.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch

_PIECE_ELEMENTS = 2**24
_TINY = 1e-30
_HUGE = 1e30


@dataclass(frozen=True)
class Errors:
    """The two errors that are judged, or their limits; relative, so that the scale of the numbers does not matter."""

    elementwise: float
    """Largest `|out - ref| / (|ref| + rms(ref))`."""
    rmse_ratio: float
    """RMS of the error / RMS of the reference."""


@dataclass(frozen=True)
class Deviation:
    """A result against its reference."""

    errors: Errors
    """Of the elements that are finite on both sides."""
    max_abs_error: float
    element_count: int
    unlike_count: int
    """Elements that are NaN or infinite on one side, and not the same on the other."""
    first_unlike: int | None
    """Flat position of the first of them."""
    is_all_zero: bool
    """The result is zero everywhere, and the reference is not."""


@dataclass(frozen=True)
class _Piece:
    start: int
    expected: torch.Tensor
    actual: torch.Tensor

    @property
    def is_unlike(self) -> torch.Tensor:
        return ~self._is_same & ~self._is_finite

    @property
    def error(self) -> torch.Tensor:
        """Absolute; zero where one side is not finite."""
        return torch.where(self._is_same | ~self._is_finite, 0.0, (self.actual - self.expected).abs())

    def relative_error(self, rms: float) -> torch.Tensor:
        """Of each element and the RMS of all."""
        error = self.error
        return torch.where(error > 0, error / (self.expected.abs() + rms), 0.0).clamp(max=_HUGE)

    @property
    def _is_same(self) -> torch.Tensor:
        return (self.actual == self.expected) | (self.actual.isnan() & self.expected.isnan())

    @property
    def _is_finite(self) -> torch.Tensor:
        return self.actual.isfinite() & self.expected.isfinite()


def deviation(expected: torch.Tensor, actual: torch.Tensor) -> Deviation:
    """Measure a result of the reference's shape, of any dtype."""
    rms = _rms(expected)
    square_sum = largest = largest_relative = 0.0
    unlike_count = nonzero_count = 0
    first_unlike = None
    for piece in _pieces(expected, actual):
        error = piece.error
        square_sum += float(error.square().sum())
        largest = max(largest, float(error.max()))
        largest_relative = max(largest_relative, float(piece.relative_error(rms).max()))
        unlike = piece.is_unlike
        unlike_count += int(unlike.sum())
        if first_unlike is None and unlike_count:
            first_unlike = piece.start + int(unlike.int().argmax())
        nonzero_count += int(piece.actual.count_nonzero())
    rmse = (square_sum / max(expected.numel(), 1)) ** 0.5
    return Deviation(
        errors=Errors(elementwise=largest_relative, rmse_ratio=min(rmse / max(rms, _TINY), _HUGE)),
        max_abs_error=largest,
        element_count=expected.numel(),
        unlike_count=unlike_count,
        first_unlike=first_unlike,
        is_all_zero=nonzero_count == 0 and rms > 0,
    )


@dataclass(frozen=True)
class WrongElements:
    """Which elements are wrong."""

    mask: torch.Tensor
    """Of the tensor's shape."""
    worst: tuple[int, ...]
    """Flat positions of the worst, the worst first."""


def wrong_elements(
    expected: torch.Tensor, actual: torch.Tensor, limit: float, *, worst_count: int = 5
) -> WrongElements:
    """Find the elements whose error, relative to them and the RMS, is beyond a limit, and those that are NaN or
    infinite on one side.
    """
    rms = _rms(expected)
    masks = []
    worst: list[tuple[float, int]] = []
    for piece in _pieces(expected, actual):
        score = torch.where(piece.is_unlike, torch.inf, piece.relative_error(rms))
        masks.append(score > limit)
        values, positions = score.topk(min(worst_count, score.numel()))
        worst += [
            (value, -(piece.start + position))
            for value, position in zip(values.tolist(), positions.tolist(), strict=True)
            if value > limit
        ]
    mask = torch.cat(masks) if masks else torch.zeros(0, dtype=torch.bool, device=expected.device)
    return WrongElements(
        mask.reshape(expected.shape), tuple(-position for _, position in sorted(worst, reverse=True)[:worst_count])
    )


def different_bytes(before: torch.Tensor, after: torch.Tensor) -> torch.Tensor:
    """Which elements of two tensors of one shape and dtype differ in their bits; not a number equals itself here. Says
    it of every dtype, float8 and bool too, which not every comparison of torch knows.
    """
    differ = before.detach().reshape(-1).view(torch.uint8) != after.detach().reshape(-1).view(torch.uint8)
    return differ.reshape(before.numel(), before.itemsize).any(dim=1).reshape(before.shape)


def index_of(position: int, shape: torch.Size) -> tuple[int, ...]:
    """The index in a shape of a flat position."""
    index = []
    for length in reversed(shape):
        index.append(position % length)
        position //= length
    return tuple(reversed(index))


def _pieces(expected: torch.Tensor, actual: torch.Tensor) -> Iterator[_Piece]:
    flat_expected, flat_actual = expected.detach().reshape(-1), actual.detach().reshape(-1)
    for start in range(0, flat_expected.numel(), _PIECE_ELEMENTS):
        here = slice(start, start + _PIECE_ELEMENTS)
        yield _Piece(
            start,
            flat_expected[here].to(torch.float64),
            flat_actual[here].to(device=expected.device, dtype=torch.float64),
        )


def _rms(expected: torch.Tensor) -> float:
    """Of the finite elements."""
    square_sum, count = 0.0, 0
    for piece in _pieces(expected, expected):
        finite = piece.expected[piece.expected.isfinite()]
        square_sum += float(finite.square().sum())
        count += finite.numel()
    return float((square_sum / count) ** 0.5) if count else 0.0

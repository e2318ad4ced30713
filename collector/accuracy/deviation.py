"""How far one tensor lies from another. Tensors are gone through in pieces: float64 takes four times the memory of what
a kernel returned, and on a CPU pieces that fit into its caches are gone through several times as fast.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch

_PIECE_ELEMENTS = {"cpu": 2**16, "cuda": 2**24}
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


class _Piece:
    """A part of both tensors, in float64.

    Args:
        start: Its flat position.
        expected: The reference, shape [elements].
        actual: The result, of the same shape.
    """

    def __init__(self, start: int, expected: torch.Tensor, actual: torch.Tensor) -> None:
        self.start = start
        self.expected = expected
        self.actual = actual
        self.error = (actual - expected).abs_()
        """Absolute; zero where one side is not finite."""
        self.is_unlike: torch.Tensor | None = None
        """Where one side is not finite and the other is not the same; None if all is finite, as it nearly always is."""
        # the sum of what is not finite is not finite either; that of huge numbers need not be, and costs the long way
        if not math.isfinite(float(self.error.sum())) or not math.isfinite(float(expected.sum())):
            is_same = (actual == expected) | (actual.isnan() & expected.isnan())
            is_finite = actual.isfinite() & expected.isfinite()
            self.error = torch.where(is_same | ~is_finite, 0.0, self.error)
            self.is_unlike = ~is_same & ~is_finite

    def relative_error(self, rms: float) -> torch.Tensor:
        """Of each element and the RMS of all; nothing is 0 of nothing."""
        return (self.error / (self.expected.abs() + rms)).nan_to_num_(nan=0.0, posinf=_HUGE).clamp_(max=_HUGE)


def deviation(expected: torch.Tensor, actual: torch.Tensor) -> Deviation:
    """Measure a result of the reference's shape, of any dtype."""
    rms = _rms(expected)
    square_sum = largest = largest_relative = 0.0
    unlike_count = 0
    first_unlike = None
    has_nonzero = False
    for piece in _pieces(expected, actual):
        square_sum += float(piece.error.dot(piece.error))
        largest = max(largest, float(piece.error.max()))
        largest_relative = max(largest_relative, float(piece.relative_error(rms).max()))
        if piece.is_unlike is not None:
            unlike_count += int(piece.is_unlike.sum())
            if first_unlike is None and unlike_count:
                first_unlike = piece.start + int(piece.is_unlike.int().argmax())
        has_nonzero = has_nonzero or bool(piece.actual.any())
    rmse = (square_sum / max(expected.numel(), 1)) ** 0.5
    return Deviation(
        errors=Errors(elementwise=largest_relative, rmse_ratio=min(rmse / max(rms, _TINY), _HUGE)),
        max_abs_error=largest,
        element_count=expected.numel(),
        unlike_count=unlike_count,
        first_unlike=first_unlike,
        is_all_zero=not has_nonzero and rms > 0,
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
        score = piece.relative_error(rms)
        if piece.is_unlike is not None:
            score[piece.is_unlike] = torch.inf
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


def has_same_bytes(before: torch.Tensor, after: torch.Tensor) -> bool:
    """Whether no element differs in its bits, as `different_bytes` would say."""
    return torch.equal(_bytes_of(before), _bytes_of(after))


def different_bytes(before: torch.Tensor, after: torch.Tensor) -> torch.Tensor:
    """Which elements of two tensors of one shape and dtype differ in their bits; not a number equals itself here. Says
    it of every dtype, float8 and bool too, which not every comparison of torch knows.
    """
    differ = _bytes_of(before) != _bytes_of(after)
    return differ.reshape(before.numel(), before.itemsize).any(dim=1).reshape(before.shape)


def _bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().reshape(-1).view(torch.uint8)


def index_of(position: int, shape: torch.Size) -> tuple[int, ...]:
    """The index in a shape of a flat position."""
    index = []
    for length in reversed(shape):
        index.append(position % length)
        position //= length
    return tuple(reversed(index))


def _pieces(expected: torch.Tensor, actual: torch.Tensor) -> Iterator[_Piece]:
    flat_expected, flat_actual = expected.detach().reshape(-1), actual.detach().reshape(-1)
    length = _PIECE_ELEMENTS[expected.device.type]
    for start in range(0, flat_expected.numel(), length):
        here = slice(start, start + length)
        yield _Piece(
            start,
            flat_expected[here].to(torch.float64),
            flat_actual[here].to(device=expected.device, dtype=torch.float64),
        )


def _rms(expected: torch.Tensor) -> float:
    """Of the finite elements."""
    square_sum, count = 0.0, 0
    for piece in torch.split(expected.detach().reshape(-1), _PIECE_ELEMENTS[expected.device.type]):
        values = piece.to(torch.float64)
        of_piece = float(values.dot(values))
        if not math.isfinite(of_piece):
            values = values[values.isfinite()]
            of_piece = float(values.dot(values))
        square_sum += of_piece
        count += values.numel()
    return float((square_sum / count) ** 0.5) if count else 0.0

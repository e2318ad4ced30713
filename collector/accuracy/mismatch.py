"""Describe in words where a result is wrong and what came instead. Pure functions of tensors.

The wrong elements are described by the smallest regular set that holds them all: a box, a triangle or a stretch of the
flattened tensor. Elements that are right by chance do not hide the pattern.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import torch

_FILLED = 0.75
"""Share of a regular set that must be wrong for the set to be named."""
_ALIKE = 0.95
"""Share of the wrong elements that an explanation of their values must hold for."""
_NEAR = 0.02
"""How near a value must lie to one that explains it, relative to it and the RMS."""
_LEAST_TILE = 4
_MOST_PERIOD = 4_096
_MOST_MATRIX_ELEMENTS = 2**26
_FEW = 4
_SAMPLE_ELEMENTS = 2**22


@dataclass(frozen=True)
class _Region:
    """A regular set that holds every wrong element."""

    words: str
    size: int


def describe_where(mask: torch.Tensor) -> str:
    """Say which elements of a tensor are marked.

    Args:
        mask: bool, of the tensor's shape, with at least one element marked.
    """
    count, total = int(mask.sum()), mask.numel()
    if count == total:
        return "every element"
    regions = [*_boxes(mask), *_triangles(mask), *_stretches(mask)]
    best = min(regions, key=lambda region: region.size, default=None)
    if best is not None and count == best.size:
        return best.words
    if best is not None and count >= _FILLED * best.size:
        return f"{min(0.99, count / best.size):.0%} of {best.words}"
    if count >= _FILLED * total:
        return f"all but {total - count} elements"
    return f"scattered over {count / total:.2%} of the elements, without a pattern"


def describe_values(expected: torch.Tensor, actual: torch.Tensor, mask: torch.Tensor) -> str | None:
    """Say what the values at the marked elements have in common; None if it is nothing that is known here.

    Args:
        expected: From the reference.
        actual: Of the same shape.
        mask: The wrong elements, at least one.
    """
    first, _ = _extent(mask.reshape(-1))
    marked = mask.reshape(-1)[first : first + _SAMPLE_ELEMENTS].nonzero().reshape(-1) + first
    got = actual.detach().reshape(-1)[marked]
    wanted = expected.reshape(-1)[marked].to(torch.float64)
    if bool(got.isnan().all()):
        return "NaN: never written, or computed from a value that was never written"
    if actual.dtype in _FILLS and bool((got == _FILLS[actual.dtype]).all()):
        return f"{_FILLS[actual.dtype]}, the value of fresh buffers: never written"
    got = got.to(torch.float64)
    if _is_mostly(got.isinf()):
        return "infinite: an overflow, or a division by zero"
    if _is_mostly(got == 0):
        return "zero"
    if got.numel() > 1 and _is_mostly(got == got[0]):
        return f"always {float(got[0]):.4g}"
    finite = got.isfinite() & wanted.isfinite()
    return (
        _describe_factor(got[finite], wanted[finite])
        or _describe_move(expected, actual, mask)
        or _describe_nearness(got[finite], wanted[finite])
    )


_FILLS = {dtype: torch.iinfo(dtype).max for dtype in (torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64)}


def _boxes(mask: torch.Tensor, axes: Sequence[tuple[str, str]] | None = None) -> Iterator[_Region]:
    """All combinations of the indices, dim by dim, at which anything is marked.

    Args:
        mask: What is marked.
        axes: Singular and plural name of an index of each dim.
    """
    axes = axes or _axes(mask.ndim)
    size = 1
    words = []
    for dim in range(mask.ndim):
        hit = mask.movedim(dim, 0).reshape(mask.shape[dim], -1).any(dim=1).cpu()
        size *= int(hit.sum())
        if not bool(hit.all()):
            words.append(_describe_indices(hit, *axes[dim]))
    if words:
        yield _Region(", ".join(words), size)


def _axes(dim_count: int) -> Sequence[tuple[str, str]]:
    if dim_count == 1:
        return [("element", "elements")]
    if dim_count == 2:
        return [("row", "rows"), ("column", "columns")]
    return [(f"dim {dim} index", f"dim {dim} indices") for dim in range(dim_count)]


def _triangles(mask: torch.Tensor) -> Iterator[_Region]:
    """What lies on one side of a diagonal of the last two dims, or between two: what an attention mask cuts off."""
    if mask.ndim < 2 or min(mask.shape[-2:]) < 2 or mask.shape[-1] * mask.shape[-2] > _MOST_MATRIX_ELEMENTS:
        return
    n_rows, n_cols = mask.shape[-2:]
    rows, cols = (torch.arange(length, device=mask.device) for length in (n_rows, n_cols))
    offsets = cols[None, :] - rows[:, None]
    marked = offsets[mask.reshape(-1, n_rows, n_cols).any(dim=0)]
    low, high = int(marked.min()), int(marked.max())
    distance = "column - row"
    if low == high:
        words = f"the diagonal where {distance} == {low}"
    elif low == 1 - n_rows and high == n_cols - 1:
        return
    elif high == n_cols - 1:
        words = f"the triangle where {distance} >= {low} (a causal mask?)"
    elif low == 1 - n_rows:
        words = f"the triangle where {distance} <= {high} (a causal mask?)"
    else:
        words = f"the band where {low} <= {distance} <= {high} (a sliding window?)"
    matrices = mask.flatten(-2).any(dim=-1)
    among = next(_boxes(matrices, _axes(mask.ndim)), _Region("", matrices.numel()))
    size = among.size * int(((offsets >= low) & (offsets <= high)).sum())
    yield _Region(f"{words}, at {among.words}" if among.words else words, size)


def _stretches(mask: torch.Tensor) -> Iterator[_Region]:
    """Consecutive elements in row-major order, as a kernel has them that works on the flattened tensor."""
    first, end = _extent(mask.reshape(-1))
    if mask.ndim > 1 and end - first < mask.numel():
        stretch = _describe_stretch(first, end, mask.numel(), "element", "elements")
        yield _Region(f"the flattened tensor, {stretch}", end - first)


def _describe_indices(hit: torch.Tensor, one: str, many: str) -> str:
    """Say which indices of a dim are marked; some are, and some are not."""
    length, count = hit.numel(), int(hit.sum())
    first, end = _extent(hit)
    if end - first == count:
        return _describe_stretch(first, end, length, one, many)
    period = _period(hit)
    if period is not None:
        return f"{many} i with {_describe_period(hit[:period])}"
    if count <= _FEW:
        return f"{many} {', '.join(map(str, hit.nonzero().reshape(-1).tolist()))}"
    return f"{count} of {length} {many}, from {first} to {end - 1}"


def _describe_stretch(start: int, end: int, length: int, one: str, many: str) -> str:
    """Say what is special about the indices from `start` up to `end`."""
    size = end - start
    if size == 1:
        return f"{one} {start}"
    words = f"from {one} {start} to the end" if end == length else f"{many} {start} to {end - 1}"
    meanings = [f"one tile of {size}"] if _is_tile(size) and start % size == 0 else []
    if end == length:
        tails = (tile for tile in _tiles_up_to(start & -start) if start == length - length % tile)
        meanings += [f"after the last whole tile of {tile}: is a mask missing?" for tile in islice(tails, 1)]
    return f"{words} ({' or '.join(meanings)})" if meanings else words


def _describe_period(marked: torch.Tensor) -> str:
    """Say which indices are marked in each period."""
    period = marked.numel()
    first, end = _extent(marked)
    if end - first == 1:
        return f"i % {period} == {first}"
    if end - first == int(marked.sum()):
        return f"{first} <= i % {period} < {end}"
    return f"{int(marked.sum())} in every {period}"


def _describe_factor(got: torch.Tensor, wanted: torch.Tensor) -> str | None:
    """Whether all are the expected times one number."""
    square_sum = float(wanted.square().sum())
    if got.numel() < 2 or not square_sum:
        return None
    factor = float((got * wanted).sum()) / square_sum
    if abs(factor) < _NEAR or abs(factor - 1) < _NEAR or not _is_near(got, factor * wanted, _NEAR):
        return None
    return (
        "the expected value with the opposite sign"
        if abs(factor + 1) < _NEAR
        else f"{factor:.4g} times the expected value"
    )


def _describe_move(expected: torch.Tensor, actual: torch.Tensor, mask: torch.Tensor) -> str | None:
    """Whether right values lie in wrong places."""
    if expected.numel() > _SAMPLE_ELEMENTS or int(mask.sum()) < 2:
        return None
    got = actual.detach()[mask].to(torch.float64)
    for dim, length in enumerate(mask.shape):
        for step, side in ((1, "after"), (-1, "before")):
            if length > 2 and _is_near(got, expected.roll(-step, dim)[mask].to(torch.float64), _NEAR):
                return f"the values that belong one index {side} along dim {dim}"
    is_square = mask.ndim >= 2 and mask.shape[-1] == mask.shape[-2] > 1
    if is_square and _is_near(got, expected.mT[mask].to(torch.float64), _NEAR):
        return "the values that belong at the transposed index"
    return None


def _describe_nearness(got: torch.Tensor, wanted: torch.Tensor) -> str | None:
    if got.numel() and _is_near(got, wanted, 0.1):
        return "close to the expected values: precision too low, not misplaced"
    return None


def _extent(hit: torch.Tensor) -> tuple[int, int]:
    """The first marked index of a dim, and the one after the last."""
    flags = hit.view(torch.uint8)
    return int(flags.argmax()), hit.numel() - int(flags.flip(0).argmax())


def _period(hit: torch.Tensor) -> int | None:
    """The shortest length after which the marks repeat, at least once; None if they do not."""
    for period in range(2, min(hit.numel() // 2, _MOST_PERIOD) + 1):
        if bool((hit[period:] == hit[:-period]).all()):
            return period
    return None


def _tiles_up_to(largest: int) -> Iterator[int]:
    """Powers of two, downwards from one."""
    while largest >= _LEAST_TILE:
        yield largest
        largest //= 2


def _is_tile(size: int) -> bool:
    return size >= _LEAST_TILE and size & (size - 1) == 0


def _is_near(got: torch.Tensor, wanted: torch.Tensor, share: float) -> bool:
    return _is_mostly((got - wanted).abs() <= share * (wanted.abs() + wanted.square().mean().sqrt()))


def _is_mostly(holds: torch.Tensor) -> bool:
    return holds.numel() > 0 and bool(holds.to(torch.float64).mean() >= _ALIKE)

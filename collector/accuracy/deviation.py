"""Measure how far one tensor is from another, in float64, and describe where it is wrong and how.

The wrong elements are described by the smallest regular region that contains them: a box, a
triangle or a range of the flattened tensor. A few correct elements do not hide the pattern.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from operator import itemgetter

import torch

from roofwatch.model.check_report import Errors

_TINY = 1e-30
_HUGE = 1e30
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
    rms = max(root_mean_square(expected), least_rms)
    rmse = float(error.square().mean().sqrt()) if error.numel() else 0.0
    nonfinite_count = int(is_nonfinite.sum())
    return Deviation(
        errors=Errors(
            elementwise=_largest(_relative_error(error, expected, rms)),
            rmse_ratio=min(rmse / max(rms, _TINY), _HUGE),
        ),
        max_abs_error=_largest(error),
        nonfinite_count=nonfinite_count,
        first_nonfinite=int(is_nonfinite.int().argmax()) if nonfinite_count else None,
        is_all_zero=root_mean_square(expected) > _ZERO * rms
        and not bool(actual.to(torch.float64).any()),
    )


def wrong_elements(
    expected: torch.Tensor,
    actual: torch.Tensor,
    limit: float,
    *,
    worst_count: int = 5,
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
    worst = wrong[score[wrong].argsort(descending=True, stable=True)[:worst_count]]
    return mask.reshape(expected.shape), tuple(worst.tolist())


def has_same_bits(before: torch.Tensor, after: torch.Tensor) -> bool:
    """Whether all elements have equal bits, for any dtype; NaN equals itself."""
    return torch.equal(_bytes(before), _bytes(after))


def count_different_bits(before: torch.Tensor, after: torch.Tensor) -> int:
    differ = _bytes(before) != _bytes(after)
    return int(differ.reshape(before.numel(), before.itemsize).any(dim=1).sum())


def index_of(position: int, shape: torch.Size) -> tuple[int, ...]:
    """Convert a flat position to an index."""
    return tuple(
        int(coordinate) for coordinate in torch.unravel_index(torch.tensor(position), shape)
    )


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().reshape(-1).view(torch.uint8)


def _absolute_error(
    expected: torch.Tensor, actual: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Absolute errors, zero where one side is not finite; and where one side is not finite and the
    other differs.

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
    return (
        (error / (_wide(expected).abs() + rms)).nan_to_num_(nan=0.0, posinf=_HUGE).clamp_(max=_HUGE)
    )


def root_mean_square(expected: torch.Tensor) -> float:
    """RMS of the finite elements."""
    values = _wide(expected)
    values = values[values.isfinite()]
    return float(values.square().mean().sqrt()) if values.numel() else 0.0


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().reshape(-1).to(torch.float64)


def _largest(values: torch.Tensor) -> float:
    return float(values.max()) if values.numel() else 0.0


_FILLED = 0.75
"""Fraction of a region that must be wrong for it to be named."""
_MOST = 0.95
"""Fraction of the wrong elements that an explanation must cover."""
_NEAR = 0.02
"""Tolerance of an explanation, relative to the value and the RMS."""
_MIN_TILE = 4
_MAX_PERIOD = 4_096
_MAX_MATRIX_ELEMENTS = 2**26
_MAX_LISTED = 4
_MAX_SAMPLE_ELEMENTS = 2**22

_UNWRITTEN = {
    dtype: torch.iinfo(dtype).max
    for dtype in (torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64)
}
"""Fill value of integer buffers."""


def describe_where(mask: torch.Tensor) -> str:
    """Describe which elements of a tensor are marked,
    by a mask with at least one marked element.
    """
    count, total = int(mask.sum()), mask.numel()
    if count == total:
        return "every element"
    regions = [*_boxes(mask), *_triangles(mask), *_ranges(mask)]
    size, region = min(regions, key=itemgetter(0), default=(total, ""))
    if region and count == size:
        return region
    if region and count >= _FILLED * size:
        return f"{min(0.99, count / size):.0%} of {region}"
    if count >= _FILLED * total:
        return f"all but {total - count} elements"
    return f"scattered over {count / total:.2%} of the elements, without a pattern"


def describe_values(expected: torch.Tensor, actual: torch.Tensor, mask: torch.Tensor) -> str | None:
    """Describe what the wrong elements, at least one, have in common;
    None without a known pattern.
    """
    first, _ = _extent(mask.reshape(-1))
    marked = mask.reshape(-1)[first : first + _MAX_SAMPLE_ELEMENTS].nonzero().reshape(-1) + first
    actual_values = actual.detach().reshape(-1)[marked]
    expected_values = expected.reshape(-1)[marked].to(torch.float64)
    if bool(actual_values.isnan().all()):
        return "NaN: never written, or computed from a value that was never written"
    if actual.dtype in _UNWRITTEN and bool((actual_values == _UNWRITTEN[actual.dtype]).all()):
        return f"{_UNWRITTEN[actual.dtype]}, the fill value of new buffers: never written"
    actual_values = actual_values.to(torch.float64)
    if _is_mostly(actual_values.isinf()):
        return "infinite: an overflow, or a division by zero"
    if _is_mostly(actual_values == 0):
        return "zero"
    if actual_values.numel() > 1 and _is_mostly(actual_values == actual_values[0]):
        return f"always {float(actual_values[0]):.4g}"
    finite = actual_values.isfinite() & expected_values.isfinite()
    actual_values, expected_values = actual_values[finite], expected_values[finite]
    explained = _factor(actual_values, expected_values) or _displacement(expected, actual, mask)
    if (
        explained is None
        and actual_values.numel()
        and _is_near(actual_values, expected_values, 0.1)
    ):
        return "close to the expected values: precision too low, not misplaced"
    return explained


def _boxes(mask: torch.Tensor) -> Iterator[tuple[int, str]]:
    """The smallest set of rows, columns or other indices that contains all marked elements."""
    size = 1
    words = []
    for dim in range(mask.ndim):
        hit = mask.movedim(dim, 0).reshape(mask.shape[dim], -1).any(dim=1).cpu()
        size *= int(hit.sum())
        if not bool(hit.all()):
            words.append(_describe_indices(hit, *_dim_names(dim, mask.ndim)))
    if words:
        yield size, ", ".join(words)


def _dim_names(dim: int, dim_count: int) -> tuple[str, str]:
    if dim_count == 1:
        return "element", "elements"
    if dim_count == 2:
        return [("row", "rows"), ("column", "columns")][dim]
    return f"dim {dim} index", f"dim {dim} indices"


def _triangles(mask: torch.Tensor) -> Iterator[tuple[int, str]]:
    """A triangle or band of the last two dims, as an attention mask cuts off."""
    if (
        mask.ndim < 2
        or min(mask.shape[-2:]) < 2
        or mask.shape[-1] * mask.shape[-2] > _MAX_MATRIX_ELEMENTS
    ):
        return
    n_rows, n_cols = mask.shape[-2:]
    rows, cols = (torch.arange(length, device=mask.device) for length in (n_rows, n_cols))
    offsets = cols[None, :] - rows[:, None]
    marked = offsets[mask.reshape(-1, n_rows, n_cols).any(dim=0)]
    low, high = int(marked.min()), int(marked.max())
    if low == 1 - n_rows and high == n_cols - 1:
        return
    if low == high:
        words = f"the diagonal where column - row == {low}"
    elif high == n_cols - 1:
        words = f"the triangle where column - row >= {low} (a causal mask?)"
    elif low == 1 - n_rows:
        words = f"the triangle where column - row <= {high} (a causal mask?)"
    else:
        words = f"the band where {low} <= column - row <= {high} (a sliding window?)"
    matrix_count = int(mask.flatten(-2).any(dim=-1).sum())
    if matrix_count < mask.numel() // (n_rows * n_cols):
        words += f", in {matrix_count} of {mask.numel() // (n_rows * n_cols)} matrices"
    yield matrix_count * int(((offsets >= low) & (offsets <= high)).sum()), words


def _ranges(mask: torch.Tensor) -> Iterator[tuple[int, str]]:
    """Consecutive elements in row-major order."""
    first, end = _extent(mask.reshape(-1))
    if mask.ndim > 1 and end - first < mask.numel():
        yield (
            end - first,
            f"the flattened tensor, "
            f"{_describe_range(first, end, mask.numel(), 'element', 'elements')}",
        )


def _describe_indices(hit: torch.Tensor, singular: str, plural: str) -> str:
    """Describe the marked indices of a dim; some are marked, some are not."""
    length, count = hit.numel(), int(hit.sum())
    first, end = _extent(hit)
    if end - first == count:
        return _describe_range(first, end, length, singular, plural)
    for period in range(2, min(length // 2, _MAX_PERIOD) + 1):
        if bool((hit[period:] == hit[:-period]).all()):
            return f"{plural} i with {_describe_period(hit[:period])}"
    if count <= _MAX_LISTED:
        return f"{plural} {', '.join(map(str, hit.nonzero().reshape(-1).tolist()))}"
    return f"{count} of {length} {plural}, from {first} to {end - 1}"


def _describe_range(start: int, end: int, length: int, singular: str, plural: str) -> str:
    """Describe the indices from `start` up to `end`, and whether they are a tile or the tail after
    whole tiles.
    """
    size = end - start
    if size == 1:
        return f"{singular} {start}"
    words = f"{plural} {start} to {end - 1}"
    if end == length:
        words = f"from {singular} {start} to the end"
    meanings: list[str] = []
    is_power_of_two = size & (size - 1) == 0
    if size >= _MIN_TILE and is_power_of_two and start % size == 0:
        meanings.append(f"one tile of {size}")
    tile = start & -start  # the largest power of two that divides the start
    while end == length and tile >= _MIN_TILE:
        if start == length - length % tile:
            meanings.append(f"after the last whole tile of {tile}: is a mask missing?")
            break
        tile //= 2
    if not meanings:
        return words
    return f"{words} ({' or '.join(meanings)})"


def _describe_period(marked: torch.Tensor) -> str:
    """Describe which indices of each period are marked."""
    period = marked.numel()
    first, end = _extent(marked)
    if end - first == 1:
        return f"i % {period} == {first}"
    if end - first == int(marked.sum()):
        return f"{first} <= i % {period} < {end}"
    return f"{int(marked.sum())} in every {period}"


def _factor(actual_values: torch.Tensor, expected_values: torch.Tensor) -> str | None:
    """Whether all values are the expected ones times a constant."""
    square_sum = float(expected_values.square().sum())
    if actual_values.numel() < 2 or not square_sum:
        return None
    factor = float((actual_values * expected_values).sum()) / square_sum
    if abs(factor) < _NEAR or abs(factor - 1) < _NEAR:
        return None
    if not _is_near(actual_values, factor * expected_values, _NEAR):
        return None
    if abs(factor + 1) < _NEAR:
        return "the expected value with the opposite sign"
    return f"{factor:.4g} times the expected value"


def _displacement(expected: torch.Tensor, actual: torch.Tensor, mask: torch.Tensor) -> str | None:
    """Whether correct values are in wrong places."""
    if expected.numel() > _MAX_SAMPLE_ELEMENTS or int(mask.sum()) < 2:
        return None
    actual_values = actual.detach()[mask].to(torch.float64)
    for dim, length in enumerate(mask.shape):
        for step, side in ((1, "after"), (-1, "before")):
            if length > 2 and _is_near(
                actual_values, expected.roll(-step, dim)[mask].to(torch.float64), _NEAR
            ):
                return f"the values that belong one index {side} along dim {dim}"
    is_square = mask.ndim >= 2 and mask.shape[-1] == mask.shape[-2] > 1
    if is_square and _is_near(actual_values, expected.mT[mask].to(torch.float64), _NEAR):
        return "the values that belong at the transposed index"
    return None


def _extent(hit: torch.Tensor) -> tuple[int, int]:
    """The first marked index, and the one after the last."""
    flags = hit.view(torch.uint8)
    return int(flags.argmax()), hit.numel() - int(flags.flip(0).argmax())


def _is_near(actual_values: torch.Tensor, expected_values: torch.Tensor, tolerance: float) -> bool:
    scale = expected_values.abs() + expected_values.square().mean().sqrt()
    return _is_mostly((actual_values - expected_values).abs() <= tolerance * scale)


def _is_mostly(holds: torch.Tensor) -> bool:
    return holds.numel() > 0 and bool(holds.to(torch.float64).mean() >= _MOST)

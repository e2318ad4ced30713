"""Describe which elements of a result are wrong, and what their values have in common."""

from collections.abc import Iterator
from operator import itemgetter

import torch

_FILLED = 0.75
"""Fraction of a region that must be wrong for it to be named."""
_MOST = 0.95
"""Fraction of the wrong elements that an explanation must cover."""
_NEAR = 0.02
"""Tolerance of an explanation, relative to the value and the RMS."""
_ROUNDED = 0.1
"""The same for values that are right but for their rounding."""
_MIN_TILE = 4
"""Shorter aligned runs of indices are likely chance."""
_FEWEST_COLUMNS = 4
_MAX_PERIOD = 4_096
_MAX_MATRIX_ELEMENTS = 2**26
_MAX_LISTED = 4
_MAX_SAMPLE_ELEMENTS = 2**22
"""How much is looked at to find a pattern in wrong values: enough for one, and quick."""
_UNWRITTEN = {
    dtype: torch.iinfo(dtype).max
    for dtype in (torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64)
}
"""Fill value of integer buffers."""


def describe_where(mask: torch.Tensor) -> str:
    """Describe which elements of a tensor are marked,
    by a mask with at least one marked element.
    """
    count = int(mask.sum())
    total = mask.numel()
    # no region says more
    if count == total:
        return "every element"
    # Each names a region that contains all marked elements; the smallest says most.
    regions = [*_boxes(mask), *_triangles(mask), *_ranges(mask)]
    size, region = min(regions, key=itemgetter(0), default=(total, ""))
    share_of_region = count / size
    if region and count == size:
        return region
    if region and share_of_region >= _FILLED:
        # Not 100 %, which would claim that the region is wrong everywhere.
        shown_share = min(0.99, share_of_region)
        return f"{shown_share:.0%} of {region}"
    share_of_all = count / total
    if share_of_all >= _FILLED:
        return f"all but {total - count} elements"
    return f"scattered over {share_of_all:.2%} of the elements, without a pattern"


def describe_values(expected: torch.Tensor, actual: torch.Tensor, mask: torch.Tensor) -> str | None:
    """Describe what the wrong elements, at least one, have in common;
    None without a known pattern.
    """
    marked = _sampled_indices(mask)
    actual_values = actual.detach().reshape(-1)[marked]
    expected_values = expected.reshape(-1)[marked].to(torch.float64)
    # Outputs are filled with NaN, or with the largest integer, before the launch.
    if bool(actual_values.isnan().all()):
        return "NaN: never written, or computed from a value that was never written"
    fill_value = _UNWRITTEN.get(actual.dtype)
    if fill_value is not None:
        is_filled = actual_values == fill_value
        if bool(is_filled.all()):
            return f"{fill_value}, the fill value of new buffers: never written"
    actual_values = actual_values.to(torch.float64)
    if _is_mostly(actual_values.isinf()):
        return "infinite: an overflow, or a division by zero"
    if _is_mostly(actual_values == 0):
        return "zero"
    if actual_values.numel() > 1 and _is_mostly(actual_values == actual_values[0]):
        return f"always {float(actual_values[0]):.4g}"
    # a factor or a shift cannot be seen in infinities and NaN
    finite = actual_values.isfinite() & expected_values.isfinite()
    actual_values = actual_values[finite]
    expected_values = expected_values[finite]
    explanation = (
        _factor(actual_values, expected_values)
        or _displacement(expected, actual, mask)
        or _row_factors(expected, actual, mask)
    )
    if explanation is not None:
        return explanation
    # The computation is right, its rounding is not.
    if actual_values.numel() and _is_near(actual_values, expected_values, _ROUNDED):
        return "close to the expected values: precision too low, not misplaced"
    return None


def _sampled_indices(mask: torch.Tensor) -> torch.Tensor:
    """Flat indices of marked elements, from the first one on, int64 [marked]."""
    flat_mask = mask.reshape(-1)
    first, _ = _extent(flat_mask)
    sampled_mask = flat_mask[first : first + _MAX_SAMPLE_ELEMENTS]
    return sampled_mask.nonzero().reshape(-1) + first


def _boxes(mask: torch.Tensor) -> Iterator[tuple[int, str]]:
    """The smallest set of rows, columns or other indices that contains all marked elements.

    Like `_triangles` and `_ranges`, yields the number of elements of a region, and its description.
    """
    size = 1
    words: list[str] = []
    for dim in range(mask.ndim):
        slices = mask.movedim(dim, 0).reshape(mask.shape[dim], -1)
        hit = slices.any(dim=1).cpu()
        size *= int(hit.sum())
        # a dim says nothing if every index is hit
        if not bool(hit.all()):
            singular, plural = _dim_names(dim, mask.ndim)
            words.append(_describe_indices(hit, singular, plural))
    if words:
        yield size, ", ".join(words)


def _dim_names(dim: int, dim_count: int) -> tuple[str, str]:
    """Singular and plural of what an index of a dim selects."""
    if dim_count == 1:
        return "element", "elements"
    if dim_count == 2:
        if dim == 0:
            return "row", "rows"
        return "column", "columns"
    return f"dim {dim} index", f"dim {dim} indices"


def _triangles(mask: torch.Tensor) -> Iterator[tuple[int, str]]:
    """A triangle or band of the last two dims, as an attention mask cuts off."""
    if mask.ndim < 2 or min(mask.shape[-2:]) < 2:
        return
    n_rows, n_cols = mask.shape[-2:]
    # The offsets of a matrix take 8 bytes an element.
    if n_rows * n_cols > _MAX_MATRIX_ELEMENTS:
        return
    rows = torch.arange(n_rows, device=mask.device)
    cols = torch.arange(n_cols, device=mask.device)
    offsets = cols[None, :] - rows[:, None]
    is_hit_in_any_matrix = mask.reshape(-1, n_rows, n_cols).any(dim=0)
    marked = offsets[is_hit_in_any_matrix]
    low = int(marked.min())
    high = int(marked.max())
    words = _describe_band(
        low=low,
        high=high,
        n_rows=n_rows,
        n_cols=n_cols,
    )
    if words is None:
        return
    matrix_count = mask.numel() // (n_rows * n_cols)
    hit_matrix_count = int(mask.flatten(-2).any(dim=-1).sum())
    # a batch in which only some heads are wrong, for example
    if hit_matrix_count < matrix_count:
        words += f", in {hit_matrix_count} of {matrix_count} matrices"
    is_in_band = (offsets >= low) & (offsets <= high)
    band_size = int(is_in_band.sum())
    yield hit_matrix_count * band_size, words


def _describe_band(
    low: int,
    high: int,
    n_rows: int,
    n_cols: int,
) -> str | None:
    """Describe where `column - row` lies between two numbers; None if that is everywhere."""
    reaches_lower_left = low == 1 - n_rows
    reaches_upper_right = high == n_cols - 1
    if reaches_lower_left and reaches_upper_right:
        return None
    if low == high:
        return f"the diagonal where column - row == {low}"
    if reaches_upper_right:
        return f"the triangle where column - row >= {low} (a causal mask?)"
    if reaches_lower_left:
        return f"the triangle where column - row <= {high} (a causal mask?)"
    return f"the band where {low} <= column - row <= {high} (a sliding window?)"


def _ranges(mask: torch.Tensor) -> Iterator[tuple[int, str]]:
    """Consecutive elements in row-major order."""
    first, end = _extent(mask.reshape(-1))
    size = end - first
    # Of a vector, the box says the same.
    if mask.ndim > 1 and size < mask.numel():
        elements = _describe_range(
            start=first,
            end=end,
            length=mask.numel(),
            singular="element",
            plural="elements",
        )
        yield size, f"the flattened tensor, {elements}"


def _describe_indices(hit: torch.Tensor, singular: str, plural: str) -> str:
    """Describe the marked indices of a dim; some are marked, some are not."""
    length = hit.numel()
    count = int(hit.sum())
    first, end = _extent(hit)
    if end - first == count:
        return _describe_range(
            start=first,
            end=end,
            length=length,
            singular=singular,
            plural=plural,
        )
    # Threads or tiles that fail in the same way repeat: the smallest period explains most.
    longest_period = min(length // 2, _MAX_PERIOD)
    for period in range(2, longest_period + 1):
        repeats = hit[period:] == hit[:-period]
        if bool(repeats.all()):
            return f"{plural} i with {_describe_period(hit[:period])}"
    if count <= _MAX_LISTED:
        indices = hit.nonzero().reshape(-1).tolist()
        listed = ", ".join(map(str, indices))
        return f"{plural} {listed}"
    return f"{count} of {length} {plural}, from {first} to {end - 1}"


def _describe_range(
    start: int,
    end: int,
    length: int,
    singular: str,
    plural: str,
) -> str:
    """Describe the indices from `start` up to `end`, and whether they are a tile or the tail after
    whole tiles.
    """
    size = end - start
    if size == 1:
        return f"{singular} {start}"
    words = f"{plural} {start} to {end - 1}"
    # where a mask of the tail would matter
    if end == length:
        words = f"from {singular} {start} to the end"
    meanings: list[str] = []
    # tiles have sizes that are powers of two
    is_power_of_two = size & (size - 1) == 0
    if size >= _MIN_TILE and is_power_of_two and start % size == 0:
        meanings.append(f"one tile of {size}")
    tile = _tile_before_tail(start, end, length)
    if tile is not None:
        meanings.append(f"after the last whole tile of {tile}: is a mask missing?")
    if not meanings:
        return words
    return f"{words} ({' or '.join(meanings)})"


def _tile_before_tail(start: int, end: int, length: int) -> int | None:
    """The largest tile after whose last whole one a range begins and goes on to the end."""
    if end != length:
        return None
    tile = start & -start  # the largest power of two that divides the start
    while tile >= _MIN_TILE:
        if start == length - length % tile:
            return tile
        tile //= 2
    return None


def _describe_period(marked: torch.Tensor) -> str:
    """Describe which indices of each period are marked."""
    period = marked.numel()
    first, end = _extent(marked)
    count = int(marked.sum())
    # for example one column of each tile
    if end - first == 1:
        return f"i % {period} == {first}"
    if end - first == count:
        return f"{first} <= i % {period} < {end}"
    return f"{count} in every {period}"


def _factor(actual_values: torch.Tensor, expected_values: torch.Tensor) -> str | None:
    """Whether all values are the expected ones times a constant."""
    square_sum = float(expected_values.square().sum())
    if actual_values.numel() < 2 or not square_sum:
        return None
    # The factor of the least squares.
    products = actual_values * expected_values
    product_sum = float(products.sum())
    factor = product_sum / square_sum
    # Near 1 it explains nothing, near 0 the values are just small.
    if abs(factor) < _NEAR or abs(factor - 1) < _NEAR:
        return None
    if not _is_near(actual_values, factor * expected_values, _NEAR):
        return None
    if abs(factor + 1) < _NEAR:
        return "the expected value with the opposite sign"
    return f"{factor:.4g} times the expected value"


def _row_factors(expected: torch.Tensor, actual: torch.Tensor, mask: torch.Tensor) -> str | None:
    """Whether each row is the expected one times a factor of its own."""
    # two values always have one factor
    if actual.ndim < 2:
        return None
    n_cols = actual.shape[-1]
    if n_cols < _FEWEST_COLUMNS or not bool(mask.all()):
        return None
    # whole rows, as many as a sample holds
    row_count = max(1, _MAX_SAMPLE_ELEMENTS // n_cols)
    actual_rows = actual.detach().reshape(-1, n_cols)[:row_count].to(torch.float64)
    expected_rows = expected.reshape(-1, n_cols)[:row_count].to(torch.float64)
    # the smallest values are mostly rounding
    magnitudes = expected_rows.abs()
    is_large = magnitudes > _NEAR * magnitudes.amax(dim=-1, keepdim=True)
    ratios = torch.where(is_large, actual_rows / expected_rows, torch.nan)  # [rows, n_cols]
    factors = ratios.nanmedian(dim=-1, keepdim=True).values  # [rows, 1]
    spreads = (ratios - factors).abs().nan_to_num()
    # rounding moves values by less than the factor does
    error_of_factors = (factors - 1).abs()
    is_even = spreads < 0.1 * error_of_factors
    if not bool(is_even.all()):
        return None
    smallest = float(factors.min())
    largest = float(factors.max())
    return (
        f"{smallest:.4g} to {largest:.4g} times the expected values, with one factor in each row: "
        "a sum or maximum of the row is wrong"
    )


def _displacement(expected: torch.Tensor, actual: torch.Tensor, mask: torch.Tensor) -> str | None:
    """Whether correct values are in wrong places."""
    # each shift is a copy of the whole tensor
    if expected.numel() > _MAX_SAMPLE_ELEMENTS or int(mask.sum()) < 2:
        return None
    actual_values = actual.detach()[mask].to(torch.float64)
    for dim, length in enumerate(mask.shape):
        # Of two indices, one step forward and one back are the same.
        if length <= 2:
            continue
        for step, side in ((1, "after"), (-1, "before")):
            neighbours = expected.roll(-step, dim)[mask].to(torch.float64)
            if _is_near(actual_values, neighbours, _NEAR):
                return f"the values that belong one index {side} along dim {dim}"
    if mask.ndim < 2:
        return None
    n_rows, n_cols = mask.shape[-2:]
    if n_rows != n_cols or n_cols < 2:
        return None
    transposed_values = expected.mT[mask].to(torch.float64)
    if _is_near(actual_values, transposed_values, _NEAR):
        return "the values that belong at the transposed index"
    return None


def _extent(hit: torch.Tensor) -> tuple[int, int]:
    """The first marked index, and the one after the last."""
    flags = hit.view(torch.uint8)
    first = int(flags.argmax())
    last_from_end = int(flags.flip(0).argmax())
    return first, hit.numel() - last_from_end


def _is_near(actual_values: torch.Tensor, expected_values: torch.Tensor, tolerance: float) -> bool:
    """Whether nearly all values are within a tolerance of the expected ones."""
    # the RMS too, so that a value near zero may be off by rounding of its neighbours
    rms = expected_values.square().mean().sqrt()
    scale = expected_values.abs() + rms
    error = (actual_values - expected_values).abs()
    return _is_mostly(error <= tolerance * scale)


def _is_mostly(holds: torch.Tensor) -> bool:
    # An empty sample shows nothing.
    if holds.numel() == 0:
        return False
    return bool(holds.to(torch.float64).mean() >= _MOST)

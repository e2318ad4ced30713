"""Bytes that an access moves, if the memory is moved in sectors."""

from collections.abc import Sequence

Strides = tuple[int | None, ...]
"""Distance between neighbours along each axis, in elements; None if it is not known."""
SMALLEST_SECTOR = 32
"""Bytes, of all targets."""


def sector_bytes(
    lengths: Sequence[int],
    strides: Strides,
    *,
    element_bytes: float,
    sector_size: int,
) -> tuple[float, float]:
    """Bound the bytes of all sectors that the elements of a tile lie in.

    Where a stride is not known, elements are neighbours for the lower bound, and far apart for the
    upper one. Both are the same if all strides are known.
    """
    distances: list[tuple[float, int]] = []
    unknown_length = 1
    for length, stride in zip(lengths, strides, strict=True):
        # elements of equal addresses are moved once
        if length == 1 or stride == 0:
            continue
        if stride is None:
            unknown_length *= length
        else:
            distances.append((abs(stride) * element_bytes, length))
    # from the nearest neighbours: a run grows until the next element is in another sector
    run_bytes = element_bytes
    run_count = 1
    for distance, length in sorted(distances):
        if distance <= run_bytes or distance < sector_size:
            run_bytes += distance * (length - 1)
        else:
            run_count *= length
    least = run_count * max(run_bytes * unknown_length, sector_size)
    most = run_count * unknown_length * max(run_bytes, sector_size)
    return least, most

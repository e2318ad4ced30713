"""How surely the time of a commit is known, by what its runs say. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable

QUARTILES_TO_ERROR = 1.2533 / 1.349
"""Standard error of a median, in distances between the quartiles, of one value: 1.2533 σ, and the quartiles of a normal
distribution lie 1.349 σ apart."""


def relative_error(runs: Iterable[tuple[float | None, int | None]]) -> float:
    """Standard error of the time of a commit as a fraction of it; NaN where one of its runs does not say.

    Samples of a block agree with each other more than with the next block's, so the blocks are counted, not the
    samples. Runs of one commit add up.

    Args:
        runs: Of each the distance between its quartiles over its median, and its number of blocks.
    """
    squares = []
    for spread, block_count in runs:
        if spread is None or not block_count:
            return math.nan
        squares.append((QUARTILES_TO_ERROR * spread) ** 2 / block_count)
    return math.sqrt(sum(squares)) / len(squares)

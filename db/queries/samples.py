"""Stored samples by block."""

from collections.abc import Sequence
from itertools import accumulate, pairwise


def split_blocks(
    samples_ns: Sequence[float], block_lengths: Sequence[int]
) -> tuple[tuple[float, ...], ...]:
    """Split the samples of a measurement into its blocks."""
    bounds = pairwise(accumulate(block_lengths, initial=0))
    return tuple(tuple(samples_ns[begin:end]) for begin, end in bounds)

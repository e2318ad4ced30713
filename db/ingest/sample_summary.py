"""Median and quartiles of the samples of many measurements at once, equal to the bit to those that each would give."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class SampleSummary:
    """Of each measurement, in ns; shape of each array: [measurements]."""

    medians: NDArray[np.float64]
    first_quartiles: NDArray[np.float64]
    third_quartiles: NDArray[np.float64]


def summarise(samples: NDArray[np.float64], counts: Sequence[int]) -> SampleSummary:
    """Sum up samples that lie one measurement after the other.

    Args:
        samples: In ns, shape [sum(counts)].
        counts: Samples of each measurement, at least one.

    Source: `statistics.median` and `statistics.quantiles(n=4, method="inclusive")`, step by step, as
    `Measurement.median_ns` and `quartiles_ns` ask them.
    """
    sizes = np.array(counts, dtype=np.int64)
    ends = sizes.cumsum()
    begins = ends - sizes
    ordered = samples.copy()
    for begin, end in zip(begins.tolist(), ends.tolist(), strict=True):
        ordered[begin:end].sort()

    def quartile(number: int) -> NDArray[np.float64]:
        steps, rest = np.divmod(number * (sizes - 1), 4)
        below = ordered[begins + steps]
        above = ordered[np.minimum(begins + steps + 1, ends - 1)]
        return np.where(sizes == 1, below, (below * (4 - rest) + above * rest) / 4)

    with np.errstate(over="ignore", invalid="ignore"):
        upper = ordered[begins + sizes // 2]
        lower = ordered[begins + (sizes - 1) // 2]
        return SampleSummary(np.where(sizes % 2, upper, (lower + upper) / 2), quartile(1), quartile(3))

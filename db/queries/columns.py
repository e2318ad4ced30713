"""One series as bare columns of numbers, for judging whole projects."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from roofwatch.db.values import SeriesKey


@dataclass(frozen=True)
class TimeColumns:
    """One series of times by one timer and cache state, in the order of the branch, then of time; shapes are [runs in
    which it worked].
    """

    key: SeriesKey
    places: NDArray[np.int64]
    """Of the runs' commits among all commits of the project that have runs, from 0."""
    medians_ns: NDArray[np.float64]
    relative_spreads: NDArray[np.float64]
    """Distance between the quartiles over the median."""
    block_counts: NDArray[np.int64]
    days: NDArray[np.datetime64]
    """When the runs began, in UTC."""
    has_failures: bool
    """It did not work in all runs."""
    last_commit: tuple[int, str] | None
    """First-parent count and sha of the newest commit it worked at."""
    timing: str = ""
    """Timer and cache state of all its runs, as in `cupti, cold`."""
    beside: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)
    """What was measured beside the times, by metric: NaN where it was not. Only what was asked for and any run has."""


@dataclass(frozen=True)
class ErrorColumns:
    """How far one tensor was from the reference in each run, in the order of the branch, then of time; shapes are
    [runs in which the check passed].
    """

    key: SeriesKey
    places: NDArray[np.int64]
    rmse_ratios: NDArray[np.float64]

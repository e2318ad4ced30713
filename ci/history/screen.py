"""Which series moved at all: most never do, and need no more than this look. Pure.

The look is the very one that `roofwatch.ci.history.time_steps`, `roofwatch.ci.history.secondary_change` and
`roofwatch.ci.history.error_steps` take, at the
same values: what is left aside here would tell nothing there.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from roofwatch.ci.history.error_steps import find_error_steps
from roofwatch.ci.history.relative_error import QUARTILES_TO_ERROR
from roofwatch.ci.history.secondary_change import find_steps_beside
from roofwatch.ci.history.slow_drift import find_slow_drift
from roofwatch.ci.history.time_steps import find_steps
from roofwatch.ci.thresholds import Thresholds
from roofwatch.db.queries.columns import ErrorColumns, TimeColumns


@dataclass(frozen=True)
class ByCommit:
    """One series of times, a value for each commit; shapes are [commits]."""

    columns: TimeColumns
    values: NDArray[np.float64]
    """Median of its runs, in ns."""
    errors: NDArray[np.float64]
    """Standard error of that, as a fraction."""
    first_days: NDArray[np.datetime64]
    """When it was first measured."""

    @classmethod
    def of(cls, columns: TimeColumns) -> ByCommit:
        squares = (QUARTILES_TO_ERROR * columns.relative_spreads) ** 2 / columns.block_counts
        starts = _starts(columns.places)
        medians = _medians(columns.medians_ns, starts)
        if len(starts) == len(columns.places):
            return cls(columns, medians, np.sqrt(squares), columns.days)
        counts = np.diff([*starts, len(columns.places)])
        errors = np.sqrt(np.add.reduceat(squares, starts)) / counts
        return cls(columns, medians, errors, np.minimum.reduceat(columns.days, starts))

    @property
    def dates(self) -> NDArray[np.datetime64]:
        """When commits were first measured, each night once."""
        return np.unique(self.first_days)


def has_moved(times: ByCommit, thresholds: Thresholds) -> bool:
    """Whether the series steps anywhere, or drifts, or what was measured beside it steps."""
    if find_steps(times.values, times.errors, thresholds):
        return True
    if find_slow_drift(times.values, times.first_days, thresholds) is not None:
        return True
    places = times.columns.places
    return any(_has_moved_beside(metric, known, places, thresholds) for metric, known in times.columns.beside.items())


def _has_moved_beside(
    metric: str, values: NDArray[np.float64], places: NDArray[np.int64], thresholds: Thresholds
) -> bool:
    is_known = ~np.isnan(values)
    return bool(find_steps_beside(metric, _medians(values[is_known], _starts(places[is_known])), thresholds))


def has_changed_error(columns: ErrorColumns, thresholds: Thresholds) -> bool:
    """Whether results became more or less accurate anywhere."""
    starts = _starts(columns.places)
    return bool(find_error_steps(_medians(columns.rmse_ratios, starts), thresholds))


def _medians(values: NDArray[np.float64], starts: NDArray[np.intp]) -> NDArray[np.float64]:
    """Of the values from each start to the next."""
    if len(starts) == len(values):
        return values
    return np.array([np.median(own) for own in np.split(values, starts[1:])])


def _starts(places: NDArray[np.int64]) -> NDArray[np.intp]:
    """Where another commit begins."""
    return np.flatnonzero(np.diff(places, prepend=-1))

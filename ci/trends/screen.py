"""Which series moved at all: most never do, and need no more than this look. Pure.

The look is the very one that `ci.trends.time_steps`, `ci.trends.beside_time` and `ci.trends.error_steps` take, at the
same values: what is left aside here would tell nothing there.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ci.thresholds import Thresholds
from ci.trends.beside_time import find_steps_beside
from ci.trends.error_steps import find_error_steps
from ci.trends.relative_error import QUARTILES_TO_ERROR
from ci.trends.slow_drift import find_slow_drift
from ci.trends.time_steps import find_steps
from db.reading.columns import ErrorColumns, TimeColumns


def has_moved(columns: TimeColumns, thresholds: Thresholds) -> bool:
    """Whether the series steps anywhere, or drifts, or what was measured beside it steps."""
    values, errors = by_commit(columns)
    if find_steps(values, errors, thresholds):
        return True
    if find_slow_drift(values, _first_days(columns), thresholds) is not None:
        return True
    return any(_has_moved_beside(metric, known, columns.places, thresholds) for metric, known in columns.beside.items())


def _has_moved_beside(
    metric: str, values: NDArray[np.float64], places: NDArray[np.int64], thresholds: Thresholds
) -> bool:
    is_known = ~np.isnan(values)
    return bool(find_steps_beside(metric, _medians(values[is_known], _starts(places[is_known])), thresholds))


def has_changed_error(columns: ErrorColumns, thresholds: Thresholds) -> bool:
    """Whether results became more or less accurate anywhere."""
    starts = _starts(columns.places)
    return bool(find_error_steps(_medians(columns.rmse_ratios, starts), thresholds))


def nights_of(columns: TimeColumns) -> NDArray[np.datetime64]:
    """When commits were first measured, each night once."""
    return np.unique(_first_days(columns))


def by_commit(columns: TimeColumns) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Median of a commit's runs, and its standard error as a fraction; shapes [commits]."""
    squares = (QUARTILES_TO_ERROR * columns.relative_spreads) ** 2 / columns.block_counts
    starts = _starts(columns.places)
    medians = _medians(columns.medians_ns, starts)
    if len(starts) == len(columns.places):
        return medians, np.sqrt(squares)
    counts = np.diff([*starts, len(columns.places)])
    return medians, np.sqrt(np.add.reduceat(squares, starts)) / counts


def _medians(values: NDArray[np.float64], starts: NDArray[np.intp]) -> NDArray[np.float64]:
    """Of the values from each start to the next."""
    if len(starts) == len(values):
        return values
    return np.array([np.median(own) for own in np.split(values, starts[1:])])


def _first_days(columns: TimeColumns) -> NDArray[np.datetime64]:
    starts = _starts(columns.places)
    return np.minimum.reduceat(columns.days, starts) if len(starts) else columns.days


def _starts(places: NDArray[np.int64]) -> NDArray[np.intp]:
    """Where another commit begins."""
    return np.flatnonzero(np.diff(places, prepend=-1))

"""Suspicions: do the newest values of a series lie off the level before? Pure.

The rule is cheap and may be wrong in one of ten cases, because a paired measurement decides.
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from roofwatch.ci.changepoint.noise import (
    MAD_TO_DEVIATION,
    deviation_of_differences,
    difference_error,
)
from roofwatch.model.agenda import Suspicion

_COUNTS = (1, 2, 3, 5)
"""Newest values that may be the new level."""
_LEVEL_VALUES = 15
"""Values before them whose median is the level."""
_NOISE_VALUES = 60
"""Values before them that show the noise."""
# fewer values have no level
_MIN_BEFORE = 4
_WIDTHS = 3.0
"""Standard errors from which on a distance is suspicious."""
_MEDIAN_ERROR = 1.2533
"""Standard error of a median, in standard deviations over √n."""


def find_suspicion(
    values: Sequence[float],
    *,
    min_relative_change: float,
    level_start: int = 0,
) -> Suspicion | None:
    """Compare the newest 1, 2, 3 and 5 values with the level before; return the clearest distance.

    Args:
        values: Of one series in time order, one a commit, above 0.
        min_relative_change: Smallest change worth a measurement, as a fraction.
        level_start: First value of the current level, from which on nothing was decided. Earlier
            ones show only the noise.

    Returns:
        None if the newest values are at the level, or fewer than 4 values are before them.
    """
    if len(values) <= _MIN_BEFORE:
        return None
    logs = np.log(np.asarray(values, dtype=np.float64))
    smallest = math.log1p(min_relative_change)
    clearest: Suspicion | None = None
    for count in _COUNTS:
        earlier = logs[:-count]
        level_values = earlier[level_start:][-_LEVEL_VALUES:]
        if len(earlier) < _MIN_BEFORE or not len(level_values):
            break
        level = float(np.median(level_values))
        around_levels = _around_levels(earlier, level_start)[-_NOISE_VALUES:]
        deviation = _deviation(around_levels, floor=smallest / _WIDTHS)
        error = _MEDIAN_ERROR * difference_error(deviation, count, len(level_values))
        newest_level = float(np.median(logs[-count:]))
        log_change = newest_level - level
        noise_widths = abs(log_change) / error
        is_suspect = noise_widths >= _WIDTHS and abs(log_change) >= smallest
        # a single value decides nothing about the values before it
        distances = logs[-count:] - level
        has_one_direction = bool(np.all(distances * log_change > 0))
        if not (is_suspect and has_one_direction):
            continue
        if clearest is None or noise_widths > clearest.noise_widths:
            clearest = Suspicion(
                value_count=count,
                log_change=log_change,
                noise_widths=noise_widths,
            )
    return clearest


def _around_levels(logs: NDArray[np.float64], level_start: int) -> NDArray[np.float64]:
    """The values without the step between two levels."""
    if level_start == 0:
        return logs
    older = logs[:level_start]
    newer = logs[level_start:]
    return np.concatenate(
        [
            older - np.median(older),
            newer - np.median(newer),
        ]
    )


def _deviation(logs: NDArray[np.float64], *, floor: float) -> float:
    """Standard deviation of a value around its level, which few values understate."""
    from_differences = deviation_of_differences(logs)
    distances = np.abs(logs - np.median(logs))
    from_level = MAD_TO_DEVIATION * float(np.median(distances))
    caution = 1 + 1 / len(logs)
    deviation = max(from_differences, from_level) * caution
    return max(deviation, floor / 2)

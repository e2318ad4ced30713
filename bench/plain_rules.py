"""Two rules that services judge by and nobody publishes as a package, to be compared with: Perfherder's t-test, and a
fixed change against the newest values.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]

_LEAST_BACK, _BACK, _AHEAD = 12, 24, 12
"""Values before and after a place that Perfherder takes by default."""
_T = 7.0
"""Its least t."""
_NEWEST = 10
_CHANGE = 0.05


def t_test(values: Values) -> list[int]:
    """Places whose t, means weighted by nearness, is 7 at least and no less than that of their neighbours.

    Source of the rule: mozilla/treeherder, treeherder/perfalert/perfalert/__init__.py.
    """
    count = len(values)
    sizes = np.zeros(count + 1)
    for place in range(_LEAST_BACK, count - _AHEAD + 1):
        sizes[place] = abs(_t(values[max(0, place - _BACK) : place][::-1], values[place : place + _AHEAD]))
    return [
        place
        for place in range(1, count)
        if sizes[place] >= _T and sizes[place] >= max(sizes[place - 1], sizes[place + 1])
    ]


def _t(before: Values, after: Values) -> float:
    """Student's t of two sides, the nearest values first in each."""
    distance = _weighted_mean(after) - _weighted_mean(before)
    squared_error = sum(
        float(((side - _weighted_mean(side)) ** 2).sum()) / (len(side) - 1) / len(side) for side in (before, after)
    )
    if distance == 0.0:
        return 0.0
    return float(distance / np.sqrt(squared_error)) if squared_error else float("inf")


def _weighted_mean(values: Values) -> float:
    return float(np.average(values, weights=np.arange(len(values), 0, -1)))


def fixed_change(values: Values) -> list[int]:
    """Places from which on values are 5 % away from the mean of the ten before them."""
    is_away = [False] * _NEWEST + [
        abs(values[place] / values[place - _NEWEST : place].mean() - 1) >= _CHANGE
        for place in range(_NEWEST, len(values))
    ]
    return [place for place in range(1, len(values)) if is_away[place] and not is_away[place - 1]]

"""Our change-point detectors, in the form in which a harness calls them on bare numbers. Needs numpy alone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ci.detect import find_change_points
from ci.series import online

_MIN_RELATIVE_CHANGE = 0.005
"""Half of the smallest step that anyone plants: nothing is to be left out as too small to tell."""

Values = NDArray[np.float64]


def detect(values: Values, _index: Sequence[float] | Values | None = None) -> list[tuple[int, int]]:
    """First position of each new level and whether it is higher (1) or lower (-1), from the whole series."""
    found = find_change_points(values, min_relative_change=_MIN_RELATIVE_CHANGE)
    return [(change.index, 1 if change.after > change.before else -1) for change in found]


class OnlineDetector:
    """Every new level that came into sight up to now, for a caller that asks with one prefix after another.

    Only the values that a prefix adds are looked at, so asking costs no more than the newest value does.
    """

    def __init__(self) -> None:
        self._seen: Values = np.empty(0)
        self._begin()

    def _begin(self) -> None:
        self._state = online.start(min_relative_change=_MIN_RELATIVE_CHANGE)
        self._alarms: list[tuple[int, int]] = []

    def __call__(self, values: Values, _index: Sequence[float] | Values | None = None) -> list[tuple[int, int]]:
        known = len(self._seen)
        if known > len(values) or not np.array_equal(self._seen, values[:known], equal_nan=True):
            known = 0
            self._begin()
        for value in values[known:]:
            self._state, alarm = online.update(self._state, float(value))
            if alarm is not None and not alarm.is_return:
                self._alarms.append((alarm.index, 1 if alarm.after > alarm.before else -1))
        self._seen = np.array(values)
        return list(self._alarms)


detect_online = OnlineDetector()

"""Our change-point detectors as plain functions of numbers."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from roofwatch.ci.changepoint.detect import find_change_points
from roofwatch.ci.changepoint.online import LEARNING, OnlineDetector

Values = NDArray[np.float64]

_MIN_RELATIVE_CHANGE = 0.005
"""Half of the smallest step that the tests and `bench/detection.py` plant."""


def detect_offline(
    values: Values, _index: Sequence[float] | Values | None = None
) -> list[tuple[int, int]]:
    """Find the change points of a whole series: position and direction (1 is higher, -1 lower) of
    each.
    """
    found = find_change_points(values, min_relative_change=_MIN_RELATIVE_CHANGE)
    return [(change.index, 1 if change.after > change.before else -1) for change in found]


class Detector:
    """Offline detection for a new history, online detection for one that grows.

    A call whose values extend those of the previous call continues that history; earlier reports
    are kept. Any other call starts a new history. A series too short for the online detector to
    learn from is judged online from the start.
    """

    def __init__(self) -> None:
        self._seen: Values = np.empty(0)
        self._reported: list[tuple[int, int]] = []
        self._online: OnlineDetector | None = None

    def __call__(
        self, values: Values, _index: Sequence[float] | Values | None = None
    ) -> list[tuple[int, int]]:
        known = len(self._seen)
        is_longer = known < len(values) or (known == len(values) and self._online is not None)
        if not (known and is_longer and np.array_equal(self._seen, values[:known], equal_nan=True)):
            self._online = None
            self._reported = [] if len(values) <= LEARNING else detect_offline(values)
            known = 0 if len(values) <= LEARNING else len(values)
        for value in values[known:]:
            self._update(float(value), values[:known])
        self._seen = np.array(values, dtype=np.float64)
        return list(self._reported)

    def _update(self, value: float, judged_offline: Values) -> None:
        if self._online is None:
            self._online = OnlineDetector(min_relative_change=_MIN_RELATIVE_CHANGE)
            for old in judged_offline:
                self._online.update(float(old))
        alarm = self._online.update(value)
        if alarm is not None and not alarm.is_return:
            self._reported.append((alarm.index, 1 if alarm.after > alarm.before else -1))

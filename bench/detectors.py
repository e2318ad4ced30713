"""Our change-point detectors, in the form in which a harness calls them on bare numbers. Needs numpy alone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from roofwatch.ci.changepoint import online
from roofwatch.ci.changepoint.detect import find_change_points
from roofwatch.ci.changepoint.online_state import OnlineState

_MIN_RELATIVE_CHANGE = 0.005
"""Half of the smallest step that anyone plants: nothing is to be left out as too small to tell."""

Values = NDArray[np.float64]


def detect(values: Values, _index: Sequence[float] | Values | None = None) -> list[tuple[int, int]]:
    """First position of each new level and whether it is higher (1) or lower (-1), from the whole series."""
    found = find_change_points(values, min_relative_change=_MIN_RELATIVE_CHANGE)
    return [(change.index, 1 if change.after > change.before else -1) for change in found]


class Detector:
    """Judges a history whole when it first sees it, and value by value once it grows: as the service does.

    A caller that asks about the values of its last question and some more is taken to follow one history. The new
    values go to the online state alone, which goes on from the levels that were found (`roofwatch.ci.history.standing`
    says why),
    and what was told stays told. So every prefix may be asked about at the cost of its newest value. Any other question
    is about a history of its own, and is answered from the whole of it, unless it has no more values than the online
    state learns from: nothing is told of so few.
    """

    def __init__(self) -> None:
        self._seen: Values = np.empty(0)
        self._told: list[tuple[int, int]] = []
        self._state: OnlineState | None = None  # none while the history has not grown

    def __call__(self, values: Values, _index: Sequence[float] | Values | None = None) -> list[tuple[int, int]]:
        known = len(self._seen)
        if not self._is_of_the_same_history(values):
            known = self._begin(values)
        for value in values[known:]:
            self._follow(float(value))
        self._seen = np.array(values, dtype=np.float64)
        return list(self._told)

    def _is_of_the_same_history(self, values: Values) -> bool:
        known = len(self._seen)
        has_grown = known < len(values) or (known == len(values) and self._state is not None)
        return known > 0 and has_grown and np.array_equal(self._seen, values[:known], equal_nan=True)

    def _begin(self, values: Values) -> int:
        """Forget the last history; how many of these values are judged with that."""
        if len(values) <= online.LEARNING:
            self._told, self._state = [], online.start(min_relative_change=_MIN_RELATIVE_CHANGE)
            return 0
        self._told, self._state = detect(values), None
        return len(values)

    def _follow(self, value: float) -> None:
        if self._state is None:
            starts = [place for place, _ in self._told]
            self._state = online.resume(self._seen, starts, min_relative_change=_MIN_RELATIVE_CHANGE)
        self._state, alarm = online.update(self._state, value)
        if alarm is not None and not alarm.is_return:
            self._told.append((alarm.index, 1 if alarm.after > alarm.before else -1))

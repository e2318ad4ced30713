"""Our change-point detectors as plain functions of numbers."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from roofwatch.ci.changepoint.chance import chances_of_steps
from roofwatch.ci.changepoint.detect import find_change_points
from roofwatch.ci.history.step_findings import is_sure_step

_SAME_PLACE = 5
"""Values by which two analyses may place a step differently."""
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
    """The steps that alert without a pair, for a history that grows.

    A call whose values extend those of the previous call continues that history; earlier reports
    are kept. Any other call starts a new history.
    """

    def __init__(self) -> None:
        self._seen: Values = np.empty(0)
        self._reported: list[tuple[int, int]] = []

    def __call__(
        self, values: Values, _index: Sequence[float] | Values | None = None
    ) -> list[tuple[int, int]]:
        known = len(self._seen)
        if not (0 < known <= len(values) and np.array_equal(self._seen, values[:known])):
            self._reported = []
        self._seen = np.array(values, dtype=np.float64)
        if np.all(self._seen > 0):
            self._report()
        return list(self._reported)

    def _report(self) -> None:
        steps = find_change_points(self._seen, min_relative_change=_MIN_RELATIVE_CHANGE)
        for step, chance in zip(steps, chances_of_steps(self._seen, steps), strict=True):
            is_known = any(abs(step.index - index) <= _SAME_PLACE for index, _ in self._reported)
            if not is_known and is_sure_step(step, chance):
                self._reported.append((step.index, 1 if step.after > step.before else -1))

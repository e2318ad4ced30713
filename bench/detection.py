"""Our detectors and our A/B rule as plain functions of numbers, for an evaluation harness."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roofwatch.ci.changepoint.detect import find_change_points
from roofwatch.ci.changepoint.online import LEARNING, OnlineDetector

Values = NDArray[np.float64]

_MIN_RELATIVE_CHANGE = 0.005
"""Half of the smallest planted step."""
_THRESHOLD = 0.001
_ERROR_RATE = 0.02
"""Error rate of the paired rule without a threshold: one false alarm in a hundred in each direction."""


def detect_offline(values: Values, _index: Sequence[float] | Values | None = None) -> list[tuple[int, int]]:
    """Find the change points of a whole series: position and direction (1 is higher, -1 lower) of each."""
    found = find_change_points(values, min_relative_change=_MIN_RELATIVE_CHANGE)
    return [(change.index, 1 if change.after > change.before else -1) for change in found]


class Detector:
    """Offline detection for a new history, online detection for one that grows.

    A call whose values extend those of the previous call continues that history; earlier reports are kept. Any other
    call starts a new history. A series too short for the online detector to learn from is judged online from the start.
    """

    def __init__(self) -> None:
        self._seen: Values = np.empty(0)
        self._reported: list[tuple[int, int]] = []
        self._online: OnlineDetector | None = None

    def __call__(self, values: Values, _index: Sequence[float] | Values | None = None) -> list[tuple[int, int]]:
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


detect = Detector()
detect_online = Detector()


def decide(base: Values, head: Values, meta: Mapping[str, Any] | None = None) -> str:
    """Compare two samples of timings; larger is slower.

    Args:
        base: Timings in the order taken, shape [timings].
        head: Likewise.
        meta: `order` (`interleaved` or `blocked`); if processes were restarted, `base_launch` and `head_launch`, the
            process of each timing.

    Returns:
        `regressed`, `improved`, `unchanged` or `inconclusive`.
    """
    # here, as the detectors are also imported where only numpy is installed
    from bench.timings import Order, compare_timings
    from roofwatch.ci.ab.compare import compare

    known = meta or {}
    if "base_launch" in known and "head_launch" in known:
        by_start = _by_start(base, known["base_launch"]), _by_start(head, known["head_launch"])
        return compare(*by_start, threshold=_THRESHOLD, error_rate=_ERROR_RATE).verdict.value
    order = Order(known.get("order", Order.INTERLEAVED))
    return compare_timings(base, head, order=order, threshold=_THRESHOLD, error_rate=_ERROR_RATE).verdict.value


def _by_start(timings: Values, starts: Sequence[int]) -> list[Values]:
    start_of = np.asarray(starts)
    return [timings[start_of == start] for start in dict.fromkeys(starts)]

"""What judges, in the form in which a harness calls detectors and A/B rules on bare numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.detectors import Detector
from roofwatch.ci.ab.compare import compare
from roofwatch.ci.ab.timings import Order, compare_timings

detect = Detector()
"""`detect(values, index)`: places and directions of the steps, of a whole history as of one that grows by prefixes."""
detect_online = Detector()
"""The same, with a memory of its own."""

_THRESHOLD = 0.001
"""The question is whether the two differ, not whether it is worth telling: one part in a thousand is a difference."""
_ERROR_RATE = 0.02
"""One false alarm in a hundred to either side, were there no threshold."""


def decide(base: NDArray[np.float64], head: NDArray[np.float64], meta: Mapping[str, Any] | None = None) -> str:
    """Base against head; larger is slower.

    Args:
        base: Timings in the order taken, shape [timings].
        head: Likewise.
        meta: `order`, `interleaved` or `blocked`; where processes were started anew, `base_launch` and `head_launch`,
            the start that each timing came from.

    Returns:
        `regressed`, `improved`, `unchanged` or `inconclusive`.
    """
    known = meta or {}
    if "base_launch" in known and "head_launch" in known:
        by_start = _by_start(base, known["base_launch"]), _by_start(head, known["head_launch"])
        return compare(*by_start, threshold=_THRESHOLD, error_rate=_ERROR_RATE).verdict.value
    order = Order(known.get("order", Order.INTERLEAVED))
    return compare_timings(base, head, order=order, threshold=_THRESHOLD, error_rate=_ERROR_RATE).verdict.value


def _by_start(timings: NDArray[np.float64], starts: Sequence[int]) -> list[NDArray[np.float64]]:
    start_of = np.asarray(starts)
    return [timings[start_of == start] for start in dict.fromkeys(starts)]

"""How often somebody may ask: a token bucket for each, in this process. Several processes have several of each."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable

_MOST_KNOWN = 10_000


class RateLimiter:
    """A bucket for each name, full at first; each request takes one, and they come back in time.

    Args:
        per_s: How many come back.
        burst: How many a bucket holds.
        now_s: A clock that never goes back.
    """

    def __init__(self, per_s: float, burst: int, now_s: Callable[[], float]) -> None:
        self._per_s = per_s
        self._burst = float(burst)
        self._now_s = now_s
        self._levels: OrderedDict[str, tuple[float, float]] = OrderedDict()
        self._lock = threading.Lock()

    def take(self, name: str) -> float:
        """Take one; 0 if there was one, else in how many seconds there will be."""
        with self._lock:
            now_s = self._now_s()
            level, seen_s = self._levels.pop(name, (self._burst, now_s))
            level = min(self._burst, level + (now_s - seen_s) * self._per_s)
            wait_s = 0.0 if level >= 1 else (1 - level) / self._per_s
            self._levels[name] = (level - 1 if level >= 1 else level, now_s)
            if len(self._levels) > _MOST_KNOWN:
                self._levels.popitem(last=False)  # who was not seen for longest has a full one by now
            return wait_s

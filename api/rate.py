"""How often somebody may ask. The buckets are in the database, for all processes together; each process takes some
requests at a time out of them, so that few requests wait for that.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from roofwatch.db.auth.allowance import Taken

_MOST_KNOWN = 10_000


@dataclass
class _Kept:
    """What is known here of one bucket."""

    count: int = 0
    """Taken out of it and not used yet."""
    empty_until_s: float = 0.0
    """There is none in it before: nobody has to look."""


class RateLimiter:
    """Lets requests through as long as their bucket has some.

    Args:
        take: Takes so many out of the bucket of a name, or as many as it has.
        at_once: How many to take at a time: what a process that ends may take along.
        now_s: A clock that never goes back.
    """

    def __init__(self, take: Callable[[str, int], Taken], at_once: int, now_s: Callable[[], float]) -> None:
        self._take = take
        self._at_once = at_once
        self._now_s = now_s
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        self._lock = threading.Lock()

    def take(self, name: str) -> float:
        """Take one; 0 if there was one, else in how many seconds there will be."""
        now_s = self._now_s()
        with self._lock:
            kept = self._of(name)
            if kept.count:
                kept.count -= 1
                return 0.0
            if now_s < kept.empty_until_s:
                return kept.empty_until_s - now_s
        # two at once may both go there: then more is kept
        taken = self._take(name, self._at_once)
        with self._lock:
            kept = self._of(name)
            if taken.count:
                kept.count += taken.count - 1
                return 0.0
            kept.empty_until_s = now_s + taken.wait_s
        return taken.wait_s

    def _of(self, name: str) -> _Kept:
        kept = self._kept.pop(name, None) or _Kept()
        self._kept[name] = kept
        if len(self._kept) > _MOST_KNOWN:
            self._kept.popitem(last=False)  # who was not seen for longest
        return kept

"""A GPU that is kept busy while work is queued for it, so that it then runs without waiting for its host."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from roofwatch.collector.timing.stopwatch import Ranks

_FIRST_CYCLES = 200_000
"""About 0.1 ms of a GPU, several times what one launch takes to issue."""
_MOST_CYCLES = 50_000_000
_MOST_AT_ONCE = 50
"""Of TritonBench, too: a GPU takes about a thousand launches before it makes its host wait for one to be done."""


class HeldDevice:
    """Queues work behind a kernel that spins, and makes sure that the kernel was still spinning when all was queued.

    How long it has to spin is found out: each time that it ended too early it spins four times as long, for half as
    much work. A call that waits for the device itself can never be queued; then nothing is held any more.

    Args:
        ranks: Those that launch together; they repeat together.

    Source: the blocking kernel of nvbench, with one that ends by itself in place of one that the host has to end, so
    that a call that waits for the device cannot wait for ever.
    """

    def __init__(self, ranks: Ranks) -> None:
        self._ranks = ranks
        self._cycles = _FIRST_CYCLES
        self.most_at_once = _MOST_AT_ONCE
        self.can_hold = True
        """Whether launches do get queued; where not, times hold what the host does between them."""

    def queue(self, work: Callable[[], None], count: int) -> bool:
        """Queue work of so many launches and wait for it; False if some of it ran early and all is to be repeated."""
        if not self.can_hold:
            work()
            torch.cuda.synchronize()
            return True
        held: Any = torch.cuda.Event()  # type: ignore[no-untyped-call]  # torch leaves the annotation out
        torch.cuda._sleep(self._cycles * count)  # type: ignore[no-untyped-call]  # as above
        held.record()
        work()
        was_early = bool(held.query())
        torch.cuda.synchronize()
        # any rank's haste is everyone's: all of them repeat, or none does
        if not self._ranks.slowest_ns(float(was_early)):
            return True
        self._cycles *= 4
        self.most_at_once = max(1, self.most_at_once // 2)
        self.can_hold = self._cycles < _MOST_CYCLES
        return False

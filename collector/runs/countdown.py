"""How long the blocks of a pair will still take."""

import time
from collections.abc import Callable

from roofwatch.collector.runs.run_plan import Steps

_PAUSE_S = 30.0
"""Between two notes, so that a log of continuous integration stays short."""


class Countdown:
    """Notes now and then how much time is left, by the time that the blocks took so far."""

    def __init__(
        self,
        total: int,
        steps: Steps,
        *,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._total = total
        self._steps = steps
        self._clock_s = clock_s
        self._done = 0
        self._began_s = clock_s()
        self._noted_s = self._began_s

    def step(self) -> None:
        """Count a block that was taken."""
        self._done += 1
        now_s = self._clock_s()
        if now_s - self._noted_s < _PAUSE_S or self._done >= self._total:
            return
        self._noted_s = now_s
        block_s = (now_s - self._began_s) / self._done
        left_s = block_s * (self._total - self._done)
        self._steps.note(f"{self._done} of {self._total} blocks taken: about {left_s:.0f} s left")

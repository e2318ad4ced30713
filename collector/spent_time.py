"""Where the wall time of a run went, by activity."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum


class Activity(StrEnum):
    START = "start"
    """Starting the first worker: torch, Triton and the suite are loaded."""
    CEILINGS = "ceilings"
    COMPILE = "compile"
    """For targets, on all cores, unless it is known from before; meanwhile Triton's interpreter begins to check."""
    CHECK = "check"
    COOL_DOWN = "cool_down"
    """Waiting for a device that heat holds back."""
    WARM_UP = "warm_up"
    TIMING = "timing"
    """Launching what is timed, whatever is done around each launch to time it included."""
    OVERHEAD = "overhead"
    """What a block of samples takes beside: its process, its inputs, its way back."""
    PROFILE = "profile"
    """Calls under a profiler, after all that is timed."""


class SpentTime:
    """Adds up by a clock that never goes backwards. For one thread: what runs beside it takes no time of its own."""

    def __init__(self) -> None:
        self._total_ns: Counter[str] = Counter()
        self._new_ns: Counter[str] = Counter()

    def add_earlier(self, spent_ns: Mapping[str, int]) -> None:
        """Count what an earlier process of the same run spent."""
        self._total_ns.update(spent_ns)

    @contextmanager
    def on(self, activity: Activity) -> Iterator[None]:
        """Count the time within."""
        began_ns = time.monotonic_ns()
        try:
            yield
        finally:
            self._add(activity, time.monotonic_ns() - began_ns)

    def was_in_truth(self, activity: Activity, spent_ns: int, *, counted_as: Activity) -> None:
        """Of what was counted as one activity, a part was another."""
        part_ns = min(spent_ns, self._new_ns[counted_as])
        self._add(counted_as, -part_ns)
        self._add(activity, part_ns)

    def take_new(self) -> dict[str, int]:
        """What was spent since it was asked last, in ns."""
        new, self._new_ns = self._new_ns, Counter()
        self._total_ns.update(new)
        return {str(activity): spent_ns for activity, spent_ns in new.items() if spent_ns}

    @property
    def total_ns(self) -> dict[str, int]:
        """By activity, in the order of a run."""
        total = self._total_ns + self._new_ns
        return {str(activity): total[activity] for activity in Activity if total[activity]}

    def _add(self, activity: Activity, spent_ns: int) -> None:
        self._new_ns[activity] += spent_ns

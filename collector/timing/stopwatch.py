"""What every timer does: the interface, and the samples that come of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from roofwatch.collector.timing.method import TimingMethod

Launch = Callable[[], object]
"""Does the work; on a GPU, enqueues it on the current stream and returns."""


@dataclass(frozen=True)
class Sample:
    """One launch, or the mean of several. What a timer cannot tell is None."""

    busy_ns: float
    """How long the device worked."""
    span_ns: float | None = None
    """From the start of the first kernel to the end of the last."""
    host_ns: float | None = None
    """How long the host took to issue it."""
    launch_delay_ns: float | None = None
    """From the call to the start of the first kernel."""
    kernels: tuple[str, ...] | None = None
    """Names of its kernels, copies and fills, sorted."""


class Ranks(Protocol):
    """Those that make each launch together with this process."""

    def align(self) -> None:
        """Go on once all are here."""

    def slowest_ns(self, elapsed_ns: float) -> float:
        """The longest of their times."""


class Alone:
    """No others to wait for."""

    def align(self) -> None:
        pass

    def slowest_ns(self, elapsed_ns: float) -> float:
        return elapsed_ns


class Stopwatch(Protocol):
    """Times one prepared launch; one implementation per timer."""

    @property
    def method(self) -> TimingMethod: ...

    def rehearse(self) -> float:
        """Launch once, as it will be when it counts; about how long that took, in ns."""

    def launches_for(self, launch_ns: float) -> int:
        """How many launches make a sample, of a launch that takes so long."""

    def take(self, sample_count: int, launches: int) -> list[Sample]:
        """So many samples, each of so many launches.

        Raises:
            UnsupportedError: this timer cannot time this launch.
            Exception: whatever the launch raises.
        """

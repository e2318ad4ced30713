"""Watch the device while it is measured: a thread that reads its clocks, power, temperature and neighbours 20 times a
second.

The thread lives in the collector's process, not in a worker's: it takes no time from what is measured, and outlives a
kernel that crashes. Readings carry the time of the monotonic clock, which all processes of a machine share.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from roofwatch.collector.device.nvml import DeviceLostError, NvmlDevice
from roofwatch.collector.device.processes import foreign_process_count

PERIOD_S = 0.05


@dataclass(frozen=True, slots=True)
class Reading:
    """What the device said at one moment; None where it does not say."""

    at_ns: int
    """Of the monotonic clock."""
    sm_clock_mhz: float | None = None
    memory_clock_mhz: float | None = None
    power_w: float | None = None
    temperature_c: float | None = None
    energy_j: float | None = None
    """Since the driver was loaded."""
    clock_event_reasons: tuple[str, ...] | None = None
    foreign_process_count: int | None = None


class Sampler:
    """Reads one device again and again, until it is stopped or the device is lost.

    Args:
        device: Is asked.
        is_own: Whether a process belongs to the run.
        period_s: Between two readings.
        now_ns: The monotonic clock.
    """

    def __init__(
        self,
        device: NvmlDevice,
        *,
        is_own: Callable[[int], bool],
        period_s: float = PERIOD_S,
        now_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._device = device
        self._is_own = is_own
        self._period_s = period_s
        self._now_ns = now_ns
        self._readings: list[Reading] = []
        self._lock = threading.Lock()
        self._is_stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="roofwatch-telemetry", daemon=True)
        self.failure: str | None = None
        """Why there are no more readings."""

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End the thread; safe to call again, and where it was never started."""
        self._is_stopped.set()
        if self._thread.is_alive():
            self._thread.join()

    @property
    def readings(self) -> Sequence[Reading]:
        """All so far, in order."""
        with self._lock:
            return tuple(self._readings)

    @property
    def latest(self) -> Reading | None:
        with self._lock:
            return self._readings[-1] if self._readings else None

    def beyond(self, count: int) -> Sequence[Reading]:
        """The readings after the first so many."""
        with self._lock:
            return tuple(self._readings[count:])

    def since(self, at_ns: int) -> Sequence[Reading]:
        """The readings from a moment on, and the one before it."""
        with self._lock:
            place = len(self._readings)
            while place > 0 and self._readings[place - 1].at_ns >= at_ns:
                place -= 1
            return tuple(self._readings[max(0, place - 1) :])

    def read(self) -> None:
        """Take one reading now, from any thread; nothing once the device is lost."""
        with self._lock:
            if self.failure is not None:
                return
            try:
                self._readings.append(self._read())
            except DeviceLostError as error:
                self.failure = str(error)

    def _run(self) -> None:
        due_s = time.monotonic()
        while self.failure is None and not self._is_stopped.is_set():
            self.read()
            # reading takes some of the period; what took more than one is not made up for
            due_s = max(due_s + self._period_s, time.monotonic())
            self._is_stopped.wait(due_s - time.monotonic())

    def _read(self) -> Reading:
        device = self._device
        pids = device.compute_process_ids()
        return Reading(
            at_ns=self._now_ns(),
            sm_clock_mhz=device.sm_clock_mhz(),
            memory_clock_mhz=device.memory_clock_mhz(),
            power_w=device.power_w(),
            temperature_c=device.temperature_c(),
            energy_j=device.energy_j(),
            clock_event_reasons=device.clock_event_reasons(),
            foreign_process_count=None if pids is None else foreign_process_count(pids, self._is_own),
        )

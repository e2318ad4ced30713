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
from datetime import datetime
from typing import TypeVar

from collector.device.nvml import DeviceLostError, NvmlDevice
from collector.device.processes import foreign_process_count
from collector.device_state import Telemetry
from collector.record import utc_now

_Value = TypeVar("_Value", int, float)

PERIOD_S = 0.05
MAX_STORED_READINGS = 24_000
"""Twenty minutes at 20 Hz; of a longer run every second reading is kept, or every fourth."""


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
        while self.failure is None and not self._is_stopped.is_set():
            self.read()
            self._is_stopped.wait(self._period_s)

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


def telemetry_of(readings: Sequence[Reading], *, started_at: datetime, message: str | None = None) -> Telemetry:
    """All readings as the columns of a record. A column that would hold nothing is left empty, and of very many
    readings only so many are kept.

    Args:
        readings: In order.
        started_at: When the first was taken.
        message: Why there are not more.
    """
    step = 1
    while len(readings) > MAX_STORED_READINGS * step:
        step *= 2
    kept = readings[::step]
    return Telemetry(
        status="ok" if kept else "unavailable",
        message=message,
        started_at=started_at,
        offset_ms=tuple((reading.at_ns - kept[0].at_ns) / 1e6 for reading in kept),
        sm_clock_mhz=_column([reading.sm_clock_mhz for reading in kept]),
        memory_clock_mhz=_column([reading.memory_clock_mhz for reading in kept]),
        power_w=_column([reading.power_w for reading in kept]),
        temperature_c=_column([reading.temperature_c for reading in kept]),
        energy_j=_column(energy_since_first(readings)[::step]),
        clock_event_reasons=(
            tuple(reading.clock_event_reasons or () for reading in kept)
            if any(reading.clock_event_reasons is not None for reading in kept)
            else ()
        ),
        foreign_process_count=_column([reading.foreign_process_count for reading in kept]),
    )


def energy_since_first(readings: Sequence[Reading]) -> list[float | None]:
    """Energy in J that was spent since the first reading that tells it. None from where the counter went back: what was
    spent around that is not known.
    """
    energy: list[float | None] = []
    first: float | None = None
    last = 0.0
    is_lost = False
    for reading in readings:
        value = reading.energy_j
        if value is None:
            energy.append(None)
            continue
        is_lost = is_lost or value < last
        first = value if first is None else first
        last = value
        energy.append(None if is_lost else value - first)
    return energy


def no_telemetry(status: str, message: str) -> Telemetry:
    """What stands in a record where nothing could be read."""
    return Telemetry.model_validate({"status": status, "message": message, "started_at": utc_now()})


def _column(values: Sequence[_Value | None]) -> tuple[_Value | None, ...]:
    return tuple(values) if any(value is not None for value in values) else ()

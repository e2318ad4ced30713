"""Read the device 20 times a second while it is measured, and store the readings as columns of a record."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import chain
from pathlib import Path
from typing import Any

from roofwatch.collector.device.nvml import DeviceLostError, NvmlDevice
from roofwatch.collector.record.machine import Telemetry
from roofwatch.collector.record.record import utc_now

_MAX_GENERATIONS = 64


class OwnProcesses:
    """Tells the processes of a run: those that descend from its collector, and those that did when they were seen.

    Args:
        root_pid: The collector; this process if left out.
        parent_of: Process id of the parent; None of a process that is not there.
    """

    def __init__(self, root_pid: int | None = None, parent_of: Callable[[int], int | None] | None = None) -> None:
        self._parent_of = parent_of or parent_pid
        self._known = {root_pid or os.getpid()}

    def __contains__(self, pid: int) -> bool:
        line: list[int] = []
        ancestor: int | None = pid
        while ancestor is not None and ancestor > 1 and len(line) < _MAX_GENERATIONS:
            if ancestor in self._known:
                # the driver lists a worker for a moment after it has ended: what was the run's stays so
                self._known.update(line)
                return True
            line.append(ancestor)
            ancestor = self._parent_of(ancestor)
        return False


def foreign_process_count(pids: Sequence[int], is_own: Callable[[int], bool]) -> int | None:
    """How many processes on the device are not the run's; None where that cannot be told.

    In a container the driver may give the ids that processes have outside of it, or leave them out
    (NVIDIA/gpu-monitoring-tools#63, NVIDIA/open-gpu-kernel-modules#614). A list in which the run does not find itself,
    though it uses the device, is such a one; or it does not use the device yet.
    """
    seen = set(pids)
    own_count = sum(map(is_own, seen))
    return len(seen) - own_count if own_count else None


def parent_pid(pid: int) -> int | None:
    """Of a process of this machine, as /proc tells it."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    # the name, in brackets, may hold anything: what follows the last bracket is the state, then the parent
    return int(status.rpartition(")")[2].split()[1])


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


MAX_STORED_READINGS = 24_000
"""Twenty minutes at 20 Hz; of a longer run every second reading is kept, or every fourth."""

_QUANTITIES = ("sm_clock_mhz", "memory_clock_mhz", "power_w", "temperature_c", "energy_j", "foreign_process_count")


class EnergyMeter:
    """Energy in J that was spent since the first reading that tells it. None from where the counter went back: what was
    spent around that is not known.
    """

    def __init__(self) -> None:
        self._first: float | None = None
        self._last = 0.0
        self._is_lost = False

    def since_first(self, counter_j: float | None) -> float | None:
        """The same of the next reading."""
        if counter_j is None:
            return None
        self._is_lost = self._is_lost or counter_j < self._last
        self._first = counter_j if self._first is None else self._first
        self._last = counter_j
        return None if self._is_lost else counter_j - self._first


class TelemetryPart:
    """Turns the readings of one process into columns, as many at a time as there are.

    Args:
        started_at: When the first reading was taken.
    """

    def __init__(self, started_at: datetime) -> None:
        self._started_at = started_at
        self._first_ns: int | None = None
        self._energy = EnergyMeter()

    def columns(self, readings: Sequence[Reading], *, message: str | None = None) -> Telemetry:
        """The next readings, in order. A column that would hold nothing is left empty.

        Args:
            readings: Those after the ones that it was given before.
            message: Why there are not more.
        """
        if readings and self._first_ns is None:
            self._first_ns = readings[0].at_ns
        columns: dict[str, list[Any]] = {
            name: [getattr(reading, name) for reading in readings] for name in _QUANTITIES if name != "energy_j"
        }
        columns["energy_j"] = [self._energy.since_first(reading.energy_j) for reading in readings]
        reasons = [reading.clock_event_reasons for reading in readings]
        return Telemetry(
            status="ok" if readings else "unavailable",
            message=message,
            started_at=self._started_at,
            offset_ms=tuple((reading.at_ns - (self._first_ns or 0)) / 1e6 for reading in readings),
            clock_event_reasons=(
                tuple(reason or () for reason in reasons) if any(reason is not None for reason in reasons) else ()
            ),
            **{name: _unless_empty(values) for name, values in columns.items()},
        )


def no_telemetry(status: str, message: str) -> Telemetry:
    """What stands in a record where nothing could be read."""
    return Telemetry.model_validate({"status": status, "message": message, "started_at": utc_now()})


def joined(parts: Sequence[Telemetry]) -> Telemetry:
    """The telemetry of a run that several processes measured one after the other.

    Two processes share no clock that never goes back, for the machine may have been started anew between them: how far
    apart they lie is what their starting times say, and never less than nothing. `energy_j` goes on where the process
    before left it, without what the device spent in between. After the last reading of each but the last stands one of
    which nothing is known, so that nobody draws a line through the time in which nobody looked.

    Args:
        parts: In order, at least one; those with one `started_at` are of one process. Of very many readings only so
            many are kept.
    """
    told = [part for part in parts if part.offset_ms]
    messages = dict.fromkeys(message for part in parts if part.message for message in part.message.split("; "))
    if not told:
        return parts[-1].model_copy(update={"message": "; ".join(messages) or None})
    told = list(_with_gaps(told))
    kept = _kept(told)
    columns: dict[str, list[Any]] = {name: list(_column(told, name)) for name in _QUANTITIES if name != "energy_j"}
    columns["energy_j"] = list(_energy(told))
    columns["offset_ms"] = list(_offsets_ms(told))
    if any(part.clock_event_reasons for part in told):
        columns["clock_event_reasons"] = list(_column(told, "clock_event_reasons", ()))
    return Telemetry(
        status="ok",
        message="; ".join(messages) or None,
        started_at=told[0].started_at,
        **{name: _unless_empty([values[place] for place in kept]) for name, values in columns.items()},
    )


def _with_gaps(parts: Sequence[Telemetry]) -> Iterator[Telemetry]:
    for number, part in enumerate(parts):
        if number and part.started_at != parts[number - 1].started_at:
            before = parts[number - 1]
            yield Telemetry(
                status="ok", started_at=before.started_at, offset_ms=(before.offset_ms[-1] + PERIOD_S * 1e3,)
            )
        yield part


def _kept(parts: Sequence[Telemetry]) -> list[int]:
    """Places of the readings to keep: every so many, and all gaps."""
    is_gap = [not any(getattr(part, name) for name in _QUANTITIES) for part in parts for _ in part.offset_ms]
    step = _step(len(is_gap))
    return [place for place, gap in enumerate(is_gap) if gap or place % step == 0]


def _offsets_ms(parts: Sequence[Telemetry]) -> Iterator[float]:
    began_ms = last_ms = 0.0
    for number, part in enumerate(parts):
        if number and part.started_at != parts[number - 1].started_at:
            by_wall_clock_ms = (part.started_at - parts[0].started_at) / timedelta(milliseconds=1)
            began_ms = max(by_wall_clock_ms, last_ms + PERIOD_S * 1e3)
        for offset_ms in part.offset_ms:
            last_ms = began_ms + offset_ms
            yield last_ms


def _energy(parts: Sequence[Telemetry]) -> Iterator[float | None]:
    before_j = last_j = 0.0
    for number, part in enumerate(parts):
        if number and part.started_at != parts[number - 1].started_at:
            before_j = last_j
        for energy_j in part.energy_j or [None] * len(part.offset_ms):
            last_j = last_j if energy_j is None else before_j + energy_j
            yield None if energy_j is None else last_j


def _column(parts: Sequence[Telemetry], name: str, missing: object = None) -> Iterator[Any]:
    return chain.from_iterable(getattr(part, name) or [missing] * len(part.offset_ms) for part in parts)


def _unless_empty(values: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(values) if any(value is not None for value in values) else ()


def _step(reading_count: int) -> int:
    step = 1
    while reading_count > MAX_STORED_READINGS * step:
        step *= 2
    return step

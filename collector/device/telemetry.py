"""Sample a GPU 20 times a second, and store the readings as columns of a record."""

import os
import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from itertools import groupby
from math import ceil
from operator import attrgetter
from pathlib import Path
from typing import Any

from roofwatch.collector.device.nvml import DeviceLostError, NvmlDevice
from roofwatch.model.machine import Telemetry
from roofwatch.model.record import utc_now

PERIOD_S = 0.05
MAX_STORED_READINGS = 24_000
"""Twenty minutes at 20 Hz; longer runs are thinned out."""

# More would be a loop of processes that were replaced meanwhile.
_MAX_ANCESTORS = 64
_QUANTITIES = (
    "sm_clock_mhz",
    "memory_clock_mhz",
    "power_w",
    "temperature_c",
    "memory_temperature_c",
    "energy_j",
    "foreign_process_count",
)


@dataclass(frozen=True, slots=True)
class Reading:
    """State of the device at one moment; None for what it does not report."""

    at_ns: int
    """Monotonic clock."""
    sm_clock_mhz: float | None = None
    memory_clock_mhz: float | None = None
    power_w: float | None = None
    temperature_c: float | None = None
    memory_temperature_c: float | None = None
    energy_j: float | None = None
    """Since the first reading."""
    clock_event_reasons: tuple[str, ...] | None = None
    """At this moment or at any time since the previous reading."""
    foreign_process_count: int | None = None


class OwnProcesses:
    """The collector and its descendants."""

    def __init__(self) -> None:
        self._known = {os.getpid()}

    def __contains__(self, pid: int) -> bool:
        """Whether a process is one of the run, or descends from one."""
        line: list[int] = []
        ancestor: int | None = pid
        while ancestor is not None and ancestor > 1 and len(line) < _MAX_ANCESTORS:
            if ancestor in self._known:
                # the driver still lists a worker for a moment after it has ended
                self._known.update(line)
                return True
            line.append(ancestor)
            ancestor = parent_pid(ancestor)
        return False

    def count_foreign(self, pids: Iterable[int]) -> int | None:
        """Count other processes on the device; None if the list contains no process of the run.

        In a container the driver may report process IDs of the host, or none
        (NVIDIA/gpu-monitoring-tools#63, NVIDIA/open-gpu-kernel-modules#614).
        """
        listed = set(pids)
        own_count = sum(pid in self for pid in listed)
        if own_count == 0:
            return None
        return len(listed) - own_count


def parent_pid(pid: int) -> int | None:
    """Read the parent of a process from /proc; None if there is no such process."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    # the name, in brackets, may contain spaces; the state and the parent follow the last bracket
    after_name = status.rpartition(")")[2]
    _state, parent, *_ = after_name.split()
    return int(parent)


class Sampler:
    """Reads a device periodically until it is stopped or the device is lost."""

    def __init__(
        self,
        device: NvmlDevice,
        *,
        now_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self.device = device
        self.failure: str | None = None
        """Why reading ended early."""
        self._processes = OwnProcesses()
        self._now_ns = now_ns
        self._readings: list[Reading] = []
        self._first_energy_j: float | None = None
        self._held_back_counts = device.held_back_counts()
        self._health = device.health()
        self._started_at = utc_now()
        self._lock = threading.Lock()
        self._is_stopped = threading.Event()
        self._thread = threading.Thread(
            target=self._run,
            name="roofwatch-telemetry",
            daemon=True,
        )

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End the thread and close the device; may be called again."""
        self._is_stopped.set()
        if self._thread.is_alive():
            self._thread.join()
        self.device.close()

    @property
    def readings(self) -> Sequence[Reading]:
        with self._lock:
            return tuple(self._readings)

    @property
    def latest(self) -> Reading | None:
        with self._lock:
            if not self._readings:
                return None
            return self._readings[-1]

    def since(self, at_ns: int) -> Sequence[Reading]:
        """Readings from a moment on, and the one before it."""
        with self._lock:
            index = bisect_left(self._readings, at_ns, key=attrgetter("at_ns"))
            return tuple(self._readings[max(0, index - 1) :])

    def telemetry(self, first: int = 0, message: str | None = None) -> Telemetry:
        """Readings from number `first` on, as columns; the message says what is missing,
        and why.
        """
        readings = self.readings
        rows = []
        for reading in readings[first:]:
            offset_ms = (reading.at_ns - readings[0].at_ns) / 1e6
            rows.append({"offset_ms": offset_ms, **asdict(reading)})
        return _telemetry(
            rows=rows,
            started_at=self._started_at,
            message=message,
            health=self._health,
        )

    def read(self) -> None:
        """Take one reading now, from any thread; does nothing once the device is lost."""
        with self._lock:
            if self.failure is not None:
                return
            try:
                self._readings.append(self._read())
            except DeviceLostError as error:
                self.failure = str(error)

    def _run(self) -> None:
        """Read once a period until stopped."""
        due_s = time.monotonic()
        while self.failure is None and not self._is_stopped.is_set():
            self.read()
            # A reading that took longer than the period is not made up for.
            due_s = max(due_s + PERIOD_S, time.monotonic())
            self._is_stopped.wait(due_s - time.monotonic())

    def _read(self) -> Reading:
        """One reading; energy counts from the first one."""
        pids = self.device.compute_process_ids()
        read_at_ns = self._now_ns()
        quantities = self.device.quantities()
        energy_j = quantities["energy_j"]
        if self._first_energy_j is None:
            self._first_energy_j = energy_j
        if energy_j is not None and self._first_energy_j is not None:
            quantities["energy_j"] = energy_j - self._first_energy_j
            if quantities["energy_j"] < 0:  # the driver's counter was reset
                quantities["energy_j"] = None
        quantities["clock_event_reasons"] = self._reasons_since_last(
            quantities["clock_event_reasons"]
        )
        foreign_count = None
        if pids is not None:
            foreign_count = self._processes.count_foreign(pids)
        return Reading(
            at_ns=read_at_ns,
            foreign_process_count=foreign_count,
            **quantities,
        )

    def _reasons_since_last(self, current: tuple[str, ...] | None) -> tuple[str, ...] | None:
        """Add the reasons whose counters grew since the previous reading.

        A block of samples may be shorter than the distance of two readings.
        """
        counts = self.device.held_back_counts()
        reasons = dict.fromkeys(current or ())
        for reason, count in counts.items():
            if count > self._held_back_counts.get(reason, count):
                reasons[reason] = None
        self._held_back_counts = counts
        if current is None and not counts:
            return None
        return tuple(reasons)


def no_telemetry(status: str, message: str) -> Telemetry:
    """Telemetry of a device that cannot be read."""
    return Telemetry.model_validate(
        {
            "status": status,
            "message": message,
            "started_at": utc_now(),
        }
    )


def join_telemetry(parts: Sequence[Telemetry]) -> Telemetry:
    """Join the telemetry of a run that several processes measured one after the other.

    An empty reading separates two processes. Their distance follows from their starting times.
    `energy_j` continues without the energy spent in between. Very long runs are thinned out. Parts,
    at least one, are in order; those with equal `started_at` come from one process.
    """
    distinct_messages = dict.fromkeys(part.message for part in parts if part.message)
    messages = "; ".join(distinct_messages) or None
    with_readings = [part for part in parts if part.offset_ms]
    if not with_readings:
        return parts[-1].model_copy(update={"message": messages})
    reading_count = sum(len(part.offset_ms) for part in with_readings)
    step = ceil(reading_count / MAX_STORED_READINGS)
    first_started_at = with_readings[0].started_at
    rows: list[dict[str, Any]] = []
    for started_at, process_parts in groupby(with_readings, key=attrgetter("started_at")):
        start_ms = 0.0
        start_j = 0.0
        if rows:
            gap_ms = rows[-1]["offset_ms"] + PERIOD_S * 1e3
            distance_ms = (started_at - first_started_at) / timedelta(milliseconds=1)
            # clocks of two processes may disagree; offsets must still grow
            start_ms = max(distance_ms, gap_ms + PERIOD_S * 1e3)
            start_j = _highest_energy_j(rows)
            rows.append({"offset_ms": gap_ms})
        process_rows = [row for part in process_parts for row in _rows(part)]
        for row in process_rows[::step]:
            row["offset_ms"] += start_ms
            if row["energy_j"] is not None:
                row["energy_j"] += start_j
            rows.append(row)
    return _telemetry(
        rows=rows,
        started_at=first_started_at,
        message=messages,
        health=with_readings[0].health,
    )


def _highest_energy_j(rows: Sequence[dict[str, Any]]) -> float:
    energies_j = [row["energy_j"] for row in rows if row.get("energy_j") is not None]
    return max(energies_j, default=0.0)


def _rows(part: Telemetry) -> list[dict[str, Any]]:
    names = ("offset_ms", "clock_event_reasons", *_QUANTITIES)
    nothing = [None] * len(part.offset_ms)
    columns = [getattr(part, name) or nothing for name in names]
    return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]


def _telemetry(
    rows: Sequence[dict[str, Any]],
    started_at: datetime,
    message: str | None,
    health: Mapping[str, float],
) -> Telemetry:
    """Turn readings into columns; a column without values stays empty."""
    columns: dict[str, list[Any]] = {}
    for name in ("clock_event_reasons", *_QUANTITIES):
        values = [row.get(name) for row in rows]
        if any(value is not None for value in values):
            columns[name] = values
    if "clock_event_reasons" in columns:
        all_reasons = columns["clock_event_reasons"]
        columns["clock_event_reasons"] = [reasons or () for reasons in all_reasons]
    status = "unavailable"
    if rows:
        status = "ok"
    return Telemetry.model_validate(
        {
            "status": status,
            "message": message,
            "started_at": started_at,
            "health": health,
            "offset_ms": [row["offset_ms"] for row in rows],
            **columns,
        }
    )

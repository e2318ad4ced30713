"""The device of a run: checked, watched, and held at one clock if asked for."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import TracebackType
from typing import Self

from roofwatch.collector.device.clock_lock import BASE, Clock, ClockLock, held_clock, is_asleep, not_held
from roofwatch.collector.device.nvml import NvmlBinding, NvmlDevice, NvmlError
from roofwatch.collector.device.readings import (
    LONGEST_WAIT_S,
    UnfitDevice,
    Window,
    device_state,
    has_recovered,
    is_held_by_heat,
    unfit_because,
)
from roofwatch.collector.device.telemetry import PERIOD_S, OwnProcesses, Sampler, TelemetryPart, joined, no_telemetry
from roofwatch.collector.errors import CollectorError
from roofwatch.collector.record.machine import DeviceState, Environment, Telemetry
from roofwatch.collector.record.record import utc_now
from roofwatch.collector.workers.protocol import MeasuredCeiling, TimedBlock

_LOCK_TIMEOUT_S = 3.0
_LOOK_AGAIN_S = 1.0


@dataclass
class _Watched:
    device: NvmlDevice
    sampler: Sampler
    started_at: datetime
    to_journal: TelemetryPart
    journalled_count: int = 0
    """Readings that were given away by `take_new`."""


@dataclass
class _Cooling:
    """What was waited for a device to cool."""

    pause_count: int = 0
    waited_s: float = 0.0
    was_in_vain: bool = False

    @property
    def in_words(self) -> str | None:
        if not self.pause_count:
            return None
        how_often = "once" if self.pause_count == 1 else f"{self.pause_count} times"
        outcome = ", in vain" if self.was_in_vain else ""
        return f"waited {how_often} for it to cool, {self.waited_s:.0f} s in all{outcome}"


class DeviceSession:
    """Watches one device; used as a context, at whose end its clock is free and nobody watches. Two runs that are
    measured against each other share one.

    A device that cannot be watched is said so in `telemetry`, and measured all the same.

    Args:
        lock: What to hold the SM clock at; None leaves it free.
        earlier: What processes of the same run saw before this one.
        nvml: Answers in NVML's place.
        unfit: What to do where the device is not fit to confirm anything on: refuse to measure, or warn; None leaves it
            to the blocks to tell.
        wait: Waits so many seconds.
    """

    def __init__(
        self,
        lock: Clock | None = None,
        *,
        earlier: Sequence[Telemetry] = (),
        nvml: NvmlBinding | None = None,
        unfit: UnfitDevice | None = None,
        wait: Callable[[float], None] = time.sleep,
    ) -> None:
        self._to_lock = lock
        self._earlier = tuple(earlier)
        self._nvml = nvml
        self._unfit = unfit
        self._wait = wait
        self._watched: _Watched | None = None
        self._lock: ClockLock | None = None
        self._held_mhz: float | None = None
        self._refusal: Telemetry | None = None
        self._complaint: str | None = None
        self._cooling = _Cooling()
        self.warning: str | None = None
        """Why the device is not fit, where it is measured on all the same."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def begin(self, environment: Environment, uuid: str | None) -> Environment:
        """Look at the device from now on, and lock its clock if that was asked for; once for all runs on it.

        Args:
            environment: As a worker describes it; on a CPU there is nothing to watch.
            uuid: Of the device that torch uses there.

        Returns:
            The environment with the clock at which the device is held.

        Raises:
            CollectorError: the clock is to be locked and cannot be, or is not held; or the device is not fit, and is
                then to be refused.
        """
        if self._watched is None and self._refusal is None and environment.device_kind != "cpu":
            try:
                self._watched = self._watch(uuid)
            except NvmlError as error:
                self._refusal = no_telemetry(error.status, str(error))
            self._see_whether_fit(environment)
        if self._to_lock is None:
            return environment
        if self._lock is None:
            if self._watched is None:
                why = "a CPU has no clock to lock" if self._refusal is None else self._refusal.message
                raise CollectorError(f"--lock-clocks: {why}; leave it out")
            self._held_mhz = self._hold(self._watched, self._to_lock)
        return environment.model_copy(update={"clock_mode": "locked", "locked_sm_clock_mhz": self._held_mhz})

    @property
    def is_too_hot(self) -> bool:
        """Whether heat holds the device back, and it is worth waiting for."""
        latest = None if self._watched is None or self._cooling.was_in_vain else self._watched.sampler.latest
        return latest is not None and is_held_by_heat(latest)

    def cool_down(self, on_wait: Callable[[str], None]) -> None:
        """Before something is measured: where heat holds the device back, wait until it has recovered, 3 minutes at
        the most. One that has not recovered by then is not waited for again; its blocks tell that they are degraded.

        Args:
            on_wait: Told why, before the waiting begins.
        """
        hot = None if self._watched is None else self._watched.sampler.latest
        if self._watched is None or hot is None or not self.is_too_hot:
            return
        sampler = self._watched.sampler
        heat = "" if hot.temperature_c is None else f" at {hot.temperature_c:.0f} °C"
        on_wait(f"the device is held back by heat{heat}: waiting for it to cool, {LONGEST_WAIT_S:.0f} s at the most")
        self._cooling.pause_count += 1
        for _ in range(int(LONGEST_WAIT_S / _LOOK_AGAIN_S)):
            self._wait(_LOOK_AGAIN_S)
            self._cooling.waited_s += _LOOK_AGAIN_S
            sampler.read()
            now = sampler.latest
            if sampler.failure is not None or (now is not None and has_recovered(now, hot)):
                return
        self._cooling.was_in_vain = True

    def _see_whether_fit(self, environment: Environment) -> None:
        reading = None if self._watched is None else self._watched.sampler.latest
        reasons = "; ".join(unfit_because(environment, reading))
        if not reasons or self._unfit is None:
            return
        said = f"nothing should be confirmed on this device: {reasons}"
        if self._unfit == "refuse":
            raise CollectorError(f"{said}; put that right, or measure all the same with --unfit-device warn")
        self.warning = said

    def state(self, window: Window, *, launch_count: int = 0) -> DeviceState | None:
        """What was seen in a window that has just ended, with so many launches in it; None where nobody watches."""
        if self._watched is None:
            return None
        # the energy is read on both sides of the window, and nobody waits for the next reading
        self._watched.sampler.read()
        return device_state(
            self._watched.sampler.since(window.began_ns - int(PERIOD_S * 1e9)),
            window,
            launch_count=launch_count,
            locked_sm_clock_mhz=self._held_mhz,
        )

    def with_state(self, taken: TimedBlock) -> TimedBlock:
        """The block with the device's state while its samples were taken."""
        window = Window(taken.began_ns, taken.ended_ns)
        state = self.state(window, launch_count=len(taken.block.samples_ns) * taken.launches_per_sample)
        return taken.model_copy(update={"block": taken.block.model_copy(update={"device_state": state})})

    def states_at(self, measured: Iterable[MeasuredCeiling]) -> tuple[DeviceState, ...]:
        """The device's state while each ceiling was measured; empty where nobody watches."""
        windows = [Window(one.began_ns, one.ended_ns) for one in measured if one.ceiling.source == "measured"]
        return tuple(state for window in windows if (state := self.state(window)) is not None)

    def take_new(self) -> Telemetry | None:
        """What was seen since it was asked last, for the journal; None where that is nothing."""
        watched = self._watched
        if watched is None:
            return None
        readings = watched.sampler.beyond(watched.journalled_count)
        watched.journalled_count += len(readings)
        return watched.to_journal.columns(readings) if readings else None

    @property
    def telemetry(self) -> Telemetry | None:
        """All that was seen so far, by processes before this one too; None on a CPU."""
        parts = [*self._earlier, *(part for part in [self._own_telemetry()] if part is not None)]
        return joined(parts) if parts else None

    def _own_telemetry(self) -> Telemetry | None:
        if self._watched is None:
            return self._refusal
        sampler, device = self._watched.sampler, self._watched.device
        readings = sampler.readings
        messages = [sampler.failure, self._complaint, self.warning, self._cooling.in_words]
        if device.refused:
            messages.append(f"not offered here: {', '.join(device.refused)}")
        if readings and all(reading.foreign_process_count is None for reading in readings):
            messages.append("the driver does not tell whose the processes on the device are")
        message = "; ".join(message for message in messages if message) or None
        return TelemetryPart(self._watched.started_at).columns(readings, message=message)

    def stop(self) -> None:
        """Give the clock back and end watching; what was seen stays. Safe to call again."""
        if self._lock is not None:
            self._complaint = self._lock.release()
        if self._watched is not None:
            self._watched.sampler.stop()
            self._watched.device.close()

    def _hold(self, watched: _Watched, clock: Clock) -> float:
        """Lock the clock, and wait up to 3 s to see it held."""
        locked_at_ns = time.monotonic_ns()
        self._lock = ClockLock(watched.device.uuid, clock)
        for _ in range(1 + int(_LOCK_TIMEOUT_S / PERIOD_S)):
            held_mhz = held_clock(watched.sampler.since(locked_at_ns), clock)
            if held_mhz is not None:
                return held_mhz
            self._wait(PERIOD_S)
            watched.sampler.read()
        readings = watched.sampler.since(locked_at_ns)
        if clock != BASE and is_asleep(readings):
            return float(clock)  # each block tells by itself
        raise CollectorError(not_held(readings, clock))

    def _watch(self, uuid: str | None) -> _Watched:
        device = NvmlDevice(uuid, self._nvml)
        if device.is_mig_on():
            device.close()
            raise NvmlError(
                "unsupported", "the device is a MIG slice: clock, power and neighbours are those of the whole device"
            )
        sampler = Sampler(device, is_own=OwnProcesses().__contains__)
        started_at = utc_now()
        sampler.read()
        sampler.start()
        return _Watched(device, sampler, started_at, TelemetryPart(started_at))

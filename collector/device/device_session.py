"""The GPU during a run: checked, sampled, and held at one clock on request."""

import time
from collections.abc import Callable, Sequence
from typing import Any, Self

from roofwatch.collector.device.clock_lock import ClockLock
from roofwatch.collector.device.device_state import (
    MAX_COOLING_S,
    BlockWindow,
    UnfitDevice,
    describe_failed_lock,
    device_state,
    has_cooled_down,
    holds_clock,
    is_always_idle,
    is_throttled_by_heat,
    unfit_reasons,
)
from roofwatch.collector.device.nvml import NvmlDevice, NvmlError
from roofwatch.collector.device.telemetry import (
    PERIOD_S,
    Reading,
    Sampler,
    join_telemetry,
    no_telemetry,
)
from roofwatch.model.errors import CollectorError
from roofwatch.model.machine import DeviceState, Environment, Telemetry
from roofwatch.model.worker_protocol import TimedBlock

_LOCK_TIMEOUT_S = 3.0
_COOLING_PERIOD_S = 1.0


class DeviceSession:
    """Samples one device; use it as a context manager. Base and head of a comparison share one.

    A device that cannot be sampled is measured without telemetry, which says why. `earlier` is the
    telemetry of earlier processes of the same run.
    """

    def __init__(
        self,
        lock_mhz: int | None = None,
        *,
        earlier: Sequence[Telemetry] = (),
        nvml: Any = None,
        unfit: UnfitDevice | None = None,
        wait: Callable[[float], None] = time.sleep,
    ) -> None:
        self._lock_mhz = lock_mhz
        self._earlier = tuple(earlier)
        self._nvml = nvml
        self._unfit = unfit
        self._wait = wait
        self._sampler: Sampler | None = None
        self._unavailable: Telemetry | None = None
        self._journalled_count = 0
        self._lock: ClockLock | None = None
        self._unlock_error: str | None = None
        self._cooling_s = 0.0
        self._cooling_failed = False
        self.uuid: str | None = None
        """Of the device; None on a CPU."""
        self.warning: str | None = None
        """Why the device is not fit, if it is measured anyway."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.stop()

    def begin(self, environment: Environment, uuid: str | None) -> Environment:
        """Start sampling, except on a CPU, and lock the clock if requested; once for all runs of
        the session.

        Returns:
            The environment with the locked clock.

        Raises:
            CollectorError: the clock cannot be locked or does not hold, or the device is unfit and
            to be refused.
        """
        self.uuid = uuid
        # once for all runs of the session, both sides of a pair
        if self._sampler is None and self._unavailable is None and environment.device_kind != "cpu":
            try:
                self._sampler = self._start_sampler(uuid)
            except NvmlError as error:
                self._unavailable = no_telemetry(error.status, str(error))
            self._require_fit(environment)
        # a clock that is not locked is recorded instead
        if self._lock_mhz is None:
            return environment
        if self._lock is None:
            if self._sampler is None:
                reason = "a CPU has no clock to lock"
                if self._unavailable is not None:
                    reason = str(self._unavailable.message)
                raise CollectorError(f"--lock-clocks: {reason}; leave it out")
            self._lock_clock(self._sampler, self._lock_mhz)
        locked_clock = {"clock_mode": "locked", "locked_sm_clock_mhz": float(self._lock_mhz)}
        return environment.model_copy(update=locked_clock)

    @property
    def _latest(self) -> Reading | None:
        """The newest reading; None without a sampler or before its first reading."""
        if self._sampler is None:
            return None
        return self._sampler.latest

    @property
    def is_too_hot(self) -> bool:
        """Whether heat throttles the device and waiting may help."""
        if self._cooling_failed or self._latest is None:
            return False
        return is_throttled_by_heat(self._latest)

    def cool_down(self, on_wait: Callable[[str], None]) -> None:
        """Wait for a device that heat throttles, at most 3 minutes.

        After an unsuccessful wait the session does not wait again; its blocks are marked as
        degraded.
        """
        throttled = self._latest
        if self._sampler is None or throttled is None or not self.is_too_hot:
            return
        heat = ""
        if throttled.temperature_c is not None:
            heat = f" at {throttled.temperature_c:.0f} °C"
        on_wait(
            f"heat throttles the GPU{heat}: waiting up to {MAX_COOLING_S:.0f} s for it to cool down"
        )
        for _ in range(int(MAX_COOLING_S / _COOLING_PERIOD_S)):
            self._wait(_COOLING_PERIOD_S)
            self._cooling_s += _COOLING_PERIOD_S
            self._sampler.read()
            latest = self._sampler.latest
            # a lost device never cools down; its failure is reported with the telemetry
            if self._sampler.failure is not None:
                return
            if latest is not None and has_cooled_down(latest, throttled):
                return
        self._cooling_failed = True

    def state(self, window: BlockWindow, *, launch_count: int) -> DeviceState | None:
        """Summarise a window that has just ended; None without telemetry."""
        if self._sampler is None:
            return None
        self._sampler.read()  # the energy counter must be read after the window too
        return device_state(
            readings=self._sampler.since(window.began_ns - int(PERIOD_S * 1e9)),
            window=window,
            launch_count=launch_count,
            locked_sm_clock_mhz=self._lock_mhz,
        )

    def with_state(self, taken: TimedBlock) -> TimedBlock:
        """The block with the state of the device while it was timed."""
        window = BlockWindow(taken.began_ns, taken.ended_ns)
        launch_count = len(taken.block.samples_ns) * taken.launches_per_sample
        state = self.state(window, launch_count=launch_count)
        block = taken.block.model_copy(update={"device_state": state})
        return taken.model_copy(update={"block": block})

    def take_new(self) -> Telemetry | None:
        """Readings since the last call, for the journal; None if there are none."""
        if self._sampler is None:
            return None
        telemetry = self._sampler.telemetry(self._journalled_count)
        reading_count = len(telemetry.offset_ms)
        self._journalled_count += reading_count
        return telemetry if reading_count else None

    @property
    def telemetry(self) -> Telemetry | None:
        """All readings so far, including those of earlier processes; None on a CPU."""
        parts = list(self._earlier)
        of_this_process = self._own_telemetry()
        if of_this_process is not None:
            parts.append(of_this_process)
        if not parts:
            return None
        return join_telemetry(parts)

    def stop(self) -> None:
        """Unlock the clock and stop sampling; the readings remain. May be called again."""
        if self._lock is not None:
            self._unlock_error = self._lock.release()
        if self._sampler is not None:
            self._sampler.stop()

    def _start_sampler(self, uuid: str | None) -> Sampler:
        """Read NVML in a thread, unless its readings are those of other tenants too."""
        device = NvmlDevice(uuid, self._nvml)
        if device.is_mig_on():
            device.close()
            raise NvmlError(
                "unsupported",
                "the device is a MIG slice: NVML reports clock, power and processes of the whole "
                "GPU",
            )
        sampler = Sampler(device)
        sampler.read()
        sampler.start()
        return sampler

    def _require_fit(self, environment: Environment) -> None:
        """Refuse, or warn of, a device whose results cannot be trusted."""
        reasons = "; ".join(unfit_reasons(environment, self._latest))
        if not reasons or self._unfit is None:
            return
        message = f"results on this GPU are not reliable: {reasons}"
        if self._unfit == "refuse":
            raise CollectorError(f"{message}; fix this, or measure anyway with --device-check warn")
        self.warning = message

    def _lock_clock(self, sampler: Sampler, mhz: int) -> None:
        """Lock the clock and verify it, waiting up to 3 s. If the device is idle, only the blocks
        verify it.
        """
        locked_at_ns = time.monotonic_ns()
        self._lock = ClockLock(sampler.device.uuid, mhz)
        for _ in range(1 + int(_LOCK_TIMEOUT_S / PERIOD_S)):
            if holds_clock(sampler.since(locked_at_ns), mhz):
                return
            self._wait(PERIOD_S)
            sampler.read()
        readings = sampler.since(locked_at_ns)
        if not is_always_idle(readings):
            raise CollectorError(describe_failed_lock(readings, mhz))

    def _own_telemetry(self) -> Telemetry | None:
        """Telemetry of this process, with what was missing or went wrong."""
        if self._sampler is None:
            return self._unavailable
        messages = [self._sampler.failure, self._unlock_error, self.warning]
        if self._cooling_s:
            outcome = ", without success" if self._cooling_failed else ""
            messages.append(f"waited {self._cooling_s:.0f} s for the GPU to cool down{outcome}")
        if self._sampler.device.unsupported:
            messages.append(f"not supported here: {', '.join(self._sampler.device.unsupported)}")
        readings = self._sampler.readings
        if readings and all(reading.foreign_process_count is None for reading in readings):
            messages.append("the driver does not report which processes use the GPU")
        return self._sampler.telemetry(message="; ".join(filter(None, messages)) or None)

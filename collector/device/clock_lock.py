"""Lock the SM clock while measuring, and always unlock it afterwards.

A lock stays with the driver when the process that set it dies. A small watchdog process therefore sets it, waits until
its standard input closes, which happens when the collector ends in any way, and resets it.
"""

import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
from collections.abc import Sequence
from typing import Literal

from roofwatch.collector.device.device_state import is_held
from roofwatch.collector.device.nvml import GPU_IDLE, NvmlDevice, NvmlError
from roofwatch.collector.device.telemetry import Reading
from roofwatch.collector.errors import CollectorError
from roofwatch.install import python_command

BASE: Literal["base"] = "base"
"""The clock that the device sustains at its power limit, which nvbench locks too."""
Clock = int | Literal["base"]
"""MHz, or `base`."""

_MIN_MHZ, _MAX_MHZ = 100, 10_000
_STOP_TIMEOUT_S = 30.0
_MIN_HELD_READINGS = 3


def parse_clock(text: str) -> Clock:
    """Read the value of `--lock-clocks`.

    Raises:
        CollectorError: it is neither a plausible number of MHz nor `base`.
    """
    if text == BASE:
        return BASE
    if not (text.isascii() and text.isdigit() and _MIN_MHZ <= int(text) <= _MAX_MHZ):
        raise CollectorError(
            f"--lock-clocks {text}: give the SM clock in MHz, from {_MIN_MHZ} to {_MAX_MHZ}, or {BASE}; "
            "nvidia-smi -q -d SUPPORTED_CLOCKS lists the supported ones"
        )
    return int(text)


class ClockLock:
    """A locked clock, until `release` or the end of this process.

    Args:
        uuid: Of the device.
        clock: To lock.

    Raises:
        CollectorError: the clock cannot be locked; nothing was changed.
    """

    def __init__(self, uuid: str, clock: Clock) -> None:
        self._uuid = uuid
        self._watchdog = subprocess.Popen(
            python_command(__name__, uuid, str(clock)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        assert self._watchdog.stdout is not None
        line = self._watchdog.stdout.readline()
        error = json.loads(line)["error"] if line else "the watchdog process ended"
        if error is not None:
            self._end_watchdog()
            raise CollectorError(
                f"--lock-clocks: {error}; run as a user with permission (usually root), or leave --lock-clocks out"
            )

    @property
    def watchdog_pid(self) -> int:
        return self._watchdog.pid

    def release(self) -> str | None:
        """Unlock the clock; may be called again.

        Returns:
            Why the clock is still locked, and what to do; None on success.
        """
        if self._end_watchdog() == 0:
            return None
        try:  # the watchdog was killed or failed
            with NvmlDevice(self._uuid) as device:
                device.reset_sm_clock()
        except NvmlError as error:
            return f"{error}: the SM clock is still locked; reset it with nvidia-smi --reset-gpu-clocks"
        return None

    def _end_watchdog(self) -> int | None:
        for stream in (self._watchdog.stdin, self._watchdog.stdout):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()
        try:
            return self._watchdog.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            return None


def main(uuid: str, clock: str) -> None:
    """Lock the clock, wait for the collector to end, unlock it; the result goes to standard output as JSON."""
    # a signal to the collector's process group must not end the watchdog first
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    try:
        with NvmlDevice(uuid) as device:
            device.lock_sm_clock(None if clock == BASE else int(clock))
            try:
                _write_result(None)
                while os.read(sys.stdin.fileno(), 1):
                    pass
            finally:
                device.reset_sm_clock()
    except NvmlError as error:
        _write_result(str(error))
        sys.exit(1)


def _write_result(error: str | None) -> None:
    with contextlib.suppress(BrokenPipeError):
        os.write(sys.stdout.fileno(), json.dumps({"error": error}).encode() + b"\n")


def held_clock(readings: Sequence[Reading], clock: Clock) -> float | None:
    """SM clock in MHz at which the lock holds the device; None if it does not hold yet.

    Args:
        readings: Since the clock was locked.
        clock: The requested clock.
    """
    known = [reading for reading in readings if reading.sm_clock_mhz is not None]
    if clock != BASE:
        held = [reading for reading in known if is_held(reading.sm_clock_mhz or 0.0, clock)]
        return float(clock) if len(held) >= _MIN_HELD_READINGS else None
    # the base clock is not known in advance: take what a busy device settles at
    last = [reading.sm_clock_mhz or 0.0 for reading in known if not _is_idle(reading)][-_MIN_HELD_READINGS:]
    if len(last) < _MIN_HELD_READINGS:
        return None
    median_mhz = statistics.median(last)
    return median_mhz if all(is_held(mhz, median_mhz) for mhz in last) else None


def is_always_idle(readings: Sequence[Reading]) -> bool:
    """Whether the device was idle in every reading; its clock then says nothing about the lock."""
    return bool(readings) and all(map(_is_idle, readings))


def describe_failed_lock(readings: Sequence[Reading], clock: Clock) -> str:
    """Explain why a lock does not hold, from the readings since."""
    clocks_mhz = [reading.sm_clock_mhz for reading in readings if reading.sm_clock_mhz is not None]
    wanted = "the base clock" if clock == BASE else f"{clock} MHz"
    if not clocks_mhz:
        return f"--lock-clocks: NVML does not report the SM clock, so {wanted} cannot be verified"
    reasons = dict.fromkeys(reason for reading in readings for reason in reading.clock_event_reasons or ())
    why = f" ({', '.join(reasons)})" if reasons else ""
    return (
        f"--lock-clocks: the SM clock was locked at {wanted} but is {statistics.median(clocks_mhz):.0f} MHz{why}; "
        "choose a clock that the device can sustain"
    )


def _is_idle(reading: Reading) -> bool:
    return GPU_IDLE in (reading.clock_event_reasons or ())

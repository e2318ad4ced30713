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

from roofwatch.collector.device.device_state import is_held
from roofwatch.collector.device.nvml import GPU_IDLE, NvmlDevice, NvmlError
from roofwatch.collector.device.telemetry import Reading
from roofwatch.collector.errors import CollectorError
from roofwatch.install import python_command

_STOP_TIMEOUT_S = 30.0
_MIN_HELD_READINGS = 3


class ClockLock:
    """A locked SM clock, until `release` or the end of this process.

    Raises:
        CollectorError: the clock cannot be locked; nothing was changed.
    """

    def __init__(self, uuid: str, mhz: int) -> None:
        self._uuid = uuid
        self.watchdog = subprocess.Popen(
            python_command(__name__, uuid, str(mhz)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        assert self.watchdog.stdout is not None
        line = self.watchdog.stdout.readline()
        error = json.loads(line)["error"] if line else "the watchdog process ended"
        if error is not None:
            self._end_watchdog()
            raise CollectorError(
                f"--lock-clocks: {error}; run as a user with permission (usually root), or leave --lock-clocks out"
            )

    def release(self) -> str | None:
        """Unlock the clock; may be called again. Return why it is still locked, and what to do; None on success."""
        if self._end_watchdog() == 0:
            return None
        try:  # the watchdog was killed or failed
            with NvmlDevice(self._uuid) as device:
                device.reset_sm_clock()
        except NvmlError as error:
            return f"{error}: the SM clock is still locked; reset it with nvidia-smi --reset-gpu-clocks"
        return None

    def _end_watchdog(self) -> int | None:
        for stream in (self.watchdog.stdin, self.watchdog.stdout):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()
        try:
            return self.watchdog.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            return None


def main(uuid: str, mhz: str) -> None:
    """Lock the clock, wait for the collector to end, unlock it; the result goes to standard output as JSON."""
    # a signal to the collector's process group must not end the watchdog first
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    try:
        with NvmlDevice(uuid) as device:
            device.lock_sm_clock(int(mhz))
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


def holds_clock(readings: Sequence[Reading], mhz: int) -> bool:
    """Whether a lock holds the device at an SM clock, by the readings since it was locked."""
    clocks_mhz = [reading.sm_clock_mhz for reading in readings if reading.sm_clock_mhz is not None]
    return sum(is_held(found, mhz) for found in clocks_mhz) >= _MIN_HELD_READINGS


def is_always_idle(readings: Sequence[Reading]) -> bool:
    """Whether the device was idle in every reading; its clock then says nothing about the lock."""
    return bool(readings) and all(GPU_IDLE in (reading.clock_event_reasons or ()) for reading in readings)


def describe_failed_lock(readings: Sequence[Reading], mhz: int) -> str:
    """Explain why a lock does not hold, from the readings since."""
    clocks_mhz = [reading.sm_clock_mhz for reading in readings if reading.sm_clock_mhz is not None]
    if not clocks_mhz:
        return f"--lock-clocks: NVML does not report the SM clock, so {mhz} MHz cannot be verified"
    reasons = dict.fromkeys(reason for reading in readings for reason in reading.clock_event_reasons or ())
    why = f" ({', '.join(reasons)})" if reasons else ""
    return (
        f"--lock-clocks: the SM clock was locked at {mhz} MHz but is {statistics.median(clocks_mhz):.0f} MHz{why}; "
        "choose a clock that the device can sustain"
    )

"""A clock that is always unlocked afterwards, even if the process that locked it is killed."""

import contextlib
import json
import os
import signal
import subprocess
import sys

from roofwatch.collector.device.nvml import NvmlDevice, NvmlError
from roofwatch.install import python_command
from roofwatch.model.errors import CollectorError

# a watchdog that takes longer has not unlocked the clock
_STOP_TIMEOUT_S = 30.0


class ClockLock:
    """A locked SM clock, until `release` or the end of this process.

    A lock stays with the driver when the process that set it dies. A small watchdog process
    therefore sets it, waits until its standard input closes, which happens when the collector ends
    in any way, and resets it.

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
        error = "the watchdog process ended"
        if line:
            error = json.loads(line)["error"]
        if error is not None:
            self._end_watchdog()
            raise CollectorError(
                f"--lock-clocks: {error}; run as a user with permission (usually root), or leave "
                f"--lock-clocks out"
            )

    def release(self) -> str | None:
        """Unlock the clock; may be called again. Return why it is still locked, and what to do;
        None on success.
        """
        if self._end_watchdog() == 0:
            return None
        try:  # the watchdog was killed or failed
            with NvmlDevice(self._uuid) as device:
                device.reset_sm_clock()
        except NvmlError as error:
            return (
                f"{error}: the SM clock is still locked; reset it with nvidia-smi "
                f"--reset-gpu-clocks"
            )
        return None

    def _end_watchdog(self) -> int | None:
        """Let the watchdog end, which unlocks the clock; None if it hangs."""
        for stream in (self.watchdog.stdin, self.watchdog.stdout):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()
        try:
            return self.watchdog.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            return None


def main(uuid: str, mhz: str) -> None:
    """The watchdog: lock the clock, wait for the collector to end, unlock it. The result goes to
    standard output.
    """
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
    line = json.dumps({"error": error}) + "\n"
    with contextlib.suppress(BrokenPipeError):
        os.write(sys.stdout.fileno(), line.encode())

"""Hold the SM clock of the device while it is measured, if that is asked for, and give it back in every case."""

from __future__ import annotations

import contextlib
import json
import statistics
import subprocess
import sys
from collections.abc import Sequence
from typing import Literal

from roofwatch.collector.device import clock_watchdog
from roofwatch.collector.device.nvml import CLOCK_LIMIT_TDP, GPU_IDLE, NvmlDevice, NvmlError
from roofwatch.collector.device.readings import is_held
from roofwatch.collector.device.telemetry import Reading
from roofwatch.collector.errors import CollectorError
from roofwatch.install import INSTALL_ROOT

BASE: Literal["base"] = "base"
"""In place of a frequency: the one that the device keeps at its power limit, as nvbench locks it."""
Clock = int | Literal["base"]
"""In MHz."""
MIN_MHZ, MAX_MHZ = 100, 10_000

_BOOT = f"""
import sys
sys.path.insert(0, sys.argv[1])
from {clock_watchdog.__name__} import main
main(sys.argv[2], int(sys.argv[3]))
"""
_STOP_TIMEOUT_S = 30.0
_MIN_HELD_READINGS = 3
_WAY_OUT = "run as a user who may (root, usually), or leave --lock-clocks out: times are judged either way"


def parse_clock(text: str) -> Clock:
    """What to lock: a number of MHz, or `base`.

    Raises:
        CollectorError: it is neither.
    """
    if text == BASE:
        return BASE
    if not (text.isascii() and text.isdigit() and MIN_MHZ <= int(text) <= MAX_MHZ):
        raise CollectorError(
            f"--lock-clocks {text}: give the SM clock in MHz, from {MIN_MHZ} to {MAX_MHZ}, or {BASE}; "
            "nvidia-smi -q -d SUPPORTED_CLOCKS lists those there are"
        )
    return int(text)


class ClockLock:
    """A clock that is held by a process of its own, from here until `release` or the end of this process.

    Args:
        uuid: Of the device.
        clock: What to hold.

    Raises:
        CollectorError: the clock cannot be locked; nothing was changed.
    """

    def __init__(self, uuid: str, clock: Clock) -> None:
        self.clock = clock
        self._uuid = uuid
        limit = CLOCK_LIMIT_TDP if clock == BASE else clock
        self._watchdog = subprocess.Popen(
            [sys.executable, "-P", "-c", _BOOT, str(INSTALL_ROOT), uuid, str(limit)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        assert self._watchdog.stdout is not None
        line = self._watchdog.stdout.readline()
        error = json.loads(line)["error"] if line else "the process that was to lock it ended"
        if error is not None:
            self._end()
            raise CollectorError(f"--lock-clocks: {error}; {_WAY_OUT}")

    @property
    def watchdog_pid(self) -> int:
        return self._watchdog.pid

    def release(self) -> str | None:
        """Let the device choose its clock again; safe to call again.

        Returns:
            What to do, where it could not be done; None where it was.
        """
        if self._watchdog.returncode is not None or self._end() == 0:
            return None
        try:  # the watchdog was killed, or refused: try it from here
            with NvmlDevice(self._uuid) as device:
                device.reset_sm_clock()
        except NvmlError as error:
            return f"{error}: the SM clock is still locked; reset it with nvidia-smi --reset-gpu-clocks"
        return None

    def _end(self) -> int | None:
        for stream in (self._watchdog.stdin, self._watchdog.stdout):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()
        try:
            return self._watchdog.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            return None


def held_clock(readings: Sequence[Reading], clock: Clock) -> float | None:
    """The SM clock in MHz that a lock has brought about; None where it has not, or not yet.

    Args:
        readings: Since the clock was locked.
        clock: What was asked for.
    """
    known = [reading for reading in readings if reading.sm_clock_mhz is not None]
    if clock != BASE:
        held = [reading for reading in known if is_held(reading.sm_clock_mhz or 0.0, clock)]
        return float(clock) if len(held) >= _MIN_HELD_READINGS else None
    # nobody said which frequency it is: what a device that is awake settles at
    awake = [reading.sm_clock_mhz or 0.0 for reading in known if not _is_idle(reading)]
    last = awake[-_MIN_HELD_READINGS:]
    centre = statistics.median(last) if last else 0.0
    is_settled = len(last) == _MIN_HELD_READINGS and all(is_held(mhz, centre) for mhz in last)
    return centre if is_settled else None


def is_asleep(readings: Sequence[Reading]) -> bool:
    """Whether the device had nothing to do in any of the readings, so that its clock says nothing of a lock."""
    return bool(readings) and all(map(_is_idle, readings))


def not_held(readings: Sequence[Reading], clock: Clock) -> str:
    """Why a lock does not count, from the readings since."""
    clocks = [reading.sm_clock_mhz for reading in readings if reading.sm_clock_mhz is not None]
    asked = "at its base" if clock == BASE else f"at {clock} MHz"
    if not clocks:
        return f"--lock-clocks: whether the SM clock is held {asked} cannot be told, NVML does not read it here"
    reasons = dict.fromkeys(reason for reading in readings for reason in reading.clock_event_reasons or ())
    why = f" ({', '.join(reasons)})" if reasons else ""
    return (
        f"--lock-clocks: the SM clock was to be held {asked} and is at {statistics.median(clocks):.0f} MHz{why}; "
        "lock one that the device can keep"
    )


def _is_idle(reading: Reading) -> bool:
    return GPU_IDLE in (reading.clock_event_reasons or ())

"""A small process that holds the device's clock, and gives it back when the collector is gone, however it went.

A lock of the clock stays with the driver, not with whom asked for it: a collector that is killed outright could not
undo it. So this process asks for it, waits for the end of its standard input, which the system closes when the
collector ends, and resets the clock then. It says what came of the lock in one JSON line on standard output, and ends
with 0 once the clock is free again.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys

from roofwatch.collector.device.nvml import NvmlDevice, NvmlError
from roofwatch.collector.errors import CollectorError

STANDARD_INPUT, STANDARD_OUTPUT = 0, 1


def main(uuid: str, mhz: int) -> None:
    """Lock, wait, reset.

    Args:
        uuid: Of the device.
        mhz: What to hold the SM clock at, or `roofwatch.collector.device.nvml.CLOCK_LIMIT_TDP`.
    """
    # whoever ends the collector may ask its whole group to end: this one ends after it
    for asked_to_end in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(asked_to_end, signal.SIG_IGN)
    try:
        with NvmlDevice(uuid) as device:
            device.lock_sm_clock(mhz)
            try:
                _say({"error": None})
                _wait_for_the_end()
            finally:
                device.reset_sm_clock()
    except (NvmlError, CollectorError) as error:
        _say({"error": str(error)})
        sys.exit(1)


def _say(answer: dict[str, str | None]) -> None:
    with contextlib.suppress(BrokenPipeError):
        os.write(STANDARD_OUTPUT, json.dumps(answer).encode() + b"\n")


def _wait_for_the_end() -> None:
    while os.read(STANDARD_INPUT, 1):
        pass

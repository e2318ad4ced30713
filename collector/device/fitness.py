"""Whether a device is fit to measure on: kept to itself, awake, and not held back by heat. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from roofwatch.collector.device.clock_events import THERMAL
from roofwatch.collector.device.telemetry import Reading
from roofwatch.collector.record.machine import Environment

UnfitDevice = Literal["refuse", "warn"]
"""What to do where a device is not fit."""

LONGEST_WAIT_S = 180.0
"""For a device to cool. Source: NVIDIA/nsight-python, thermovision.py."""
_COOLER_BY_C = 10.0
"""Than when it was held back. At the moment that the device lets go it is as hot as the moment before: the next launch
would have it held back again. nsight-python pauses at 10 degrees below the limit and goes on at 20.
"""


def is_held_by_heat(reading: Reading) -> bool:
    return not THERMAL.isdisjoint(reading.clock_event_reasons or ())


def has_recovered(now: Reading, from_what: Reading) -> bool:
    """Whether a device that was held back by heat may be measured on again."""
    if is_held_by_heat(now):
        return False
    if now.temperature_c is None or from_what.temperature_c is None:
        return True
    return now.temperature_c <= from_what.temperature_c - _COOLER_BY_C


def unfit_because(environment: Environment, reading: Reading | None) -> Iterator[str]:
    """Why nothing should be confirmed on the device, each with the way out; nothing where NVML does not say."""
    if environment.is_persistence_on is False:
        yield "its persistence mode is off (`nvidia-smi -pm 1`, as root, switches it on)"
    if reading is not None and reading.foreign_process_count:
        count = reading.foreign_process_count
        yield f"{count} other process{' uses' if count == 1 else 'es use'} it (`nvidia-smi` lists them)"

"""What readings say: the device's state during a block, and whether it is fit to measure on."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from roofwatch.collector.device.nvml import FAULTS, THERMAL
from roofwatch.collector.device.telemetry import PERIOD_S, Reading
from roofwatch.collector.record.machine import DeviceState, Environment

FOREIGN_PROCESS = "foreign_process"
UNSTEADY_CLOCK = "unsteady_sm_clock"
LOST_LOCK = "clock_lock_lost"

MAX_CLOCK_RANGE = 0.10
"""Of the SM clock within a block, from its first to its ninth decile, relative to its median."""
LOCK_TOLERANCE_MHZ = 50.0
"""A locked clock further off is not locked (NVIDIA/SOL-ExecBench, clock_lock.py)."""

_MIN_READINGS_FOR_RANGE = 3
_MIN_ENERGY_STEPS = 2


@dataclass(frozen=True)
class Window:
    """When the samples of a block were taken, by the monotonic clock."""

    began_ns: int
    ended_ns: int

    def widened(self, by_ns: float) -> Window:
        return Window(self.began_ns - int(by_ns), self.ended_ns + int(by_ns))

    def __contains__(self, reading: Reading) -> bool:
        return self.began_ns <= reading.at_ns <= self.ended_ns


def device_state(
    readings: Sequence[Reading],
    window: Window,
    *,
    launch_count: int,
    locked_sm_clock_mhz: float | None = None,
    period_s: float = PERIOD_S,
) -> DeviceState:
    """What was seen of the device while a block was sampled.

    A block may be shorter than two readings are apart, so readings up to half a period outside of it count too.

    Args:
        readings: In order, with the ones around the window.
        window: Of the block's samples.
        launch_count: Launches within it.
        locked_sm_clock_mhz: At which the clock was to be held; None where it is free.
        period_s: Between two readings.
    """
    seen = [reading for reading in readings if reading in window.widened(period_s * 1e9 / 2)]
    reasons = tuple(dict.fromkeys(reason for reading in seen for reason in reading.clock_event_reasons or ()))
    clock = _of(statistics.median, (reading.sm_clock_mhz for reading in seen))
    degraded_by = [reason for reason in reasons if reason in FAULTS]
    if any(reading.foreign_process_count for reading in seen):
        degraded_by.append(FOREIGN_PROCESS)
    if _is_unsteady([reading.sm_clock_mhz for reading in readings if reading in window]):
        degraded_by.append(UNSTEADY_CLOCK)
    if locked_sm_clock_mhz is not None and clock is not None and not is_held(clock, locked_sm_clock_mhz):
        degraded_by.append(LOST_LOCK)
    energy_j = energy_between(readings, window)
    return DeviceState(
        reading_count=len(seen),
        sm_clock_mhz=clock,
        memory_clock_mhz=_of(statistics.median, (reading.memory_clock_mhz for reading in seen)),
        power_w=_of(statistics.mean, (reading.power_w for reading in seen)),
        temperature_c=_of(max, (reading.temperature_c for reading in seen)),
        energy_per_launch_j=None if energy_j is None or launch_count < 1 else energy_j / launch_count,
        clock_event_reasons=reasons,
        degraded_by=tuple(degraded_by),
    )


def energy_between(readings: Sequence[Reading], window: Window) -> float | None:
    """Energy in J that the device spent in a window, from its counter, by straight lines between readings.

    None where the counter is not read on both sides of the window, went back, or moved too few times within it to say
    more than how it steps.
    """
    points = [(reading.at_ns, reading.energy_j) for reading in readings if reading.energy_j is not None]
    before = [point for point in points if point[0] <= window.began_ns]
    after = [point for point in points if point[0] >= window.ended_ns]
    if not before or not after or window.ended_ns <= window.began_ns:
        return None
    around = [point for point in points if before[-1][0] <= point[0] <= after[0][0]]
    steps = [later[1] - earlier[1] for earlier, later in itertools.pairwise(around)]
    if any(step < 0 for step in steps) or sum(step > 0 for step in steps) < _MIN_ENERGY_STEPS:
        return None
    return _interpolated(around, window.ended_ns) - _interpolated(around, window.began_ns)


def is_held(sm_clock_mhz: float, locked_sm_clock_mhz: float) -> bool:
    return abs(sm_clock_mhz - locked_sm_clock_mhz) <= LOCK_TOLERANCE_MHZ


def _is_unsteady(clocks_mhz: Iterable[float | None]) -> bool:
    known = [clock for clock in clocks_mhz if clock is not None]
    if len(known) < _MIN_READINGS_FOR_RANGE:
        return False
    deciles = statistics.quantiles(known, n=10, method="inclusive")
    return deciles[-1] - deciles[0] > MAX_CLOCK_RANGE * statistics.median(known)


def _interpolated(points: Sequence[tuple[int, float]], at_ns: int) -> float:
    for (left_ns, left), (right_ns, right) in itertools.pairwise(points):
        if left_ns <= at_ns <= right_ns:
            return left + (right - left) * (at_ns - left_ns) / max(1, right_ns - left_ns)
    return points[-1][1]


def _of(summarise: Callable[[list[float]], float], values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(summarise(known)) if known else None


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

"""Summarise readings: the state of the device during a block,
and whether it is fit for measuring.
"""

import itertools
import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from roofwatch.collector.device.nvml import FAULTS, GPU_IDLE, THERMAL
from roofwatch.collector.device.telemetry import PERIOD_S, Reading
from roofwatch.model.machine import DeviceState, Environment

UnfitDevice = Literal["refuse", "warn"]

MAX_COOLING_S = 180.0
"""Source: NVIDIA/nsight-python, thermovision.py."""

_MAX_CLOCK_RANGE = 0.10
"""Distance of the first and ninth decile of the SM clock, relative to its median."""
_MIN_READINGS_FOR_RANGE = 8
"""One late reading of an idle clock among few would look like an unsteady one."""
_LOCK_TOLERANCE_MHZ = 50.0
"""Source: NVIDIA/SOL-ExecBench, clock_lock.py."""
_MIN_HELD_READINGS = 3
_MIN_ENERGY_STEPS = 2
_COOLER_BY_C = 10.0
"""The device must be this much cooler than when it was throttled, or the next launch throttles it
again. nsight-python pauses 10 degrees below the limit and continues at 20.
"""


@dataclass(frozen=True)
class Window:
    """A period of the monotonic clock."""

    began_ns: int
    ended_ns: int

    def widened(self, by_ns: float) -> "Window":
        return Window(self.began_ns - int(by_ns), self.ended_ns + int(by_ns))

    def __contains__(self, reading: Reading) -> bool:
        return self.began_ns <= reading.at_ns <= self.ended_ns


def device_state(
    readings: Sequence[Reading],
    window: Window,
    *,
    launch_count: int,
    locked_sm_clock_mhz: float | None = None,
) -> DeviceState:
    """Summarise the readings of a block of samples.

    A block may be shorter than the sampling period, so readings up to half a period outside the
    window count too.
    """
    inside = [reading for reading in readings if reading in window.widened(PERIOD_S * 1e9 / 2)]
    reasons = tuple(
        dict.fromkeys(reason for reading in inside for reason in reading.clock_event_reasons or ())
    )
    clock_mhz = _summary(statistics.median, (reading.sm_clock_mhz for reading in inside))
    degraded_by = [reason for reason in reasons if reason in FAULTS]
    if any(reading.foreign_process_count for reading in inside):
        degraded_by.append("foreign_process")
    if _is_unsteady(reading.sm_clock_mhz for reading in readings if reading in window):
        degraded_by.append("unsteady_sm_clock")
    if (
        locked_sm_clock_mhz is not None
        and clock_mhz is not None
        and not is_held(clock_mhz, locked_sm_clock_mhz)
    ):
        degraded_by.append("clock_lock_lost")
    energy_j = energy_between(readings, window)
    return DeviceState(
        reading_count=len(inside),
        sm_clock_mhz=clock_mhz,
        memory_clock_mhz=_summary(
            statistics.median, (reading.memory_clock_mhz for reading in inside)
        ),
        power_w=_summary(statistics.mean, (reading.power_w for reading in inside)),
        temperature_c=_summary(max, (reading.temperature_c for reading in inside)),
        energy_per_launch_j=None
        if energy_j is None or launch_count < 1
        else energy_j / launch_count,
        clock_event_reasons=reasons,
        degraded_by=tuple(degraded_by),
    )


def energy_between(readings: Sequence[Reading], window: Window) -> float | None:
    """Energy in J used in a window, interpolated linearly between readings of the counter.

    None if the counter was not read on both sides of the window, went back, or moved less than
    twice.
    """
    points = [
        (reading.at_ns, reading.energy_j) for reading in readings if reading.energy_j is not None
    ]
    before = [point for point in points if point[0] <= window.began_ns]
    after = [point for point in points if point[0] >= window.ended_ns]
    if not before or not after or window.ended_ns <= window.began_ns:
        return None
    around = [point for point in points if before[-1][0] <= point[0] <= after[0][0]]
    steps = [later[1] - earlier[1] for earlier, later in itertools.pairwise(around)]
    if any(step < 0 for step in steps) or sum(step > 0 for step in steps) < _MIN_ENERGY_STEPS:
        return None
    times_ns, energies_j = zip(*around, strict=True)
    began_j, ended_j = np.interp((window.began_ns, window.ended_ns), times_ns, energies_j)
    return float(ended_j - began_j)


def is_held(sm_clock_mhz: float, locked_sm_clock_mhz: float) -> bool:
    return abs(sm_clock_mhz - locked_sm_clock_mhz) <= _LOCK_TOLERANCE_MHZ


def holds_clock(readings: Sequence[Reading], mhz: int) -> bool:
    """Whether a lock holds the device at an SM clock, by the readings since it was locked."""
    clocks_mhz = [reading.sm_clock_mhz for reading in readings if reading.sm_clock_mhz is not None]
    return sum(is_held(found, mhz) for found in clocks_mhz) >= _MIN_HELD_READINGS


def is_always_idle(readings: Sequence[Reading]) -> bool:
    """Whether the device was idle in every reading; its clock then says nothing about the lock."""
    return bool(readings) and all(
        GPU_IDLE in (reading.clock_event_reasons or ()) for reading in readings
    )


def describe_failed_lock(readings: Sequence[Reading], mhz: int) -> str:
    """Explain why a lock does not hold, from the readings since."""
    clocks_mhz = [reading.sm_clock_mhz for reading in readings if reading.sm_clock_mhz is not None]
    if not clocks_mhz:
        return f"--lock-clocks: NVML does not report the SM clock, so {mhz} MHz cannot be verified"
    reasons = dict.fromkeys(
        reason for reading in readings for reason in reading.clock_event_reasons or ()
    )
    why = f" ({', '.join(reasons)})" if reasons else ""
    return (
        f"--lock-clocks: the SM clock was locked at {mhz} MHz but is "
        f"{statistics.median(clocks_mhz):.0f} MHz{why}; "
        "choose a clock that the device can sustain"
    )


def is_throttled_by_heat(reading: Reading) -> bool:
    return not THERMAL.isdisjoint(reading.clock_event_reasons or ())


def has_cooled_down(now: Reading, throttled: Reading) -> bool:
    """Whether a device that was throttled by heat can be measured again."""
    if is_throttled_by_heat(now):
        return False
    if now.temperature_c is None or throttled.temperature_c is None:
        return True
    return now.temperature_c <= throttled.temperature_c - _COOLER_BY_C


def unfit_reasons(environment: Environment, reading: Reading | None) -> Iterator[str]:
    """Why results on this device should not be trusted, each with a remedy."""
    if environment.is_persistence_on is False:
        yield "persistence mode is off (switch it on as root: `nvidia-smi -pm 1`)"
    if reading is not None and reading.foreign_process_count:
        count = reading.foreign_process_count
        yield (
            f"{count} other process{' uses' if count == 1 else 'es use'} it (list them: "
            f"`nvidia-smi`)"
        )


def _is_unsteady(clocks_mhz: Iterable[float | None]) -> bool:
    known = [clock for clock in clocks_mhz if clock is not None]
    if len(known) < _MIN_READINGS_FOR_RANGE:
        return False
    deciles = statistics.quantiles(known, n=10, method="inclusive")
    return deciles[-1] - deciles[0] > _MAX_CLOCK_RANGE * statistics.median(known)


def _summary(
    summarise: Callable[[list[float]], float], values: Iterable[float | None]
) -> float | None:
    known = [value for value in values if value is not None]
    return float(summarise(known)) if known else None

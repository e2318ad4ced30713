"""Summarise readings: the state of the device during a block,
and whether it is fit for measuring.
"""

import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

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
# One or two may be chance.
_MIN_HELD_READINGS = 3
# A counter that moved once within a block has an error as large as the block.
_MIN_ENERGY_STEPS = 2
_COOLER_BY_C = 10.0
"""The device must be this much cooler than when it was throttled, or the next launch throttles it
again. nsight-python pauses 10 degrees below the limit and continues at 20.
"""


@dataclass(frozen=True)
class BlockWindow:
    """A period of the monotonic clock."""

    began_ns: int
    ended_ns: int

    def widened(self, by_ns: float) -> "BlockWindow":
        return BlockWindow(self.began_ns - int(by_ns), self.ended_ns + int(by_ns))

    def __contains__(self, reading: Reading) -> bool:
        return self.began_ns <= reading.at_ns <= self.ended_ns


def device_state(
    readings: Sequence[Reading],
    window: BlockWindow,
    *,
    launch_count: int,
    locked_sm_clock_mhz: float | None = None,
) -> DeviceState:
    """Summarise the readings of a block of samples.

    A block may be shorter than the sampling period, so readings up to half a period outside the
    window count too.
    """
    counted_window = window.widened(PERIOD_S * 1e9 / 2)
    inside = [reading for reading in readings if reading in counted_window]
    reasons = _reasons_of(inside)
    sm_clock_mhz = _summary(statistics.median, (reading.sm_clock_mhz for reading in inside))
    degraded_by = [reason for reason in reasons if reason in FAULTS]
    if any(reading.foreign_process_count for reading in inside):
        degraded_by.append("foreign_process")
    # Readings at the edges belong to the idle device, whose clock differs.
    inner_clocks_mhz = [reading.sm_clock_mhz for reading in readings if reading in window]
    if _is_unsteady(inner_clocks_mhz):
        degraded_by.append("unsteady_sm_clock")
    if _has_lost_lock(sm_clock_mhz, locked_sm_clock_mhz):
        degraded_by.append("clock_lock_lost")
    energy_j = energy_between(readings, window)
    energy_per_launch_j = None
    if energy_j is not None and launch_count >= 1:
        energy_per_launch_j = energy_j / launch_count
    memory_clocks_mhz = (reading.memory_clock_mhz for reading in inside)
    powers_w = (reading.power_w for reading in inside)
    temperatures_c = (reading.temperature_c for reading in inside)
    memory_temperatures_c = (reading.memory_temperature_c for reading in inside)
    return DeviceState(
        reading_count=len(inside),
        sm_clock_mhz=sm_clock_mhz,
        memory_clock_mhz=_summary(statistics.median, memory_clocks_mhz),
        power_w=_summary(statistics.mean, powers_w),
        temperature_c=_summary(max, temperatures_c),
        memory_temperature_c=_summary(max, memory_temperatures_c),
        energy_per_launch_j=energy_per_launch_j,
        clock_event_reasons=reasons,
        degraded_by=tuple(degraded_by),
    )


def energy_between(readings: Sequence[Reading], window: BlockWindow) -> float | None:
    """Energy in J used in a window, interpolated linearly between readings of the counter.

    None if the counter was not read on both sides of the window, went back, or moved less than
    twice.
    """
    # every command imports this module, and most have no GPU to read
    import numpy as np

    energy_by_time_ns = {
        reading.at_ns: reading.energy_j for reading in readings if reading.energy_j is not None
    }
    times_before_ns = [time_ns for time_ns in energy_by_time_ns if time_ns <= window.began_ns]
    times_after_ns = [time_ns for time_ns in energy_by_time_ns if time_ns >= window.ended_ns]
    if not times_before_ns or not times_after_ns or window.ended_ns <= window.began_ns:
        return None
    first_ns = times_before_ns[-1]
    last_ns = times_after_ns[0]
    times_ns = [time_ns for time_ns in energy_by_time_ns if first_ns <= time_ns <= last_ns]
    energies_j = [energy_by_time_ns[time_ns] for time_ns in times_ns]
    steps_j = np.diff(energies_j)
    # the counter went back: the driver was loaded again
    if np.any(steps_j < 0):
        return None
    if np.count_nonzero(steps_j > 0) < _MIN_ENERGY_STEPS:
        return None
    began_j, ended_j = np.interp((window.began_ns, window.ended_ns), times_ns, energies_j)
    return float(ended_j - began_j)


def is_held(sm_clock_mhz: float, locked_sm_clock_mhz: float) -> bool:
    return abs(sm_clock_mhz - locked_sm_clock_mhz) <= _LOCK_TOLERANCE_MHZ


def _has_lost_lock(sm_clock_mhz: float | None, locked_sm_clock_mhz: float | None) -> bool:
    if sm_clock_mhz is None or locked_sm_clock_mhz is None:
        return False
    return not is_held(sm_clock_mhz, locked_sm_clock_mhz)


def holds_clock(readings: Sequence[Reading], mhz: int) -> bool:
    """Whether a lock holds the device at an SM clock, by the readings since it was locked."""
    held_count = sum(is_held(clock_mhz, mhz) for clock_mhz in _sm_clocks_mhz(readings))
    return held_count >= _MIN_HELD_READINGS


def is_always_idle(readings: Sequence[Reading]) -> bool:
    """Whether the device was idle in every reading; its clock then says nothing about the lock."""
    if not readings:
        return False
    return all(GPU_IDLE in (reading.clock_event_reasons or ()) for reading in readings)


def describe_failed_lock(readings: Sequence[Reading], mhz: int) -> str:
    """Explain why a lock does not hold, from the readings since."""
    clocks_mhz = _sm_clocks_mhz(readings)
    if not clocks_mhz:
        return f"--lock-clocks: NVML does not report the SM clock, so {mhz} MHz cannot be verified"
    median_mhz = statistics.median(clocks_mhz)
    reasons = _reasons_of(readings)
    reasons_text = ""
    if reasons:
        reasons_text = f" ({', '.join(reasons)})"
    return (
        f"--lock-clocks: the SM clock was locked at {mhz} MHz but is "
        f"{median_mhz:.0f} MHz{reasons_text}; "
        "choose a clock that the device can sustain"
    )


def _sm_clocks_mhz(readings: Sequence[Reading]) -> list[float]:
    return [reading.sm_clock_mhz for reading in readings if reading.sm_clock_mhz is not None]


def _reasons_of(readings: Sequence[Reading]) -> tuple[str, ...]:
    """Clock event reasons of all readings, each once, in order of appearance."""
    reasons: dict[str, None] = {}
    for reading in readings:
        reasons.update(dict.fromkeys(reading.clock_event_reasons or ()))
    return tuple(reasons)


def is_throttled_by_heat(reading: Reading) -> bool:
    return not THERMAL.isdisjoint(reading.clock_event_reasons or ())


def has_cooled_down(latest: Reading, throttled: Reading) -> bool:
    """Whether a device that was throttled by heat can be measured again."""
    if is_throttled_by_heat(latest):
        return False
    # Without a thermometer, the driver's reasons are all there is.
    if latest.temperature_c is None or throttled.temperature_c is None:
        return True
    return latest.temperature_c <= throttled.temperature_c - _COOLER_BY_C


def unfit_reasons(environment: Environment, reading: Reading | None) -> Iterator[str]:
    """Why results on this device should not be trusted, each with a remedy."""
    if environment.is_persistence_on is False:
        yield "persistence mode is off (switch it on as root: `nvidia-smi -pm 1`)"
    if reading is not None and reading.foreign_process_count:
        count = reading.foreign_process_count
        processes_use = "processes use"
        if count == 1:
            processes_use = "process uses"
        yield f"{count} other {processes_use} it (list them: `nvidia-smi`)"


def _is_unsteady(clocks_mhz: Iterable[float | None]) -> bool:
    """Whether the SM clock spread by more than 10 % within a block."""
    reported_mhz = [clock_mhz for clock_mhz in clocks_mhz if clock_mhz is not None]
    if len(reported_mhz) < _MIN_READINGS_FOR_RANGE:
        return False
    deciles_mhz = statistics.quantiles(reported_mhz, n=10, method="inclusive")
    range_mhz = deciles_mhz[-1] - deciles_mhz[0]
    return range_mhz > _MAX_CLOCK_RANGE * statistics.median(reported_mhz)


def _summary(
    summarise: Callable[[list[float]], float],
    values: Iterable[float | None],
) -> float | None:
    """Summarise the readings that have a value; None if none has."""
    reported = [value for value in values if value is not None]
    if not reported:
        return None
    return float(summarise(reported))

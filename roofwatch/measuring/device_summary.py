"""What was seen of the device during a run, in a few lines."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterator

from roofwatch.collector.device.nvml import SW_POWER_CAP
from roofwatch.collector.record.machine import DeviceState, Telemetry
from roofwatch.collector.record.record import RunRecord


def device_summary(*records: RunRecord) -> list[str]:
    """Sentences on the state of the device, what spoils times first; none where nobody watched.

    Args:
        records: Of one job, on one device.
    """
    telemetry = next((record.telemetry for record in records if record.telemetry is not None), None)
    if telemetry is None:
        return []
    states = [
        block.device_state
        for record in records
        for measurement in record.measurements
        for block in measurement.blocks
        if block.device_state is not None
    ]
    return [*_degraded(states), *_usual(telemetry, states)]


def _degraded(states: list[DeviceState]) -> Iterator[str]:
    degraded = [state for state in states if state.degraded_by]
    if degraded:
        reasons = Counter(reason for state in degraded for reason in state.degraded_by)
        listed = ", ".join(f"{reason} in {count}" for reason, count in reasons.most_common())
        yield f"device: {len(degraded)} of {_blocks(len(states))} say little of the kernels: {listed}"


def _usual(telemetry: Telemetry, states: list[DeviceState]) -> Iterator[str]:
    if telemetry.status != "ok":
        yield f"device: not watched ({telemetry.status}): {telemetry.message}"
        return
    seen = [f"{telemetry.reading_count} readings"]
    clocks = [state.sm_clock_mhz for state in states if state.sm_clock_mhz is not None]
    if clocks:
        seen.append(f"SM clock {_range(clocks)} MHz, median {statistics.median(clocks):.0f}")
    powers = [state.power_w for state in states if state.power_w is not None]
    if powers:
        seen.append(f"{_range(powers)} W")
    temperatures = [state.temperature_c for state in states if state.temperature_c is not None]
    if temperatures:
        seen.append(f"up to {max(temperatures):.0f} °C")
    capped_count = sum(SW_POWER_CAP in state.clock_event_reasons for state in states)
    if capped_count:
        seen.append(f"at the power limit in {capped_count} of {_blocks(len(states))}")
    yield f"device: {', '.join(seen)}"
    if telemetry.message:
        yield f"device: {telemetry.message}"


def _range(values: list[float]) -> str:
    low, high = f"{min(values):.0f}", f"{max(values):.0f}"
    return low if low == high else f"{low} to {high}"


def _blocks(count: int) -> str:
    return f"{count} block{'' if count == 1 else 's'}"

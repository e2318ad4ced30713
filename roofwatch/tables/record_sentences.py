"""How a run went, in sentences: where its time went, and the state of its device."""

import statistics
from collections import Counter
from collections.abc import Iterator, Sequence

from roofwatch.ci.messages import count_of
from roofwatch.collector.device.health import describe_health
from roofwatch.collector.device.nvml import SW_POWER_CAP
from roofwatch.model.machine import DeviceState, Telemetry
from roofwatch.model.record import RunRecord

RECORD_SUFFIX = ".json.gz"
"""Default suffix of record files."""

RECORD_FOLDER = "roofwatch-records"
"""Default folder of record files."""
WORKLOADS_NAME = f"roofwatch-workloads{RECORD_SUFFIX}"
_NO_REASON = "no reason was given"
_RECORD_PATTERNS = ("*.json", "*.json.gz")


def time_spent(record: RunRecord) -> str:
    """Show how the wall time of the run was spent."""
    total_ns = sum(record.spent_ns.values())
    if not total_ns:
        return "time spent: not recorded"
    shares: list[str] = []
    for activity, spent_ns in record.spent_ns.items():
        name = activity.replace("_", "-")
        shares.append(f"{name} {spent_ns / total_ns:.0%}")
    return f"{total_ns / 1e9:.0f} s: {', '.join(shares)}"


def device_summary(*records: RunRecord) -> list[str]:
    """Sentences about the GPU during a job that made some records, problems first; none without
    telemetry.
    """
    # The records of a job share its telemetry.
    telemetry = next((record.telemetry for record in records if record.telemetry is not None), None)
    if telemetry is None:
        return []
    states: list[DeviceState] = []
    for record in records:
        for measurement in record.measurements:
            states += [block.device_state for block in measurement.blocks if block.device_state]
    return [*_degraded_blocks(states), *_readings(telemetry, states)]


def _degraded_blocks(states: Sequence[DeviceState]) -> Iterator[str]:
    degraded = [state for state in states if state.degraded_by]
    if degraded:
        reasons = Counter(reason for state in degraded for reason in state.degraded_by)
        listed = ", ".join(f"{reason} in {count}" for reason, count in reasons.most_common())
        yield (
            f"device: {len(degraded)} of {count_of(len(states), 'block')} are not reliable: "
            f"{listed}"
        )


def _readings(telemetry: Telemetry, states: Sequence[DeviceState]) -> Iterator[str]:
    if telemetry.status != "ok":
        yield f"device: no telemetry ({telemetry.status}): {telemetry.message}"
        return
    parts = [f"{len(telemetry.offset_ms)} readings"]
    clocks = [state.sm_clock_mhz for state in states if state.sm_clock_mhz is not None]
    if clocks:
        parts.append(f"SM clock {_range(clocks)} MHz, median {statistics.median(clocks):.0f}")
    powers = [state.power_w for state in states if state.power_w is not None]
    if powers:
        parts.append(f"{_range(powers)} W")
    temperatures = [state.temperature_c for state in states if state.temperature_c is not None]
    if temperatures:
        parts.append(f"up to {max(temperatures):.0f} °C")
    memory_temperatures = [
        state.memory_temperature_c for state in states if state.memory_temperature_c is not None
    ]
    if memory_temperatures:
        parts.append(f"memory up to {max(memory_temperatures):.0f} °C")
    capped_count = sum(SW_POWER_CAP in state.clock_event_reasons for state in states)
    if capped_count:
        parts.append(f"at the power limit in {capped_count} of {count_of(len(states), 'block')}")
    yield f"device: {', '.join(parts)}"
    health = describe_health(telemetry.health)
    if health:
        yield f"device before the run: {health}"
    if telemetry.message:
        yield f"device: {telemetry.message}"


def _range(values: Sequence[float]) -> str:
    low = f"{min(values):.0f}"
    low = f"{min(values):.0f}"
    high = f"{max(values):.0f}"
    if low == high:
        return low
    return f"{low} to {high}"

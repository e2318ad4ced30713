"""Tables and sentences that `roofwatch run` and `roofwatch list` print."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from rich.table import Table

from roofwatch.collector.compile.targets import DEFAULT_TARGETS
from roofwatch.collector.device.nvml import SW_POWER_CAP
from roofwatch.collector.record.machine import DeviceState, Telemetry
from roofwatch.collector.record.measurement import Measurement
from roofwatch.collector.record.metrics import format_bytes, format_ns
from roofwatch.collector.record.record import RunRecord
from roofwatch.collector.workers.protocol import KernelInfo
from roofwatch.profiles.tables import make_table

_SHOWN_ROWS = 3


def launch_table(record: RunRecord) -> Table | None:
    """Launch overhead per case and implementation; None without a GPU timer."""
    rows: list[list[object]] = []
    for measured in record.measurements:
        if measured.host_ns is None:
            continue
        busy_ns, span_ns = measured.median_ns, measured.span_ns
        gaps_ns = None if busy_ns is None or span_ns is None else max(0.0, span_ns - busy_ns)
        times_ns = (busy_ns, gaps_ns, measured.launch_delay_ns, measured.host_ns)
        rows.append(
            [
                *(measured.case_id, measured.implementation, measured.timer, measured.cache, _kernel_count(measured)),
                *("" if time_ns is None else format_ns(time_ns) for time_ns in times_ns),
                "host-bound" if measured.is_host_bound else "",
            ]
        )
    columns = ("case", "implementation", "timer", "cache", "kernels", "busy", "gaps", "delay", "host", "")
    title = "launches: device time, gaps between kernels, delay of the first kernel, host time to issue the launch"
    return make_table(columns, rows, title=title, left=4) if rows else None


def memory_table(record: RunRecord) -> Table | None:
    """Memory per case and implementation; None if it was not counted."""
    rows = [
        (
            measured.case_id,
            measured.implementation,
            measured.cache,
            format_bytes(memory.peak_allocated_bytes),
            format_bytes(memory.peak_reserved_bytes),
            f"{memory.allocation_count:,}",
            None if memory.fragmentation is None else f"{memory.fragmentation:.1%}",
        )
        for measured in record.measurements
        if (memory := measured.memory) is not None
    ]
    columns = ("case", "implementation", "cache", "allocated", "reserved", "allocations", "fragmentation")
    title = "memory of a launch: peak allocated and reserved, allocations, fragmentation"
    return make_table(columns, rows, title=title, left=3) if rows else None


def profile_table(record: RunRecord) -> Table:
    """The three longest kernels or operators of each case and implementation."""
    rows: list[tuple[object, ...]] = []
    for profile in record.profiles:

        def share(total_ns: float, busy_ns: float = profile.busy_ns) -> str:
            return f"{total_ns / busy_ns:.1%}" if busy_ns else ""

        rows += [
            (
                *(profile.case_id, profile.implementation, row.kind, row.name, f"{row.count / profile.call_count:.3g}"),
                *(format_ns(row.total_ns), format_ns(row.mean_ns), share(row.total_ns)),
            )
            for row in profile.rows[:_SHOWN_ROWS]
        ]
        hidden = profile.rows[_SHOWN_ROWS:]
        hidden_count = len(hidden) + profile.left_out_count
        if hidden_count:
            rest_ns = sum(row.total_ns for row in hidden) + profile.left_out_ns
            rows.append(("", "", "", f"and {hidden_count} more", "", format_ns(rest_ns), "", share(rest_ns)))
    columns = ("case", "implementation", "kind", "name", "per call", "total", "mean", "share of busy")
    title = "launched kernels and operators, under a profiler: times are not comparable with measurements"
    return make_table(columns, rows, title=title, left=4)


def kernel_summary(kernel: KernelInfo) -> dict[str, Any]:
    """A kernel as JSON values, with the extent of its cases."""
    return {
        "name": kernel.name,
        "family": kernel.family,
        "formula": kernel.formula,
        "source": kernel.source,
        "implementations": [implementation.model_dump(mode="json") for implementation in kernel.implementations],
        "directions": sorted({case.direction for case in kernel.cases}, reverse=True),
        "dtypes": sorted({case.dtype for case in kernel.cases}),
        "targets": compiled_targets(kernel),
        "rank_counts": sorted({kernel.rank_count(case) for case in kernel.cases}),
        "tags": sorted({tag for case in kernel.cases for tag in case.tags}),
        "case_count": len(kernel.cases),
        "edge_count": len(kernel.edge_ids),
        "cases": [case.model_dump(mode="json") for case in kernel.cases],
    }


def compiled_targets(kernel: KernelInfo) -> list[str]:
    """Default targets for which at least one implementation of the kernel is compiled."""
    compiled = [each for each in kernel.implementations if each.language != "torch"]
    return [target for target in DEFAULT_TARGETS if any(target not in each.unsupported_targets for each in compiled)]


def device_summary(*records: RunRecord) -> list[str]:
    """Sentences about the GPU during a job, problems first; none without telemetry.

    Args:
        records: Of one job on one device.
    """
    telemetry = next((record.telemetry for record in records if record.telemetry is not None), None)
    if telemetry is None:
        return []
    measurements = [measurement for record in records for measurement in record.measurements]
    states = [block.device_state for measured in measurements for block in measured.blocks if block.device_state]
    return [*_degraded_blocks(states), *_readings(telemetry, states)]


def _degraded_blocks(states: Sequence[DeviceState]) -> Iterator[str]:
    degraded = [state for state in states if state.degraded_by]
    if degraded:
        reasons = Counter(reason for state in degraded for reason in state.degraded_by)
        listed = ", ".join(f"{reason} in {count}" for reason, count in reasons.most_common())
        yield f"device: {len(degraded)} of {_blocks(len(states))} are not reliable: {listed}"


def _readings(telemetry: Telemetry, states: Sequence[DeviceState]) -> Iterator[str]:
    if telemetry.status != "ok":
        yield f"device: no telemetry ({telemetry.status}): {telemetry.message}"
        return
    parts = [f"{telemetry.reading_count} readings"]
    clocks = [state.sm_clock_mhz for state in states if state.sm_clock_mhz is not None]
    if clocks:
        parts.append(f"SM clock {_range(clocks)} MHz, median {statistics.median(clocks):.0f}")
    powers = [state.power_w for state in states if state.power_w is not None]
    if powers:
        parts.append(f"{_range(powers)} W")
    temperatures = [state.temperature_c for state in states if state.temperature_c is not None]
    if temperatures:
        parts.append(f"up to {max(temperatures):.0f} °C")
    capped_count = sum(SW_POWER_CAP in state.clock_event_reasons for state in states)
    if capped_count:
        parts.append(f"at the power limit in {capped_count} of {_blocks(len(states))}")
    yield f"device: {', '.join(parts)}"
    if telemetry.message:
        yield f"device: {telemetry.message}"


def _range(values: Sequence[float]) -> str:
    low, high = f"{min(values):.0f}", f"{max(values):.0f}"
    return low if low == high else f"{low} to {high}"


def _blocks(count: int) -> str:
    return f"{count} block{'' if count == 1 else 's'}"


def _kernel_count(measurement: Measurement) -> str:
    counts = [block.kernel_count for block in measurement.blocks if block.kernel_count is not None]
    if not counts:
        return ""
    is_varying = any(block.is_kernel_set_varying for block in measurement.blocks) or len(set(counts)) > 1
    return f"up to {max(counts)}" if is_varying else str(counts[0])

"""Totals of a timeline for `roofwatch read`. Times are microseconds; keys are the words of the
profiler's format.
"""

import math
import re
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from roofwatch.collector.profiling.activities import (
    GRAPH_LAUNCH,
    LAUNCH,
    ActivityKind,
    DeviceActivity,
    HostEvent,
    HostKind,
    by_device,
    by_name,
    join_launches,
    length_ns,
    overlap_ns,
    union,
)
from roofwatch.collector.profiling.steady import (
    SteadyPart,
    StepKind,
    cut_out,
    find_steady_part,
)
from roofwatch.collector.profiling.time_spent import operator_rows
from roofwatch.collector.profiling.trace import Trace, scalar
from roofwatch.model.files import JsonObject

TOP_COUNT = 10
"""Kernel names in a summary unless the caller asks for more."""
_DEVICE_NUMBER = re.compile(r"[0-9]{1,9}")
_COLLECTIVE = re.compile(r"nccl|rccl", re.IGNORECASE)
"""Libraries of collectives, of NVIDIA and of AMD."""
_DEVICE_FIELDS = (
    "id",
    "name",
    "totalGlobalMem",
    "computeMajor",
    "computeMinor",
    "maxThreadsPerBlock",
    "numSms",
    "warpSize",
)
_DISTRIBUTED_FIELDS = ("backend", "rank", "world_size", "pg_count", "nccl_version")
_CONFIGURATION_FIELDS = (
    "grid",
    "block",
    "shared_memory_bytes",
    "static_shared_memory_bytes",
    "dynamic_shared_memory_bytes",
)
"""What a launch configures; profilers give the shared memory as a sum or in two parts."""


def summarise_trace(trace: Trace, *, top: int | None = TOP_COUNT) -> JsonObject:
    """Summarise a trace with the `top` longest kernel names."""
    kernels = trace.of_kind(ActivityKind.KERNEL)
    calls = [event for event in trace.host_events if event.kind == HostKind.CALL]
    runtime_calls = {"count": len(calls), "by_name": _counts(call.name for call in calls)}
    devices: JsonObject = {}
    for device, members in by_device(trace.activities).items():
        devices[device] = _device(members)
    summary: JsonObject = {
        "format": "kineto-chrome-trace",
        **_header_facts(trace.header),
        "events_total": trace.events_by_phase.total(),
        "events_by_ph": dict(sorted(trace.events_by_phase.items())),
        "complete_events_by_cat": dict(sorted(trace.complete_events_by_category.items())),
        "gpu_or_runtime_events_without_usable_time": trace.without_time_count,
        "kernels": _kernels(kernels, top),
        "memcpy": _transfers(trace.of_kind(ActivityKind.MEMCPY)),
        "memset": _transfers(trace.of_kind(ActivityKind.MEMSET)),
        "runtime_calls": runtime_calls,
        "launches": _launches(calls, kernels),
        "devices": devices,
    }
    summary["steps"] = {"steps_are": StepKind.WHOLE, "count": 1}
    steps_alone = trace
    steady = find_steady_part(trace)
    if steady is not None:
        steps_alone = cut_out(trace, steady)
        summary["steps"] = _steps(steady)
    summary["host_operators"] = _host_operators(steps_alone, top)
    if trace.counters:
        summary["cupti_profiler_ranges"] = _profiler_ranges(trace)
    return summary


def _steps(steady: SteadyPart) -> JsonObject:
    """Lengths of the steady steps."""
    return {
        "steps_are": steady.steps_are,
        "count": len(steady.step_ns),
        "median_us": to_us(steady.median_step_ns),
        "min_us": to_us(min(steady.step_ns)),
        "max_us": to_us(max(steady.step_ns)),
    }


def _host_operators(trace: Trace, top: int | None) -> JsonObject:
    """Self times of operators and runtime calls in the steps, or in the whole trace without any."""
    rows = operator_rows(trace.host_events, trace.window_ns)
    return {
        "distinct_names": len(rows),
        "window_us": to_us(trace.window_ns),
        "top_by_self_time": [
            {
                "name": row.name,
                "count": row.count,
                "self_us": to_us(row.total_ns),
            }
            for row in rows[:top]
        ],
    }


def _header_facts(header: Mapping[str, Any]) -> JsonObject:
    """Plain fields of a trace's header, and the devices it declares."""
    plain_fields: JsonObject = {}
    for name, value in header.items():
        if not isinstance(value, (dict, list)):
            plain_fields[name] = scalar(value)
    # The header is JSON that anybody may have written.
    devices = header.get("deviceProperties")
    if not isinstance(devices, list):
        devices = []
    declared = [_selected(device, _DEVICE_FIELDS) for device in devices if isinstance(device, dict)]
    distributed = header.get("distributedInfo")
    distributed_facts = None
    if isinstance(distributed, dict):
        distributed_facts = _selected(distributed, _DISTRIBUTED_FIELDS)
    return {
        "top_level": plain_fields,
        "devices_declared": declared,
        "distributed": distributed_facts,
    }


def _profiler_ranges(trace: Trace) -> JsonObject:
    """Counters that CUPTI's range profiler added to a trace."""
    metrics = {}
    for name, values in sorted(trace.counters.items()):
        metrics[name] = {
            "samples": len(values),
            "sum": math.fsum(values),
            "max": max(values),
        }
    return {
        "count": trace.complete_events_by_category["cuda_profiler_range"],
        "metrics": metrics,
    }


def weighted_occupancy_pct(kernels: Iterable[DeviceActivity]) -> float | None:
    """Torch's occupancy estimate, weighted by duration; None if no kernel has one."""
    total_ns = 0
    weighted_sum = 0.0
    for kernel in kernels:
        percent = _occupancy_pct(kernel)
        if percent is not None:
            total_ns += kernel.duration_ns
            weighted_sum += percent * kernel.duration_ns
    if total_ns == 0:
        return None
    return weighted_sum / total_ns


def _occupancy_pct(kernel: DeviceActivity) -> float | None:
    return kernel.launch.get("est_achieved_occupancy_pct")


def count_launch_configurations(kernels: Iterable[DeviceActivity]) -> int:
    """Count distinct combinations of grid, block and shared memory."""
    configurations: set[str] = set()
    for kernel in kernels:
        values = [kernel.launch.get(name) for name in _CONFIGURATION_FIELDS]
        configurations.add(repr(values))  # as text, because lists cannot be in a set
    return len(configurations)


def _kernels(kernels: Sequence[DeviceActivity], top: int | None) -> JsonObject:
    """Totals of all kernels, with what is odd about their fields."""
    all_percents = map(_occupancy_pct, kernels)
    percents = [percent for percent in all_percents if percent is not None]
    occupancy = {
        "with_field": len(percents),
        "without_field": len(kernels) - len(percents),
        "reported_zero": sum(percent == 0 for percent in percents),
        "duration_weighted_mean_pct": _rounded(weighted_occupancy_pct(kernels)),
        "max_pct": max(map(float, percents), default=None),
    }
    return kernel_totals(kernels, top) | {
        "zero_duration": sum(kernel.duration_ns == 0 for kernel in kernels),
        "negative_duration": sum(kernel.duration_ns < 0 for kernel in kernels),
        "occupancy": occupancy,
    }


def _transfers(transfers: Sequence[DeviceActivity]) -> JsonObject:
    """Totals of copies or fills, by name."""
    rows = []
    for members in _by_total(transfers):
        byte_count = sum(member.bytes for member in members)
        rows.append(_row(members) | {"bytes": byte_count})
    return transfer_totals(transfers) | {"by_name": rows}


def _launches(calls: Sequence[HostEvent], kernels: Sequence[DeviceActivity]) -> JsonObject:
    """Numbers of launches, and how long kernels waited for their start."""
    launches = [call for call in calls if LAUNCH.fullmatch(call.name)]
    graph_launches = [call for call in calls if GRAPH_LAUNCH.fullmatch(call.name)]
    correlations = [call.correlation for call in launches if call.correlation is not None]
    pairs = join_launches(launches, kernels)
    delays_from_start_ns = [kernel.start_ns - call.start_ns for kernel, call in pairs]
    delays_from_end_ns = [kernel.start_ns - call.end_ns for kernel, call in pairs]
    return {
        "kernel_launch_calls": len(launches),
        "kernel_launch_calls_by_name": _counts(call.name for call in launches),
        "graph_launch_calls": len(graph_launches),
        "launches_sharing_a_correlation_id": len(correlations) - len(set(correlations)),
        "kernels_without_a_launch_call": len(kernels) - len(pairs),
        "delay_call_start_to_kernel_start": delay_totals(delays_from_start_ns),
        "delay_call_end_to_kernel_start": delay_totals(delays_from_end_ns),
    }


def _device(activities: Sequence[DeviceActivity]) -> JsonObject:
    """Busy time of one device, and how far collectives overlap with compute."""
    kernels = [activity for activity in activities if activity.kind == ActivityKind.KERNEL]
    summary = {
        "all_gpu_activity": busy_time(activities),
        "kernels_only": busy_time(kernels),
        "streams": len({activity.stream for activity in activities}),
    }
    collectives = [kernel for kernel in kernels if _COLLECTIVE.search(kernel.name)]
    if collectives:
        others = [kernel for kernel in kernels if not _COLLECTIVE.search(kernel.name)]
        summary["collectives"] = _overlap(collectives, others)
    return summary


def _overlap(collectives: Sequence[DeviceActivity], others: Sequence[DeviceActivity]) -> JsonObject:
    """How much of the communication is hidden behind computation."""
    communicating = union(kernel.interval for kernel in collectives)
    computing = union(kernel.interval for kernel in others)
    total_ns = length_ns(communicating)
    overlapped_ns = overlap_ns(communicating, computing)
    return {
        "kernels": len(collectives),
        "union_us": to_us(total_ns),
        "compute_union_us": to_us(length_ns(computing)),
        "overlapped_with_compute_us": to_us(overlapped_ns),
        "overlapped_fraction_of_collectives": _ratio(overlapped_ns, total_ns),
    }


def _ratio(part_ns: int, whole_ns: int) -> float | None:
    if whole_ns == 0:
        return None
    return round(part_ns / whole_ns, 6)


def _selected(
    values: Mapping[str, Any],
    names: Iterable[str],
) -> JsonObject:
    return {name: scalar(values[name]) for name in names if name in values}


def _counts(names: Iterable[str]) -> dict[str, int]:
    # The most frequent first; the alphabet decides between equal ones.
    ordered = sorted(
        Counter(names).items(),
        key=lambda item: (-item[1], item[0]),
    )
    return dict(ordered)


def _rounded(percent: float | None) -> float | None:
    if percent is None:
        return None
    return round(percent, 6)


# --- totals of any timeline


def to_us(nanoseconds: float) -> float:
    return round(nanoseconds / 1e3, 6)


def kernel_totals(kernels: Sequence[DeviceActivity], top: int | None) -> JsonObject:
    """Totals of all kernels, and one row for each of the `top` names with the longest total
    time.
    """
    groups = _by_total(kernels)
    total_ns = sum(kernel.duration_ns for kernel in kernels)
    longest_ns = max((kernel.duration_ns for kernel in kernels), default=0)
    return {
        "count": len(kernels),
        "distinct_names": len(groups),
        "sum_us": to_us(total_ns),
        "max_us": to_us(longest_ns),
        "top_by_total_time": [_kernel_row(members) for members in groups[:top]],
    }


def _kernel_row(members: Sequence[DeviceActivity]) -> JsonObject:
    """The row of a kernel, with the configurations that it was launched in."""
    return _row(members) | {
        "first_launch": _first_launch(members),
        "distinct_launch_configs": count_launch_configurations(members),
        "occupancy_pct": _rounded(weighted_occupancy_pct(members)),
    }


def _by_total(activities: Iterable[DeviceActivity]) -> list[list[DeviceActivity]]:
    """Group activities by name, the longest total time first."""
    groups = by_name(activities).values()
    return sorted(
        groups,
        key=lambda members: -sum(member.duration_ns for member in members),
    )


def _row(members: Sequence[DeviceActivity]) -> JsonObject:
    """Count and times of the activities of one name."""
    durations_ns = [member.duration_ns for member in members]
    total_ns = sum(durations_ns)
    return {
        "name": members[0].name,
        "count": len(members),
        "sum_us": to_us(total_ns),
        "mean_us": to_us(total_ns / len(members)),
        "min_us": to_us(min(durations_ns)),
        "max_us": to_us(max(durations_ns)),
    }


def transfer_totals(transfers: Sequence[DeviceActivity]) -> JsonObject:
    """Count, time and bytes of copies or fills."""
    return {
        "count": len(transfers),
        "sum_us": to_us(sum(transfer.duration_ns for transfer in transfers)),
        "bytes": sum(transfer.bytes for transfer in transfers),
    }


def transfer_totals_by_kind(transfers: Sequence[DeviceActivity]) -> JsonObject:
    totals_by_kind: JsonObject = {}
    for kind, members in by_name(transfers).items():
        totals_by_kind[kind] = transfer_totals(members)
    return {**transfer_totals(transfers), "by_kind": totals_by_kind}


def busy_time(activities: Sequence[DeviceActivity]) -> JsonObject | None:
    """Time from the first start to the last end, and how much of it the device was busy."""
    if not activities:
        return None
    disjoint = union(activity.interval for activity in activities)
    first_start_ns, _ = disjoint[0]
    _, last_end_ns = disjoint[-1]
    span_ns = last_end_ns - first_start_ns
    busy_ns = length_ns(disjoint)
    return {
        "activities": len(activities),
        "span_us": to_us(span_ns),
        "busy_us": to_us(busy_ns),
        "idle_us": to_us(span_ns - busy_ns),
        "busy_fraction": _ratio(busy_ns, span_ns),
    }


def delay_totals(delays_ns: Sequence[int]) -> JsonObject | None:
    """Delays from launch to kernel start; negative if the kernel starts before the call returns."""
    if not delays_ns:
        return None
    return {
        "matched": len(delays_ns),
        "mean_us": to_us(statistics.fmean(delays_ns)),
        "median_us": to_us(statistics.median(delays_ns)),
        "min_us": to_us(min(delays_ns)),
        "max_us": to_us(max(delays_ns)),
        "negative": sum(delay_ns < 0 for delay_ns in delays_ns),
    }


def _first_launch(kernels: Sequence[DeviceActivity]) -> JsonObject:
    """Configuration of the earliest launch."""
    first = min(kernels, key=lambda kernel: kernel.start_ns)
    device: int | str = first.device
    if _DEVICE_NUMBER.fullmatch(first.device):
        device = int(first.device)
    return {
        **first.launch,
        "stream": first.stream,
        "device": device,
    }

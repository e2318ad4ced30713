"""Summarise a trace of torch.profiler for `roofwatch read`. Times are microseconds; keys are the format's words."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from roofwatch.collector.profiling.activities import (
    TOP_COUNT,
    Activity,
    ActivityKind,
    HostKind,
    busy_time,
    group_by,
    kernel_totals,
    launch_totals,
    length_ns,
    overlap_ns,
    to_us,
    transfer_totals,
    union,
)
from roofwatch.collector.profiling.trace import Trace, scalar

_COLLECTIVE = re.compile(r"nccl|rccl", re.IGNORECASE)
_DEVICE_FIELDS = (
    *("id", "name", "totalGlobalMem", "computeMajor", "computeMinor"),
    *("maxThreadsPerBlock", "numSms", "warpSize"),
)
_DISTRIBUTED_FIELDS = ("backend", "rank", "world_size", "pg_count", "nccl_version")


def summarise_trace(trace: Trace, *, top: int | None = TOP_COUNT) -> dict[str, Any]:
    """Summarise a trace with the `top` longest kernel names."""
    header, kernels = trace.header, trace.of_kind(ActivityKind.KERNEL)
    calls = [event for event in trace.host_events if event.kind == HostKind.CALL]
    devices, distributed = header.get("deviceProperties"), header.get("distributedInfo")
    summary: dict[str, Any] = {
        "format": "kineto-chrome-trace",
        "top_level": {name: scalar(value) for name, value in header.items() if not isinstance(value, (dict, list))},
        "devices_declared": [
            _selected(device, _DEVICE_FIELDS)
            for device in (devices if isinstance(devices, list) else ())
            if isinstance(device, dict)
        ],
        "distributed": _selected(distributed, _DISTRIBUTED_FIELDS) if isinstance(distributed, dict) else None,
        "gpu_or_runtime_events_without_usable_time": trace.without_time_count,
        "kernels": _kernels(kernels, top),
        "memcpy": transfer_totals(trace.of_kind(ActivityKind.MEMCPY)),
        "memset": transfer_totals(trace.of_kind(ActivityKind.MEMSET)),
        "runtime_calls": dict(Counter(call.name for call in calls).most_common()),
        "launches": launch_totals(calls, kernels),
        "devices": {device: _device(members) for device, members in group_by(trace.activities, "device").items()},
    }
    if trace.counters:
        summary["cupti_profiler_ranges"] = {
            name: {"samples": len(values), "sum": math.fsum(values), "max": max(values)}
            for name, values in sorted(trace.counters.items())
        }
    return summary


def weighted_occupancy_pct(kernels: Iterable[Activity]) -> float | None:
    """Torch's occupancy estimate, weighted by duration; None if no kernel has one."""
    weighted_sum, weight_ns = 0.0, 0
    for kernel in kernels:
        percent = kernel.launch.get("est_achieved_occupancy_pct")
        if percent is not None:
            weighted_sum += percent * kernel.duration_ns
            weight_ns += kernel.duration_ns
    return weighted_sum / weight_ns if weight_ns else None


def count_launch_configurations(kernels: Iterable[Activity]) -> int:
    """Count distinct combinations of grid, block and shared memory."""
    fields = ("grid", "block", "shared_memory_bytes")
    return len({repr([kernel.launch.get(name) for name in fields]) for kernel in kernels})


def _kernels(kernels: Sequence[Activity], top: int | None) -> dict[str, Any]:
    groups, totals = group_by(kernels, "name"), kernel_totals(kernels, top)
    for row in totals["top_by_total_time"]:
        members = groups[row["name"]]
        row["distinct_launch_configs"] = count_launch_configurations(members)
        row["occupancy_pct"] = _rounded(weighted_occupancy_pct(members))
    return totals | {"occupancy_pct": _rounded(weighted_occupancy_pct(kernels))}


def _device(activities: Sequence[Activity]) -> dict[str, Any]:
    kernels = [activity for activity in activities if activity.kind == ActivityKind.KERNEL]
    summary = {
        "all_gpu_activity": busy_time(activities),
        "kernels_only": busy_time(kernels),
        "streams": len({activity.stream for activity in activities}),
    }
    communicating = union(kernel.interval for kernel in kernels if _COLLECTIVE.search(kernel.name))
    if communicating:
        computing = union(kernel.interval for kernel in kernels if not _COLLECTIVE.search(kernel.name))
        total_ns, overlapped_ns = length_ns(communicating), overlap_ns(communicating, computing)
        summary["collectives"] = {
            "kernels": sum(_COLLECTIVE.search(kernel.name) is not None for kernel in kernels),
            "union_us": to_us(total_ns),
            "compute_union_us": to_us(length_ns(computing)),
            "overlapped_with_compute_us": to_us(overlapped_ns),
            "overlapped_fraction_of_collectives": round(overlapped_ns / total_ns, 6) if total_ns else None,
        }
    return summary


def _selected(values: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    return {name: scalar(values[name]) for name in names if name in values}


def _rounded(percent: float | None) -> float | None:
    return None if percent is None else round(percent, 6)

"""The model of a timeline: activities on the GPU, events on the host, and totals over them.

The readers of Chrome traces and of Nsight Systems produce it. Times are whole nanoseconds, to keep sums exact.
"""

import re
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

TOP_COUNT = 10
"""Kernel names in a summary unless the caller asks for more."""
LAUNCH = re.compile(r"(cuda|cu|hip)\w*Launch\w*Kernel\w*")
GRAPH_LAUNCH = re.compile(r"(cuda|cu|hip)\w*GraphLaunch\w*")
_DEVICE_NUMBER = re.compile(r"[0-9]{1,9}")

Interval = tuple[int, int]
"""Start and end in ns."""


class ActivityKind(StrEnum):
    KERNEL = "kernel"
    MEMCPY = "memcpy"
    MEMSET = "memset"


class HostKind(StrEnum):
    OPERATOR = "operator"
    CALL = "call"
    """Call of the GPU runtime or driver."""
    ANNOTATION = "annotation"
    PYTHON = "python"


class Activity(NamedTuple):
    """A kernel, copy or fill on a device."""

    kind: ActivityKind
    name: str
    start_ns: int
    duration_ns: int
    device: str
    stream: Any = None
    correlation: Any = None
    bytes: int = 0
    launch: Mapping[str, Any] = MappingProxyType({})
    """Launch configuration: grid, block, registers and shared memory, as far as the profiler recorded them."""

    @property
    def interval(self) -> Interval:
        return self.start_ns, self.start_ns + self.duration_ns


class HostEvent(NamedTuple):
    name: str
    start_ns: int
    end_ns: int
    correlation: Any = None
    kind: HostKind = HostKind.CALL
    thread: str = ""


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """Merge overlapping intervals; the result is sorted and disjoint."""
    merged: list[Interval] = []
    for start, end in sorted(intervals):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def length_ns(disjoint: Iterable[Interval]) -> int:
    return sum(end - start for start, end in disjoint)


def overlap_ns(first: list[Interval], second: list[Interval]) -> int:
    """Length of the time in both lists of sorted, disjoint intervals."""
    total = left = right = 0
    while left < len(first) and right < len(second):
        start, end = max(first[left][0], second[right][0]), min(first[left][1], second[right][1])
        total += max(end - start, 0)
        if first[left][1] < second[right][1]:
            left += 1
        else:
            right += 1
    return total


def join_launches(events: Iterable[HostEvent], kernels: Iterable[Activity]) -> list[tuple[Activity, HostEvent]]:
    """Pair kernels with the calls that launched them, by correlation ID; kernels without a call are left out."""
    by_correlation: dict[Any, HostEvent] = {}
    for event in events:
        if event.correlation is not None and event.kind is HostKind.CALL and LAUNCH.fullmatch(event.name):
            by_correlation.setdefault(event.correlation, event)
    return [(kernel, by_correlation[kernel.correlation]) for kernel in kernels if kernel.correlation in by_correlation]


# --- totals, in the units and keys of `roofwatch read --json`


def to_us(nanoseconds: float) -> float:
    return round(nanoseconds / 1e3, 6)


def group_by(activities: Iterable[Activity], field: Literal["name", "device"]) -> dict[str, list[Activity]]:
    """Group activities by a field, in the order of its values."""
    groups: defaultdict[str, list[Activity]] = defaultdict(list)
    for activity in activities:
        groups[getattr(activity, field)].append(activity)
    return dict(sorted(groups.items()))


def kernel_totals(kernels: Sequence[Activity], top: int | None) -> dict[str, Any]:
    """Totals of all kernels, and one row for each of the `top` names with the longest total time."""
    groups = group_by(kernels, "name")
    rows = name_totals(groups)
    return {
        "count": len(kernels),
        "distinct_names": len(rows),
        "sum_us": to_us(sum(kernel.duration_ns for kernel in kernels)),
        "max_us": to_us(max((kernel.duration_ns for kernel in kernels), default=0)),
        "top_by_total_time": [row | {"first_launch": _first_launch(groups[row["name"]])} for row in rows[:top]],
    }


def name_totals(groups: Mapping[str, Sequence[Activity]]) -> list[dict[str, Any]]:
    """Count, sum, mean, minimum and maximum of the durations of each name, the largest sum first."""
    durations = {name: [member.duration_ns for member in members] for name, members in groups.items()}
    return [
        {
            "name": name,
            "count": len(values),
            "sum_us": to_us(sum(values)),
            "mean_us": to_us(sum(values) / len(values)),
            "min_us": to_us(min(values)),
            "max_us": to_us(max(values)),
        }
        for name, values in sorted(durations.items(), key=lambda item: (-sum(item[1]), item[0]))
    ]


def transfer_totals(transfers: Sequence[Activity]) -> dict[str, Any]:
    return {
        "count": len(transfers),
        "sum_us": to_us(sum(transfer.duration_ns for transfer in transfers)),
        "bytes": sum(transfer.bytes for transfer in transfers),
    }


def transfer_totals_by_kind(transfers: Sequence[Activity]) -> dict[str, Any]:
    by_kind = {kind: transfer_totals(members) for kind, members in group_by(transfers, "name").items()}
    return transfer_totals(transfers) | {"by_kind": by_kind}


def busy_time(activities: Sequence[Activity]) -> dict[str, Any] | None:
    """Time from the first start to the last end, and how much of it the device was busy."""
    if not activities:
        return None
    disjoint = union(activity.interval for activity in activities)
    span_ns, busy_ns = disjoint[-1][1] - disjoint[0][0], length_ns(disjoint)
    return {
        "activities": len(activities),
        "span_us": to_us(span_ns),
        "busy_us": to_us(busy_ns),
        "idle_us": to_us(span_ns - busy_ns),
        "busy_fraction": round(busy_ns / span_ns, 6) if span_ns else None,
    }


def delay_totals(delays_ns: Sequence[int]) -> dict[str, Any] | None:
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


def _first_launch(kernels: Sequence[Activity]) -> dict[str, Any]:
    first = min(kernels, key=lambda kernel: kernel.start_ns)
    device = int(first.device) if _DEVICE_NUMBER.fullmatch(first.device) else first.device
    return {**first.launch, "stream": first.stream, "device": device}

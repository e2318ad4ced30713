"""The model of a timeline: activities on the GPU and events on the host, in whole nanoseconds to
keep sums exact.

The readers of Chrome traces and of Nsight Systems produce it.
"""

import re
from collections.abc import Iterable, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Any, NamedTuple

from roofwatch.model.grouping import group_by

LAUNCH = re.compile(r"(cuda|cu|hip)\w*Launch\w*Kernel\w*")
GRAPH_LAUNCH = re.compile(r"(cuda|cu|hip)\w*GraphLaunch\w*")

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


class DeviceActivity(NamedTuple):
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
    """Launch configuration: grid, block, registers and shared memory, as far as the profiler
    recorded them.
    """

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
        if merged:
            last_start, last_end = merged[-1]
            if start <= last_end:
                merged[-1] = (last_start, max(end, last_end))
                continue
        merged.append((start, end))
    return merged


def length_ns(disjoint: Iterable[Interval]) -> int:
    return sum(end - start for start, end in disjoint)


def overlap_ns(first: list[Interval], second: list[Interval]) -> int:
    """Length of the time in both lists of sorted, disjoint intervals."""
    total_ns = 0
    first_index = 0
    second_index = 0
    while first_index < len(first) and second_index < len(second):
        first_start, first_end = first[first_index]
        second_start, second_end = second[second_index]
        shared_ns = min(first_end, second_end) - max(first_start, second_start)
        total_ns += max(shared_ns, 0)
        # the interval that ends first cannot overlap any later one
        if first_end < second_end:
            first_index += 1
        else:
            second_index += 1
    return total_ns


def by_device(activities: Iterable[DeviceActivity]) -> dict[str, list[DeviceActivity]]:
    """Group activities by device, in the order of the devices' names."""
    groups = group_by(activities, key=lambda activity: activity.device)
    return dict(sorted(groups.items()))


def by_name(activities: Iterable[DeviceActivity]) -> dict[str, list[DeviceActivity]]:
    """Group activities by name, in the order of the alphabet."""
    groups = group_by(activities, key=lambda activity: activity.name)
    return dict(sorted(groups.items()))


def join_launches(
    events: Iterable[HostEvent],
    kernels: Iterable[DeviceActivity],
) -> list[tuple[DeviceActivity, HostEvent]]:
    """Pair kernels with the calls that launched them, by correlation ID; kernels without a call are
    left out.
    """
    by_correlation: dict[Any, HostEvent] = {}
    for event in events:
        is_launch = event.kind is HostKind.CALL and LAUNCH.fullmatch(event.name) is not None
        if is_launch and event.correlation is not None:
            # a graph's launches share an ID: the first call started them
            by_correlation.setdefault(event.correlation, event)
    return [
        (kernel, by_correlation[kernel.correlation])
        for kernel in kernels
        if kernel.correlation in by_correlation
    ]


def launch_delays_ns(events: Iterable[HostEvent], kernels: Iterable[DeviceActivity]) -> list[int]:
    """From the start of each launch call to the start of its kernel."""
    return [kernel.start_ns - call.start_ns for kernel, call in join_launches(events, kernels)]

"""Where the time of one trace went: on each device, on the host, and in between."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from roofwatch.collector.profiling.chrome_trace import scan_trace
from roofwatch.collector.profiling.host_work import HostWork
from roofwatch.collector.profiling.kineto import Activity, TraceSummary
from roofwatch.collector.profiling.profile_file import Interval, ProfileError, length_ns, read_bytes, union

TOP_COUNT = 15
GAP_COUNT = 5
_HOST_ROWS_OF_A_GAP = 3


@dataclass(frozen=True)
class TimeRow:
    """All kernels, copies, operators or marks of one name."""

    name: str
    count: int
    total_ns: int
    mean_ns: float
    max_ns: int | None
    share: float | None
    """Of kernels and copies: of the time in which the device was busy. Of operators and marks: of the window. What ran
    side by side makes a sum of more than one."""
    kind: str
    registers: int | None = None


@dataclass(frozen=True)
class DeviceTime:
    device: str
    busy_ns: int
    """Length of the union of what ran there."""
    window_ns: int
    """Of the whole trace, so that what came before the first kernel counts as idle."""
    kernel_count: int
    kernel_ns: int
    transfer_count: int
    transfer_ns: int

    @property
    def busy_share(self) -> float:
        return self.busy_ns / self.window_ns if self.window_ns else 0.0


@dataclass(frozen=True)
class Gap:
    """A time in which a device did nothing although work came after it."""

    device: str
    after_start_ns: int
    """Since the beginning of the trace."""
    length_ns: int
    before: str
    """The activity that ended it."""
    host: tuple[tuple[str, int], ...]
    """What the host did most meanwhile, with ns."""
    host_inside_ns: int
    """In all that was recorded; the rest was spent outside of what torch sees."""


@dataclass(frozen=True)
class LaunchTime:
    count: int
    median_delay_ns: float | None
    """From the call to the kernel's start; None where no kernel can be joined to its call."""
    max_delay_ns: int | None


@dataclass(frozen=True)
class TimeSpent:
    window_ns: int
    devices: tuple[DeviceTime, ...]
    kernels: tuple[TimeRow, ...]
    kernel_names: int
    transfers: tuple[TimeRow, ...]
    launches: LaunchTime
    gaps: tuple[Gap, ...]
    """The longest first, of all devices."""
    operators: tuple[TimeRow, ...]
    operator_names: int
    marks: tuple[TimeRow, ...]
    host_inside_ns: int
    """How long the thread that did the most was inside of operators and runtime calls."""


def read_time_spent(path: Path) -> TimeSpent:
    """Read a trace of torch.profiler.

    Raises:
        ProfileError: it cannot be read, is no trace, or is cut short.
    """
    summary, host = TraceSummary(), HostWork()

    def add(event: dict[str, Any]) -> None:
        summary.add(event)
        host.add(event)

    if scan_trace(read_bytes(path), str(path), add) is None:
        raise ProfileError(f"{path}: is no trace of torch.profiler")
    return time_spent(summary, host)


def time_spent(summary: TraceSummary, host: HostWork) -> TimeSpent:
    window_ns = host.window_ns
    devices = _devices(summary, window_ns)
    busy_ns = sum(device.busy_ns for device in devices)
    kernels, transfers = _rows(summary, {"kernel"}, busy_ns), _rows(summary, {"memcpy", "memset"}, busy_ns)
    operators = [_host_row(work.name, work.count, work.self_ns, "operator", window_ns) for work in host.operators()]
    marks = [_host_row(work.name, work.count, work.total_ns, "mark", window_ns) for work in host.marks()]
    return TimeSpent(
        window_ns=window_ns,
        devices=devices,
        kernels=tuple(kernels[:TOP_COUNT]),
        kernel_names=len(kernels),
        transfers=tuple(transfers[:TOP_COUNT]),
        launches=_launches(summary),
        gaps=tuple(longest_gaps(summary, host)),
        operators=tuple(operators[:TOP_COUNT]),
        operator_names=len(operators),
        marks=tuple(marks[:TOP_COUNT]),
        host_inside_ns=host.busiest_thread_ns(),
    )


def longest_gaps(summary: TraceSummary, host: HostWork, count: int = GAP_COUNT) -> list[Gap]:
    """The longest times between two activities of a device, and what the host did in them."""
    first_ns = host.first_ns or 0
    found: list[tuple[Interval, str, str]] = []
    for device, activities in _by_device(summary).items():
        apart = union(activity.interval for activity in activities)
        begins = {activity.start_ns: activity.name for activity in activities}
        found += [((left[1], right[0]), device, begins[right[0]]) for left, right in pairwise(apart)]
    found.sort(key=lambda gap: (gap[0][0] - gap[0][1], gap[0]))
    return [_gap(span, device, before, host, first_ns) for span, device, before in found[:count]]


def _gap(span: Interval, device: str, before: str, host: HostWork, first_ns: int) -> Gap:
    start_ns, end_ns = span
    meanwhile = host.during(span)
    return Gap(
        device=device,
        after_start_ns=start_ns - first_ns,
        length_ns=end_ns - start_ns,
        before=before,
        host=tuple(meanwhile[:_HOST_ROWS_OF_A_GAP]),
        host_inside_ns=sum(ns for _, ns in meanwhile),
    )


def _devices(summary: TraceSummary, window_ns: int) -> tuple[DeviceTime, ...]:
    found = []
    for device, activities in sorted(_by_device(summary).items()):
        kernels = [activity for activity in activities if activity.kind == "kernel"]
        kernel_ns = sum(kernel.duration_ns for kernel in kernels)
        found.append(
            DeviceTime(
                device=device,
                busy_ns=length_ns(union(activity.interval for activity in activities)),
                window_ns=window_ns,
                kernel_count=len(kernels),
                kernel_ns=kernel_ns,
                transfer_count=len(activities) - len(kernels),
                transfer_ns=sum(activity.duration_ns for activity in activities) - kernel_ns,
            )
        )
    return tuple(found)


def _by_device(summary: TraceSummary) -> dict[str, list[Activity]]:
    by_device: dict[str, list[Activity]] = defaultdict(list)
    for activity in summary.activities:
        by_device[activity.device].append(activity)
    return by_device


def _rows(summary: TraceSummary, kinds: set[str], busy_ns: int) -> list[TimeRow]:
    by_name: dict[str, list[Activity]] = defaultdict(list)
    for activity in summary.activities:
        if activity.kind in kinds:
            by_name[activity.name].append(activity)
    rows = [_device_row(name, members, busy_ns) for name, members in by_name.items()]
    return sorted(rows, key=lambda row: (-row.total_ns, row.name))


def _device_row(name: str, members: Sequence[Activity], busy_ns: int) -> TimeRow:
    durations = [member.duration_ns for member in members]
    total_ns = sum(durations)
    return TimeRow(
        name=name,
        count=len(durations),
        total_ns=total_ns,
        mean_ns=total_ns / len(durations),
        max_ns=max(durations),
        share=total_ns / busy_ns if busy_ns else None,
        kind=members[0].kind,
        registers=members[0].launch.get("registers_per_thread"),
    )


def _host_row(name: str, count: int, spent_ns: int, kind: str, window_ns: int) -> TimeRow:
    share = spent_ns / window_ns if window_ns else None
    return TimeRow(name, count, spent_ns, spent_ns / count, max_ns=None, share=share, kind=kind)


def _launches(summary: TraceSummary) -> LaunchTime:
    delays_ns = list(_delays_ns(summary))
    return LaunchTime(
        count=len(delays_ns),
        median_delay_ns=statistics.median(delays_ns) if delays_ns else None,
        max_delay_ns=max(delays_ns, default=None),
    )


def _delays_ns(summary: TraceSummary) -> Iterable[int]:
    return (kernel.start_ns - call.start_ns for kernel, call in summary.launched())

"""Where the time of one trace went: on each device, on the host, and in between."""

import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from roofwatch.collector.profiling.activities import (
    ActivityKind,
    DeviceActivity,
    HostEvent,
    HostKind,
    Interval,
    by_device,
    launch_delays_ns,
    length_ns,
    union,
)
from roofwatch.collector.profiling.trace import Trace
from roofwatch.model.grouping import group_by

GAP_COUNT = 5
_HOST_ROWS_OF_A_GAP = 3
WORK = {HostKind.OPERATOR, HostKind.CALL}
"""Host events that compute; annotations only name what is inside them."""


@dataclass(frozen=True)
class TimeRow:
    """All kernels, copies, operators or annotations of one name."""

    name: str
    count: int
    total_ns: int
    mean_ns: float
    share: float | None
    """Share of the device's busy time for kernels and copies, of the window for operators and
    annotations.

    Concurrent work makes the sum exceed 1.
    """
    registers: int | None = None


@dataclass(frozen=True)
class DeviceTime:
    device: str
    busy_ns: int
    """Union of all activities."""
    window_ns: int
    """Length of the whole trace: time before the first kernel counts as idle."""
    kernel_count: int
    kernel_ns: int
    transfer_ns: int

    @property
    def busy_share(self) -> float:
        if self.window_ns == 0:
            return 0.0
        return self.busy_ns / self.window_ns


@dataclass(frozen=True)
class IdleGap:
    """Idle time of a device between two activities."""

    device: str
    after_start_ns: int
    """Since the start of the trace."""
    length_ns: int
    before: str
    """Name of the activity after the gap."""
    host: tuple[tuple[str, int], ...]
    """What the host did most in the gap, in ns."""
    host_inside_ns: int
    """Host time in recorded events; the rest was spent outside PyTorch."""


@dataclass(frozen=True)
class TimeSpent:
    window_ns: int
    devices: tuple[DeviceTime, ...]
    kernels: tuple[TimeRow, ...]
    transfers: tuple[TimeRow, ...]
    median_launch_delay_ns: float | None
    """From a launch call to the start of its kernel; None if no kernel could be matched to its
    call.
    """
    gaps: tuple[IdleGap, ...]
    """The longest gaps of all devices, the longest first."""
    operators: tuple[TimeRow, ...]
    marks: tuple[TimeRow, ...]
    """Annotations by the program."""
    host_inside_ns: int
    """Time of the busiest thread in operators and runtime calls."""


def time_spent(trace: Trace) -> TimeSpent:
    """Add up the times of a trace, by device and by name."""
    window_ns = trace.window_ns
    host_events = trace.host_events
    kernel_activities = trace.of_kind(ActivityKind.KERNEL)
    copies = trace.of_kind(ActivityKind.MEMCPY)
    fills = trace.of_kind(ActivityKind.MEMSET)

    devices: list[DeviceTime] = []
    activities_by_device = by_device(trace.activities)
    for device, members in activities_by_device.items():
        devices.append(_device_time(device, members, window_ns))
    busy_ns = sum(device.busy_ns for device in devices)
    kernels = _device_rows(kernel_activities, busy_ns)
    transfers = _device_rows([*copies, *fills], busy_ns)
    operators = operator_rows(host_events, window_ns)
    marks = annotation_rows(host_events, window_ns)
    delays_ns = launch_delays_ns(host_events, kernel_activities)
    median_delay_ns = None
    if delays_ns:
        median_delay_ns = statistics.median(delays_ns)
    return TimeSpent(
        window_ns=window_ns,
        devices=tuple(devices),
        kernels=tuple(kernels),
        transfers=tuple(transfers),
        median_launch_delay_ns=median_delay_ns,
        gaps=_longest_gaps(trace),
        operators=tuple(operators),
        marks=tuple(marks),
        host_inside_ns=busiest_thread_ns(host_events),
    )


_Gap = tuple[Interval, str, str]
"""When, on which device, and the activity after it."""


def _longest_gaps(trace: Trace) -> tuple[IdleGap, ...]:
    """The longest idle times between two activities of a device."""
    gaps: list[_Gap] = []
    for device, activities in by_device(trace.activities).items():
        name_by_start = {activity.start_ns: activity.name for activity in activities}
        disjoint = union(activity.interval for activity in activities)
        # A gap lies between the end of one busy interval and the start of the next.
        for (_, gap_start_ns), (gap_end_ns, _) in pairwise(disjoint):
            next_name = name_by_start[gap_end_ns]
            gaps.append(((gap_start_ns, gap_end_ns), device, next_name))

    def longest_first(gap: _Gap) -> tuple[int, Interval]:
        span, _, _ = gap
        start_ns, end_ns = span
        return start_ns - end_ns, span

    gaps.sort(key=longest_first)
    return tuple(_with_host_work(trace, *gap) for gap in gaps[:GAP_COUNT])


def _with_host_work(
    trace: Trace,
    span: Interval,
    device: str,
    next_name: str,
) -> IdleGap:
    start_ns, end_ns = span
    host_work = host_work_during(trace.host_events, span)
    return IdleGap(
        device=device,
        after_start_ns=start_ns - (trace.start_ns or 0),
        length_ns=end_ns - start_ns,
        before=next_name,
        host=tuple(host_work[:_HOST_ROWS_OF_A_GAP]),
        host_inside_ns=sum(self_ns for _, self_ns in host_work),
    )


def _device_time(device: str, activities: Sequence[DeviceActivity], window_ns: int) -> DeviceTime:
    kernels = [activity for activity in activities if activity.kind == ActivityKind.KERNEL]
    kernel_ns = sum(kernel.duration_ns for kernel in kernels)
    all_ns = sum(activity.duration_ns for activity in activities)
    return DeviceTime(
        device=device,
        busy_ns=length_ns(union(activity.interval for activity in activities)),
        window_ns=window_ns,
        kernel_count=len(kernels),
        kernel_ns=kernel_ns,
        transfer_ns=all_ns - kernel_ns,
    )


def _device_rows(activities: Sequence[DeviceActivity], busy_ns: int) -> list[TimeRow]:
    registers: dict[str, int | None] = {}
    for activity in activities:
        per_thread = activity.launch.get("registers_per_thread")
        # Variants of a name may differ: the first one counts.
        registers.setdefault(activity.name, per_thread)
    parts = [(activity.name, 1, activity.duration_ns) for activity in activities]
    rows = _rows(parts, busy_ns)
    return [replace(row, registers=registers[row.name]) for row in rows]


def _rows(
    parts: Iterable[tuple[str, int, int]],
    whole_ns: int,
) -> list[TimeRow]:
    """Add up the counts and times in ns of each name; the longest first."""
    counts: Counter[str] = Counter()
    totals_ns: Counter[str] = Counter()
    for name, count, duration_ns in parts:
        counts[name] += count
        totals_ns[name] += duration_ns
    # Names of equal times in the order of the alphabet, so that two calls print the same.
    ordered = sorted(
        totals_ns.items(),
        key=lambda total: (-total[1], total[0]),
    )
    rows: list[TimeRow] = []
    for name, total_ns in ordered:
        share = None
        if whole_ns:
            share = total_ns / whole_ns
        row = TimeRow(
            name=name,
            count=counts[name],
            total_ns=total_ns,
            mean_ns=total_ns / counts[name],
            share=share,
        )
        rows.append(row)
    return rows


# --- operators, runtime calls and annotations on the host; calls nest within a thread


def operator_rows(events: Iterable[HostEvent], window_ns: int = 0) -> list[TimeRow]:
    """Self times of operators and runtime calls, without the calls inside; the longest first."""
    threads = by_thread(event for event in events if event.kind in WORK)
    parts: list[tuple[str, int, int]] = []
    for members in threads.values():
        parts += [(event.name, 1, self_ns) for event, self_ns in self_times(members)]
    return _rows(parts, window_ns)


def annotation_rows(events: Iterable[HostEvent], window_ns: int = 0) -> list[TimeRow]:
    """Times of user annotations such as optimizer steps, the longest first; nested ones of the same
    name count once.
    """
    annotations = [event for event in events if event.kind == HostKind.ANNOTATION]
    groups = group_by(annotations, key=lambda event: (event.thread, event.name))
    parts: list[tuple[str, int, int]] = []
    for (_, name), members in groups.items():
        parts.append((name, len(members), _busy_ns(members)))
    return _rows(parts, window_ns)


def busiest_thread_ns(events: Iterable[HostEvent]) -> int:
    """Time in operators and runtime calls of the thread with the most."""
    threads = by_thread(event for event in events if event.kind in WORK)
    return max(map(_busy_ns, threads.values()), default=0)


def host_work_during(events: Iterable[HostEvent], span: Interval) -> list[tuple[str, int]]:
    """Names and self times in ns on the busiest thread during a span, the longest first."""
    threads = by_thread(clipped(events, span))
    busiest = max(threads.values(), key=_busy_ns, default=[])
    parts = [(event.name, 1, self_ns) for event, self_ns in self_times(busiest)]
    rows = _rows(parts, whole_ns=0)
    return [(row.name, row.total_ns) for row in rows if row.total_ns]


def clipped(events: Iterable[HostEvent], span: Interval) -> list[HostEvent]:
    """Return the parts of events that lie within a span."""
    start_ns, end_ns = span
    parts: list[HostEvent] = []
    for event in events:
        is_within = event.start_ns < end_ns and event.end_ns > start_ns
        if is_within:
            part = event._replace(
                start_ns=max(event.start_ns, start_ns),
                end_ns=min(event.end_ns, end_ns),
            )
            parts.append(part)
    return parts


def self_times(events: Iterable[HostEvent]) -> Iterator[tuple[HostEvent, int]]:
    """Each event of one thread with its self time in ns, without the calls inside."""
    # an outer call starts first, or ends last if both start together
    ordered = sorted(events, key=lambda event: (event.start_ns, -event.end_ns))
    self_ns = [event.end_ns - event.start_ns for event in ordered]
    open_calls: list[int] = []
    for index, event in enumerate(ordered):
        # Calls that ended before this one started do not contain it.
        while open_calls and ordered[open_calls[-1]].end_ns <= event.start_ns:
            open_calls.pop()
        if open_calls:
            outer = open_calls[-1]
            # Recorded times may let an inner call end after its outer one.
            inside_ns = min(event.end_ns, ordered[outer].end_ns) - event.start_ns
            self_ns[outer] -= inside_ns
        open_calls.append(index)
    return ((event, max(ns, 0)) for event, ns in zip(ordered, self_ns, strict=True))


def by_thread(events: Iterable[HostEvent]) -> dict[str, list[HostEvent]]:
    return group_by(events, key=lambda event: event.thread)


def _busy_ns(events: Iterable[HostEvent]) -> int:
    spans = ((event.start_ns, event.end_ns) for event in events)
    return length_ns(union(spans))

"""Read the steps of a trace: every launch with its place in the model, and busy time, gaps and
overlap.
"""

import re
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from roofwatch.collector.profiling.activities import (
    LAUNCH,
    HostEvent,
    HostKind,
    Interval,
    group_by,
    length_ns,
    union,
)
from roofwatch.collector.profiling.time_spent import WORK, by_thread, self_times
from roofwatch.collector.profiling.trace import Trace
from roofwatch.model.results import CaseProfile

_MARKER = re.compile(r"ProfilerStep#\d+")
_MODULE = "nn.Module: "
_INSTANCE = re.compile(r"_\d+$")
"""torch numbers the modules of a class, so that one more module renames all later ones."""
HOST = "cpu"
"""Device of a trace without GPU activity; its launches are operators, its streams are threads."""


@dataclass(frozen=True)
class Slot:
    """One launch of a step, or several at the same place of each step,
    with the sum of their times.
    """

    position: tuple[str, ...]
    """Classes of the modules around the launch, outermost first, then the outermost operator in
    them.
    """
    place: str
    """The same with the numbers that torch gave the modules."""
    name: str
    launch_count: int = 1
    busy_ns: int = 0
    gap_ns: int = 0
    """Time before the launch in which nothing ran."""
    step: int = 0
    """Number of the step that launched it, from 0; launches before the first step belong to it."""
    code: str = ""
    """Hashes of its machine code, if a record has them."""


@dataclass(frozen=True)
class StepTimes:
    """All steps of one trace on one device, as totals in ns.

    `step_ns` is the sum of the busy times of all slots, less `overlap_ns`, plus `gap_ns`.
    """

    device: str
    has_markers: bool
    """Steps are those of the profiler's schedule; otherwise the whole trace is one step."""
    step_count: int
    step_ns: int
    slots: tuple[Slot, ...]
    """One for each launch."""
    busy_ns: int
    """Time in which at least one stream was busy."""
    stream_busy_ns: Mapping[str, int]
    gap_after_last_ns: int = 0
    """Part of the gaps after the last launch."""
    notes: tuple[str, ...] = ()
    has_order: bool = True
    """Slots are in the order in which the host issued them; those of a record are not."""

    @property
    def gap_ns(self) -> int:
        return self.step_ns - self.busy_ns

    @property
    def overlap_ns(self) -> int:
        """Time counted more than once in the sum over the slots."""
        return sum(slot.busy_ns for slot in self.slots) - self.busy_ns

    @property
    def launch_count(self) -> int:
        return sum(slot.launch_count for slot in self.slots)


class _Launch(NamedTuple):
    start_ns: int
    end_ns: int
    ns: int
    """Time to count: for an operator, without the operators inside."""
    name: str
    stream: str
    issued_ns: int
    """Start of the call on the host."""
    modules: tuple[str, ...]
    operator: str


def has_markers(trace: Trace) -> bool:
    return any(_MARKER.fullmatch(event.name) for event in trace.host_events)


def read_steps(trace: Trace, *, by_marker: bool) -> list[StepTimes]:
    """Divide a trace into steps, for each device.

    Args:
        trace: A trace of torch.profiler.
        by_marker: A step is one of the profiler's schedule. It ends where the next one starts, the
            last where the work that it launched ends. Otherwise the whole trace is one step,
            including the host's time.

    Returns:
        One for each device, the busiest first; one for the host if no device was active.
    """
    events = [event for event in trace.host_events if not _MARKER.fullmatch(event.name)]
    notes = []
    if trace.without_time_count:
        notes.append(f"{trace.without_time_count} events have no usable time and are left out")
    negative = sum(activity.duration_ns < 0 for activity in trace.activities)
    if negative:
        notes.append(f"{negative} activities have a negative duration and are left out")
    markers = sorted(
        {
            (event.start_ns, event.end_ns)
            for event in trace.host_events
            if _MARKER.fullmatch(event.name)
        }
        if by_marker
        else [(trace.start_ns or 0, trace.end_ns or 0)]
    )
    end_ns = markers[-1][1]
    by_device = dict(_device_launches(trace, events))
    if by_device and by_marker:
        launches = [launch for members in by_device.values() for launch in members]
        end_ns = max([end_ns, *(launch.end_ns for launch in launches if launch.issued_ns < end_ns)])
    elif not by_device:
        if any(LAUNCH.fullmatch(event.name) for event in events):
            notes.append(
                "kernels were launched, but their times are not in the trace: only the host is "
                "compared"
            )
        by_device = {HOST: list(_host_launches(events, (markers[0][0], end_ns)))}
    bounds = [start_ns for start_ns, _ in markers] + [end_ns]
    found = [
        _step_times(device, launches, bounds, has_markers=by_marker, notes=tuple(notes))
        for device, launches in by_device.items()
    ]
    return sorted(found, key=lambda times: -times.busy_ns)


def _step_times(
    device: str,
    launches: Iterable[_Launch],
    bounds: Sequence[int],
    *,
    has_markers: bool,
    notes: tuple[str, ...],
) -> StepTimes:
    start_ns, end_ns = bounds[0], bounds[-1]
    inside = sorted(
        launch._replace(
            start_ns=max(launch.start_ns, start_ns),
            end_ns=min(launch.end_ns, end_ns),
            # operators are cut already
            ns=launch.ns
            if device == HOST
            else min(launch.end_ns, end_ns) - max(launch.start_ns, start_ns),
        )
        for launch in launches
        if launch.start_ns <= end_ns and launch.end_ns >= start_ns
    )
    streams: defaultdict[str, list[Interval]] = defaultdict(list)
    for launch in inside:
        streams[launch.stream].append((launch.start_ns, launch.end_ns))
    gap_ns, busy_until_ns = [], start_ns
    for launch in inside:
        gap_ns.append(max(launch.start_ns - busy_until_ns, 0))
        busy_until_ns = max(busy_until_ns, launch.end_ns)
    streams_in_order = list(streams)
    # all kernels of a graph are issued at once, and the order between its streams varies
    issued = sorted(
        zip(inside, gap_ns, strict=True),
        key=lambda each: (each[0].issued_ns, streams_in_order.index(each[0].stream)),
    )
    return StepTimes(
        device=device,
        has_markers=has_markers,
        step_count=len(bounds) - 1,
        step_ns=end_ns - start_ns,
        slots=tuple(_slots(issued, bounds)),
        busy_ns=length_ns(union((launch.start_ns, launch.end_ns) for launch in inside)),
        stream_busy_ns={
            stream: length_ns(union(intervals)) for stream, intervals in sorted(streams.items())
        },
        gap_after_last_ns=end_ns - busy_until_ns if gap_ns else 0,
        notes=notes,
    )


def _slots(issued: Iterable[tuple[_Launch, int]], bounds: Sequence[int]) -> Iterator[Slot]:
    step = 0
    for launch, gap_ns in issued:
        while step < len(bounds) - 2 and launch.issued_ns >= bounds[step + 1]:
            step += 1
        position = (
            *(_INSTANCE.sub("", module) for module in launch.modules),
            *filter(None, [launch.operator]),
        )
        place = " / ".join(filter(None, (*launch.modules, launch.operator)))
        yield Slot(position, place, launch.name, 1, launch.ns, gap_ns, step)


def fold(slots: Iterable[Slot]) -> list[Slot]:
    """Add up the launches that have the same place, name and number in each step, in the order of a
    step.
    """
    groups: defaultdict[object, list[tuple[int, Slot]]] = defaultdict(list)
    seen: Counter[object] = Counter()
    at_in_step: Counter[int] = Counter()
    for slot in slots:
        key = slot.position, slot.name
        seen[slot.step, key] += 1
        groups[key, seen[slot.step, key]].append((at_in_step[slot.step], slot))
        at_in_step[slot.step] += 1
    return [
        replace(
            members[0][1],
            launch_count=sum(slot.launch_count for _, slot in members),
            busy_ns=sum(slot.busy_ns for _, slot in members),
            gap_ns=sum(slot.gap_ns for _, slot in members),
            step=0,
        )
        for members in sorted(
            groups.values(), key=lambda members: statistics.fmean(at for at, _ in members)
        )
    ]


def _device_launches(
    trace: Trace, events: Iterable[HostEvent]
) -> Iterator[tuple[str, list[_Launch]]]:
    calls: dict[Any, tuple[HostEvent, tuple[str, ...], str]] = {}
    for event, modules, operator in _with_places(events):
        if event.kind is HostKind.CALL and event.correlation is not None:
            calls.setdefault(event.correlation, (event, modules, operator))
    known = [activity for activity in trace.activities if activity.duration_ns >= 0]
    for device, activities in group_by(known, "device").items():
        launches = []
        for activity in activities:
            call, modules, operator = calls.get(activity.correlation, (None, (), ""))
            issued_ns = activity.start_ns if call is None else call.start_ns
            stream = str(activity.stream)
            launches.append(
                _Launch(
                    *activity.interval,
                    activity.duration_ns,
                    activity.name,
                    stream,
                    issued_ns,
                    modules,
                    operator,
                )
            )
        yield device, launches


def _host_launches(events: Sequence[HostEvent], span: Interval) -> Iterator[_Launch]:
    inside = [
        event._replace(start_ns=max(event.start_ns, span[0]), end_ns=min(event.end_ns, span[1]))
        for event in events
        if event.start_ns <= span[1] and event.end_ns >= span[0]
    ]
    places = {id(event): (modules, operator) for event, modules, operator in _with_places(inside)}
    for thread, members in by_thread(event for event in inside if event.kind in WORK).items():
        for event, ns in self_times(members):
            yield _Launch(
                event.start_ns,
                event.end_ns,
                ns,
                event.name,
                thread,
                event.start_ns,
                *places[id(event)],
            )


def _with_places(events: Iterable[HostEvent]) -> Iterator[tuple[HostEvent, tuple[str, ...], str]]:
    """Each event with the modules around it and the outermost operator in the innermost of them."""
    for members in by_thread(
        event for event in events if event.kind is not HostKind.ANNOTATION
    ).values():
        around: list[HostEvent] = []
        for event in sorted(members, key=lambda event: (event.start_ns, -event.end_ns)):
            while around and around[-1].end_ns <= event.start_ns:
                around.pop()
            modules, operator = [], ""
            for outer in around:
                if outer.kind is HostKind.PYTHON:
                    modules.append(outer.name.removeprefix(_MODULE))
                    operator = ""
                elif not operator:
                    operator = outer.name
            yield event, tuple(modules), operator
            is_module = event.kind is HostKind.PYTHON and event.name.startswith(_MODULE)
            if is_module or event.kind is HostKind.OPERATOR:
                around.append(event)


def steps_of_profile(profile: CaseProfile) -> StepTimes:
    """Steps of a profile in a record: each profiled call is one. Its launches have no place, and
    are added by name.
    """
    rows = [(row.name, row.count, row.total_ns) for row in profile.rows]
    if profile.left_out_count:
        rows.append(("(more names)", profile.left_out_count, profile.left_out_ns))
    return StepTimes(
        device=profile.rows[0].device if profile.rows else HOST,
        has_markers=True,
        has_order=False,
        step_count=profile.call_count,
        step_ns=profile.span_ns,
        slots=tuple(Slot((), "", name, count, total_ns) for name, count, total_ns in rows),
        busy_ns=profile.busy_ns,
        stream_busy_ns={},
    )

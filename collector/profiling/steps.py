"""Read the steps of a trace: every launch with its place in the model, and busy time, gaps and
overlap.
"""

import re
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, NamedTuple

from roofwatch.collector.profiling.activities import (
    LAUNCH,
    HostEvent,
    HostKind,
    Interval,
    by_device,
    length_ns,
    union,
)
from roofwatch.collector.profiling.steady import StepKind, find_steady_part
from roofwatch.collector.profiling.time_spent import WORK, by_thread, self_times
from roofwatch.collector.profiling.trace import Trace
from roofwatch.model.grouping import group_by
from roofwatch.model.results import CaseProfile

_MARKER = re.compile(r"ProfilerStep#\d+")
_MODULE = "nn.Module: "
_COMPILED_GRAPH = re.compile(r"## Call (CompiledFxGraph) \w+ ##")
"""Call of a graph that torch.compile compiled; its hash differs between two programs."""
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
    module_path: str
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
    steps_are: StepKind
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
    step_spread_ns: tuple[int, int] | None = None
    """Shortest and longest step; None if they were not timed one by one."""
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


def step_kind(trace: Trace) -> StepKind:
    """How the steps of a trace can be recognised best."""
    if has_markers(trace):
        return StepKind.MARKERS
    steady = find_steady_part(trace)
    if steady is None:
        return StepKind.WHOLE
    return steady.steps_are


def read_steps(trace: Trace, steps_are: StepKind) -> list[StepTimes]:
    """Divide a trace into steps, for each device.

    Args:
        trace: A trace of torch.profiler.
        steps_are: How to find the steps. A step ends where the next one starts, the last where the
            work that it launched ends. A whole trace is one step, including the host's time.

    Returns:
        One for each device, the busiest first; one for the host if no device was active.
    """
    events = [event for event in trace.host_events if not _MARKER.fullmatch(event.name)]
    notes: list[str] = []
    if trace.without_time_count:
        notes.append(f"{trace.without_time_count} events have no usable time and are left out")
    negative_count = sum(activity.duration_ns < 0 for activity in trace.activities)
    if negative_count:
        notes.append(f"{negative_count} activities have a negative duration and are left out")
    spans = _spans(trace, steps_are)
    end_ns = spans[-1][1]
    by_device = dict(_device_launches(trace, events))
    if by_device and steps_are is not StepKind.WHOLE:
        launches = [launch for members in by_device.values() for launch in members]
        # The device may still run what the last step launched.
        of_steps = [launch.end_ns for launch in launches if launch.issued_ns < end_ns]
        end_ns = max([end_ns, *of_steps])
    elif not by_device:
        if any(LAUNCH.fullmatch(event.name) for event in events):
            notes.append(
                "kernels were launched, but their times are not in the trace: only the host is "
                "compared"
            )
        by_device = {HOST: list(_host_launches(events, (spans[0][0], end_ns)))}
    bounds = [start_ns for start_ns, _ in spans] + [end_ns]
    times_of_devices = [
        _step_times(
            device=device,
            launches=launches,
            bounds=bounds,
            steps_are=steps_are,
            notes=tuple(notes),
        )
        for device, launches in by_device.items()
    ]
    return sorted(times_of_devices, key=lambda times: -times.busy_ns)


def _spans(trace: Trace, steps_are: StepKind) -> list[Interval]:
    """Start and end of each step in ns; without steps, of the whole trace."""
    if steps_are is StepKind.MARKERS:
        return _marked_spans(trace)
    steady = None
    if steps_are is not StepKind.WHOLE:
        steady = find_steady_part(trace)
    if steady is None:
        return [(trace.start_ns or 0, trace.end_ns or 0)]
    return steady.spans


def _marked_spans(trace: Trace) -> list[Interval]:
    """Spans of the profiler's steps in order; several threads may mark the same step."""
    spans: set[Interval] = set()
    for event in trace.host_events:
        if _MARKER.fullmatch(event.name):
            spans.add((event.start_ns, event.end_ns))
    return sorted(spans)


def _step_times(
    device: str,
    launches: Iterable[_Launch],
    bounds: Sequence[int],
    *,
    steps_are: StepKind,
    notes: tuple[str, ...],
) -> StepTimes:
    """Times of all steps on one device, launch by launch."""
    start_ns = bounds[0]
    end_ns = bounds[-1]
    inside = _clipped(
        launches=launches,
        start_ns=start_ns,
        end_ns=end_ns,
        are_cut=device == HOST,
    )
    streams = group_by(inside, key=lambda launch: launch.stream)
    gaps_ns: list[int] = []
    busy_until_ns = start_ns
    for launch in inside:
        gaps_ns.append(max(launch.start_ns - busy_until_ns, 0))
        busy_until_ns = max(busy_until_ns, launch.end_ns)
    streams_in_order = list(streams)

    def issue_order(launch_and_gap: tuple[_Launch, int]) -> tuple[int, int]:
        launch, _ = launch_and_gap
        # all kernels of a graph are issued at once, and the order between its streams varies
        return launch.issued_ns, streams_in_order.index(launch.stream)

    issued = sorted(zip(inside, gaps_ns, strict=True), key=issue_order)
    busy = _busy_intervals(inside)
    stream_busy_ns: dict[str, int] = {}
    for stream, launches_of_stream in sorted(streams.items()):
        stream_busy_ns[stream] = length_ns(_busy_intervals(launches_of_stream))
    step_lengths_ns = [
        step_end_ns - step_start_ns for step_start_ns, step_end_ns in pairwise(bounds)
    ]
    gap_after_last_ns = 0
    if inside:
        gap_after_last_ns = end_ns - busy_until_ns
    return StepTimes(
        device=device,
        steps_are=steps_are,
        step_spread_ns=(min(step_lengths_ns), max(step_lengths_ns)),
        step_count=len(bounds) - 1,
        step_ns=end_ns - start_ns,
        slots=tuple(_slots(issued, bounds)),
        busy_ns=length_ns(busy),
        stream_busy_ns=stream_busy_ns,
        gap_after_last_ns=gap_after_last_ns,
        notes=notes,
    )


def _busy_intervals(launches: Iterable[_Launch]) -> list[Interval]:
    return union((launch.start_ns, launch.end_ns) for launch in launches)


def _clipped(
    launches: Iterable[_Launch],
    start_ns: int,
    end_ns: int,
    *,
    are_cut: bool,
) -> list[_Launch]:
    """The launches inside a span; the time to count is cut too unless it already `are_cut`."""
    clipped: list[_Launch] = []
    for launch in launches:
        if launch.start_ns > end_ns or launch.end_ns < start_ns:
            continue
        launch_start_ns = max(launch.start_ns, start_ns)
        launch_end_ns = min(launch.end_ns, end_ns)
        if are_cut:
            counted_ns = launch.ns
        else:
            counted_ns = launch_end_ns - launch_start_ns
        cut_launch = launch._replace(
            start_ns=launch_start_ns,
            end_ns=launch_end_ns,
            ns=counted_ns,
        )
        clipped.append(cut_launch)
    return sorted(clipped)


def _slots(
    issued: Iterable[tuple[_Launch, int]],
    bounds: Sequence[int],
) -> Iterator[Slot]:
    """Assign each launch to its step, by when it was issued."""
    step = 0
    last_step = len(bounds) - 2
    for launch, gap_ns in issued:
        # what is issued after the last bound belongs to the last step
        while step < last_step and launch.issued_ns >= bounds[step + 1]:
            step += 1
        # Without the numbers of torch, a place is the same in two versions of a model.
        path = list(launch.modules)
        position = [_INSTANCE.sub("", module) for module in launch.modules]
        if launch.operator:
            path.append(launch.operator)
            position.append(launch.operator)
        yield Slot(
            position=tuple(position),
            module_path=" / ".join(filter(None, path)),
            name=_COMPILED_GRAPH.sub(r"\1", launch.name),
            busy_ns=launch.ns,
            gap_ns=gap_ns,
            step=step,
        )


def fold(slots: Iterable[Slot]) -> list[Slot]:
    """Add up the launches that have the same place, name and number in each step, in the order of a
    step.
    """
    groups: defaultdict[object, list[tuple[int, Slot]]] = defaultdict(list)
    seen: Counter[object] = Counter()
    slots_in_step: Counter[int] = Counter()
    for slot in slots:
        # The n-th launch of a name in one step is compared with the n-th in another.
        key = slot.position, slot.name
        seen[slot.step, key] += 1
        index_in_step = slots_in_step[slot.step]
        number_in_step = seen[slot.step, key]
        groups[key, number_in_step].append((index_in_step, slot))
        slots_in_step[slot.step] += 1

    def mean_index(members: list[tuple[int, Slot]]) -> float:
        return statistics.fmean(index for index, _ in members)

    folded: list[Slot] = []
    for members in sorted(groups.values(), key=mean_index):
        slots_of_group = [slot for _, slot in members]
        folded_slot = replace(
            slots_of_group[0],
            launch_count=sum(slot.launch_count for slot in slots_of_group),
            busy_ns=sum(slot.busy_ns for slot in slots_of_group),
            gap_ns=sum(slot.gap_ns for slot in slots_of_group),
            step=0,
        )
        folded.append(folded_slot)
    return folded


def _device_launches(
    trace: Trace,
    events: Iterable[HostEvent],
) -> Iterator[tuple[str, list[_Launch]]]:
    """Launches of each device, placed by the call that issued them."""
    calls: dict[Any, _PlacedEvent] = {}
    for event, modules, operator in _with_places(events):
        if event.kind is HostKind.CALL and event.correlation is not None:
            calls.setdefault(event.correlation, (event, modules, operator))
    timed = [activity for activity in trace.activities if activity.duration_ns >= 0]
    for device, activities in by_device(timed).items():
        launches: list[_Launch] = []
        for activity in activities:
            start_ns, end_ns = activity.interval
            call, modules, operator = calls.get(activity.correlation, (None, (), ""))
            # Without its call, the launch is taken to be issued when it starts.
            issued_ns = start_ns
            if call is not None:
                issued_ns = call.start_ns
            launch = _Launch(
                start_ns=start_ns,
                end_ns=end_ns,
                ns=activity.duration_ns,
                name=activity.name,
                stream=str(activity.stream),
                issued_ns=issued_ns,
                modules=modules,
                operator=operator,
            )
            launches.append(launch)
        yield device, launches


def _host_launches(events: Sequence[HostEvent], span: Interval) -> Iterator[_Launch]:
    """Self times of operators and runtime calls, as launches of the host."""
    span_start_ns, span_end_ns = span
    inside: list[HostEvent] = []
    for event in events:
        if event.start_ns <= span_end_ns and event.end_ns >= span_start_ns:
            start_ns = max(event.start_ns, span_start_ns)
            end_ns = min(event.end_ns, span_end_ns)
            inside.append(event._replace(start_ns=start_ns, end_ns=end_ns))
    # by identity: two events may be equal
    places = {id(event): (modules, operator) for event, modules, operator in _with_places(inside)}
    work = by_thread(event for event in inside if event.kind in WORK)
    for thread, members in work.items():
        for event, self_ns in self_times(members):
            modules, operator = places[id(event)]
            yield _Launch(
                start_ns=event.start_ns,
                end_ns=event.end_ns,
                ns=self_ns,
                name=event.name,
                stream=thread,
                issued_ns=event.start_ns,
                modules=modules,
                operator=operator,
            )


_PlacedEvent = tuple[HostEvent, tuple[str, ...], str]
"""An event, the modules around it, and the outermost operator in the innermost of them."""


def _with_places(events: Iterable[HostEvent]) -> Iterator[_PlacedEvent]:
    """Each event with the modules around it and the outermost operator in the innermost of them."""
    threads = by_thread(event for event in events if event.kind is not HostKind.ANNOTATION)
    for members in threads.values():
        around: list[HostEvent] = []
        for event in sorted(members, key=lambda event: (event.start_ns, -event.end_ns)):
            while around and around[-1].end_ns <= event.start_ns:
                around.pop()
            modules = []
            operator = ""
            for outer in around:
                if outer.kind is HostKind.PYTHON:
                    # An operator of an outer module is not around what an inner module does.
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
    slots = [
        Slot(
            position=(),
            module_path="",
            name=name,
            launch_count=count,
            busy_ns=total_ns,
        )
        for name, count, total_ns in rows
    ]
    device = HOST
    if profile.rows:
        device = profile.rows[0].device
    return StepTimes(
        device=device,
        steps_are=StepKind.MARKERS,
        has_order=False,
        step_count=profile.call_count,
        step_ns=profile.span_ns,
        slots=tuple(slots),
        busy_ns=profile.busy_ns,
        stream_busy_ns={},
    )

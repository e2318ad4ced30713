"""What the host did, by a trace of torch.profiler: operators, calls of the GPU's runtime, and a program's own marks.

Source: pytorch/kineto output_json.cpp; calls nest within a thread, and what a call spent itself is its time without the
calls inside it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from roofwatch.collector.profiling.profile_file import Interval, length_ns, nanoseconds, union

_OPERATOR, _CALL, _MARK, _PYTHON = "operator", "call", "mark", "python"
_KIND_OF_CATEGORY = {
    "cpu_op": _OPERATOR,
    "operator": _OPERATOR,
    "cuda_runtime": _CALL,
    "cuda_driver": _CALL,
    "runtime": _CALL,
    "driver": _CALL,
    "hip_runtime": _CALL,
    "hip_driver": _CALL,
    "user_annotation": _MARK,
    "python_function": _PYTHON,
}


class _Event(NamedTuple):
    thread: str
    start_ns: int
    end_ns: int
    name: str
    kind: str


@dataclass(frozen=True)
class Work:
    """All calls of one name."""

    name: str
    count: int
    self_ns: int
    """Without what was called inside."""
    total_ns: int
    """With what was called inside; time of a call inside one of its own name counts once."""


@dataclass
class HostWork:
    """Collects events by `add`, as `TraceSummary` does, and answers what the host spent its time on."""

    _events: list[_Event] = field(default_factory=list)
    _names: dict[str, str] = field(default_factory=dict)
    first_ns: int | None = None
    last_ns: int | None = None

    def add(self, event: dict[str, Any]) -> None:
        if event.get("ph") != "X":
            return
        category = str(event.get("cat", "")).lower()
        if category == "trace":  # the profiler's own: it may cover what was not recorded
            return
        start_ns, duration_ns = nanoseconds(event.get("ts")), nanoseconds(event.get("dur"))
        if start_ns is None or duration_ns is None:
            return
        end_ns = start_ns + duration_ns
        if self.first_ns is None or start_ns < self.first_ns:
            self.first_ns = start_ns
        if self.last_ns is None or end_ns > self.last_ns:
            self.last_ns = end_ns
        kind = _KIND_OF_CATEGORY.get(category)
        if kind is not None:
            name = str(event.get("name", ""))
            # one copy of each text: a trace has few names and many events
            name = self._names.setdefault(name, name)
            self._events.append(_Event(self._thread_of(event), start_ns, end_ns, name, kind))

    def _thread_of(self, event: dict[str, Any]) -> str:
        thread = f"{event.get('pid')}/{event.get('tid')}"
        return self._names.setdefault(thread, thread)

    @property
    def window_ns(self) -> int:
        """From the first event to the end of the last, of host and devices."""
        return 0 if self.first_ns is None or self.last_ns is None else self.last_ns - self.first_ns

    def operators(self) -> list[Work]:
        """Operators and runtime calls, what spent the most itself first."""
        return _ranked(self._events, {_OPERATOR, _CALL})

    def marks(self) -> list[Work]:
        """What the program marked itself, such as an optimizer's step, the longest in all first."""
        return sorted(_ranked(self._events, {_MARK}), key=lambda work: (-work.total_ns, work.name))

    def busiest_thread_ns(self) -> int:
        """How long the thread that did the most was inside of operators and runtime calls."""
        inside: dict[str, list[Interval]] = defaultdict(list)
        for event in self._events:
            if event.kind in {_OPERATOR, _CALL}:
                inside[event.thread].append((event.start_ns, event.end_ns))
        return max((length_ns(union(intervals)) for intervals in inside.values()), default=0)

    def during(self, gap: Interval) -> list[tuple[str, int]]:
        """What the host did in a span of time: names and ns, the longest first. On the thread that did the most then; a
        mark and a Python function count where nothing inside them was recorded.
        """
        start_ns, end_ns = gap
        inside: dict[str, list[_Event]] = defaultdict(list)
        for event in self._events:
            if event.start_ns < end_ns and event.end_ns > start_ns:
                clipped = event._replace(start_ns=max(event.start_ns, start_ns), end_ns=min(event.end_ns, end_ns))
                inside[event.thread].append(clipped)
        if not inside:
            return []
        busiest = max(inside.values(), key=lambda events: length_ns(union((e.start_ns, e.end_ns) for e in events)))
        spent: dict[str, int] = defaultdict(int)
        for event, self_ns in _self_times(busiest):
            spent[event.name] += self_ns
        return sorted(((name, ns) for name, ns in spent.items() if ns), key=lambda item: (-item[1], item[0]))


def _ranked(events: Iterable[_Event], kinds: set[str]) -> list[Work]:
    counts: dict[str, int] = defaultdict(int)
    self_ns: dict[str, int] = defaultdict(int)
    spans: dict[tuple[str, str], list[Interval]] = defaultdict(list)
    for event, own_ns in _self_times([event for event in events if event.kind in kinds]):
        counts[event.name] += 1
        self_ns[event.name] += own_ns
        spans[event.name, event.thread].append((event.start_ns, event.end_ns))
    total_ns: dict[str, int] = defaultdict(int)
    for (name, _), intervals in spans.items():
        total_ns[name] += length_ns(union(intervals))
    works = [Work(name, count, self_ns[name], total_ns[name]) for name, count in counts.items()]
    return sorted(works, key=lambda work: (-work.self_ns, work.name))


def _self_times(events: Iterable[_Event]) -> list[tuple[_Event, int]]:
    """Each event with its time without what began inside it on its thread."""
    by_thread: dict[str, list[_Event]] = defaultdict(list)
    for event in events:
        by_thread[event.thread].append(event)
    return [pair for members in by_thread.values() for pair in _self_times_of_thread(members)]


def _self_times_of_thread(events: list[_Event]) -> Iterator[tuple[_Event, int]]:
    # an outer call begins first, and ends last where both begin at once
    ordered = sorted(events, key=lambda event: (event.start_ns, -event.end_ns))
    own = [event.end_ns - event.start_ns for event in ordered]
    open_calls: list[tuple[int, int]] = []
    for at, event in enumerate(ordered):
        start_ns, end_ns = event.start_ns, event.end_ns
        while open_calls and open_calls[-1][1] <= start_ns:
            open_calls.pop()
        if open_calls:
            outer, outer_end_ns = open_calls[-1]
            own[outer] -= min(end_ns, outer_end_ns) - start_ns
        open_calls.append((at, end_ns))
    return ((event, max(spent, 0)) for event, spent in zip(ordered, own, strict=True))

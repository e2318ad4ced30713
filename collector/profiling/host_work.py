"""Time of operators, runtime calls and annotations on the host.

Calls nest within a thread: self time is the time of a call without the calls inside it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from roofwatch.collector.profiling.activities import HostEvent, HostKind, Interval, length_ns, union


@dataclass(frozen=True)
class HostTotal:
    """All calls of one name."""

    name: str
    count: int
    self_ns: int
    total_ns: int
    """Includes calls inside; nested calls of the same name count once."""


def operator_totals(events: Iterable[HostEvent]) -> list[HostTotal]:
    """Totals of operators and runtime calls, the longest self time first."""
    return sorted(_totals(events, {HostKind.OPERATOR, HostKind.CALL}), key=lambda total: (-total.self_ns, total.name))


def annotation_totals(events: Iterable[HostEvent]) -> list[HostTotal]:
    """Totals of user annotations such as optimizer steps, the longest first."""
    return sorted(_totals(events, {HostKind.ANNOTATION}), key=lambda total: (-total.total_ns, total.name))


def busiest_thread_ns(events: Iterable[HostEvent]) -> int:
    """Time in operators and runtime calls of the thread with the most."""
    threads = _by_thread(event for event in events if event.kind in {HostKind.OPERATOR, HostKind.CALL})
    return max(map(_busy_ns, threads.values()), default=0)


def host_work_during(events: Iterable[HostEvent], span: Interval) -> list[tuple[str, int]]:
    """Names and self times in ns on the busiest thread during a span, the longest first."""
    start_ns, end_ns = span
    clipped = (
        event._replace(start_ns=max(event.start_ns, start_ns), end_ns=min(event.end_ns, end_ns))
        for event in events
        if event.start_ns < end_ns and event.end_ns > start_ns
    )
    busiest = max(_by_thread(clipped).values(), key=_busy_ns, default=[])
    spent_ns: dict[str, int] = defaultdict(int)
    for event, self_ns in _self_times(busiest):
        spent_ns[event.name] += self_ns
    return sorted(((name, ns) for name, ns in spent_ns.items() if ns), key=lambda item: (-item[1], item[0]))


def _totals(events: Iterable[HostEvent], kinds: set[str]) -> Iterator[HostTotal]:
    counts: dict[str, int] = defaultdict(int)
    self_ns: dict[str, int] = defaultdict(int)
    total_ns: dict[str, int] = defaultdict(int)
    for members in _by_thread(event for event in events if event.kind in kinds).values():
        spans: dict[str, list[Interval]] = defaultdict(list)
        for event, own_ns in _self_times(members):
            counts[event.name] += 1
            self_ns[event.name] += own_ns
            spans[event.name].append((event.start_ns, event.end_ns))
        for name, intervals in spans.items():
            total_ns[name] += length_ns(union(intervals))
    return (HostTotal(name, count, self_ns[name], total_ns[name]) for name, count in counts.items())


def _self_times(events: Iterable[HostEvent]) -> Iterator[tuple[HostEvent, int]]:
    """Each event of one thread with its self time in ns."""
    # an outer call starts first, or ends last if both start together
    ordered = sorted(events, key=lambda event: (event.start_ns, -event.end_ns))
    self_ns = [event.end_ns - event.start_ns for event in ordered]
    open_calls: list[int] = []
    for at, event in enumerate(ordered):
        while open_calls and ordered[open_calls[-1]].end_ns <= event.start_ns:
            open_calls.pop()
        if open_calls:
            outer = open_calls[-1]
            self_ns[outer] -= min(event.end_ns, ordered[outer].end_ns) - event.start_ns
        open_calls.append(at)
    return ((event, max(ns, 0)) for event, ns in zip(ordered, self_ns, strict=True))


def _by_thread(events: Iterable[HostEvent]) -> dict[str, list[HostEvent]]:
    threads: dict[str, list[HostEvent]] = defaultdict(list)
    for event in events:
        threads[event.thread].append(event)
    return threads


def _busy_ns(events: Iterable[HostEvent]) -> int:
    return length_ns(union((event.start_ns, event.end_ns) for event in events))

"""Find the part of a trace in which a program repeats its steps."""

import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import accumulate, pairwise

from roofwatch.collector.profiling.activities import DeviceActivity, HostEvent, HostKind, Interval
from roofwatch.collector.profiling.time_spent import WORK, by_thread, clipped
from roofwatch.collector.profiling.trace import Trace
from roofwatch.model.grouping import group_by

_OPTIMIZER_STEP = "Optimizer.step#"
"""Start of the annotation that PyTorch puts around a step of each optimizer."""
_MIN_STEPS = 3
"""Fewer steps show no repetition."""
_SLOW_START_RATIO = 1.5
"""A first step that takes so much longer than the median is not counted: it compiled or loaded."""
_PERIOD_CANDIDATES = 40


class StepKind(StrEnum):
    """How the steps of a trace were recognised."""

    MARKERS = "ProfilerStep markers"
    OPTIMIZER = "optimizer steps"
    REPEATED = "repeated operators"
    WHOLE = "the whole trace"


@dataclass(frozen=True)
class SteadyPart:
    """Steps that follow each other without a pause."""

    steps_are: StepKind
    step_ns: tuple[int, ...]
    start_ns: int

    @property
    def end_ns(self) -> int:
        return self.start_ns + sum(self.step_ns)

    @property
    def median_step_ns(self) -> float:
        return statistics.median(self.step_ns)

    @property
    def spans(self) -> list[Interval]:
        """Start and end of each step."""
        ends_ns = list(accumulate(self.step_ns, initial=self.start_ns))
        return list(pairwise(ends_ns))


def find_steady_part(trace: Trace) -> SteadyPart | None:
    """Find the steps of a trace; None if nothing in it repeats three times.

    Steps end where the steps of the optimizer end. Without an optimizer, they are the longest run
    of the busiest thread in which the same operators repeat in the same order.
    """
    boundaries = _optimizer_boundaries(trace)
    steps_are = StepKind.OPTIMIZER
    if len(boundaries) <= _MIN_STEPS:
        boundaries = _repeated_boundaries(trace)
        steps_are = StepKind.REPEATED
    boundaries = _without_slow_start(boundaries)
    if len(boundaries) <= _MIN_STEPS:
        return None
    return SteadyPart(
        steps_are=steps_are,
        step_ns=tuple(end_ns - start_ns for start_ns, end_ns in pairwise(boundaries)),
        start_ns=boundaries[0],
    )


def cut_out(trace: Trace, part: SteadyPart) -> Trace:
    """Return the events of a part; those that reach over its ends are cut."""
    activities: list[DeviceActivity] = []
    for activity in trace.activities:
        start_ns, end_ns = activity.interval
        if start_ns < part.end_ns and end_ns > part.start_ns:
            cut_start_ns = max(start_ns, part.start_ns)
            duration_ns = min(end_ns, part.end_ns) - cut_start_ns
            cut_activity = activity._replace(start_ns=cut_start_ns, duration_ns=duration_ns)
            activities.append(cut_activity)
    return replace(
        trace,
        host_events=clipped(trace.host_events, (part.start_ns, part.end_ns)),
        activities=activities,
        start_ns=part.start_ns,
        end_ns=part.end_ns,
    )


def _optimizer_boundaries(trace: Trace) -> list[int]:
    """Ends of the steps of one optimizer, the one with the most."""
    annotations = [event for event in trace.host_events if event.kind == HostKind.ANNOTATION]
    steps = [event for event in annotations if event.name.startswith(_OPTIMIZER_STEP)]
    optimizers = group_by(steps, key=lambda step: step.name)
    most_steps = max(optimizers.values(), key=len, default=[])
    return sorted(step.end_ns for step in most_steps)


def _without_slow_start(boundaries: Sequence[int]) -> list[int]:
    """Leave out the first steps while they are much longer than the rest."""
    remaining = list(boundaries)
    while len(remaining) > _MIN_STEPS:
        lengths_ns = [end_ns - start_ns for start_ns, end_ns in pairwise(remaining)]
        if lengths_ns[0] <= _SLOW_START_RATIO * statistics.median(lengths_ns):
            break
        del remaining[0]
    return remaining


def _repeated_boundaries(trace: Trace) -> list[int]:
    """Starts of the repetitions of the longest repeated sequence of outermost operators."""
    threads = by_thread(event for event in trace.host_events if event.kind in WORK)
    busiest = max(threads.values(), key=len, default=[])
    outermost = _outermost(busiest)
    names = [event.name for event in outermost]
    longest = _Repetition(
        start=0,
        length=0,
        period=1,
    )
    for period in _period_candidates(names):
        repetition = _longest_repetition(names, period)
        # a multiple of the period repeats as well, and is a little shorter
        if repetition.length > longest.length:
            longest = repetition
    step_count = longest.length // longest.period
    if step_count < _MIN_STEPS:
        return []
    # a step that is cut off at the end does not count
    end = longest.start + step_count * longest.period
    starts = range(longest.start, end, longest.period)
    boundaries = [outermost[index].start_ns for index in starts]
    boundaries.append(outermost[end - 1].end_ns)
    return boundaries


def _outermost(events: Sequence[HostEvent]) -> list[HostEvent]:
    """Events of one thread that lie within no other."""
    outermost: list[HostEvent] = []
    # an outer call starts first, or ends last if both start together
    in_order = sorted(events, key=lambda event: (event.start_ns, -event.end_ns))
    for event in in_order:
        if not outermost or event.start_ns >= outermost[-1].end_ns:
            outermost.append(event)
    return outermost


def _period_candidates(names: Sequence[str]) -> list[int]:
    """Distances between equal names, the commonest first.

    A rare name marks a step best: a common one occurs many times in it.
    """
    counts = Counter(names)
    frequent = [name for name, count in counts.items() if count >= _MIN_STEPS]
    rarest_first = sorted(frequent, key=lambda name: counts[name])
    distances: Counter[int] = Counter()
    for name in rarest_first[:_PERIOD_CANDIDATES]:
        indices = [index for index, candidate in enumerate(names) if candidate == name]
        distances.update(end - start for start, end in pairwise(indices))
    commonest = distances.most_common(_PERIOD_CANDIDATES)
    return sorted(period for period, _ in commonest)


@dataclass(frozen=True)
class _Repetition:
    """Part of a list in which each item equals the one a period later."""

    start: int
    length: int
    period: int


def _longest_repetition(names: Sequence[str], period: int) -> _Repetition:
    """The longest run of names that are equal to those one period later."""
    longest_start = 0
    longest_equal = 0
    equal_count = 0
    for index in range(len(names) - period):
        if names[index] != names[index + period]:
            equal_count = 0
            continue
        equal_count += 1
        if equal_count > longest_equal:
            longest_equal = equal_count
            longest_start = index - equal_count + 1
    length = 0
    if longest_equal:
        # the last names that have an equal one are followed by these
        length = longest_equal + period
    return _Repetition(
        start=longest_start,
        length=length,
        period=period,
    )

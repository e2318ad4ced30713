"""Which activities of a device belong to which launch: from time alone, since launches do not overlap. Pure."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from roofwatch.collector.profiling.intervals import length_ns, union
from roofwatch.collector.timing.stopwatch import Sample
from roofwatch.spec import UnsupportedError


@dataclass(frozen=True)
class Activity:
    """A kernel, a copy or a fill, by the profiler's clock."""

    name: str
    start_ns: int
    end_ns: int


@dataclass(frozen=True)
class Window:
    """One launch: the device was idle when it began, and idle again when it ended."""

    begin_ns: int
    """By the profiler's clock, right before the call."""
    end_ns: int
    """By the same clock, after the device had done what the call asked for."""
    host_ns: float
    """How long the call took to return."""


def samples_of(activities: Iterable[Activity], windows: Sequence[Window]) -> list[Sample]:
    """What each launch did on the device: all that started within its window.

    What started in no window, such as overwriting the cache, is left out.

    Raises:
        UnsupportedError: in some window nothing started, or when is not known.

    Source: the last design of TileOPs (tile-ai/TileOPs#1891). Matching launches by their calls takes tracing of the
    runtime or the driver, which stretched a call of three kernels twentyfold there.
    """
    ordered = sorted(activities, key=lambda activity: activity.start_ns)
    starts = [activity.start_ns for activity in ordered]
    own = [ordered[bisect_left(starts, each.begin_ns) : bisect_right(starts, each.end_ns)] for each in windows]
    empty = sum(not activities for activities in own)
    if empty:
        raise UnsupportedError(
            f"CUPTI saw nothing run on the device in {empty} of {len(windows)} launches; does this call use the GPU? "
            "--timer cuda_event times the stream instead"
        )
    return [_sample(activities, window) for activities, window in zip(own, windows, strict=True)]


def _sample(activities: Sequence[Activity], window: Window) -> Sample:
    first_ns = activities[0].start_ns
    busy_ns = length_ns(union((activity.start_ns, activity.end_ns) for activity in activities))
    return Sample(
        busy_ns=max(1.0, float(busy_ns)),
        span_ns=max(1.0, float(max(activity.end_ns for activity in activities) - first_ns)),
        host_ns=window.host_ns,
        launch_delay_ns=float(first_ns - window.begin_ns),
        kernels=tuple(sorted(activity.name for activity in activities)),
    )

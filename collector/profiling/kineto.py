"""What a trace of torch.profiler says: where the GPU's time went, and how its kernels were launched.

Times in the file are microseconds with up to three decimals; they are counted here in whole nanoseconds, so that sums
are exact. Keys and units of the summary are the format's own words.

Sources: pytorch/kineto output_json.cpp, libkineto's categories of activity; categories were written in upper case until
2021.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, NamedTuple

from roofwatch.collector.profiling import chrome_trace as launch_shape
from roofwatch.collector.profiling.chrome_trace import (
    bytes_said_by,
    declared_devices,
    distributed_info,
    launch_of,
    launch_said_by,
    plain,
)
from roofwatch.collector.profiling.profile_file import (
    TOP_COUNT,
    Duration,
    Interval,
    delays,
    length_ns,
    longest,
    nanoseconds,
    overlap_ns,
    to_us,
    union,
)

_KERNEL, _MEMCPY, _MEMSET = "kernel", "memcpy", "memset"
_KIND_OF_CATEGORY = {
    "kernel": _KERNEL,
    "gpu_memcpy": _MEMCPY,
    "memcpy": _MEMCPY,
    "gpu_memset": _MEMSET,
    "memset": _MEMSET,
}
_CALL_CATEGORIES = {"cuda_runtime", "cuda_driver", "runtime", "driver", "hip_runtime", "hip_driver"}
_LAUNCH = re.compile(r"(cuda|cu|hip)\w*Launch\w*Kernel\w*")
_GRAPH_LAUNCH = re.compile(r"(cuda|cu|hip)\w*GraphLaunch\w*")
_COLLECTIVE = re.compile(r"nccl|rccl", re.IGNORECASE)
_DEVICE_NUMBER = re.compile(r"[0-9]{1,9}")
_MOST_BYTES = 2**50
"""Of one copy or fill: no device has a pebibyte, so more is damage."""
_LARGEST = 1e300
"""Of the numbers that are added up: so many of these as fit into a file are still a number."""


class Activity(NamedTuple):
    kind: str
    name: str
    start_ns: int
    duration_ns: int
    device: str
    stream: Any
    correlation: Any
    bytes: int
    launch: dict[str, Any]

    @property
    def interval(self) -> Interval:
        return self.start_ns, self.start_ns + self.duration_ns

    @property
    def is_collective(self) -> bool:
        return self.kind == _KERNEL and _COLLECTIVE.search(self.name) is not None


class Call(NamedTuple):
    name: str
    start_ns: int
    duration_ns: int
    correlation: Any


@dataclass
class TraceSummary:
    """Collects events by `add`, then says by `to_dict` what is in them."""

    events_by_phase: Counter[str] = field(default_factory=Counter)
    complete_events_by_category: Counter[str] = field(default_factory=Counter)
    without_time_count: int = 0
    activities: list[Activity] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    counters: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    _said_by_call: dict[Any, tuple[dict[str, Any], int]] = field(default_factory=dict)
    _configurations: dict[str, dict[str, Any]] = field(default_factory=dict)

    def add(self, event: dict[str, Any]) -> None:
        phase = event.get("ph")
        self.events_by_phase[str(phase)] += 1
        if phase != "X":
            return
        category = str(event.get("cat", ""))
        self.complete_events_by_category[category] += 1
        lower = category.lower()
        if lower == "cuda_profiler_range":
            self._add_counters(event)
        elif lower in _KIND_OF_CATEGORY or lower in _CALL_CATEGORIES:
            start_ns, duration_ns = nanoseconds(event.get("ts")), nanoseconds(event.get("dur"))
            if start_ns is None or duration_ns is None:
                self.without_time_count += 1
            elif lower in _CALL_CATEGORIES:
                self._add_call(event, start_ns, duration_ns)
            else:
                self._add_activity(_KIND_OF_CATEGORY[lower], event, start_ns, duration_ns)

    def _add_call(self, event: dict[str, Any], start_ns: int, duration_ns: int) -> None:
        arguments, name = _arguments(event), str(event.get("name", ""))
        self.calls.append(Call(name, start_ns, duration_ns, _correlation(arguments)))
        said = launch_said_by(name, arguments), bytes_said_by(name, arguments)
        if any(said) and (correlation := _correlation(arguments)) is not None:
            self._said_by_call.setdefault(correlation, said)

    def _add_activity(self, kind: str, event: dict[str, Any], start_ns: int, duration_ns: int) -> None:
        arguments = _arguments(event)
        launch = self._launch_configuration(arguments) if kind == _KERNEL else {}
        self.activities.append(
            Activity(
                kind=kind,
                name=str(event.get("name", "")),
                start_ns=start_ns,
                duration_ns=duration_ns,
                device=str(arguments.get("device", event.get("pid", ""))),
                stream=_id(arguments.get("stream", event.get("tid"))),
                correlation=_correlation(arguments),
                bytes=0 if kind == _KERNEL else _bytes(arguments.get("bytes", arguments.get("Bytes"))),
                launch=launch,
            )
        )

    def _launch_configuration(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Most kernels are launched alike again and again: one copy of each way is kept."""
        key = repr([arguments.get(name) for name in launch_shape.FIELDS])
        known = self._configurations.get(key)
        if known is None:
            known = launch_of(arguments, launch_shape.FIELDS)
            self._configurations[key] = known
        return known

    def _add_counters(self, event: dict[str, Any]) -> None:
        for name, value in _arguments(event).items():
            number = _number(value)
            if number is not None:
                self.counters[name].append(number)

    def to_dict(self, header: dict[str, Any], *, top: int | None = TOP_COUNT) -> dict[str, Any]:
        """The summary as plain values; times in microseconds.

        Args:
            header: The fields of the document beside its events.
            top: Names of kernels that are told, the longest first; None for all.
        """
        kernels = self._of(_KERNEL)
        summary: dict[str, Any] = {
            "format": "kineto-chrome-trace",
            "top_level": {name: plain(value) for name, value in header.items() if not isinstance(value, (dict, list))},
            "devices_declared": declared_devices(header.get("deviceProperties")),
            "distributed": distributed_info(header.get("distributedInfo")),
            "events_total": self.events_by_phase.total(),
            "events_by_ph": dict(sorted(self.events_by_phase.items())),
            "complete_events_by_cat": dict(sorted(self.complete_events_by_category.items())),
            "gpu_or_runtime_events_without_usable_time": self.without_time_count,
            "kernels": _kernel_summary(kernels, top),
            "memcpy": _transfer_summary(self._of(_MEMCPY)),
            "memset": _transfer_summary(self._of(_MEMSET)),
            "runtime_calls": {
                "count": len(self.calls),
                "by_name": dict(_most_common(Counter(call.name for call in self.calls))),
            },
            "launches": _launch_summary(self.calls, kernels),
            "devices": _device_summaries(self.activities),
        }
        if self.counters:
            summary["cupti_profiler_ranges"] = self._counter_summary()
        return summary

    def launched(self) -> list[tuple[Activity, Call]]:
        """Kernels with the calls that launched them; those without a call are left out."""
        return _launched((call for call in self.calls if _LAUNCH.fullmatch(call.name)), self._of(_KERNEL))

    def completed(self) -> list[Activity]:
        """Kernels, copies and fills, with what the calls that launched them say of them."""
        return [self._completed(activity) for activity in self.activities] if self._said_by_call else self.activities

    def _of(self, kind: str) -> list[Activity]:
        found = [activity for activity in self.activities if activity.kind == kind]
        return [self._completed(activity) for activity in found] if self._said_by_call else found

    def _completed(self, activity: Activity) -> Activity:
        launch, copied_bytes = self._said_by_call.get(activity.correlation, ({}, 0))
        if activity.kind == _KERNEL:
            return activity._replace(launch={**launch, **activity.launch})
        return activity._replace(bytes=activity.bytes or copied_bytes)

    def _counter_summary(self) -> dict[str, Any]:
        return {
            "count": self.complete_events_by_category["cuda_profiler_range"],
            "metrics": {
                name: {"samples": len(values), "sum": math.fsum(values), "max": max(values)}
                for name, values in sorted(self.counters.items())
            },
        }


def _kernel_summary(kernels: Sequence[Activity], top: int | None) -> dict[str, Any]:
    by_name = _by_name(kernels)
    return {
        "count": len(kernels),
        "distinct_names": len(by_name),
        "sum_us": to_us(sum(kernel.duration_ns for kernel in kernels)),
        "max_us": to_us(max((kernel.duration_ns for kernel in kernels), default=0)),
        "zero_duration": sum(kernel.duration_ns == 0 for kernel in kernels),
        "negative_duration": sum(kernel.duration_ns < 0 for kernel in kernels),
        "top_by_total_time": [
            {
                **times,
                "first_launch": _first(by_name[times["name"]]),
                "distinct_launch_configs": _shape_count(by_name[times["name"]]),
                "occupancy_pct": _occupancy(by_name[times["name"]])["duration_weighted_mean_pct"],
            }
            for times in longest(_durations(by_name))[:top]
        ],
        "occupancy": _occupancy(kernels),
    }


def _shape_count(kernels: Iterable[Activity]) -> int:
    # those that were launched alike share one configuration
    launches = {id(kernel.launch): kernel.launch for kernel in kernels}.values()
    return len({repr([launch.get(name) for name in ("grid", "block", "shared_memory_bytes")]) for launch in launches})


def _first(members: Sequence[Activity]) -> dict[str, Any]:
    first = min(members, key=lambda member: member.start_ns)
    device = int(first.device) if _DEVICE_NUMBER.fullmatch(first.device) else first.device
    return {**first.launch, "stream": first.stream, "device": device}


def _occupancy(kernels: Sequence[Activity]) -> dict[str, Any]:
    """Torch's estimate, a whole number of percent: many short kernels honestly have 0."""
    known = [
        (percent, kernel.duration_ns)
        for kernel in kernels
        if (percent := kernel.launch.get("est_achieved_occupancy_pct")) is not None
    ]
    weight = sum(duration_ns for _, duration_ns in known)
    return {
        "with_field": len(known),
        "without_field": len(kernels) - len(known),
        "reported_zero": sum(percent == 0 for percent, _ in known),
        "duration_weighted_mean_pct": (
            round(sum(percent * duration_ns for percent, duration_ns in known) / weight, 6) if weight else None
        ),
        "max_pct": max((float(percent) for percent, _ in known), default=None),
    }


def _transfer_summary(transfers: Sequence[Activity]) -> dict[str, Any]:
    by_name = _by_name(transfers)
    return {
        "count": len(transfers),
        "sum_us": to_us(sum(transfer.duration_ns for transfer in transfers)),
        "bytes": sum(transfer.bytes for transfer in transfers),
        "by_name": [
            {**times, "bytes": sum(member.bytes for member in by_name[times["name"]])}
            for times in longest(_durations(by_name))
        ],
    }


def _launch_summary(calls: Sequence[Call], kernels: Sequence[Activity]) -> dict[str, Any]:
    launches = [call for call in calls if _LAUNCH.fullmatch(call.name)]
    joined = [call.correlation for call in launches if call.correlation is not None]
    pairs = _launched(launches, kernels)
    return {
        "kernel_launch_calls": len(launches),
        "kernel_launch_calls_by_name": dict(_most_common(Counter(call.name for call in launches))),
        "graph_launch_calls": sum(_GRAPH_LAUNCH.fullmatch(call.name) is not None for call in calls),
        "launches_sharing_a_correlation_id": len(joined) - len(set(joined)),
        "kernels_without_a_launch_call": len(kernels) - len(pairs),
        "delay_call_start_to_kernel_start": delays([kernel.start_ns - call.start_ns for kernel, call in pairs]),
        "delay_call_end_to_kernel_start": delays(
            [kernel.start_ns - call.start_ns - call.duration_ns for kernel, call in pairs]
        ),
    }


def _launched(launches: Iterable[Call], kernels: Iterable[Activity]) -> list[tuple[Activity, Call]]:
    """Kernels with the calls that launched them, joined by correlation id; those without a call are left out."""
    by_correlation: dict[Any, Call] = {}
    for call in launches:
        if call.correlation is not None:
            by_correlation.setdefault(call.correlation, call)
    return [(kernel, by_correlation[kernel.correlation]) for kernel in kernels if kernel.correlation in by_correlation]


def _device_summaries(activities: Iterable[Activity]) -> dict[str, Any]:
    by_device: dict[str, list[Activity]] = defaultdict(list)
    for activity in activities:
        by_device[activity.device].append(activity)
    return {device: _device_summary(members) for device, members in sorted(by_device.items())}


def _device_summary(activities: Sequence[Activity]) -> dict[str, Any]:
    kernels = [activity for activity in activities if activity.kind == _KERNEL]
    summary = {
        "all_gpu_activity": _busy(activities),
        "kernels_only": _busy(kernels),
        "streams": len({activity.stream for activity in activities}),
    }
    collectives = [kernel for kernel in kernels if kernel.is_collective]
    if collectives:
        summary["collectives"] = _collectives(collectives, [kernel for kernel in kernels if not kernel.is_collective])
    return summary


def _busy(activities: Sequence[Activity]) -> dict[str, Any] | None:
    if not activities:
        return None
    apart = union(activity.interval for activity in activities)
    span_ns, busy_ns = apart[-1][1] - apart[0][0], length_ns(apart)
    return {
        "activities": len(activities),
        "span_us": to_us(span_ns),
        "busy_us": to_us(busy_ns),
        "idle_us": to_us(span_ns - busy_ns),
        "busy_fraction": round(busy_ns / span_ns, 6) if span_ns else None,
    }


def _collectives(collectives: Sequence[Activity], others: Sequence[Activity]) -> dict[str, Any]:
    communicating = union(kernel.interval for kernel in collectives)
    computing = union(kernel.interval for kernel in others)
    union_ns, overlapped_ns = length_ns(communicating), overlap_ns(communicating, computing)
    return {
        "kernels": len(collectives),
        "union_us": to_us(union_ns),
        "compute_union_us": to_us(length_ns(computing)),
        "overlapped_with_compute_us": to_us(overlapped_ns),
        "overlapped_fraction_of_collectives": round(overlapped_ns / union_ns, 6) if union_ns else None,
    }


def _arguments(event: dict[str, Any]) -> dict[str, Any]:
    arguments = event.get("args")
    return arguments if isinstance(arguments, dict) else {}


def _correlation(arguments: Mapping[str, Any]) -> Any:
    """What an activity has in common with its call: where no field is called so, as in older traces of AMD's GPUs, the
    id that both have.
    """
    return _id(arguments.get("correlation", arguments.get("External id")))


def _id(value: Any) -> Any:
    """What events can have in common; a list or an object, which a damaged trace may have there, is none."""
    return None if isinstance(value, (list, dict)) else plain(value)


def _bytes(value: Any) -> int:
    count = _number(value)
    return 0 if count is None or abs(count) > _MOST_BYTES else int(count)


def _by_name(activities: Iterable[Activity]) -> dict[str, list[Activity]]:
    found: dict[str, list[Activity]] = defaultdict(list)
    for activity in activities:
        found[activity.name].append(activity)
    return found


def _durations(by_name: Mapping[str, Sequence[Activity]]) -> dict[str, list[Duration]]:
    return {name: [member.duration_ns for member in members] for name, members in by_name.items()}


def _most_common(counts: Counter[str]) -> list[tuple[str, int]]:
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


def _number(value: Any) -> float | None:
    """A number that can be added up, also where an old trace wrote it as text."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str, Decimal)):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if abs(number) < _LARGEST else None

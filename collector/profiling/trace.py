"""Read traces of torch.profiler: what ran on the GPU, what the host did, and counters.

Sources: pytorch/kineto, output_json.cpp and the activity categories of libkineto. Until 2021
categories were upper case. Traces of AMD GPUs describe a launch at its call
(RoctracerActivity_inl.h).
"""

import json
import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from roofwatch.collector.profiling.activities import (
    ActivityKind,
    DeviceActivity,
    HostEvent,
    HostKind,
)
from roofwatch.model.errors import ProfileError
from roofwatch.model.files import JsonObject, decode_text

_ACTIVITY_KINDS = {
    "kernel": ActivityKind.KERNEL,
    "gpu_memcpy": ActivityKind.MEMCPY,
    "memcpy": ActivityKind.MEMCPY,
    "gpu_memset": ActivityKind.MEMSET,
    "memset": ActivityKind.MEMSET,
}
_HOST_KINDS = {
    "cpu_op": HostKind.OPERATOR,
    "operator": HostKind.OPERATOR,
    **dict.fromkeys(
        ("cuda_runtime", "cuda_driver", "runtime", "driver", "hip_runtime", "hip_driver"),
        HostKind.CALL,
    ),
    "user_annotation": HostKind.ANNOTATION,
    "python_function": HostKind.PYTHON,
}
_LAUNCH_FIELDS = {
    "grid": "grid",
    "grid dim": "grid",
    "block": "block",
    "block dim": "block",
    "registers per thread": "registers_per_thread",
    "shared memory": "shared_memory_bytes",
    "shared size": "shared_memory_bytes",
    "blocks per SM": "blocks_per_sm",
    "warps per SM": "warps_per_sm",
    "est. achieved occupancy %": "est_achieved_occupancy_pct",
    "est. achieved occupancy": "est_achieved_occupancy_pct",
}
_GRID_IN_THREADS = {"hipExtModuleLaunchKernel", "hipHccModuleLaunchKernel"}
"""Calls that give the grid in threads, not in blocks."""
_MAX_TIME_NS = 2**62
_MAX_TRANSFER_BYTES = 2**50
# times since 1970 in microseconds have more digits than a float holds
_DECODER = json.JSONDecoder(parse_float=Decimal)
_SEPARATORS = re.compile(r"[\s,]*")
_KEY = re.compile(r'[\s,]*"((?:[^"\\]|\\.)*)"\s*:\s*')
_BARE_ARRAY = re.compile(r'[\s,]*\[[\s,]*(?=\{[^\0]{0,2000}?"ph")')
_OBJECT = re.compile(r"[\s,]*\{")


_Description = tuple[JsonObject, int]
"""Launch configuration and bytes."""


@dataclass
class Trace:
    """The events of one trace."""

    header: JsonObject = field(default_factory=dict)
    """Top-level fields of the document besides the events."""
    events_by_phase: Counter[str] = field(default_factory=Counter)
    complete_events_by_category: Counter[str] = field(default_factory=Counter)
    without_time_count: int = 0
    activities: list[DeviceActivity] = field(default_factory=list)
    host_events: list[HostEvent] = field(default_factory=list)
    counters: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    """Samples of CUPTI range-profiler metrics."""
    start_ns: int | None = None
    end_ns: int | None = None
    _described_by_call: dict[Any, _Description] = field(default_factory=dict)
    """Launch configuration and bytes by correlation ID, for AMD GPUs."""

    @classmethod
    def read(cls, content: bytes, name: str) -> "Trace | None":
        """Parse a trace; None if the content is not one.

        Raises:
            ProfileError: the trace is truncated or corrupt.
        """
        trace = cls()
        document = scan_trace(decode_trace(content), name, trace._add)
        if document is None:
            return None
        trace.header = document.header
        trace._complete_activities()
        return trace

    @property
    def window_ns(self) -> int:
        """From the first event to the end of the last, on host and devices."""
        if self.start_ns is None or self.end_ns is None:
            return 0
        return self.end_ns - self.start_ns

    def of_kind(self, kind: ActivityKind) -> list[DeviceActivity]:
        return [activity for activity in self.activities if activity.kind == kind]

    def _add(self, event: JsonObject) -> None:
        phase = event.get("ph")
        self.events_by_phase[str(phase)] += 1
        if phase != "X":
            return
        self.complete_events_by_category[str(event.get("cat", ""))] += 1
        category = str(event.get("cat", "")).lower()
        arguments = event.get("args")
        if not isinstance(arguments, dict):
            arguments = {}
        activity_kind = _ACTIVITY_KINDS.get(category)
        host_kind = _HOST_KINDS.get(category)
        if category == "cuda_profiler_range":
            self._add_counters(arguments)
        start_ns = _nanoseconds(event.get("ts"))
        duration_ns = _nanoseconds(event.get("dur"))
        if start_ns is None or duration_ns is None:
            self.without_time_count += activity_kind is not None or host_kind == HostKind.CALL
            return
        end_ns = start_ns + duration_ns
        if category != "trace":  # the profiler's own event covers more than was recorded
            self._extend_window(start_ns, end_ns)
        name = str(event.get("name", ""))
        # older traces of AMD GPUs have only `External id`
        correlation = scalar(arguments.get("correlation", arguments.get("External id")))
        if activity_kind is not None:
            transferred_bytes = 0
            launch: JsonObject = {}
            if activity_kind == ActivityKind.KERNEL:
                launch = _launch(arguments)
            else:
                transferred_bytes = _bytes(arguments)
            activity = DeviceActivity(
                kind=activity_kind,
                name=name,
                start_ns=start_ns,
                duration_ns=duration_ns,
                device=str(arguments.get("device", event.get("pid", ""))),
                stream=scalar(arguments.get("stream", event.get("tid"))),
                correlation=correlation,
                bytes=transferred_bytes,
                launch=launch,
            )
            self.activities.append(activity)
        elif host_kind is not None:
            thread = f"{event.get('pid')}/{event.get('tid')}"
            host_event = HostEvent(
                name=name,
                start_ns=start_ns,
                end_ns=end_ns,
                correlation=correlation,
                kind=host_kind,
                thread=thread,
            )
            self.host_events.append(host_event)
            if name.startswith("hip") and correlation is not None:
                description = _amd_launch(name, arguments), _bytes(arguments)
                self._described_by_call.setdefault(correlation, description)

    def _add_counters(self, arguments: Mapping[str, Any]) -> None:
        for counter, value in arguments.items():
            number = _number(value)
            if number is not None:
                self.counters[counter].append(number)

    def _extend_window(self, start_ns: int, end_ns: int) -> None:
        if self.start_ns is None or start_ns < self.start_ns:
            self.start_ns = start_ns
        if self.end_ns is None or end_ns > self.end_ns:
            self.end_ns = end_ns

    def _complete_activities(self) -> None:
        """Add what AMD's runtime calls say about the activities that they start."""
        if not self._described_by_call:
            return
        completed = []
        for activity in self.activities:
            launch, byte_count = self._described_by_call.get(activity.correlation, ({}, 0))
            if activity.kind == ActivityKind.KERNEL:
                completed.append(activity._replace(launch={**launch, **activity.launch}))
            else:
                completed.append(activity._replace(bytes=activity.bytes or byte_count))
        self.activities = completed


def scalar(value: Any) -> Any:
    """The value as JSON can hold it; None for lists, objects, non-finite numbers and integers over
    64 bits.
    """
    if isinstance(value, (list, dict)):
        return None
    if isinstance(value, int) and abs(value) >= 2**63:
        return None
    if isinstance(value, (Decimal, float)):
        value = float(value)
        if not math.isfinite(value):
            return None
    return value


def _launch(arguments: Mapping[str, Any]) -> JsonObject:
    """The launch configuration; values of unexpected types are left out."""
    launch: JsonObject = {}
    for field_name, name in _LAUNCH_FIELDS.items():
        value = arguments.get(field_name)
        if name in {"grid", "block"}:
            if isinstance(value, list) and all(map(_is_length, value)):
                launch[name] = value
        elif not isinstance(value, str):
            number = _number(value)
            if number is not None:
                launch[name] = number
    return launch


def _is_length(value: Any) -> bool:
    # not isinstance: a bool is no length
    return type(value) is int and abs(value) < 2**63


def _amd_launch(name: str, arguments: Mapping[str, Any]) -> JsonObject:
    launch = _launch(arguments)
    grid = launch.get("grid")
    block = launch.get("block")
    if name in _GRID_IN_THREADS and grid and block and 0 not in block:
        lengths = zip(grid, block, strict=False)
        # rounded up: the last block may be partly filled
        launch["grid"] = [-(-threads // length) for threads, length in lengths]
    return launch


def _bytes(arguments: Mapping[str, Any]) -> int:
    """Bytes of a copy or fill; AMD's calls name them `size`."""
    names = [name for name in ("bytes", "Bytes", "size") if name in arguments]
    if not names:
        return 0
    byte_count = _number(arguments[names[0]])
    if byte_count is None or not 0 <= byte_count <= _MAX_TRANSFER_BYTES:
        return 0
    return int(byte_count)


def _number(value: Any) -> float | None:
    """A finite number; old traces write numbers as text."""
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            return None
    value = scalar(value)
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return value if is_number else None


def _nanoseconds(microseconds: Any) -> int | None:
    """Convert a time to whole ns; None if it is missing or not a plausible time."""
    if isinstance(microseconds, bool) or not isinstance(microseconds, (int, float, str, Decimal)):
        return None
    try:
        nanoseconds = Decimal(microseconds) * 1000
        is_plausible = abs(nanoseconds) <= _MAX_TIME_NS
    except ArithmeticError:
        return None
    if not is_plausible:
        return None
    return round(nanoseconds)


# --- the JSON text, event by event: a trace may be larger than memory allows as Python objects


@dataclass
class Document:
    """The top-level fields of a trace."""

    header: JsonObject = field(default_factory=dict)
    """Values of all fields but `traceEvents`."""
    spans: list[tuple[str, int, int]] = field(default_factory=list)
    """Name of each field, and start and end of its value in the text; empty if the document is a
    bare array.
    """


def decode_trace(content: bytes) -> str:
    return decode_text(content)


def scan_trace(
    text: str,
    name: str,
    visit: Callable[[JsonObject], None],
) -> Document | None:
    """Visit every event of a trace in the order of the file.

    Args:
        text: The document.
        name: Name of the file, for errors.
        visit: Called with each event; numbers with a decimal point are `Decimal`.

    Returns:
        The top-level fields; None if the text is not a trace.

    Raises:
        ProfileError: the trace is truncated or corrupt.
    """
    document = Document()
    array = _BARE_ARRAY.match(text)
    if array is not None:
        _scan_events(
            text=text,
            offset=array.end(),
            name=name,
            visit=visit,
            may_be_open=True,
        )
        return document
    start = _OBJECT.match(text)
    if start is None:
        return None
    offset = start.end()
    has_events = False
    while (key := _KEY.match(text, offset)) is not None:
        field_name = key[1]
        value_start = key.end()
        if field_name == "traceEvents" and text.startswith("[", value_start):
            has_events = True
            offset = _scan_events(
                text=text,
                offset=value_start + 1,
                name=name,
                visit=visit,
            )
        else:
            try:
                document.header[field_name], offset = _DECODER.raw_decode(text, value_start)
            except (ValueError, RecursionError):
                # without events so far it may be any JSON file
                if not has_events:
                    return None
                raise _truncated(name, value_start, text) from None
        document.spans.append((field_name, value_start, offset))
    if not has_events:
        return None
    if not text.startswith("}", _skip_separators(text, offset)):
        raise _truncated(name, offset, text)
    return document


def _scan_events(
    text: str,
    offset: int,
    name: str,
    visit: Callable[[JsonObject], None],
    *,
    may_be_open: bool = False,
) -> int:
    """Visit the elements of an array and return the position after its end.

    With `may_be_open`, the array may lack its end after a whole event. The format allows that for a
    bare array, so that a program that dies leaves a trace.
    """
    offset = _skip_separators(text, offset)
    while not text.startswith("]", offset):
        if may_be_open and offset == len(text):
            return offset
        try:
            event, offset = _DECODER.raw_decode(text, offset)
        except (ValueError, RecursionError):
            raise _truncated(name, offset, text) from None
        if isinstance(event, dict):
            visit(event)
        offset = _skip_separators(text, offset)
    return offset + 1


def _skip_separators(text: str, offset: int) -> int:
    separators = _SEPARATORS.match(text, offset)
    if separators is None:
        return offset
    return separators.end()


def _truncated(name: str, offset: int, text: str) -> ProfileError:
    return ProfileError(
        f"{name}: not a whole trace: nothing readable at character {offset} of {len(text)}; "
        "record it again, and let the profiler finish before the program ends"
    )

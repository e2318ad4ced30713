"""Profile the calls of one case, and summarise what they launched."""

from __future__ import annotations

import os
import statistics
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.autograd.profiler import profile

from roofwatch.collector.profiling.chrome_trace import scan_trace
from roofwatch.collector.profiling.host_work import HostWork
from roofwatch.collector.profiling.kineto import Activity, TraceSummary
from roofwatch.collector.profiling.profile_file import ProfileError, length_ns, union
from roofwatch.collector.record.results import MOST_NAME, MOST_ROWS, CaseProfile, ProfiledActivity

_KERNEL = "kernel"
_UNNAMED = "(unnamed)"


def profile_of_calls(content: bytes, *, case_id: str, implementation: str, call_count: int) -> CaseProfile:
    """What a trace of torch.profiler says of the calls that it recorded.

    Where a device was at work its activities are told; where none was, what the CPU did, operator by operator.

    Args:
        content: The trace, unpacked.
        case_id: Of the calls.
        implementation: Of the calls.
        call_count: How many there were.

    Raises:
        ProfileError: the content is no whole trace, or nothing was recorded.
    """
    trace, host = TraceSummary(), HostWork()

    def visit(event: dict[str, Any]) -> None:
        trace.add(event)
        host.add(event)

    if scan_trace(content, "the profile", visit) is None:
        raise ProfileError("the profile: torch wrote no trace")
    # one without an end, or that ends before it begins, says nothing of time
    activities = [activity for activity in trace.completed() if activity.duration_ns >= 0]
    if activities:
        apart = union(activity.interval for activity in activities)
        span_ns, busy_ns, rows = apart[-1][1] - apart[0][0], length_ns(apart), _rows_of(activities)
    else:
        span_ns, busy_ns, rows = host.window_ns, host.busiest_thread_ns(), _operators(host)
    if not rows:
        raise ProfileError("the profile: the profiler recorded neither a kernel nor an operator")
    delays = [kernel.start_ns - call.start_ns for kernel, call in trace.launched()]
    ordered = sorted(rows, key=lambda row: (-row.total_ns, row.kind, row.name, row.device))
    left_out = ordered[MOST_ROWS:]
    return CaseProfile(
        case_id=case_id,
        implementation=implementation,
        call_count=call_count,
        span_ns=span_ns,
        busy_ns=min(busy_ns, span_ns),
        launch_delay_ns=statistics.median(delays) if delays else None,
        rows=tuple(ordered[:MOST_ROWS]),
        left_out_count=len(left_out),
        left_out_ns=sum(row.total_ns for row in left_out),
    )


def _rows_of(activities: Iterable[Activity]) -> list[ProfiledActivity]:
    alike: defaultdict[tuple[str, str, str], list[Activity]] = defaultdict(list)
    for activity in activities:
        alike[activity.kind, _shown(activity.name), _shown(activity.device)].append(activity)
    return [_row(kind, name, device, members) for (kind, name, device), members in alike.items()]


def _row(kind: str, name: str, device: str, members: Sequence[Activity]) -> ProfiledActivity:
    durations_ns = [member.duration_ns for member in members]
    first = min(members, key=lambda member: member.start_ns).launch
    is_kernel = kind == _KERNEL
    # those that were launched alike share one configuration
    launches = {id(member.launch): member.launch for member in members}.values()
    shapes = {repr([launch.get(part) for part in ("grid", "block", "shared_memory_bytes")]) for launch in launches}
    return ProfiledActivity(
        kind=kind,
        name=name,
        device=device,
        count=len(members),
        total_ns=sum(durations_ns),
        max_ns=max(durations_ns),
        bytes=None if is_kernel else max(0, sum(member.bytes for member in members)),
        grid=_dimensions(first.get("grid")),
        block=_dimensions(first.get("block")),
        registers=_whole(first.get("registers_per_thread")),
        shared_bytes=_whole(first.get("shared_memory_bytes")),
        estimated_occupancy=_occupancy(members),
        configuration_count=len(shapes) if is_kernel else None,
    )


def _operators(host: HostWork) -> list[ProfiledActivity]:
    alike: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
    for work in host.operators():
        alike[_shown(work.name)].append((work.count, work.self_ns))
    return [
        ProfiledActivity(
            kind="operator",
            name=name,
            device="cpu",
            count=sum(count for count, _ in works),
            total_ns=sum(self_ns for _, self_ns in works),
        )
        for name, works in alike.items()
    ]


def _occupancy(kernels: Sequence[Activity]) -> float | None:
    known = [
        (percent, kernel.duration_ns)
        for kernel in kernels
        if isinstance(percent := kernel.launch.get("est_achieved_occupancy_pct"), int | float)
    ]
    weight = sum(duration_ns for _, duration_ns in known)
    share = sum(percent * duration_ns for percent, duration_ns in known) / weight / 100 if weight else None
    return None if share is None else min(max(share, 0.0), 1.0)


def _dimensions(value: object) -> tuple[int, ...]:
    if not isinstance(value, list) or len(value) > 3:
        return ()
    known = [whole for each in value if (whole := _whole(each)) is not None]
    return tuple(known) if len(known) == len(value) else ()


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63 else None


def _shown(name: str) -> str:
    """A name that a record and a database can hold."""
    told = name[:MOST_NAME].replace("\0", "").encode(errors="replace").decode()  # half a surrogate is no text
    return told or _UNNAMED


PROFILED_CALLS = 3
"""Enough to see what differs from call to call, few enough for a call of thousands of kernels."""
_WARM_UP_CALLS = 2
"""A library chooses its kernel, and takes its workspace, in the first."""
_SILENT = "99"


def profile_calls(call: Callable[[], object], device: str, *, case_id: str, implementation: str) -> CaseProfile:
    """Profile a few calls, after some that are not.

    For a process of its own: CUPTI serves one profiler at a time, and a timer may hold it.

    Args:
        call: Does the case's work.
        device: That it runs on.
        case_id: Of the call.
        implementation: Of the call.

    Raises:
        ProfileError: the profiler recorded nothing.
    """
    # Kineto would print when it starts and stops
    os.environ.setdefault("KINETO_LOG_LEVEL", _SILENT)
    is_on_gpu = device != "cpu"
    for _ in range(_WARM_UP_CALLS):
        call()
    _wait(is_on_gpu=is_on_gpu)
    # torch.profiler's own class imports all of inductor first
    with profile(use_device="cuda" if is_on_gpu else None, use_kineto=True) as recorded:
        for _ in range(PROFILED_CALLS):
            call()
        _wait(is_on_gpu=is_on_gpu)
    with tempfile.TemporaryDirectory(prefix="roofwatch-profile-") as folder:
        trace = Path(folder) / "trace.json"
        recorded.export_chrome_trace(str(trace))
        content = trace.read_bytes()
    return profile_of_calls(content, case_id=case_id, implementation=implementation, call_count=PROFILED_CALLS)


def _wait(*, is_on_gpu: bool) -> None:
    if is_on_gpu:
        torch.cuda.synchronize()

"""Profile the calls of one case with torch.profiler and summarise what they launched."""

import os
import statistics
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.autograd.profiler import profile, record_function

from roofwatch.collector.profiling.activities import (
    ActivityKind,
    DeviceActivity,
    HostEvent,
    launch_delays_ns,
    length_ns,
    union,
)
from roofwatch.collector.profiling.operator_bytes import OperatorBytes
from roofwatch.collector.profiling.steady import StepKind
from roofwatch.collector.profiling.steps import has_markers, read_steps
from roofwatch.collector.profiling.summary import weighted_occupancy_pct
from roofwatch.collector.profiling.time_spent import busiest_thread_ns, operator_rows
from roofwatch.collector.profiling.trace import Trace
from roofwatch.model.errors import ProfileError
from roofwatch.model.grouping import group_by
from roofwatch.model.results import MOST_NAME, MOST_ROWS, CaseProfile, ProfiledActivity

PROFILED_CALLS = 5
"""Few, because one call may launch thousands of kernels."""
_WARM_UP_CALLS = 2
"""In the first calls a library selects its kernel and allocates workspace."""


def profile_calls(
    call: Callable[[], object],
    device: str,
    *,
    case_id: str,
    implementation: str,
    counts_operators: bool = False,
    counts_flop: bool = False,
) -> CaseProfile:
    """Profile some calls after a warm-up, and count the bytes or FLOP of one more if asked.

    Run it in a process of its own: CUPTI serves one profiler at a time, and a timer may use it.

    Raises:
        ProfileError: the profiler recorded nothing.
    """
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # silence messages at start and stop
    is_on_gpu = device != "cpu"
    for _ in range(_WARM_UP_CALLS):
        with record_function("warm-up"):  # loads what marks a call
            call()
    if is_on_gpu:
        torch.cuda.synchronize()
    profiled_device = "cuda" if is_on_gpu else None
    # torch.profiler.profile imports all of inductor first
    with profile(use_device=profiled_device, use_kineto=True) as recorded:
        for number in range(PROFILED_CALLS):
            with record_function(f"ProfilerStep#{number}"):
                call()
        if is_on_gpu:
            torch.cuda.synchronize()
    with tempfile.TemporaryDirectory(prefix="roofwatch-profile-") as folder:
        path = Path(folder) / "trace.json"
        recorded.export_chrome_trace(str(path))
        content = path.read_bytes()
    case_profile = profile_of_calls(
        content=content,
        case_id=case_id,
        implementation=implementation,
        call_count=PROFILED_CALLS,
    )
    # rows of operators mean that no activity of the device was recorded
    if is_on_gpu and case_profile.rows[0].kind == "operator":
        raise ProfileError(
            "the profile: CUPTI recorded nothing on the GPU; end other profilers, or leave the "
            "sandbox"
        )
    if counts_operators:
        with OperatorBytes() as operator_bytes:
            call()
        largest = operator_bytes.bytes_by_name.most_common(MOST_ROWS)
        case_profile = case_profile.model_copy(
            update={
                "operator_bytes": dict(largest),
                "elementwise_names": tuple(sorted(operator_bytes.elementwise_names)),
            }
        )
    if not counts_flop:
        return case_profile
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter:
        call()
    flop_count = float(counter.get_total_flops())
    return case_profile.model_copy(update={"flop_count": flop_count})


def profile_of_calls(
    content: bytes,
    *,
    case_id: str,
    implementation: str,
    call_count: int,
) -> CaseProfile:
    """Summarise a trace: device activities if there are any, else operators on the CPU.

    Raises:
        ProfileError: the trace is truncated or holds neither.
    """
    trace = Trace.read(content, "the profile")
    if trace is None:
        raise ProfileError("the profile: torch wrote no trace")
    # a negative duration is a defect of the profiler's clock
    activities = [activity for activity in trace.activities if activity.duration_ns >= 0]
    if activities:
        disjoint = union(activity.interval for activity in activities)
        span_ns = disjoint[-1][1] - disjoint[0][0]
        busy_ns = length_ns(disjoint)
        rows = _device_rows(activities)
    else:
        span_ns = trace.window_ns
        busy_ns = busiest_thread_ns(trace.host_events)
        rows = _operator_rows(trace.host_events)
    if not rows:
        raise ProfileError("the profile: the profiler recorded neither a kernel nor an operator")
    calls_ns = _times_of_calls(trace)

    def with_calls(row: ProfiledActivity) -> ProfiledActivity:
        call_ns = calls_ns.get((row.device, row.name), ())
        return row.model_copy(update={"call_ns": call_ns})

    rows = list(map(with_calls, rows))
    rows.sort(
        key=lambda row: (
            -row.total_ns,
            row.kind,
            row.name,
            row.device,
        )
    )
    delays_ns = launch_delays_ns(trace.host_events, trace.of_kind(ActivityKind.KERNEL))
    launch_delay_ns = None
    if delays_ns:
        launch_delay_ns = statistics.median(delays_ns)
    rows_left_out = rows[MOST_ROWS:]
    return CaseProfile(
        case_id=case_id,
        implementation=implementation,
        call_count=call_count,
        span_ns=span_ns,
        busy_ns=min(busy_ns, span_ns),
        launch_delay_ns=launch_delay_ns,
        rows=tuple(rows[:MOST_ROWS]),
        left_out_count=len(rows_left_out),
        left_out_ns=sum(row.total_ns for row in rows_left_out),
    )


def _device_rows(activities: Sequence[DeviceActivity]) -> list[ProfiledActivity]:
    """One row for each kind, name and device."""

    def row_key(activity: DeviceActivity) -> tuple[str, str, str]:
        return activity.kind, _storable(activity.name), _storable(activity.device)

    groups = group_by(activities, row_key)
    return [_activity_row(*key, members) for key, members in groups.items()]


def _operator_rows(events: Sequence[HostEvent]) -> list[ProfiledActivity]:
    """Self times of torch's operators on the host."""
    rows = operator_rows(event._replace(name=_storable(event.name)) for event in events)
    return [
        ProfiledActivity(
            kind="operator",
            name=row.name,
            device="cpu",
            count=row.count,
            total_ns=row.total_ns,
        )
        for row in rows
    ]


def _times_of_calls(trace: Trace) -> Mapping[tuple[str, str], tuple[int, ...]]:
    """Total in each marked call, by device and name."""
    if not has_markers(trace):
        return {}
    steps = read_steps(trace, StepKind.MARKERS)
    totals_ns: defaultdict[tuple[str, str], Counter[int]] = defaultdict(Counter)
    for steps_of_device in steps:
        device = _storable(steps_of_device.device)
        for slot in steps_of_device.slots:
            totals_ns[device, _storable(slot.name)][slot.step] += slot.busy_ns
    all_steps = range(steps[0].step_count)
    times: dict[tuple[str, str], tuple[int, ...]] = {}
    for key, step_ns in totals_ns.items():
        # a call that did not launch the name counts as 0 ns
        times[key] = tuple(step_ns[step] for step in all_steps)
    return times


def _activity_row(
    kind: str,
    name: str,
    device: str,
    members: Sequence[DeviceActivity],
) -> ProfiledActivity:
    """Totals of one name, with the launch configuration of its first launch."""
    first_launch = min(members, key=lambda member: member.start_ns).launch
    is_kernel = kind == ActivityKind.KERNEL
    occupancy_pct = weighted_occupancy_pct(members)
    estimated_occupancy = None
    if occupancy_pct is not None:
        estimated_occupancy = min(max(occupancy_pct / 100, 0.0), 1.0)
    transferred_bytes = None
    if not is_kernel:
        transferred_bytes = sum(member.bytes for member in members)
    return ProfiledActivity(
        kind=kind,
        name=name,
        device=device,
        count=len(members),
        total_ns=sum(member.duration_ns for member in members),
        max_ns=max(member.duration_ns for member in members),
        bytes=transferred_bytes,
        grid=_dimensions(first_launch.get("grid", ())),
        block=_dimensions(first_launch.get("block", ())),
        registers=_count(first_launch.get("registers_per_thread")),
        shared_bytes=_count(first_launch.get("shared_memory_bytes")),
        estimated_occupancy=estimated_occupancy,
    )


def _dimensions(lengths: Sequence[int]) -> tuple[int, ...]:
    """The lengths as a record can hold them; nothing if they are not a grid or a block."""
    if len(lengths) > 3 or min(lengths, default=0) < 0:
        return ()
    return tuple(lengths)


def _count(value: Any) -> int | None:
    if isinstance(value, int) and value >= 0:
        return value
    return None


def _storable(name: str) -> str:
    """Cut a name to what a record and a database can hold."""
    shortened = name[:MOST_NAME].replace("\0", "")
    return shortened.encode(errors="replace").decode() or "(unnamed)"

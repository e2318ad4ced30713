"""The step ledger on real traces: its sums against a twin that shares no code with it, and planted
changes.
"""

import gzip
import json
from collections import defaultdict
from collections.abc import Callable
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from roofwatch.ci.ab.step_ledger import LedgerKind, LedgerRow, StepLedger, find_ledger
from roofwatch.collector.profiling.activities import HostEvent
from roofwatch.collector.profiling.steady import StepKind
from roofwatch.collector.profiling.steps import (
    HOST,
    StepTimes,
    fold,
    read_steps,
    steps_of_profile,
)
from roofwatch.collector.profiling.trace import Trace
from tests.builders import make_activity, make_profile, make_trace

DATA = Path(__file__).parents[2] / "data" / "profiles"
TRACES = sorted(path.name for path in DATA.glob("*_[avh]100*.json*"))
ON_A_GPU = [name for name in TRACES if "cupti" not in name]
GPU = {"kernel", "gpu_memcpy", "gpu_memset", "memcpy", "memset"}
Event = dict[str, Any]


def events_of(name: str) -> list[Event]:
    content = (DATA / name).read_bytes()
    text = gzip.decompress(content) if name.endswith(".gz") else content
    events: list[Event] = json.loads(text, parse_float=Decimal)["traceEvents"]
    return events


def is_gpu(event: Event) -> bool:
    return event.get("ph") == "X" and str(event.get("cat", "")).lower() in GPU


def steps_of(events: list[Event]) -> StepTimes:
    (times,) = read_steps(make_trace(events), StepKind.WHOLE)
    return times


def ledger_of(base: list[Event], head: list[Event]) -> StepLedger:
    return find_ledger(steps_of(base), steps_of(head), title="GPU 0")


def ns(microseconds: Any) -> int:
    return int(Decimal(microseconds) * 1000)


def covered_ns(intervals: list[tuple[int, int]]) -> int:
    """Count the stretches between neighbouring ends and starts in which something runs."""
    changes: defaultdict[int, int] = defaultdict(int)
    for start, end in intervals:
        changes[start] += 1
        changes[end] -= 1
    total = running = 0
    for one, following in pairwise(sorted(changes)):
        running += changes[one]
        total += following - one if running else 0
    return total


@pytest.mark.parametrize("name", ON_A_GPU)
def test_the_parts_of_a_step_are_exact(name: str) -> None:
    events = events_of(name)
    gpu = [
        (ns(e["ts"]), ns(e["ts"]) + ns(e["dur"]), str(e["args"]["stream"]))
        for e in events
        if is_gpu(e)
    ]
    busy_ns = covered_ns([(start, end) for start, end, _ in gpu])

    times = steps_of(events)

    assert times.busy_ns == busy_ns
    assert times.overlap_ns == sum(end - start for start, end, _ in gpu) - busy_ns
    assert times.gap_ns == times.step_ns - busy_ns
    assert times.gap_ns == sum(slot.gap_ns for slot in times.slots) + times.gap_after_last_ns
    assert times.stream_busy_ns == {
        stream: covered_ns([(start, end) for start, end, its in gpu if its == stream])
        for stream in {each[2] for each in gpu}
    }


@pytest.mark.parametrize("head", [name for name in TRACES if "resnet" not in name])
@pytest.mark.parametrize("base", ["bert_small_h100.json.gz", "cupti_profiler_a100.json.gz"])
def test_the_terms_add_up_between_any_two_traces(base: str, head: str) -> None:
    ledger = ledger_of(events_of(base), events_of(head))

    assert (ledger.residual_ns, ledger.is_explained) == (0, True)
    assert sum(row.head_launches for row in ledger.rows) == ledger.head.launch_count
    assert sum(row.base_ns for row in ledger.rows) == sum(
        slot.busy_ns for slot in ledger.base.slots
    )


@pytest.fixture(scope="module")
def scheduled() -> tuple[Trace, StepTimes]:
    """A trace of a profiler with a schedule, and its steps."""
    trace = make_trace(events_of("nccl_ddp_a100.json.gz"))
    (times,) = read_steps(trace, StepKind.MARKERS)
    return trace, times


def markers_of(trace: Trace) -> list[HostEvent]:
    return [event for event in trace.host_events if event.name.startswith("ProfilerStep#")]


def test_steps_are_those_of_the_schedule(scheduled: tuple[Trace, StepTimes]) -> None:
    trace, times = scheduled

    assert times.step_count == len(markers_of(trace)) == 3
    assert {slot.launch_count for slot in fold(times.slots)} == {3}


def test_the_last_step_lasts_until_its_work_is_done(scheduled: tuple[Trace, StepTimes]) -> None:
    trace, times = scheduled

    markers = markers_of(trace)
    last_kernel_ns = max(activity.start_ns + activity.duration_ns for activity in trace.activities)
    assert times.step_ns == max(last_kernel_ns, markers[-1].end_ns) - markers[0].start_ns


def test_a_slower_step_is_compared_with_a_mean_step_of_another_number() -> None:
    events = events_of("nccl_ddp_a100.json.gz")
    third = next(event for event in events if event["name"] == "ProfilerStep#6")
    (base,) = read_steps(make_trace(events), StepKind.MARKERS)
    (head,) = read_steps(
        make_trace([event for event in events if event is not third]), StepKind.MARKERS
    )

    ledger = find_ledger(base, head, title="GPU 0")
    assert (base.step_count, head.step_count) == (3, 2)
    assert abs(ledger.residual_ns) < 0.01
    assert {row.change for row in ledger.rows} == {"matched"}


def kernels_of(events: list[Event]) -> list[Event]:
    kernels = (event for event in events if str(event.get("cat")).lower() == "kernel")
    return sorted(kernels, key=lambda event: event["ts"])


def middle_kernel(events: list[Event]) -> Event:
    kernels = kernels_of(events)
    return kernels[len(kernels) // 2]


def delay(events: list[Event], kernel: Event) -> None:
    start = kernel["ts"]
    for event in events:
        if event.get("ts") is not None and event["ts"] >= start:
            event["ts"] += 100
        elif event.get("ph") == "X" and not is_gpu(event) and event["ts"] + event["dur"] > start:
            event["dur"] += 100


def lengthen(events: list[Event], kernel: Event) -> None:
    delay(events, kernel)
    kernel["ts"] -= 100
    kernel["dur"] += 100


def remove(events: list[Event], kernel: Event) -> None:
    events.remove(kernel)


def rename(_: list[Event], kernel: Event) -> None:
    kernel["name"] = "renamed"


def fuse(events: list[Event], kernel: Event) -> None:
    kernels = kernels_of(events)
    first = kernels.index(kernel)
    for following in kernels[first + 1 : first + 3]:
        events.remove(following)
    kernel["name"] = "fused"


def planted(name: str, plant: Callable[[list[Event], Event], None]) -> tuple[StepLedger, Event]:
    base, head = events_of(name), events_of(name)
    kernel = middle_kernel(base)
    plant(head, middle_kernel(head))
    return ledger_of(base, head), kernel


def changed(ledger: StepLedger) -> list[LedgerRow]:
    return [row for row in ledger.rows if row.change is not LedgerKind.MATCHED or row.change_ns]


SOME = ["bert_small_h100.json.gz", "nsfw_vit_h100.json.gz", "nccl_ddp_a100.json.gz"]


@pytest.mark.parametrize("name", SOME)
def test_a_delay_is_a_gap_before_the_kernel_that_waited(name: str) -> None:
    ledger, kernel = planted(name, delay)

    assert (ledger.step_change_ns, ledger.gap_change_ns, changed(ledger)) == (100_000, 100_000, [])
    waited = max(ledger.rows, key=lambda row: row.gap_change_ns)
    assert (waited.base_names, waited.gap_change_ns) == ((kernel["name"],), 100_000)


@pytest.mark.parametrize("name", SOME)
def test_a_slower_kernel_is_the_whole_change(name: str) -> None:
    ledger, kernel = planted(name, lengthen)

    (row,) = changed(ledger)
    assert (row.base_names, row.change_ns, ledger.step_change_ns) == (
        (kernel["name"],),
        100_000,
        100_000,
    )
    assert (ledger.matched_ns, ledger.gap_change_ns) == (100_000, 0)


@pytest.mark.parametrize("name", SOME)
def test_a_removed_kernel_is_found_at_its_place(name: str) -> None:
    without, kernel = planted(name, remove)

    (row,) = changed(without)
    assert (row.change, row.base_names, without.removed_ns) == (
        "removed",
        (kernel["name"],),
        ns(kernel["dur"]),
    )


@pytest.mark.parametrize("name", SOME)
def test_a_renamed_kernel_is_found_at_its_place(name: str) -> None:
    renamed, kernel = planted(name, rename)

    (row,) = changed(renamed)
    assert (row.change, row.base_names, row.head_names) == (
        "renamed",
        (kernel["name"],),
        ("renamed",),
    )
    assert (renamed.step_change_ns, renamed.added_ns, renamed.removed_ns) == (0, 0, 0)


@pytest.mark.parametrize("name", SOME)
def test_three_kernels_that_became_one_are_one_change(name: str) -> None:
    ledger, _ = planted(name, fuse)

    (row,) = changed(ledger)
    assert (row.change, row.base_launches, row.head_launches) == ("fused", 3, 1)
    assert ledger.matched_ns == row.change_ns < 0


def test_a_fusion_in_every_layer_is_one_change_beside_a_kernel_added_in_one() -> None:
    name = "nsfw_vit_h100.json.gz"
    base, head = events_of(name), events_of(name)
    kernels = kernels_of(head)
    attentions = [at for at, kernel in enumerate(kernels) if "flash_fwd" in kernel["name"]]
    for at in attentions:
        kernels[at]["name"] = "fused"
        head.remove(kernels[at + 1])
    head.append(
        kernels[attentions[5] + 4] | {"name": "added", "ts": kernels[attentions[5] + 4]["ts"] + 1}
    )

    fused, added = sorted(changed(ledger_of(base, head)), key=lambda row: -row.place_count)
    assert (fused.change, fused.place_count, fused.base_launches, fused.head_launches) == (
        "fused",
        12,
        24,
        12,
    )
    assert (added.change, added.head_names, added.head_launches) == ("added", ("added",), 1)


def test_kernels_with_other_names_at_the_same_places_are_renamed() -> None:
    base, head = events_of("bert_small_h100.json.gz"), events_of("bert_small_h100.json.gz")
    for kernel in kernels_of(head):
        kernel["name"] += " of another toolchain"

    ledger = ledger_of(base, head)
    assert {row.change for row in ledger.rows} <= {"renamed", "replaced", "matched"}
    assert (ledger.step_change_ns, ledger.added_ns, ledger.removed_ns) == (0, 0, 0)


def test_without_kernel_times_the_operators_of_the_host_are_compared() -> None:
    times = steps_of(events_of("cupti_profiler_a100.json.gz"))

    assert times.device == HOST
    assert "times are not in the trace" in times.notes[0]


def test_a_compiled_graph_is_the_same_launch_whatever_its_hash() -> None:
    def host_events(graph_hash: str, duration_us: int) -> list[Event]:
        return [
            {
                "ph": "X",
                "cat": "cpu_op",
                "name": f"## Call CompiledFxGraph {graph_hash} ##",
                "pid": 1,
                "tid": 1,
                "ts": 100,
                "dur": duration_us,
            }
        ]

    (row,) = ledger_of(host_events("fabc1", 40), host_events("fdef2", 50)).rows

    assert (row.change, row.head_names, row.change_ns) == ("matched", ("CompiledFxGraph",), 10_000)


def test_a_change_that_the_profile_does_not_show_is_not_explained() -> None:
    base = make_profile(
        "case", make_activity(count=3, total_ns=3_000), span_ns=3_300, busy_ns=3_000
    )
    head = make_profile(
        "case", make_activity(count=3, total_ns=3_300), span_ns=3_600, busy_ns=3_300
    )
    sides = steps_of_profile(base), steps_of_profile(head)

    assert find_ledger(*sides, title="case", measured_ns=(1_100, 1_201)).is_explained
    ledger = find_ledger(*sides, title="case", measured_ns=(1_100, 1_220))
    assert (ledger.matched_ns, ledger.residual_ns, ledger.is_explained) == (100, 20, False)

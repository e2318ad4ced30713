"""Activities that CUPTI recorded on real GPUs, in the record types of the real binding."""

import ctypes
import gzip
import json
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from roofwatch.collector.timing.cupti import LaunchWindow, samples_of
from roofwatch.collector.timing.stopwatch import Sample
from roofwatch.spec import UnsupportedError
from tests.collector.timing.stand_in_cupti import Kind, StandIn, recorder_of

cupti = pytest.importorskip("cupti.cupti", reason="cupti-python is not installed: the extra gpu")

DATA = Path(__file__).parents[2] / "data" / "profiles"
TRACES = {
    "simple_add_a100.json": "one stream",
    "multi_stream_events_a100.json.gz": "three streams, memsets",
    "alexnet_a100.json.gz": "two streams, copies and memsets",
    "nsfw_vit_h100.json.gz": "Hopper",
    "nccl_ddp_a100.json.gz": "collectives that overlap with other kernels",
}
"""Traces of torch.profiler, which writes down CUPTI's records."""
_KINDS = {
    "kernel": Kind.CONCURRENT_KERNEL,
    "gpu_memcpy": Kind.MEMCPY,
    "gpu_memset": Kind.MEMSET,
}


@cache
def expected(trace: str) -> dict[str, Any]:
    """What `expected.json` says of all activity on the first GPU."""
    values = json.loads((DATA / "expected.json").read_text())[trace]
    activity: dict[str, Any] = values["devices"]["0"]["all_gpu_activity"]
    return activity


def recorded(trace: str) -> Iterator[Any]:
    content = (DATA / trace).read_bytes()
    if trace.endswith(".gz"):
        content = gzip.decompress(content)
    for event in json.loads(content)["traceEvents"]:
        if event.get("ph") == "X" and event["cat"] in _KINDS:
            yield record_of(event)


def record_of(event: Mapping[str, Any]) -> Any:
    """One event of a trace, in microseconds, as the structure that CUPTI fills."""
    kind = _KINDS[event["cat"]]
    types = {
        Kind.CONCURRENT_KERNEL: cupti.ActivityKernel10,
        Kind.MEMCPY: cupti.ActivityMemcpy6,
        Kind.MEMSET: cupti.ActivityMemset4,
    }
    record = types[kind]()
    # the binding frees what CUPTI allocated, and CUPTI has not allocated this one
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(record))
    record.kind = kind
    record.start = round(event["ts"] * 1_000)
    record.end = round((event["ts"] + event["dur"]) * 1_000)
    record.stream_id = event["args"].get("stream", 0)
    if kind is Kind.CONCURRENT_KERNEL:
        record.name = event["name"]
        record.graph_node_id = event["args"].get("graph node id", 0)
    return record


def sample_of(records: list[Any]) -> Sample:
    """Send records through the recorder, and assign them to one launch."""
    stand_in = StandIn(records_per_buffer=64, most_records=5_000)
    recorder = recorder_of(stand_in)
    with recorder.recording():
        stand_in.run(*records)
        activities = recorder.activities()
    first_ns = min(record.start for record in records)
    last_ns = max(record.end for record in records)
    (sample,) = samples_of(activities, [LaunchWindow(first_ns, last_ns, host_ns=0)])
    return sample


@pytest.mark.parametrize("trace", TRACES)
def test_busy_time_of_a_real_recording_is_the_expected_one(trace: str) -> None:
    records = list(recorded(trace))

    sample = sample_of(records)

    activity = expected(trace)
    assert len(sample.kernels or ()) == activity["activities"] == len(records)
    # each time of the trace is rounded to a nanosecond
    assert sample.busy_ns == pytest.approx(activity["busy_us"] * 1_000, abs=2 * len(records))


@pytest.mark.parametrize("trace", TRACES)
def test_the_span_of_a_real_recording_is_the_expected_one(trace: str) -> None:
    sample = sample_of(list(recorded(trace)))

    # each time of the trace is rounded to a nanosecond
    assert sample.span_ns == pytest.approx(expected(trace)["span_us"] * 1_000, abs=2)


def test_transfers_have_the_name_of_their_kind() -> None:
    sample = sample_of(list(recorded("alexnet_a100.json.gz")))

    assert sample.kernels is not None
    assert sample.kernels.count("memcpy") == 16
    assert sample.kernels.count("memset") == 3


def test_a_launch_of_many_is_the_activity_between_its_start_and_end() -> None:
    records = list(recorded("multi_stream_events_a100.json.gz"))
    products = [record for record in records if record.kind == Kind.CONCURRENT_KERNEL]
    windows = [LaunchWindow(record.start, record.end, host_ns=0) for record in products]
    stand_in = StandIn()
    recorder = recorder_of(stand_in)

    with recorder.recording():
        stand_in.run(*records)
        samples = samples_of(recorder.activities(), windows)

    assert [sample.kernels for sample in samples] == [("ampere_sgemm_128x64_nn",)] * 3
    assert [sample.busy_ns for sample in samples] == [123_000] * 3


def graph_nodes() -> list[Any]:
    """Kernels of one graph launch: two branches that overlap, then a node that joins them."""
    times_us = {"left": (10.0, 4.0), "right": (11.0, 6.0), "join": (18.0, 2.0)}
    numbers = count(1)
    return [
        record_of(
            {
                "cat": "kernel",
                "name": name,
                "ts": start_us,
                "dur": duration_us,
                "args": {"stream": 7, "graph node id": next(numbers)},
            }
        )
        for name, (start_us, duration_us) in times_us.items()
    ]


def test_each_node_of_a_graph_launch_is_a_kernel() -> None:
    sample = sample_of(graph_nodes())

    assert sample.kernels == ("join", "left", "right")


def test_branches_of_a_graph_launch_are_busy_once() -> None:
    sample = sample_of(graph_nodes())

    assert (sample.busy_ns, sample.span_ns) == (9_000, 10_000)


def test_a_recording_with_a_dropped_buffer_is_refused() -> None:
    records = list(recorded("nsfw_vit_h100.json.gz"))
    stand_in = StandIn(records_per_buffer=64, most_records=100)
    recorder = recorder_of(stand_in)

    with recorder.recording():
        stand_in.run(*records)
        with pytest.raises(UnsupportedError, match="CUPTI lost 56 records"):
            recorder.activities()

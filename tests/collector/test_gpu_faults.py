"""Kernels that really break the GPU's context: each costs its own case, and the device is usable
again after it.
"""

from dataclasses import replace

import pytest

from roofwatch.collector.runs.measure import measure
from roofwatch.collector.runs.run_plan import RunPlan
from roofwatch.collector.workers.fork_server import ForkServer
from roofwatch.model.machine import Outcome
from roofwatch.model.measurement import Measurement, Timer
from roofwatch.model.timing_method import SamplingPlan
from tests.collector.conftest import by_kernel, suite_of

pytestmark = pytest.mark.gpu

PLAN = RunPlan(
    device="cuda",
    targets=(),
    block_count=1,
    sampling=SamplingPlan(warmup_ms=1, budget_ms=5, max_samples=20),
    timeout_s=30,
)


def measured(suite: str, plan: RunPlan) -> dict[str, Measurement]:
    with ForkServer() as fork_server:
        (record,) = measure([suite_of(suite)], plan, fork_server=fork_server)
    return by_kernel(record)


def test_the_next_case_is_measured_after_each_way_to_break_a_gpu() -> None:
    found = measured("bench_gpu_faults.py", PLAN)

    assert {kernel: measurement.outcome for kernel, measurement in found.items()} == {
        "illegal_access": Outcome.CRASHED,
        "works_first": Outcome.OK,
        "device_assertion": Outcome.CRASHED,
        "works_second": Outcome.OK,
        "infinite_loop": Outcome.TIMED_OUT,
        "works_third": Outcome.OK,
        "exhausts_memory": Outcome.OUT_OF_MEMORY,
        "never_compiles": Outcome.COMPILE_ERROR,
        "works_last": Outcome.OK,
    }
    messages = {kernel: measurement.message or "" for kernel, measurement in found.items()}
    assert "illegal memory access" in messages["illegal_access"]
    assert "device-side assert" in messages["device_assertion"]
    assert "not done after 30 s" in messages["infinite_loop"]
    assert "blocks of seven" in messages["never_compiles"]


def test_the_next_case_is_measured_after_one_that_no_graph_can_hold() -> None:
    found = measured("bench_gpu_graphs.py", replace(PLAN, timer=Timer.CUDA_GRAPH))

    assert {kernel: measurement.outcome for kernel, measurement in found.items()} == {
        "waits_for_the_device": Outcome.UNSUPPORTED,
        "works_after_it": Outcome.OK,
    }
    assert "--timer cupti or cuda_event" in (found["waits_for_the_device"].message or "")

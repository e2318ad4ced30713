"""Ceilings of a device as they are measured, and the timer that measures them."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from roofwatch.collector.compile.binary import instruction_bytes, sass
from roofwatch.collector.compile.launches import compiling_for
from roofwatch.collector.device.ceilings import ceiling_method, copy_in_rounds, measure_ceilings, whole_blocks
from roofwatch.collector.record.measurement import CacheState, Timer
from roofwatch.collector.run_plan import RunPlan
from roofwatch.collector.suite import SuiteSource
from roofwatch.collector.suite_run import SuiteRun
from roofwatch.collector.timing.method import ChosenMethod, TimingMethod
from roofwatch.collector.workers.protocol import Job, MeasureCeilings, Reply, TimingChoice
from roofwatch.collector.workers.worker_pool import WorkerPool
from tests.builders import make_environment

GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here: its ceilings cannot be measured")


@pytest.mark.slow
def test_the_ceilings_of_this_machine_are_measured_for_the_dtypes_of_the_suite() -> None:
    ceilings = list(measure_ceilings("cpu", ["bfloat16", "int32"]))
    kinds = [(ceiling.resource, ceiling.level, ceiling.dtype, ceiling.source) for ceiling in ceilings]
    assert kinds == [
        ("memory", "dram", None, "measured"),
        ("memory", "cache", None, "measured"),
        ("compute", None, "float32", "measured"),
        ("compute", None, "bfloat16", "measured"),
    ]
    assert ceilings[1].up_to_bytes
    assert ceilings[1].up_to_bytes >= 2**18
    # any machine that runs torch moves more than 1 MB/s and computes more than 1 MFLOP/s
    assert all(1e6 < ceiling.per_s < 1e16 for ceiling in ceilings)


def test_wider_dtypes_are_measured_too() -> None:
    compute = [each.dtype for each in measure_ceilings("cpu", ["int8"]) if each.resource == "compute"]
    assert compute == ["float32", "float16", "bfloat16", "int8"]


@pytest.mark.parametrize("arch", [80, 90, 100])
def test_the_l2_copy_bypasses_the_l1(arch: int) -> None:
    with compiling_for(f"sm_{arch}") as launches:
        source = torch.empty(whole_blocks(100_000))
        copy_in_rounds(source, torch.empty_like(source), rounds=4)
    [launch] = launches
    assert launch.compiled is not None, launch.message
    [code] = sass([instruction_bytes(launch.compiled.binary)], arch)
    loads = [line for line in code.splitlines() if " LDG." in line]
    assert loads
    assert all(".128" in line and ".STRONG.GPU" in line for line in loads), loads


def test_a_copy_has_at_least_one_whole_block() -> None:
    assert [whole_blocks(count) for count in (1, 4096, 10_000)] == [4096, 4096, 8192]


@pytest.mark.parametrize(
    ("device", "timer", "method"),
    [
        ("cpu", None, TimingMethod(Timer.PERF_COUNTER, CacheState.HOT)),
        ("cuda", None, TimingMethod(Timer.CUDA_EVENT, CacheState.COLD)),
        ("cuda", Timer.CUPTI, TimingMethod(Timer.CUPTI, CacheState.COLD)),
        ("cuda", Timer.CUDA_EVENT, TimingMethod(Timer.CUDA_EVENT, CacheState.COLD)),
        ("cuda", Timer.CUDA_GRAPH, TimingMethod(Timer.CUDA_GRAPH, CacheState.HOT)),
    ],
)
def test_ceilings_use_the_timer_of_the_run_without_rotation(
    device: str, timer: Timer | None, method: TimingMethod
) -> None:
    assert ceiling_method(device, timer) == method


def test_every_ceiling_uses_that_method(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[TimingMethod | None] = []

    def sample(*_: Any, device: str, method: TimingMethod | None = None) -> SimpleNamespace:
        assert device == "cpu"
        taken.append(method)
        return SimpleNamespace(block=SimpleNamespace(samples_ns=(2e9, 1e9)))

    asked = TimingMethod(Timer.PERF_COUNTER, CacheState.COLD)
    monkeypatch.setattr("roofwatch.collector.device.ceilings.sample_launches", sample)
    monkeypatch.setattr("roofwatch.collector.device.ceilings.ceiling_method", lambda *_: asked)
    ceilings = list(measure_ceilings("cpu", ["int8"], Timer.PERF_COUNTER))

    assert len(taken) > len(ceilings)
    assert set(taken) == {asked}


class Answering(WorkerPool):
    """Workers that choose a timer and keep their jobs."""

    def __init__(self, timer: Timer) -> None:
        self.asked: list[Job] = []
        chosen = ChosenMethod(TimingMethod(timer, CacheState.COLD))
        self._replies = [
            Reply(environment=make_environment()),
            Reply(timing=TimingChoice(chosen=chosen)),
            Reply(ceilings=()),
        ]

    def request(self, job: Job, *, timeout_s: float, rank_count: int = 1) -> Reply:
        del timeout_s, rank_count
        self.asked.append(job)
        return self._replies[len(self.asked) - 1]


def test_a_run_measures_ceilings_with_its_chosen_timer() -> None:
    workers = Answering(Timer.CUPTI)
    SuiteRun(SuiteSource(Path("bench_example.py")), RunPlan(device="cuda")).describe_machine(workers)

    assert workers.asked[-1] == MeasureCeilings(dtypes=(), timer=Timer.CUPTI)


@pytest.mark.gpu
@GPU
def test_the_rounds_copy_everything() -> None:
    source = torch.randn(whole_blocks(300_000), device="cuda")
    target = torch.full_like(source, float("nan"))
    copy_in_rounds(source, target, rounds=3)
    assert torch.equal(source, target)


@pytest.mark.gpu
@GPU
def test_the_ceilings_of_a_gpu_are_measured_beside_the_datasheets() -> None:
    dtypes = ["float32", "bfloat16", "float8_e4m3fn", "int8"]
    ceilings = list(measure_ceilings("cuda", dtypes))
    measured = {each.level or each.dtype: each.per_s for each in ceilings if each.source == "measured"}
    assert {"dram", "cache", "float32", "bfloat16"} <= measured.keys()
    assert measured["cache"] > measured["dram"]
    assert measured["bfloat16"] > measured["float32"]
    published = {each.level or each.dtype: each.per_s for each in ceilings if each.source == "datasheet"}
    for kind in measured.keys() & published.keys():
        # below a third of what the vendor says, something else than the device was measured
        assert published[kind] / 3 < measured[kind], kind
    assert torch.backends.cuda.matmul.allow_tf32 is False

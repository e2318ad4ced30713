"""By which timer ceilings are measured: that of the run, since one that sees more lowers the roof of the others."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from roofwatch.collector.device.ceilings import ceiling_method, measure_ceilings
from roofwatch.collector.record.measurement import CacheState, Timer
from roofwatch.collector.run_plan import RunPlan
from roofwatch.collector.suite import SuiteSource
from roofwatch.collector.suite_run import SuiteRun
from roofwatch.collector.timing.method import ChosenMethod, TimingMethod
from roofwatch.collector.workers.protocol import Job, MeasureCeilings, Reply, TimingChoice
from roofwatch.collector.workers.worker_pool import WorkerPool
from tests.builders import make_environment


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
def test_a_ceiling_is_timed_as_the_run_is_without_taking_turns_on_copies_it_has_not(
    device: str, timer: Timer | None, method: TimingMethod
) -> None:
    assert ceiling_method(device, timer) == method


def test_every_ceiling_of_a_device_is_timed_that_way(monkeypatch: pytest.MonkeyPatch) -> None:
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
    """Workers that choose a timer, and keep what they are asked after."""

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


def test_a_run_has_its_ceilings_measured_by_the_timer_that_it_chose() -> None:
    workers = Answering(Timer.CUPTI)
    SuiteRun(SuiteSource(Path("bench_example.py")), RunPlan(device="cuda")).describe_machine(workers)

    assert workers.asked[-1] == MeasureCeilings(dtypes=(), timer=Timer.CUPTI)

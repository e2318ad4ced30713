"""The choice of a timer and a cache state."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from roofwatch.collector.errors import TimerError
from roofwatch.collector.record.machine import Outcome
from roofwatch.collector.record.measurement import CacheState, Timer
from roofwatch.collector.run import collect_run
from roofwatch.collector.run_plan import Progress, RunPlan
from roofwatch.collector.suite import SuiteAt, SuiteSource
from roofwatch.collector.timing.method import SamplingPlan, TimingMethod, default_method, possible_methods
from roofwatch.collector.timing.timing import choose_method
from roofwatch.collector.workers.fork_server import ForkServer
from tests.builders import make_commit

pytestmark = pytest.mark.usefixtures("forked_servers")


def test_a_gpu_has_three_timers_best_first() -> None:
    assert possible_methods("cuda") == [
        TimingMethod(Timer.CUPTI, CacheState.COLD),
        TimingMethod(Timer.CUDA_GRAPH, CacheState.ROTATED),
        TimingMethod(Timer.CUDA_EVENT, CacheState.COLD),
    ]


def test_a_request_selects_timers() -> None:
    assert possible_methods("cpu") == [default_method("cpu")] == [TimingMethod(Timer.PERF_COUNTER, CacheState.HOT)]
    assert possible_methods("cuda", Timer.CUDA_EVENT) == [TimingMethod(Timer.CUDA_EVENT, CacheState.COLD)]
    methods = possible_methods("cuda", cache=CacheState.COLD)

    assert [method.timer for method in methods] == [Timer.CUPTI, Timer.CUDA_EVENT]


def test_a_timer_of_another_device_is_refused() -> None:
    with pytest.raises(TimerError, match=r"cupti: .* on cpu here, where the timer is perf_counter"):
        possible_methods("cpu", Timer.CUPTI)


def test_a_graph_cannot_have_a_cold_cache() -> None:
    with pytest.raises(TimerError, match="cuda_graph offers rotated or hot; --timer cupti or cuda_event offers cold"):
        possible_methods("cuda", Timer.CUDA_GRAPH, CacheState.COLD)


GOOD = SuiteSource(Path(__file__).parents[2] / "suites" / "bench_good.py")
PLAN = RunPlan(kernels=("total",), targets=(), device="cpu", block_count=1, sampling=SamplingPlan(1, 1))


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_an_unavailable_timer_is_explained() -> None:
    with pytest.raises(TimerError, match="--timer auto selects an available one"):
        choose_method("cuda", Timer.CUDA_EVENT)
    with pytest.raises(TimerError, match=r".+; .+; .+"):  # a reason for each of three
        choose_method("cuda")


def test_a_run_with_an_unavailable_timer_measures_nothing(fork_server: ForkServer) -> None:
    done: list[Progress] = []
    with pytest.raises(TimerError, match="--timer cupti"):
        collect_run(
            SuiteAt(GOOD, make_commit(), "good"),
            replace(PLAN, timer=Timer.CUPTI),
            done.append,
            fork_server=fork_server,
        )
    assert {now.done for now in done} == {0}


def test_a_case_that_touches_too_little_for_a_rotated_cache_is_unsupported(fork_server: ForkServer) -> None:
    plan = replace(PLAN, cases=("total/n=500/float32/fwd",), cache=CacheState.ROTATED)
    [measurement] = collect_run(SuiteAt(GOOD, make_commit(), "good"), plan, fork_server=fork_server).measurements
    assert (measurement.outcome, measurement.cache) == (Outcome.UNSUPPORTED, CacheState.ROTATED)
    assert "copies to exceed twice the last-level cache" in (measurement.message or "")


@pytest.mark.slow
def test_every_measurement_has_the_timer_and_the_cache_of_its_run(fork_server: ForkServer) -> None:
    said: list[Progress] = []
    record = collect_run(SuiteAt(GOOD, make_commit(), "good"), PLAN, said.append, fork_server=fork_server)

    assert {(each.timer, each.cache) for each in record.measurements} == {(Timer.PERF_COUNTER, CacheState.HOT)}
    assert {each.blocks[0].stopped_by for each in record.measurements} <= {"precision", "budget"}
    assert not [now for now in said if now.is_to_stay], "a CPU has no choice to tell of"

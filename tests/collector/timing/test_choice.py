"""The choice of a timer and a cache state."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from roofwatch.collector.errors import TimerError
from roofwatch.collector.record.machine import Outcome
from roofwatch.collector.record.measurement import CacheState, Timer
from roofwatch.collector.run import measure
from roofwatch.collector.run_plan import Progress, RunPlan
from roofwatch.collector.suite import SuiteAt, SuiteSource
from roofwatch.collector.timing.method import SamplingPlan, TimingMethod, possible_methods
from roofwatch.collector.timing.timing import choose_method
from roofwatch.collector.workers.fork_server import ForkServer
from tests.builders import make_commit

pytestmark = pytest.mark.usefixtures("forked_servers")

CUPTI, EVENT = (Timer.CUPTI, CacheState.COLD), (Timer.CUDA_EVENT, CacheState.COLD)


@pytest.mark.parametrize(
    ("device", "timer", "cache", "methods"),
    [
        ("cpu", None, None, [(Timer.PERF_COUNTER, CacheState.HOT)]),
        ("cuda", None, None, [CUPTI, (Timer.CUDA_GRAPH, CacheState.ROTATED), EVENT]),
        ("cuda", Timer.CUDA_EVENT, None, [EVENT]),
        ("cuda", None, CacheState.COLD, [CUPTI, EVENT]),
    ],
)
def test_methods_of_a_device_that_fit_a_request_come_best_first(
    device: str, timer: Timer | None, cache: CacheState | None, methods: list[tuple[Timer, CacheState]]
) -> None:
    assert possible_methods(device, timer, cache) == [TimingMethod(*method) for method in methods]


@pytest.mark.parametrize(
    ("device", "timer", "cache", "reason"),
    [
        ("cpu", Timer.CUPTI, None, "cupti: .* on cpu here, where the timer is perf_counter"),
        ("cuda", Timer.CUDA_GRAPH, CacheState.COLD, "cuda_graph offers rotated or hot; --timer cupti or cuda_event"),
    ],
)
def test_an_impossible_request_is_refused(device: str, timer: Timer, cache: CacheState | None, reason: str) -> None:
    with pytest.raises(TimerError, match=reason):
        possible_methods(device, timer, cache)


GOOD = SuiteAt(SuiteSource(Path(__file__).parents[2] / "suites" / "bench_good.py"), make_commit(), "good")
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
        measure([GOOD], replace(PLAN, timer=Timer.CUPTI), done.append, fork_server=fork_server)
    assert {now.done for now in done} == {0}


def test_a_case_that_touches_too_little_for_a_rotated_cache_is_unsupported(fork_server: ForkServer) -> None:
    plan = replace(PLAN, cases=("total/n=500/float32/fwd",), cache=CacheState.ROTATED)
    (record,) = measure([GOOD], plan, fork_server=fork_server)
    [measurement] = record.measurements
    assert (measurement.outcome, measurement.cache) == (Outcome.UNSUPPORTED, CacheState.ROTATED)
    assert "copies to exceed twice the last-level cache" in (measurement.message or "")

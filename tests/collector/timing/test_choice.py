"""The choice of a timer, by a worker, and what comes of one that is not there."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from roofwatch.collector.errors import TimerError
from roofwatch.collector.record.machine import Outcome
from roofwatch.collector.record.measurement import CacheState, Timer
from roofwatch.collector.run import Progress, collect_run
from roofwatch.collector.run_plan import RunPlan
from roofwatch.collector.suite import SuiteAt, SuiteSource
from roofwatch.collector.timing.method import ChosenMethod, SamplingPlan, TimingMethod
from roofwatch.collector.timing.timing import choose_method
from roofwatch.collector.workers.fork_server import ForkServer
from roofwatch.collector.workers.protocol import ChooseTiming, WorkerSettings
from roofwatch.collector.workers.worker import Worker
from tests.builders import make_commit

pytestmark = pytest.mark.usefixtures("forked_servers")

GOOD = SuiteSource(Path(__file__).parents[2] / "suites" / "bench_good.py")
PLAN = RunPlan(kernels=("total",), targets=(), device="cpu", block_count=1, sampling=SamplingPlan(1, 1))


@pytest.fixture(scope="module")
def fork_server() -> Iterator[ForkServer]:
    with ForkServer() as fork_server:
        yield fork_server


def test_a_cpu_is_timed_by_its_one_timer() -> None:
    assert choose_method("cpu") == ChosenMethod(TimingMethod(Timer.PERF_COUNTER, CacheState.HOT))


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_a_timer_that_does_not_work_is_answered_with_why_and_the_way_out() -> None:
    with pytest.raises(TimerError, match="--timer auto takes what there is"):
        choose_method("cuda", Timer.CUDA_EVENT)
    with pytest.raises(TimerError, match=r".+; .+; .+"):  # a reason for each of three
        choose_method("cuda")


def test_a_worker_says_why_it_has_no_such_timer(fork_server: ForkServer) -> None:
    with Worker(fork_server, WorkerSettings(source=GOOD, device="cpu")) as worker:
        worker.start()
        choice = worker.request(ChooseTiming(timer=Timer.CUPTI), timeout_s=60).timing
    assert choice is not None
    assert choice.chosen is None
    assert "where the timer is perf_counter" in (choice.error or "")


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"timer": Timer.CUPTI}, "--timer cupti"),
        ({"cache": CacheState.ROTATED}, "--cache rotated: no case .*touches 8000 bytes.*: --cache hot or cold"),
    ],
    ids=["timer", "cache"],
)
def test_a_run_whose_times_cannot_be_taken_as_asked_measures_nothing(
    fork_server: ForkServer, asked: dict[str, Any], said: str
) -> None:
    done: list[Progress] = []
    plan = replace(PLAN, kernels=("total", "scale"), **asked)
    with pytest.raises(TimerError, match=said):
        collect_run(SuiteAt(GOOD, make_commit(), "good"), plan, done.append, fork_server=fork_server)
    assert {now.done for now in done} == {0}


def test_a_rotated_cache_is_refused_where_no_case_touches_enough_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twice a cache of a MiB takes 4096 copies of 512 bytes, and that many are made."""
    monkeypatch.setattr("roofwatch.collector.timing.timing.last_level_cache_bytes", lambda _: 2**20)
    for enough in ([512.0], [8.0, 512.0], [8.0, 0.0], []):
        chosen = choose_method("cpu", cache=CacheState.ROTATED, touched_bytes=enough)
        assert chosen.method == TimingMethod(Timer.PERF_COUNTER, CacheState.ROTATED)
    with pytest.raises(TimerError, match=r"^--cache rotated: no case .* of the largest, a launch touches 511 bytes"):
        choose_method("cpu", cache=CacheState.ROTATED, touched_bytes=[511.0, 8.0])
    assert choose_method("cpu", touched_bytes=[8.0]).method.cache is CacheState.HOT


def test_a_share_of_a_run_is_timed_as_the_others_are_whatever_its_cases_touch(fork_server: ForkServer) -> None:
    """What cannot be timed so is its own case's outcome, with the reason."""
    plan = replace(PLAN, cases=("total/n=500/float32/fwd",), cache=CacheState.ROTATED)
    [measurement] = collect_run(SuiteAt(GOOD, make_commit(), "good"), plan, fork_server=fork_server).measurements
    assert (measurement.outcome, measurement.cache) == (Outcome.UNSUPPORTED, CacheState.ROTATED)
    assert "copies of them are twice the last-level cache" in (measurement.message or "")


@pytest.mark.slow
def test_every_measurement_has_the_timer_and_the_cache_of_its_run(fork_server: ForkServer) -> None:
    said: list[Progress] = []
    record = collect_run(SuiteAt(GOOD, make_commit(), "good"), PLAN, said.append, fork_server=fork_server)

    assert {(each.timer, each.cache) for each in record.measurements} == {(Timer.PERF_COUNTER, CacheState.HOT)}
    assert {each.blocks[0].stopped_by for each in record.measurements} <= {"precision", "budget"}
    assert not [now for now in said if now.is_to_stay], "a CPU has no choice to tell of"

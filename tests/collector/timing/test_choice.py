"""The choice of a device, a timer and a cache state."""

from dataclasses import replace

import pytest
import torch

from roofwatch.collector.device.device_session import DeviceSession
from roofwatch.collector.device.environment import choose_device
from roofwatch.collector.runs.measure import measure
from roofwatch.collector.runs.run_plan import Progress, RunPlan, Steps
from roofwatch.collector.runs.suite_run import SuiteRun
from roofwatch.collector.timing.timing import choose_method
from roofwatch.collector.workers.fork_server import ForkServer
from roofwatch.collector.workers.worker_pool import WorkerPool
from roofwatch.model.errors import CollectorError, TimerError
from roofwatch.model.machine import Outcome
from roofwatch.model.measurement import CacheState, Timer
from roofwatch.model.timing_method import (
    ChosenMethod,
    SamplingPlan,
    TimingMethod,
    default_method,
    possible_methods,
)
from roofwatch.model.worker_protocol import Failure, Job, MeasureCeilings, Reply
from tests.builders import make_environment
from tests.collector.conftest import suite_of

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
    device: str,
    timer: Timer | None,
    cache: CacheState | None,
    methods: list[tuple[Timer, CacheState]],
) -> None:
    assert possible_methods(device, timer, cache) == [TimingMethod(*method) for method in methods]


@pytest.mark.parametrize(
    ("device", "timer", "cache", "reason"),
    [
        ("cpu", Timer.CUPTI, None, "cupti: .* on cpu here, where the timer is perf_counter"),
        (
            "cuda",
            Timer.CUDA_GRAPH,
            CacheState.COLD,
            "cuda_graph offers rotated or hot; --timer cupti or cuda_event",
        ),
    ],
)
def test_an_impossible_request_is_refused(
    device: str, timer: Timer, cache: CacheState | None, reason: str
) -> None:
    with pytest.raises(TimerError, match=reason):
        possible_methods(device, timer, cache)


GOOD = suite_of("bench_good.py")
PLAN = RunPlan(
    kernels=("total",), targets=(), device="cpu", block_count=1, sampling=SamplingPlan(1, 1)
)


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


def test_a_case_that_touches_too_little_for_a_rotated_cache_is_unsupported(
    fork_server: ForkServer,
) -> None:
    plan = replace(PLAN, cases=("total/n=500/float32/fwd",), cache=CacheState.ROTATED)
    (record,) = measure([GOOD], plan, fork_server=fork_server)
    [measurement] = record.measurements
    assert (measurement.outcome, measurement.cache) == (Outcome.UNSUPPORTED, CacheState.ROTATED)
    assert "copies to exceed twice the last-level cache" in (measurement.message or "")


# --- devices


def see_gpus(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)


@pytest.mark.parametrize(
    ("asked", "gpu_count", "chosen"),
    [
        (None, 0, "cpu"),
        (None, 2, "cuda"),
        ("cpu", 2, "cpu"),
        ("cuda", 1, "cuda"),
        ("cuda:1", 2, "cuda:1"),
    ],
)
def test_the_default_device_is_a_gpu_if_there_is_one(
    asked: str | None, gpu_count: int, chosen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    see_gpus(monkeypatch, gpu_count)
    assert choose_device(asked) == chosen


@pytest.mark.parametrize(
    ("asked", "gpu_count", "said"),
    [
        ("cuda:x", 1, "--device cuda:x: choose cpu or cuda; the default is a GPU if there is one"),
        ("cuda:2", 2, "--device cuda:2: torch sees 2 GPUs here, the last one is cuda:1"),
    ],
)
def test_an_unknown_device_is_refused_with_the_choices(
    asked: str, gpu_count: int, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    see_gpus(monkeypatch, gpu_count)
    with pytest.raises(CollectorError) as refused:
        choose_device(asked)
    assert str(refused.value) == said


@pytest.mark.parametrize(("cuda", "why"), [(None, "for CPUs only"), ("13.0", "no driver")])
def test_a_missing_gpu_is_explained(
    cuda: str | None, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    see_gpus(monkeypatch, 0)
    monkeypatch.setattr(torch.version, "cuda", cuda)
    monkeypatch.setattr(torch.version, "hip", None)
    with pytest.raises(
        CollectorError, match=f"^--device cuda: torch sees no GPU here .*{why}.*; --device cpu"
    ):
        choose_device("cuda")


class Failing(WorkerPool):
    """Workers that do jobs in turn and fail at the last one, as torch does: with several lines."""

    def __init__(self, *replies: Reply) -> None:
        self._replies = list(replies)
        self._by_rank_count = {}
        self._parallel = []
        self.jobs: list[Job] = []

    def request(self, job: Job, *, timeout_s: float) -> Reply:
        del timeout_s
        self.jobs.append(job)
        return self._replies.pop(0)


BROKEN = Reply(
    failure=Failure(
        outcome=Outcome.CRASHED, message="AcceleratorError: unknown error\nIt may be\nasynchronous"
    )
)
DESCRIBED = Reply(environment=make_environment())
CHOSEN = Reply(chosen=ChosenMethod(default_method("cuda")))


@pytest.mark.parametrize(
    ("replies", "what"),
    [
        ([BROKEN], "the machine cannot be described"),
        ([DESCRIBED, BROKEN], "no timer can be chosen"),
        ([DESCRIBED, CHOSEN, BROKEN], "the ceilings cannot be measured"),
    ],
)
def test_a_machine_that_fails_before_measuring_gives_a_one_line_error(
    replies: list[Reply], what: str
) -> None:
    workers = Failing(*replies)
    run = SuiteRun(GOOD, RunPlan(device="cuda"), workers, DeviceSession(), Steps(lambda _: None))
    with pytest.raises(CollectorError) as refused:
        run.describe_machine()
    said = str(refused.value)
    assert said.startswith(f"{what}: AcceleratorError: unknown error; check the GPU with")
    assert said.endswith("--device cpu")
    assert "\n" not in said
    measured_with = [job.timer for job in workers.jobs if isinstance(job, MeasureCeilings)]
    assert measured_with == [Timer.CUDA_EVENT] * (len(replies) == 3)

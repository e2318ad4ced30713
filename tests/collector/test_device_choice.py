"""The device that `--device` selects, and errors about it."""

from pathlib import Path

import pytest
import torch

from roofwatch.collector.device.device_session import DeviceSession
from roofwatch.collector.environment import choose_device
from roofwatch.collector.errors import CollectorError
from roofwatch.collector.record.machine import Outcome
from roofwatch.collector.record.measurement import Timer
from roofwatch.collector.run_plan import RunPlan, Steps
from roofwatch.collector.suite import SuiteAt, SuiteSource
from roofwatch.collector.suite_run import SuiteRun
from roofwatch.collector.timing.method import ChosenMethod, default_method
from roofwatch.collector.workers.protocol import Failure, Job, MeasureCeilings, Reply
from roofwatch.collector.workers.worker_pool import WorkerPool
from tests.builders import make_commit, make_environment

GOOD = SuiteAt(SuiteSource(Path(__file__).parents[1] / "suites" / "bench_good.py"), make_commit(), "good")


def see_gpus(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)


@pytest.mark.parametrize(
    ("asked", "gpu_count", "chosen"),
    [(None, 0, "cpu"), (None, 2, "cuda"), ("cpu", 2, "cpu"), ("cuda", 1, "cuda"), ("cuda:1", 2, "cuda:1")],
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
def test_a_missing_gpu_is_explained(cuda: str | None, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    see_gpus(monkeypatch, 0)
    monkeypatch.setattr(torch.version, "cuda", cuda)
    monkeypatch.setattr(torch.version, "hip", None)
    with pytest.raises(CollectorError, match=f"^--device cuda: torch sees no GPU here .*{why}.*; --device cpu"):
        choose_device("cuda")


class Failing(WorkerPool):
    """Workers that do jobs in turn and fail at the last one, as torch does: with several lines."""

    def __init__(self, *replies: Reply) -> None:
        self._replies = list(replies)
        self.jobs: list[Job] = []

    def request(self, job: Job, *, timeout_s: float) -> Reply:
        del timeout_s
        self.jobs.append(job)
        return self._replies.pop(0)


BROKEN = Reply(
    failure=Failure(outcome=Outcome.CRASHED, message="AcceleratorError: unknown error\nIt may be\nasynchronous")
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
def test_a_machine_that_fails_before_measuring_gives_a_one_line_error(replies: list[Reply], what: str) -> None:
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

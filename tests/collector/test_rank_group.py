"""Kernels that two real processes launch together, and what the group makes of one that fails."""

import os
import signal
from collections.abc import Mapping
from pathlib import Path

import psutil
import pytest

from roofwatch import UnsupportedError
from roofwatch.collector.runs.measure import measure
from roofwatch.collector.runs.run_plan import RunPlan
from roofwatch.collector.timing.stopwatch import Ranks
from roofwatch.collector.workers.fork_server import ForkServer
from roofwatch.collector.workers.worker import combined
from roofwatch.collector.workers.worker_pool import WorkerPool
from roofwatch.model import worker_protocol as protocol
from roofwatch.model.machine import Outcome
from roofwatch.model.measurement import Measurement
from roofwatch.model.timing_method import SamplingPlan
from roofwatch.model.worker_protocol import (
    CheckAccuracy,
    Checked,
    Failure,
    Reply,
    WorkerSettings,
)
from tests.builders import make_check_report, make_tensor_report
from tests.collector.conftest import NotingForkServer, by_kernel, suite_of

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("forked_servers")]

SUITE = suite_of("bench_ranks.py")
QUICK = SamplingPlan(warmup_ms=1, budget_ms=2, max_samples=20)


def case_id(kernel: str) -> str:
    return f"{kernel}/ranks=2,n=64/float32/fwd"


@pytest.fixture(scope="module")
def measured(fork_server: ForkServer) -> Mapping[str, Measurement]:
    """By kernel."""
    plan = RunPlan(device="cpu", targets=(), block_count=2, sampling=QUICK, timeout_s=8)
    (record,) = measure([SUITE], plan, fork_server=fork_server)
    return by_kernel(record)


def test_a_failing_rank_fails_only_its_case(measured: Mapping[str, Measurement]) -> None:
    assert {kernel: measurement.outcome for kernel, measurement in measured.items()} == {
        "raises": Outcome.CRASHED,
        "leaves": Outcome.CRASHED,
        "aborts": Outcome.CRASHED,
        "hangs": Outcome.TIMED_OUT,
        "exhausts_memory": Outcome.OUT_OF_MEMORY,
        "wrong_on_rank_1": Outcome.INCORRECT,
        "unsupported": Outcome.UNSUPPORTED,
        "takes_longer_on_rank_1": Outcome.OK,
        "works": Outcome.OK,
        "alone": Outcome.OK,
    }


def test_the_message_of_a_failure_names_its_rank(measured: Mapping[str, Measurement]) -> None:
    messages = {kernel: measurement.message or "" for kernel, measurement in measured.items()}
    assert messages["raises"].startswith("rank 1: ValueError: no such luck (bench_ranks.py:")
    assert "rank 1: the process ended: exit status 3" in messages["leaves"]
    assert "rank 1: the process ended: killed by SIGABRT" in messages["aborts"]
    assert "not done after 8 s" in messages["hangs"]
    assert "rank 1: out: " in messages["wrong_on_rank_1"]
    assert messages["unsupported"] == "UnsupportedError: needs something else"


def test_a_sample_is_the_time_of_the_slowest_rank(measured: Mapping[str, Measurement]) -> None:
    slowest_ns = [
        ns for block in measured["takes_longer_on_rank_1"].blocks for ns in block.samples_ns
    ]
    assert min(slowest_ns) >= 5e6  # which rank 1 sleeps


def test_a_rank_that_dies_between_two_jobs_fails_only_the_second(
    fork_server: NotingForkServer,
) -> None:
    job = CheckAccuracy(case_id=case_id("works"), implementation="torch", rank_count=2)
    settings = WorkerSettings(source=SUITE.source, device="cpu")
    with WorkerPool(fork_server, settings) as workers:
        replies = [workers.request(job, timeout_s=60)]
        os.kill(fork_server.pids[-1], signal.SIGKILL)
        while psutil.Process(fork_server.pids[-1]).status() != psutil.STATUS_ZOMBIE:
            pass
        replies += [workers.request(job, timeout_s=60) for _ in range(2)]
    assert [reply.checked is not None for reply in replies] == [True, False, True]
    assert replies[1].failure is not None
    assert "killed by SIGKILL" in replies[1].failure.message


def test_a_worker_alone_refuses_what_needs_two_ranks(fork_server: ForkServer) -> None:
    with WorkerPool(fork_server, WorkerSettings(source=SUITE.source, device="cpu")) as workers:
        reply = workers.request(
            CheckAccuracy(case_id=case_id("works"), implementation="torch"), timeout_s=60
        )
    assert reply.failure is not None
    assert reply.failure.outcome is Outcome.UNSUPPORTED
    assert "needs 2 ranks" in reply.failure.message


@pytest.mark.parametrize(
    ("patched", "value", "message"),
    [
        ("torch.cuda.device_count", 1, "needs 2 GPUs, one per rank; torch sees 1"),
        ("torch.distributed.is_nccl_available", False, "needs NCCL"),
        ("torch.distributed.is_available", False, "needs torch.distributed"),
    ],
)
def test_ranks_that_a_machine_cannot_run_are_unsupported(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, patched: str, value: object, message: str
) -> None:
    monkeypatch.setattr("torch.distributed.is_nccl_available", lambda: True)
    monkeypatch.setattr(patched, lambda: value)
    place = protocol.RankPlace(index=0, count=2, rendezvous=tmp_path / "rendezvous")
    with pytest.raises(UnsupportedError, match=message):
        Ranks(place, "cuda").join()


def checked(rmse_ratio: float, **report: object) -> Reply:
    tensor = make_tensor_report(errors={"rmse_ratio": rmse_ratio, "elementwise": 0.0})
    return Reply(checked=Checked(report=make_check_report(tensors=(tensor,), **report), layouts=()))


def test_the_accuracy_of_a_group_is_that_of_its_worst_rank() -> None:
    good, worse, wrong = (
        checked(1e-7),
        checked(1e-6),
        checked(1e-8, outcome="incorrect", message="out: wrong"),
    )
    assert combined({1: good, 0: worse}, 2) == worse
    found = combined({0: worse, 1: wrong, 2: good}, 3).checked
    assert found is not None
    assert (found.report.outcome, found.report.message) == (Outcome.INCORRECT, "rank 1: out: wrong")


def test_the_first_rank_to_fail_decides_the_outcome() -> None:
    exhausted = Reply(failure=Failure(outcome=Outcome.OUT_OF_MEMORY, message="no memory"))
    left_alone = Reply(failure=Failure(outcome=Outcome.CRASHED, message="connection closed"))
    failure = combined({2: exhausted, 0: left_alone, 1: left_alone}, 3).failure
    assert failure == Failure(
        outcome=Outcome.OUT_OF_MEMORY, message="rank 2: no memory; ranks 0, 1: connection closed"
    )


def test_ranks_without_a_gpu_each_are_refused_before_a_process_starts() -> None:
    job = CheckAccuracy(
        case_id=case_id("works"),
        implementation="torch",
        rank_count=2,
    )
    settings = WorkerSettings(source=SUITE.source, device="cuda", thread_count=1)
    with NotingForkServer() as fork_server, WorkerPool(fork_server, settings) as workers:
        workers.gpu_count = 1

        reply = workers.request(job, timeout_s=60)

    assert reply.failure is not None
    assert reply.failure.outcome is Outcome.UNSUPPORTED
    assert reply.failure.message == "needs 2 GPUs, one per rank; torch sees 1"
    assert fork_server.pids == []

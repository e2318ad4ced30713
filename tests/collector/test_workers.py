"""Parallel checks, also of a run that is cancelled, and the processes that blocks come from."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from roofwatch.collector.device.device_session import DeviceSession
from roofwatch.collector.outbox.journal import ALONE, Journal, make_header
from roofwatch.collector.record.machine import Outcome
from roofwatch.collector.run import measure
from roofwatch.collector.run_plan import Progress, RunPlan, Steps
from roofwatch.collector.suite import SuiteAt, SuiteSource
from roofwatch.collector.suite_run import SuiteRun
from roofwatch.collector.timing.method import SamplingPlan
from roofwatch.collector.workers.fork_server import ForkServer
from roofwatch.collector.workers.protocol import CheckAccuracy, Subject, TimeBlock, WorkerSettings
from roofwatch.collector.workers.worker_pool import WorkerPool
from tests.builders import make_commit
from tests.collector.conftest import NotingForkServer
from tests.roofwatch.command import SUITES

pytestmark = pytest.mark.usefixtures("forked_servers")

SUITE = """
import os
import time
from pathlib import Path

import plus_one

FOLDER = Path(__file__).parent


def declare(name, launch):
    def noting(x):
        with (FOLDER / name).open("a") as called:
            called.write(f"{os.getpid()}\\n")
        if name != "first" and (FOLDER / "others_hang").exists():
            time.sleep(60)
        return launch(x)

    return plus_one.declare(name, noting)


def lack_memory_beside_others(x):
    if len(set((FOLDER / "large").read_text().split())) == 1:
        raise MemoryError("the neighbours have it")
    return x + 1


first = declare("first", lambda x: x + 1)
second = declare("second", lambda x: x + 1)
large = declare("large", lack_memory_beside_others)
"""


def subject_of(kernel: str) -> Subject:
    return Subject(f"{kernel}/n=64/float32/fwd", "torch")


@pytest.fixture
def suite(tmp_path: Path) -> SuiteSource:
    (tmp_path / "bench_noting.py").write_text(SUITE)
    return SuiteSource(tmp_path / "bench_noting.py", (SUITES,))


def callers(suite: SuiteSource, kernel: str) -> set[str]:
    """IDs of the processes that called a kernel."""
    assert suite.path is not None
    return set((suite.path.parent / kernel).read_text().split())


def test_a_parallel_check_that_lacks_memory_is_repeated_alone_and_blocks_come_from_the_process_of_the_check(
    suite: SuiteSource, fork_server: ForkServer
) -> None:
    subjects = {kernel: subject_of(kernel) for kernel in ("large", "first", "second")}
    with WorkerPool(fork_server, WorkerSettings(source=suite, device="cpu")) as workers:
        jobs = [CheckAccuracy(**subject.named) for subject in subjects.values()]
        checked = workers.do_all(jobs, worker_count=2, timeout_s=60)
        outcomes = {job.subject: reply.checked and reply.checked.report.outcome for job, reply in checked}
        for subject in subjects.values():
            job = TimeBlock(**subject.named, plan=SamplingPlan(warmup_ms=0, budget_ms=1))
            assert workers.request(job, timeout_s=60).block is not None

    assert outcomes == dict.fromkeys(subjects.values(), Outcome.OK)
    assert {kernel: len(callers(suite, kernel)) for kernel in subjects} == {"large": 2, "first": 1, "second": 1}


def test_every_block_may_come_from_a_fresh_process(suite: SuiteSource, fork_server: ForkServer) -> None:
    sampling = SamplingPlan(warmup_ms=0, budget_ms=1)
    plan = RunPlan(kernels=("first",), device="cpu", targets=(), block_count=3, sampling=sampling)
    fresh = replace(plan, has_fresh_processes=True)
    (record,) = measure([SuiteAt(suite, make_commit(), "example")], fresh, fork_server=fork_server)

    assert len(record.measurements[0].blocks) == 3
    assert len(callers(suite, "first")) == 4


class CancelledError(Exception):
    """The caller no longer wants the run."""


def test_a_cancelled_run_keeps_its_checks_and_leaves_no_process(
    suite: SuiteSource, fork_server: NotingForkServer, tmp_path: Path
) -> None:
    plan = RunPlan(device="cpu", targets=(), block_count=1)
    own = SuiteAt(suite, make_commit(), "example")
    path, header = tmp_path / "journal", make_header({ALONE: own}, plan)
    settings = WorkerSettings(source=suite, device="cpu", thread_count=1)
    steps: list[str] = []

    def check(journal: Journal, on_step: Callable[[str], None]) -> None:
        def on_progress(now: Progress) -> None:
            if now.done:
                on_step(now.text)

        with WorkerPool(fork_server, settings) as workers:
            run = SuiteRun(own, plan, workers, DeviceSession(), Steps(on_progress), journal)
            run.load()
            run.check(workers, run.to_check, worker_count=2)

    def cancel(_step: str) -> None:
        raise CancelledError

    fork_server.pids.clear()
    (tmp_path / "others_hang").touch()
    with Journal(path, header) as journal, pytest.raises(CancelledError):
        check(journal, cancel)
    assert len(fork_server.pids) == 3, "one to load the suite, two to check"
    assert [pid for pid in fork_server.pids if Path(f"/proc/{pid}").exists()] == []

    (tmp_path / "others_hang").unlink()
    with Journal(path, header, is_resumed=True) as journal:
        check(journal, steps.append)
        accuracies = [entry.accuracy for entry in journal.entries() if entry.accuracy is not None]
    assert len(steps) == 3
    assert accuracies[0].case_id == subject_of("first").case_id
    assert [accuracy.outcome for accuracy in accuracies] == [Outcome.OK] * 3
    assert len(callers(suite, "first")) == 1, "not checked again"

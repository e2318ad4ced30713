"""Checks side by side, and what is timed where it was checked."""

from pathlib import Path

import pytest

from roofwatch.collector.run_plan import Subject
from roofwatch.collector.suite import SuiteSource
from roofwatch.collector.timing.method import SamplingPlan
from roofwatch.collector.workers.fork_server import ForkServer
from roofwatch.collector.workers.protocol import TimeBlock, WorkerSettings
from roofwatch.collector.workers.worker_pool import WorkerPool

pytestmark = pytest.mark.usefixtures("forked_servers")

SUITE = """
import os
from pathlib import Path

from roofwatch import KernelSpec, cases

FOLDER = Path(__file__).parent


def declare(name, launch):
    spec = KernelSpec(
        name=name,
        inputs=lambda case, make: {"x": make.normal(case["n"])},
        reference=lambda x: x + 1,
        cases=cases(shapes=[{"n": 64}], directions=["fwd"]),
        flop_count=lambda case: case["n"],
        memory_bytes=lambda case: 8 * case["n"],
    )

    @spec.implementation("torch")
    def eager(x):
        with (FOLDER / name).open("a") as called:
            called.write(f"{os.getpid()}\\n")
        return launch(x)

    return spec


def lack_memory_beside_others(x):
    if len(set((FOLDER / "large").read_text().split())) == 1:
        raise MemoryError("the neighbours have it")
    return x + 1


first = declare("first", lambda x: x + 1)
second = declare("second", lambda x: x + 1)
large = declare("large", lack_memory_beside_others)
"""


def subject_of(kernel: str) -> Subject:
    return Subject(f"{kernel}/n=64/float32/fwd", "eager")


def test_checks_side_by_side_are_timed_where_they_were_made_and_what_lacked_memory_is_checked_alone(
    tmp_path: Path,
) -> None:
    (tmp_path / "bench_noting.py").write_text(SUITE)
    kernels = ("large", "first", "second")
    with (
        ForkServer() as fork_server,
        WorkerPool(
            fork_server, WorkerSettings(source=SuiteSource(tmp_path / "bench_noting.py"), device="cpu")
        ) as workers,
    ):
        rank_counts = {subject_of(kernel): 1 for kernel in kernels}
        replies = dict(workers.check_all(rank_counts, worker_count=2, timeout_s=60))
        blocks = [
            workers.request(
                TimeBlock(**subject_of(kernel).named, plan=SamplingPlan(warmup_ms=0, budget_ms=1)), timeout_s=60
            ).block
            for kernel in kernels
        ]
    callers = {kernel: set((tmp_path / kernel).read_text().split()) for kernel in kernels}

    assert {subject: reply.accuracy and reply.accuracy.outcome for subject, reply in replies.items()} == {
        subject_of(kernel): "ok" for kernel in kernels
    }
    assert None not in blocks
    assert {kernel: len(pids) for kernel, pids in callers.items()} == {"large": 2, "first": 1, "second": 1}

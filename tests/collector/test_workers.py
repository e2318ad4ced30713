"""Worker processes: parallel and cancelled checks, blocks, and kernels that really crash, hang and
exhaust memory.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from roofwatch.collector.device.device_session import DeviceSession
from roofwatch.collector.runs.journal import ALONE, Journal, make_header
from roofwatch.collector.runs.measure import measure
from roofwatch.collector.runs.run_plan import Progress, RunPlan, Steps
from roofwatch.collector.runs.suite_run import SuiteRun
from roofwatch.collector.suite import SuiteAt
from roofwatch.collector.workers.fork_server import ForkServer
from roofwatch.collector.workers.worker import Worker
from roofwatch.collector.workers.worker_pool import WorkerPool
from roofwatch.model.errors import SuiteError
from roofwatch.model.machine import Outcome
from roofwatch.model.suite_source import SuiteSource
from roofwatch.model.timing_method import SamplingPlan
from roofwatch.model.worker_mode import Mode
from roofwatch.model.worker_protocol import (
    CheckAccuracy,
    CompileStatic,
    Subject,
    TimeBlock,
    WorkerSettings,
)
from tests.builders import make_commit
from tests.collector.conftest import SUITES, NotingForkServer, by_kernel, suite_of

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


def test_only_a_parallel_check_that_lacks_memory_needs_a_second_process(
    suite: SuiteSource, fork_server: ForkServer
) -> None:
    subjects = {kernel: subject_of(kernel) for kernel in ("large", "first", "second")}
    with WorkerPool(fork_server, WorkerSettings(source=suite, device="cpu")) as workers:
        jobs = [CheckAccuracy(**subject.named) for subject in subjects.values()]
        checked = workers.do_all(jobs, worker_count=2, timeout_s=60)
        outcomes = {
            job.subject: reply.checked and reply.checked.report.outcome for job, reply in checked
        }
        for subject in subjects.values():
            job = TimeBlock(**subject.named, plan=SamplingPlan(warmup_ms=0, budget_ms=1))
            assert workers.request(job, timeout_s=60).block is not None

    assert outcomes == dict.fromkeys(subjects.values(), Outcome.OK)
    assert {kernel: len(callers(suite, kernel)) for kernel in subjects} == {
        "large": 2,
        "first": 1,
        "second": 1,
    }


def test_every_block_may_come_from_a_fresh_process(
    suite: SuiteSource, fork_server: ForkServer
) -> None:
    sampling = SamplingPlan(warmup_ms=0, budget_ms=1)
    plan = RunPlan(kernels=("first",), device="cpu", targets=(), block_count=3, sampling=sampling)
    for chosen, process_count in ((plan, 1), (replace(plan, has_fresh_processes=True), 1 + 4)):
        (record,) = measure(
            [SuiteAt(suite, make_commit(), "example")], chosen, fork_server=fork_server
        )

        assert len(record.measurements[0].blocks) == 3
        assert len(callers(suite, "first")) == process_count


def test_progress_names_each_check_when_it_begins(
    suite: SuiteSource, fork_server: ForkServer
) -> None:
    jobs = [CheckAccuracy(**subject_of(kernel).named) for kernel in ("first", "second")]
    events: list[str] = []
    with WorkerPool(fork_server, WorkerSettings(source=suite, device="cpu")) as workers:
        replies = workers.do_all(
            jobs,
            worker_count=1,
            timeout_s=60,
            on_begin=lambda subject: events.append(f"begin {subject.case_id}"),
        )
        for job, _ in replies:
            events.append(f"end {job.case_id}")

    first, second = (job.case_id for job in jobs)
    assert events == [f"begin {first}", f"end {first}", f"begin {second}", f"end {second}"]


class CancelledError(Exception):
    """The caller no longer wants the run."""


def test_a_cancelled_run_keeps_its_checks_when_its_processes_are_gone(
    suite: SuiteSource, fork_server: NotingForkServer, tmp_path: Path
) -> None:
    plan = RunPlan(device="cpu", targets=(), block_count=1)
    own = SuiteAt(suite, make_commit(), "example")
    path, header = tmp_path / "journal", make_header({ALONE: own}, plan)
    settings = WorkerSettings(source=suite, device="cpu", thread_count=1)
    steps: list[str] = []

    def check(journal: Journal, on_step: Callable[[str], None]) -> None:
        done_counts = [0]

        def on_progress(now: Progress) -> None:
            if now.done > done_counts[-1]:
                done_counts.append(now.done)
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


QUICK = SamplingPlan(warmup_ms=1, budget_ms=2, max_samples=20)


@pytest.mark.slow
def test_the_next_kernel_is_measured_after_every_kind_of_failure(
    fork_server: ForkServer,
) -> None:
    plan = RunPlan(targets=("sm_90",), block_count=1, sampling=QUICK, timeout_s=25)
    (record,) = measure([suite_of("bench_failing.py")], plan, fork_server=fork_server)

    measured = by_kernel(record)
    assert {kernel: measurement.outcome for kernel, measurement in measured.items()} == {
        "raises": Outcome.CRASHED,
        "segfault": Outcome.CRASHED,
        "aborts": Outcome.CRASHED,
        "leaves": Outcome.CRASHED,
        "hangs": Outcome.TIMED_OUT,
        "exhausts_memory": Outcome.OUT_OF_MEMORY,
        "wrong_shape": Outcome.INCORRECT,
        "not_a_tensor": Outcome.INCORRECT,
        "gives_nan": Outcome.INCORRECT,
        "gives_garbage": Outcome.INCORRECT,
        "gives_zeros": Outcome.INCORRECT,
        "changes_input": Outcome.INCORRECT,
        "unsupported": Outcome.UNSUPPORTED,
        # the interpreter finds out by the assertion that stops the compiler
        "uncompilable": Outcome.CRASHED,
        "too_fast": Outcome.INVALID,
        "works": Outcome.OK,
    }
    messages = {kernel: measurement.message or "" for kernel, measurement in measured.items()}
    assert "SIGSEGV" in messages["segfault"]
    assert "SIGABRT" in messages["aborts"]
    assert "exit status 0" in messages["leaves"]
    assert "not done after 25 s" in messages["hangs"]
    assert "(128,)" in messages["wrong_shape"]
    assert "(64,)" in messages["wrong_shape"]
    assert "64 of 64 elements are NaN" in messages["gives_nan"]
    assert "changes its input x" in messages["changes_input"]
    assert "faster than the compute ceiling" in messages["too_fast"]
    (fact,) = record.static_facts
    assert fact.outcome is Outcome.COMPILE_ERROR
    assert "blocks of seven" in (fact.message or "")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("raise ValueError('no such shape')", "line 1: ValueError: no such shape"),
        ("x = (", "SyntaxError"),
        ("import sys; sys.exit(3)", "SystemExit: 3"),
        ("import os; os._exit(3)", "exit status 3"),
        ("x = 1", "declares no kernel"),
        ("import roofwatch\nroofwatch.KernelSpecs", "no attribute 'KernelSpecs'"),
    ],
)
def test_a_suite_that_cannot_be_loaded_is_explained(
    fork_server: ForkServer, tmp_path: Path, text: str, expected: str
) -> None:
    file = tmp_path / "bench_broken.py"
    file.write_text(text)
    with (
        Worker(fork_server, WorkerSettings(source=SuiteSource(file))) as worker,
        pytest.raises(SuiteError) as caught,
    ):
        worker.start()
    assert str(file) in str(caught.value)
    assert expected in str(caught.value)


TUTORIAL = """
import torch
import triton
import triton.language as tl
from roofwatch import KernelSpec, cases

DEVICE = triton.runtime.driver.active.get_active_torch_device()
copy = KernelSpec(
    name="copy",
    inputs=lambda case, make: {"x": make.normal(case["n"])},
    reference=lambda x: x.clone(),
    cases=cases(shapes=[{"n": 64}], dtypes=["float32"]),
    flop_count=lambda case: 0,
    memory_bytes=lambda case: 8 * case["n"],
)

@triton.jit
def copy_kernel(x_ptr, y_ptr, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    tl.store(y_ptr + offs, tl.load(x_ptr + offs))

@copy.implementation("triton")
def launch(x):
    assert x.device == DEVICE
    y = torch.empty_like(x)
    copy_kernel[(1,)](x, y, BLOCK=64)
    return y
"""


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU answers itself")
def test_a_tutorial_that_asks_for_the_device_at_import_loads_without_a_gpu(
    fork_server: ForkServer, tmp_path: Path
) -> None:
    file = tmp_path / "bench_tutorial.py"
    file.write_text(TUTORIAL)
    with Worker(fork_server, WorkerSettings(source=SuiteSource(file))) as worker:
        assert [kernel.name for kernel in worker.start().kernels] == ["copy"]

    file.write_text(TUTORIAL + "launch(torch.rand(64, device=DEVICE))\n")
    with (
        Worker(fork_server, WorkerSettings(source=SuiteSource(file))) as worker,
        pytest.raises(SuiteError) as caught,
    ):
        worker.start()
    launched_at = len(TUTORIAL.splitlines()) + 1
    assert f"line {launched_at}: " in str(caught.value)
    assert 'below `if __name__ == "__main__":`' in str(caught.value)


def test_a_process_is_replaced_after_a_failed_block(
    fork_server: ForkServer, tmp_path: Path
) -> None:
    """After a failed capture, torch's allocator believes that it goes on, and fails whatever comes
    next.
    """
    good = (SUITES / "bench_good.py").read_text()
    assert good.count("return x * 3") == 1
    file = tmp_path / "bench_unsupported.py"
    file.write_text(
        good.replace("return x * 3", "import os; raise NotImplementedError(os.getpid())")
    )
    subject = {"case_id": "scale/n=1000/float32/fwd", "implementation": "torch"}
    for job, process_count in (
        (CheckAccuracy(**subject), 1),
        (TimeBlock(**subject, plan=QUICK), 2),
    ):
        with Worker(fork_server, WorkerSettings(source=SuiteSource(file), device="cpu")) as worker:
            failures = [worker.request(job, timeout_s=60).failure for _ in range(2)]
        assert [failure and failure.outcome for failure in failures] == [Outcome.UNSUPPORTED] * 2
        assert (
            len({failure.message for failure in failures if failure is not None}) == process_count
        )


@pytest.mark.slow
def test_a_repository_with_packages_named_like_ours_finds_its_own(
    fork_server: ForkServer, tmp_path: Path
) -> None:
    for package in ("kernels", "db", "ci", "dashboard", "api", "tests"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").write_text(f"NAME = 'the user\\'s {package}'\n")
    (tmp_path / "kernels" / "spec.py").write_text("FACTOR = 3\n")
    lines = [
        f"import {name}; assert {name}.NAME.startswith('the user')"
        for name in ("kernels", "db", "ci", "api")
    ]
    good = (SUITES / "bench_good.py").read_text().replace("return x * 3", "return x * FACTOR")
    file = tmp_path / "bench_own.py"
    file.write_text("\n".join([*lines, "from kernels.spec import FACTOR", good]))

    (record,) = measure(
        [SuiteAt(SuiteSource(file, (tmp_path,)), make_commit(), "own")],
        RunPlan(targets=("sm_90",), block_count=1, sampling=QUICK),
        fork_server=fork_server,
    )
    assert {m.outcome for m in record.measurements if m.implementation == "torch"} == {Outcome.OK}


def test_a_file_inside_a_package_may_import_relatively(
    fork_server: ForkServer, tmp_path: Path
) -> None:
    package = tmp_path / "model" / "benchmarks"
    package.mkdir(parents=True)
    (tmp_path / "model" / "__init__.py").touch()
    (package / "__init__.py").touch()
    (tmp_path / "model" / "layers.py").write_text("FACTOR = 3\n")
    good = (SUITES / "bench_good.py").read_text()
    (package / "bench_model.py").write_text("from ..layers import FACTOR\n" + good)
    with Worker(
        fork_server, WorkerSettings(source=SuiteSource(package / "bench_model.py"))
    ) as worker:
        assert [kernel.name for kernel in worker.start().kernels] == ["scale", "total"]


TRITON_CASE = {"case_id": "scale/n=1000/float32/fwd", "implementation": "triton"}


@pytest.mark.slow
def test_triton_code_is_checked_in_the_interpreter(fork_server: ForkServer) -> None:
    source = SuiteSource(SUITES / "bench_good.py")
    settings = WorkerSettings(source=source, mode=Mode.INTERPRETER, device="cpu")
    with Worker(fork_server, settings) as interpreter:
        checked = interpreter.request(CheckAccuracy(**TRITON_CASE), timeout_s=60).checked
    assert checked is not None
    assert (checked.report.outcome, checked.report.executor) == (Outcome.OK, "interpreter")


@pytest.mark.slow
def test_triton_code_is_compiled_but_never_timed_without_a_gpu(fork_server: ForkServer) -> None:
    source = SuiteSource(SUITES / "bench_good.py")
    with Worker(fork_server, WorkerSettings(source=source, device="cpu")) as worker:
        job = CompileStatic(**TRITON_CASE, targets=("sm_80", "gfx942"))
        compiled = worker.request(job, timeout_s=60)
        timed = worker.request(TimeBlock(**TRITON_CASE, plan=QUICK), timeout_s=60)
    assert [fact.target for fact in compiled.static_facts or ()] == ["sm_80", "gfx942"]
    assert timed.failure is not None
    assert timed.failure.outcome is Outcome.UNSUPPORTED

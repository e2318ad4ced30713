"""A run that is stopped while checks go side by side: what was checked is kept, and no process is left over."""

import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from roofwatch.collector.outbox.journal import ALONE, Journal, make_header
from roofwatch.collector.run_plan import RunPlan
from roofwatch.collector.suite import SuiteAt, SuiteSource
from roofwatch.collector.suite_run import SuiteRun
from roofwatch.collector.workers.fork_server import ForkServer
from roofwatch.collector.workers.protocol import WorkerSettings
from roofwatch.collector.workers.worker_pool import WorkerPool
from roofwatch.terminal import stop_on_sigterm
from tests.builders import make_commit
from tests.collector.conftest import NotingForkServer

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("forked_servers")]

PLAN = RunPlan(device="cpu", targets=(), block_count=1)
SUITE = """
import os
import time
from pathlib import Path

from roofwatch import KernelSpec, cases

FOLDER = Path(__file__).parent


def wait_until_the_run_is_stopped():
    while "first/" not in (FOLDER / "journal").read_text():
        time.sleep(0.001)
    number, pid = map(int, (FOLDER / "stop").read_text().split())
    try:
        os.close(os.open(FOLDER / "stopped", os.O_CREAT | os.O_EXCL))
        if number:
            os.kill(pid, number)
    except FileExistsError:
        pass
    time.sleep(60)  # the run ends this process


def declare(name):
    def inputs(case, make):
        with (FOLDER / "checked").open("a") as checked:
            checked.write(f"{name}\\n")
        if name != "first" and (FOLDER / "stop").exists():
            wait_until_the_run_is_stopped()
        return {"x": make.normal(case["n"])}

    spec = KernelSpec(
        name=name,
        inputs=inputs,
        reference=lambda x: x + 1,
        cases=cases(shapes=[{"n": 64}], directions=["fwd"]),
        flop_count=lambda case: case["n"],
        memory_bytes=lambda case: 8 * case["n"],
    )
    spec.implementation("torch")(lambda x: x + 1)
    return spec


first = declare("first")
second = declare("second")
third = declare("third")
"""


class CancelledError(Exception):
    """Whoever asked for the run no longer wants it."""


@pytest.fixture
def suite(tmp_path: Path) -> Iterator[SuiteAt]:
    (tmp_path / "bench_waiting.py").write_text(SUITE)
    handler = signal.getsignal(signal.SIGTERM)
    stop_on_sigterm()
    yield SuiteAt(SuiteSource(tmp_path / "bench_waiting.py"), make_commit(), "example")
    signal.signal(signal.SIGTERM, handler)


def check(suite: SuiteAt, fork_server: ForkServer, journal: Journal, *, is_cancelled: bool = False) -> int:
    """Check all cases with two workers, and return the number of finished steps."""
    steps: list[str] = []

    def on_step(text: str) -> None:
        steps.append(text)
        if is_cancelled:
            raise CancelledError

    run = SuiteRun(suite.source, PLAN, journal)
    with WorkerPool(fork_server, WorkerSettings(source=suite.source, device="cpu", thread_count=1)) as workers:
        run.select(workers.start())
        run.check(workers, run.to_check, on_step, worker_count=2)
    return len(steps)


def checked_in(folder: Path) -> Counter[str]:
    return Counter((folder / "checked").read_text().split())


@pytest.mark.parametrize(
    ("number", "error"),
    [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit), (0, CancelledError)],
    ids=["Ctrl-C", "SIGTERM", "the caller cancels"],
)
def test_a_stopped_run_keeps_its_checks_and_leaves_no_process(
    suite: SuiteAt, fork_server: NotingForkServer, tmp_path: Path, number: int, error: type[BaseException]
) -> None:
    path = tmp_path / "journal"
    header = make_header({ALONE: suite}, PLAN)
    (tmp_path / "stop").write_text(f"{int(number)} {os.getpid()}")
    fork_server.pids.clear()

    with Journal(path, header) as journal, pytest.raises(error):
        check(suite, fork_server, journal, is_cancelled=number == 0)

    begun = checked_in(tmp_path)
    assert len(fork_server.pids) == 3, "one to load the suite, two to check"
    assert [pid for pid in fork_server.pids if Path(f"/proc/{pid}").exists()] == []
    assert begun["first"] == 1
    assert b"crashed" not in path.read_bytes(), "that a process was ended says nothing about its kernel"

    (tmp_path / "stop").unlink()
    with Journal(path, header, is_resumed=True) as journal:
        kept = [entry.accuracy.case_id for entry in journal.entries() if entry.accuracy is not None]
        step_count = check(suite, fork_server, journal)
        known = [entry.accuracy for entry in journal.entries() if entry.accuracy is not None]
    assert kept == ["first/n=64/float32/fwd"]
    assert step_count == 3
    assert checked_in(tmp_path) - begun == {"second": 1, "third": 1}, "first was checked before"
    assert {str(accuracy.outcome) for accuracy in known} == {"ok"}

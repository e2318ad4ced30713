"""The processes that fork workers: one that loads torch, and the interpreter's, forked from it."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from roofwatch.collector.workers.fork_server import ForkServer
from roofwatch.collector.workers.worker import Worker
from roofwatch.model.errors import CollectorError
from roofwatch.model.suite_source import SuiteSource
from roofwatch.model.worker_mode import Mode
from roofwatch.model.worker_protocol import WorkerSettings
from tests.collector.conftest import NotingForkServer

SUITE = """
import triton
from roofwatch import KernelSpec, cases

spec = KernelSpec(
    name="interpreting" if triton.knobs.runtime.interpret else "compiling",
    inputs=lambda case, make: {"x": make.normal(case["n"])},
    reference=lambda x: x,
    cases=cases(shapes=[{"n": 4}], dtypes=["float32"]),
    flop_count=lambda case: 0,
    memory_bytes=lambda case: 0,
)
spec.implementation("torch")(lambda x: x.clone())
"""


@pytest.fixture(scope="module")
def fork_server() -> Iterator[NotingForkServer]:
    with NotingForkServer() as fork_server:
        yield fork_server


def kernel_name(fork_server: ForkServer, folder: Path, mode: Mode) -> str:
    """The name of the suite's kernel, which says whether Triton interprets."""
    file = folder / "bench_modes.py"
    file.write_text(SUITE)
    settings = WorkerSettings(source=SuiteSource(file), mode=mode, device="cpu")
    with Worker(fork_server, settings) as worker:
        (kernel,) = worker.start().kernels
    return kernel.name


def server_of_newest_worker(fork_server: NotingForkServer) -> int:
    status = Path(f"/proc/{fork_server.pids[-1]}/stat").read_text()
    return int(status.rpartition(")")[2].split()[1])


def kill(pid: int) -> None:
    """Kill a process and wait for its end; nobody reaps it here."""
    os.kill(pid, signal.SIGKILL)
    while Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
        time.sleep(0.01)


def test_both_modes_are_served_by_one_process_that_loaded_torch(
    fork_server: NotingForkServer, tmp_path: Path
) -> None:
    assert kernel_name(fork_server, tmp_path, Mode.DEVICE) == "compiling"
    assert kernel_name(fork_server, tmp_path, Mode.INTERPRETER) == "interpreting"
    assert kernel_name(fork_server, tmp_path, Mode.DEVICE) == "compiling"

    sessions: set[int] = set()
    for mode in Mode:
        file = tmp_path / "bench_modes.py"
        settings = WorkerSettings(source=SuiteSource(file), mode=mode, device="cpu")
        with Worker(fork_server, settings) as worker:
            worker.start()
            sessions.add(os.getsid(server_of_newest_worker(fork_server)))
    assert len(sessions) == 1


def test_a_server_that_was_killed_is_replaced_and_the_other_keeps_its_workers(
    fork_server: NotingForkServer, tmp_path: Path
) -> None:
    file = tmp_path / "bench_modes.py"
    file.write_text(SUITE)
    settings = WorkerSettings(source=SuiteSource(file), device="cpu")
    with Worker(fork_server, settings) as on_device:
        on_device.start()
        device_server = server_of_newest_worker(fork_server)
        interpreted = settings.model_copy(update={"mode": Mode.INTERPRETER})
        with Worker(fork_server, interpreted) as interpreter:
            interpreter.start()
            interpreter_server = server_of_newest_worker(fork_server)
        kill(interpreter_server)

        assert kernel_name(fork_server, tmp_path, Mode.INTERPRETER) == "interpreting"
        with Worker(fork_server, settings) as another:
            another.start()
            assert server_of_newest_worker(fork_server) == device_server


def test_what_hinders_torch_from_being_loaded_is_said(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('libtorch is from another year')\n")
    with ForkServer({"PYTHONPATH": str(tmp_path)}) as broken:
        broken.start()
        with pytest.raises(CollectorError, match="libtorch is from another year"):
            broken.finish_start()

"""`roofwatch run --ray` on a local cluster of several nodes; one is killed during the run."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from ray.cluster_utils import Cluster

from roofwatch.collector.runs.journal import journal_path
from roofwatch.model.record import RunRecord
from tests.git_repository import commit_all, make_repository
from tests.roofwatch.command import SUITES, Done, roofwatch
from tests.roofwatch.measurement.test_affected import benchmark_of

pytestmark = pytest.mark.slow

KERNELS = [f"waiting{number}" for number in range(4)]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that all who belong to the cluster know by their environment."""
    return tmp_path_factory.mktemp("spreading")


@pytest.fixture
def folder(place: Path) -> Iterator[Path]:
    """Where the kernels say that they were called, and are let go. The suite that waits there is
    new in `repository`, where another one is committed.
    """
    repository = place / "repository"
    repository.mkdir()
    (repository / "bench_untouched.py").write_text(benchmark_of("untouched"))
    (repository / "untouched.py").write_text("def untouched_times(x):\n    return x * 2.0\n")
    commit_all(make_repository(repository))
    for name in ("bench_waiting.py", "plus_one.py"):
        shutil.copy(SUITES / name, repository)
    yield place
    shutil.rmtree(place)
    place.mkdir()


@pytest.fixture(scope="module")
def nodes(place: Path) -> Iterator[Cluster]:
    """A head that measures nothing; what runs on its nodes has the environment of here."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (
            ("ROOFWATCH_TEST_FOLDER", str(place)),
            ("RAY_USAGE_STATS_ENABLED", "0"),
        ):
            patch.setenv(name, value)
        head: Any = {"num_cpus": 0, "include_dashboard": False}
        made: Any = Cluster(initialize_head=True, connect=False, head_node_args=head)
        yield made
        made.shutdown()


@pytest.fixture
def cluster(nodes: Cluster) -> Cluster:
    """With two nodes of one core each, of which one may be lost."""
    made: Any = nodes
    while len(made.worker_nodes) < 2:
        made.add_node(num_cpus=1)
    return nodes


def start(
    cluster: Cluster, folder: Path, *options: str, suite: str = "bench_waiting.py"
) -> subprocess.Popen[str]:
    arguments = [
        "run",
        suite,
        "--ray",
        cluster.address,
        "--output",
        str(folder / "run.json"),
        *options,
    ]
    return subprocess.Popen(
        [
            sys.executable,
            "-c",
            "from roofwatch.cli.main import main; main()",
            *arguments,
            "--blocks",
            "1",
            "--json",
        ],
        cwd=folder / "repository",
        env={**os.environ, "NO_COLOR": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def cut_power_of(cluster: Cluster, node: Any) -> None:
    """End a node with all that runs on it, at once."""
    raylet = psutil.Process(node.all_processes["raylet"][0].process.pid)
    for process in [raylet, *raylet.children(recursive=True)]:
        process.kill()
    cluster.remove_node(node, allow_graceful=False)


def finish(run: subprocess.Popen[str]) -> Done:
    output, error = run.communicate()
    return Done(run.returncode, output, error)


def calls(folder: Path) -> list[str]:
    noted = folder / "calls"
    return noted.read_text().split() if noted.exists() else []


def let_go(folder: Path, kernels: list[str]) -> None:
    for kernel in kernels:
        (folder / f"go{kernel.removeprefix('waiting')}").touch()


def wait_until(condition: Callable[[], bool], run: subprocess.Popen[str]) -> None:
    while not condition():
        assert run.poll() is None, finish(run).error
        time.sleep(0.02)


def test_work_of_a_lost_node_is_repeated_once_elsewhere(cluster: Cluster, folder: Path) -> None:
    run = start(cluster, folder, "--affected", "--base", "HEAD", suite=".")
    wait_until(lambda: len(calls(folder)) == 2, run)  # each node measures a share
    cut_power_of(cluster, next(iter(cluster.worker_nodes)))
    let_go(folder, KERNELS)
    done = finish(run)

    assert done.status == 0, done.error
    record = RunRecord.read(folder / "run.json")
    assert [case.kernel for case in record.cases] == KERNELS
    assert [measurement.outcome for measurement in record.measurements] == ["ok"] * len(KERNELS)
    assert record.skipped == ("untouched",)
    assert sorted(set(calls(folder))) == KERNELS
    assert len(calls(folder)) > len(KERNELS), "nothing was measured again"
    assert not journal_path(folder / "run.json").exists()


def test_a_killed_run_resumes_with_missing_shares(cluster: Cluster, folder: Path) -> None:
    let_go(folder, KERNELS[:2])
    run = start(cluster, folder)
    journal = journal_path(folder / "run.json")
    wait_until(
        lambda: journal.exists() and journal.read_bytes().count(b"\n") == 3, run
    )  # its header and two shares
    run.send_signal(signal.SIGKILL)
    finish(run)
    let_go(folder, KERNELS)
    again = (
        "run",
        "bench_waiting.py",
        "--ray",
        cluster.address,
        "--output",
        folder / "run.json",
        "--blocks",
        "1",
    )
    refused = roofwatch(
        *again, cwd=folder / "repository"
    )  # before it asks the cluster for anything
    done = finish(start(cluster, folder, "--resume"))

    assert (refused.status, done.status) == (2, 0)
    assert "an unfinished run with 2 results" in refused.error
    assert [case.kernel for case in RunRecord.read(folder / "run.json").cases] == KERNELS
    assert [calls(folder).count(kernel) for kernel in KERNELS[:2]] == [1, 1]

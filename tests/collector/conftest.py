"""Suites of the tests, results by kernel, and a fork server for the tests of each module."""

from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest

from roofwatch.collector.suite import SuiteAt
from roofwatch.collector.workers.fork_server import ForkServer
from roofwatch.model.measurement import Measurement
from roofwatch.model.record import RunRecord
from roofwatch.model.suite_source import SuiteSource
from roofwatch.model.worker_mode import Mode
from tests.builders import make_commit

SUITES = Path(__file__).parents[1] / "suites"


def suite_of(file: str | Path) -> SuiteAt:
    """A file of `tests/suites`, or one at an absolute path, at a commit."""
    return SuiteAt(SuiteSource(SUITES / file), make_commit(), "example")


def by_kernel(record: RunRecord) -> dict[str, Measurement]:
    """Results of kernels that have one case and one implementation each."""
    return {measured.case_id.split("/")[0]: measured for measured in record.measurements}


class NotingForkServer(ForkServer):
    """Remembers the processes that it forks."""

    def __init__(self) -> None:
        super().__init__()
        self.pids: list[int] = []

    def fork_worker(
        self, mode: Mode, fds: tuple[int, int, int], log: IO[bytes], python: Path | None = None
    ) -> int:
        self.pids.append(super().fork_worker(mode, fds, log, python))
        return self.pids[-1]


@pytest.fixture(scope="module")
def fork_server() -> Iterator[NotingForkServer]:
    with NotingForkServer() as fork_server:
        yield fork_server

"""Measure one suite on many machines with Ray."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from roofwatch.collector.cluster.shares import Share, deal, join
from roofwatch.collector.errors import CollectorError
from roofwatch.collector.git import find_repository
from roofwatch.collector.outbox.journal import ALONE, Entry, Journal
from roofwatch.collector.record.record import Commit, RunRecord
from roofwatch.collector.run import OnProgress, Progress, collect_run
from roofwatch.collector.run_plan import HARNESS_VERSION, RunPlan, select
from roofwatch.collector.suite import SuiteAt, SuiteSource, digest_of_own_suite
from roofwatch.collector.workers.fork_server import ForkServer
from roofwatch.collector.workers.protocol import WorkerSettings
from roofwatch.collector.workers.worker import Worker

MAX_RETRIES = 3
"""Retries of a share whose machine was lost."""

_POLL_S = 10.0
_EXCLUDED_FILES = [".git", ".venv", "__pycache__", "*.pyc", "*.journal"]
_SHARES_PER_DEVICE = 4
"""More than one, so that faster devices take more shares and a lost machine loses little."""


@dataclass(frozen=True)
class ShippedSuite:
    """A suite at a commit that can be sent to another machine."""

    folder: Path | None
    """Folder to send; None for the bundled suite, which must be installed there."""
    path: str | None
    import_roots: tuple[str, ...]
    commit: Commit
    project: str
    harness_version: str
    own_suite_digest: str | None
    """Digest of the bundled suite."""

    def unpacked(self, folder: Path) -> SuiteAt:
        """The suite in the folder to which it was sent.

        Raises:
            CollectorError: this machine has another version of roofwatch.
        """
        if self.harness_version != HARNESS_VERSION:
            raise CollectorError(
                f"this machine has roofwatch {HARNESS_VERSION}, the sender {self.harness_version}: install that version"
            )
        if self.path is None:
            if self.own_suite_digest != digest_of_own_suite():
                raise CollectorError("this machine's roofwatch has other kernels: install the same commit of it")
            return SuiteAt(SuiteSource(), self.commit, self.project)
        roots = tuple(folder / root for root in self.import_roots)
        return SuiteAt(SuiteSource(folder / self.path, roots), self.commit, self.project)


def ship(suite: SuiteAt) -> ShippedSuite:
    """Prepare a suite to be sent: with its repository, or with its folder if it has none."""
    path = suite.source.path
    if path is None:
        return ShippedSuite(None, None, (), suite.commit, suite.project, HARNESS_VERSION, digest_of_own_suite())
    folder = (find_repository(path) or (path if path.is_dir() else path.parent)).resolve()
    path_in_folder = path.resolve().relative_to(folder).as_posix()
    roots = tuple(root.resolve().relative_to(folder).as_posix() for root in suite.source.import_roots)
    return ShippedSuite(folder, path_in_folder, roots, suite.commit, suite.project, HARNESS_VERSION, None)


def measure_share(suite: ShippedSuite, plan: RunPlan, share: Share) -> bytes:
    """Measure one share on this machine; return the record as JSON. The suite is in the current folder.

    Raises:
        CollectorError: this machine cannot measure it.
    """
    with ForkServer() as fork_server:
        return collect_run(suite.unpacked(Path.cwd()), share.plan(plan), fork_server=fork_server).to_json()


class Cluster:
    """A connection to a Ray cluster.

    Args:
        address: Address as in `ray.init`: `auto`, `host:port`, or `ray://host:port`.
        suite: The suite to measure; its files are sent to every machine.

    Raises:
        CollectorError: Ray is not installed, or the cluster cannot be reached.
    """

    def __init__(self, address: str, suite: ShippedSuite) -> None:
        try:
            import ray
        except ImportError:
            raise CollectorError("--ray needs Ray: pip install 'roofwatch[ray]'") from None
        self._ray: Any = ray  # mostly untyped
        self._address = address
        self._suite = suite

    def __enter__(self) -> Self:
        environment: dict[str, Any] = {}
        if self._suite.folder is not None:
            environment = {"working_dir": str(self._suite.folder), "excludes": _EXCLUDED_FILES}
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        try:
            self._ray.init(
                address=self._address, runtime_env=environment, log_to_driver=False, logging_level=logging.CRITICAL
            )
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise CollectorError(f"Ray cluster {self._address}: cannot be reached: {_first_line(error)}") from None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ray.shutdown()

    @property
    def has_gpus(self) -> bool:
        return self._gpu_count() > 0

    @property
    def device_count(self) -> int:
        """Number of GPUs; without GPUs, number of machines."""
        return self._gpu_count() or len(self._core_counts())

    def measure(self, plan: RunPlan, shares: Sequence[Share]) -> Iterator[tuple[Share, RunRecord | CollectorError]]:
        """Measure all shares.

        Yields:
            Each share with its record, or the reason why there is none.

        Raises:
            CollectorError: no machine is left.
        """
        task = self._ray.remote(measure_share)
        running = {}
        for share in shares:
            if self.has_gpus:
                needs = {"num_gpus": share.rank_count, "num_cpus": 1}
            else:  # more than half of the smallest machine: never two shares on one
                needs = {"num_cpus": min(self._core_counts()) // 2 + 1}
            options = task.options(
                **needs, max_retries=MAX_RETRIES, retry_exceptions=False, name=f"share {share.number}"
            )
            share_plan = replace(plan, checks_at_once=needs["num_cpus"])
            running[options.remote(self._suite, share_plan, share)] = share
        while running:
            done, _ = self._ray.wait(list(running), timeout=_POLL_S)
            for result in done:
                yield running.pop(result), self._result(result)
            if not done and not self.device_count:
                raise CollectorError(f"Ray cluster {self._address}: no machine is left; {len(running)} shares wait")

    def _result(self, done: Any) -> RunRecord | CollectorError:
        try:
            return RunRecord.from_json(self._ray.get(done), name="a share's record")
        except self._ray.exceptions.RayTaskError as error:
            return CollectorError(str(error.cause))
        except self._ray.exceptions.RayError as error:
            return CollectorError(f"lost with its machine {MAX_RETRIES + 1} times, at last: {_first_line(error)}")

    def _core_counts(self) -> list[int]:
        return [int(resources["CPU"]) for resources in self._resources() if resources.get("CPU")]

    def _gpu_count(self) -> int:
        return sum(int(resources.get("GPU", 0)) for resources in self._resources())

    def _resources(self) -> list[dict[str, float]]:
        """Resources of each machine, by name."""
        return [node["Resources"] for node in self._ray.nodes() if node["Alive"]]


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]


def spread_run(
    suite: SuiteAt, plan: RunPlan, address: str, on_progress: OnProgress = lambda _: None, *, journal: Journal
) -> tuple[RunRecord, ...]:
    """Check, compile and time a suite at one commit on all devices of a Ray cluster.

    Args:
        suite: What to measure.
        plan: The plan of the run.
        address: Address of the cluster, as in `ray.init`.
        on_progress: Called after every share.
        journal: Stores each share's record, and holds those of an interrupted run.

    Returns:
        One record per kind of machine.

    Raises:
        SuiteError: the suite cannot be loaded, or nothing in it matches the plan.
        CollectorError: the cluster has no device, or some shares failed; the journal holds the others.
        JournalError: a result cannot be stored.
    """
    on_progress(Progress(0, 0, "connecting to the cluster"))
    with Cluster(address, ship(suite)) as cluster:
        if not cluster.device_count:
            raise CollectorError(f"Ray cluster {address}: no machine has a free GPU or CPU")
        device = plan.device or ("cuda" if cluster.has_gpus else "cpu")
        plan = replace(plan, device=device, usual_tag=plan.usual_tag or ("quick" if device == "cuda" else "small"))
        settings = WorkerSettings(source=suite.source, device="cpu")
        with ForkServer() as fork_server, Worker(fork_server, settings) as worker:
            selected = select(worker.start(), plan)
        records = [entry.share for entry in journal.entries() if entry.share is not None]
        measured = {case.case_id for record in records for case in record.cases}
        missing = [one for one in selected if one.case.case_id not in measured]
        shares = deal(missing, _SHARES_PER_DEVICE * cluster.device_count)
        where = f"{cluster.device_count} {'GPU' if cluster.has_gpus else 'machine'}(s)"
        on_progress(Progress(0, len(shares), f"measuring on {where}"))
        failures = []
        for done_count, (share, result) in enumerate(cluster.measure(plan, shares), start=1):
            if isinstance(result, CollectorError):
                failures.append(f"{len(share.case_ids)} cases from {share.case_ids[0]}: {result}")
            else:
                journal.append(Entry(share=result))
                records.append(result)
            on_progress(Progress(done_count, len(shares), f"measured {share.case_ids[-1]}"))
    if failures:
        raise CollectorError(f"{len(failures)} of {len(shares)} shares failed: {'; '.join(failures)}")
    position = {one.case.case_id: number for number, one in enumerate(selected)}
    records.sort(key=lambda record: position[record.cases[0].case_id])
    return join(records, journal.header.suites[ALONE].run_id)

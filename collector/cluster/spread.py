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
from roofwatch.collector.run_plan import HARNESS_VERSION, RunPlan, Selected, Selection
from roofwatch.collector.suite import SuiteAt, SuiteSource, digest_of_own_suite
from roofwatch.collector.workers.fork_server import ForkServer
from roofwatch.collector.workers.protocol import WorkerSettings
from roofwatch.collector.workers.worker import Worker


@dataclass(frozen=True)
class ShippedSuite:
    """A suite at a commit, wherever its files are."""

    folder: Path | None
    """What has to travel, on the machine that sends it; None for roofwatch's own suite, which is installed there."""
    path: str | None
    import_roots: tuple[str, ...]
    commit: Commit
    project: str
    harness_version: str
    own_suite_digest: str | None
    """What roofwatch's own suite must be where it is measured."""

    def unpacked(self, folder: Path) -> SuiteAt:
        """The suite on the machine to which it came.

        Args:
            folder: Holds what travelled.

        Raises:
            CollectorError: this machine's roofwatch is not the one that sent it.
        """
        if self.harness_version != HARNESS_VERSION:
            raise CollectorError(
                f"this machine has roofwatch {HARNESS_VERSION} and was asked by {self.harness_version}: install that"
            )
        if self.path is None:
            if self.own_suite_digest != digest_of_own_suite():
                raise CollectorError("this machine's roofwatch has other kernels: install the same commit of it")
            return SuiteAt(SuiteSource(), self.commit, self.project)
        roots = tuple(folder / root for root in self.import_roots)
        return SuiteAt(SuiteSource(folder / self.path, roots), self.commit, self.project)


def ship(suite: SuiteAt) -> ShippedSuite:
    """Say what must travel for a suite to be measured elsewhere: its repository, or where there is none its folder."""
    path = suite.source.path
    if path is None:
        return ShippedSuite(None, None, (), suite.commit, suite.project, HARNESS_VERSION, digest_of_own_suite())
    folder = (find_repository(path) or (path if path.is_dir() else path.parent)).resolve()
    return ShippedSuite(
        folder=folder,
        path=path.resolve().relative_to(folder).as_posix(),
        import_roots=tuple(root.resolve().relative_to(folder).as_posix() for root in suite.source.import_roots),
        commit=suite.commit,
        project=suite.project,
        harness_version=HARNESS_VERSION,
        own_suite_digest=None,
    )


def measure_share(suite: ShippedSuite, plan: RunPlan, share: Share) -> bytes:
    """Measure one share in the current folder, which holds what travelled.

    Returns:
        The record as JSON.

    Raises:
        CollectorError: this machine cannot measure it.
    """
    with ForkServer() as fork_server:
        return collect_run(suite.unpacked(Path.cwd()), share.plan(plan), fork_server=fork_server).to_json()


MAX_RETRIES = 3
"""Times that a share is tried again whose machine was lost."""

_LOOK_EVERY_S = 10.0
_NEVER_SENT = [".git", ".venv", "__pycache__", "*.pyc", "*.journal"]


class Cluster:
    """A connection to a Ray cluster for the time of a `with` block.

    Args:
        address: As `ray.init` has it: `auto`, `host:port`, or `ray://host:port`.
        suite: What will be measured; its files go to every machine that measures.

    Raises:
        CollectorError: Ray is not installed, or no cluster answers there.
    """

    def __init__(self, address: str, suite: ShippedSuite) -> None:
        try:
            import ray
        except ImportError:
            raise CollectorError("--ray needs Ray: pip install 'roofwatch[ray]'") from None
        self._ray: Any = ray  # half of it has no types
        self._address = address
        self._suite = suite

    def __enter__(self) -> Self:
        travelling: dict[str, Any] = {}
        if self._suite.folder is not None:
            travelling = {"working_dir": str(self._suite.folder), "excludes": _NEVER_SENT}
        # nobody's measurements are told to Ray's makers
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        try:
            self._ray.init(
                address=self._address, runtime_env=travelling, log_to_driver=False, logging_level=logging.CRITICAL
            )
        except (ConnectionError, RuntimeError, ValueError) as error:
            first_line = str(error).strip().partition("\n")[0]
            raise CollectorError(f"Ray cluster {self._address}: cannot be reached: {first_line}") from None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # ends what is still being measured, too
        self._ray.shutdown()

    @property
    def has_gpus(self) -> bool:
        return self._gpu_count() > 0

    @property
    def device_count(self) -> int:
        """GPUs; where there are none, machines, since a CPU's cores share what limits them."""
        return self._gpu_count() or len(self._core_counts())

    def measure(self, plan: RunPlan, shares: Sequence[Share]) -> Iterator[tuple[Share, RunRecord | CollectorError]]:
        """Have all shares measured.

        Yields:
            Each share once, as it is done, with its record or the reason why there is none.

        Raises:
            CollectorError: no machine is left.
        """
        task = self._ray.remote(measure_share)
        running = {}
        for share in shares:
            needs = self._needs(share)
            options = task.options(
                **needs, max_retries=MAX_RETRIES, retry_exceptions=False, name=f"share {share.number}"
            )
            # no more processes than Ray has set cores aside for
            there = replace(plan, checks_at_once=needs["num_cpus"])
            running[options.remote(self._suite, there, share)] = share
        while running:
            done, _ = self._ray.wait(list(running), timeout=_LOOK_EVERY_S)
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
            first_line = str(error).strip().partition("\n")[0]
            return CollectorError(f"lost with its machine {MAX_RETRIES + 1} times, at last: {first_line}")

    def _needs(self, share: Share) -> dict[str, Any]:
        if self.has_gpus:
            return {"num_gpus": share.rank_count, "num_cpus": 1}
        # more than half of the smallest machine: no two on one
        return {"num_cpus": min(self._core_counts()) // 2 + 1}

    def _core_counts(self) -> list[int]:
        return [int(resources["CPU"]) for resources in self._resources() if resources.get("CPU")]

    def _gpu_count(self) -> int:
        return sum(int(resources.get("GPU", 0)) for resources in self._resources())

    def _resources(self) -> list[dict[str, float]]:
        """Of each machine that is there, by name."""
        return [node["Resources"] for node in self._ray.nodes() if node["Alive"]]


_SHARES_PER_DEVICE = 4
"""Few enough that starting is a small part of each, enough that a device that is quicker takes more, and that a machine
that is lost costs a fraction of what it was to do."""


def spread_run(
    suite: SuiteAt, plan: RunPlan, address: str, on_progress: OnProgress = lambda _: None, *, journal: Journal
) -> tuple[RunRecord, ...]:
    """Check, compile and time a suite at one commit on all devices of a Ray cluster.

    Args:
        suite: What to measure.
        plan: What of it, and how long.
        address: Of the cluster, as `ray.init` has it.
        on_progress: Called after every share.
        journal: Takes every share's result as it comes, and has those of a run that was cut short.

    Returns:
        A record for each kind of machine that took part.

    Raises:
        SuiteError: the suite cannot be loaded, or nothing in it matches the plan.
        CollectorError: there is no such cluster, or it has nothing to measure on, or some shares came to nothing: what
            the others brought is in the journal.
        JournalError: a result cannot be kept.
    """
    on_progress(Progress(0, 0, "connecting to the cluster"))
    with Cluster(address, ship(suite)) as cluster:
        if not cluster.device_count:
            raise CollectorError(f"Ray cluster {address}: no machine of it has a GPU or a CPU to offer")
        device = plan.device or ("cuda" if cluster.has_gpus else "cpu")
        plan = replace(plan, device=device, usual_tag=plan.usual_tag or ("quick" if device == "cuda" else "small"))
        selected = _selected(suite, plan)
        records = [entry.share for entry in journal.entries() if entry.share is not None]
        measured = {case.case_id for record in records for case in record.cases}
        shares = deal(
            [one for one in selected if one.case.case_id not in measured], _SHARES_PER_DEVICE * cluster.device_count
        )
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
        raise CollectorError(f"{len(failures)} of {len(shares)} shares came to nothing: {'; '.join(failures)}")
    position = {one.case.case_id: number for number, one in enumerate(selected)}
    records.sort(key=lambda record: position[record.cases[0].case_id])
    return join(records, journal.header.suites[ALONE].run_id)


def _selected(suite: SuiteAt, plan: RunPlan) -> tuple[Selected, ...]:
    with ForkServer() as fork_server, Worker(fork_server, WorkerSettings(source=suite.source, device="cpu")) as worker:
        info = worker.start()
    return Selection(plan.kernels, plan.implementations, plan.tags, plan.usual_tag, plan.cases).of(info)

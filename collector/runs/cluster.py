"""Measure one suite on many machines with Ray: split it into shares, and join the records of the
shares.
"""

import glob
import logging
import os
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any

from roofwatch.collector.build.prepare import prepare_suite
from roofwatch.collector.git import find_repository
from roofwatch.collector.runs.case_run import CaseRun, select
from roofwatch.collector.runs.journal import ALONE, Entry, Journal
from roofwatch.collector.runs.measure import measure
from roofwatch.collector.runs.run_plan import HARNESS_VERSION, OnProgress, Progress, RunPlan
from roofwatch.collector.suite import SuiteAt, digest_of_own_suite
from roofwatch.collector.workers.fork_server import ForkServer
from roofwatch.collector.workers.worker import Worker
from roofwatch.model.errors import CollectorError
from roofwatch.model.grouping import group_by
from roofwatch.model.machine import Ceiling, highest_ceilings
from roofwatch.model.record import RunRecord
from roofwatch.model.source_line import SourceLine
from roofwatch.model.suite_source import SuiteSource
from roofwatch.model.worker_protocol import WorkerSettings

MAX_RETRIES = 3
"""Retries of a share whose machine was lost."""

_POLL_S = 10.0
_EXCLUDED_FILES = [".git", ".venv", "__pycache__", "*.pyc", "*.journal"]
_SHARES_PER_DEVICE = 4
"""More than one, so that faster devices take more shares and a lost machine loses little."""


@dataclass(frozen=True)
class Share:
    """Cases that are measured together on one machine."""

    case_ids: tuple[str, ...]
    rank_count: int
    """Devices that it needs."""

    def plan(self, plan: RunPlan) -> RunPlan:
        """The run's plan, limited to these cases."""
        return replace(plan, cases=tuple(glob.escape(case_id) for case_id in self.case_ids))


def deal(selected: Sequence[CaseRun], share_count: int) -> tuple[Share, ...]:
    """Split a suite into shares with about equal numbers of results.

    Cases keep their order, so that most cases of a kernel, which share compilation and tuning, stay
    together. Each share has cases of one rank count, so the number of shares is approximate.
    """
    fair_count = max(1.0, len(selected) / share_count)
    shares: list[Share] = []
    for rank_count in sorted({run.rank_count for run in selected}):
        by_share: dict[int, list[str]] = {}
        total_count = 0
        for case_id, count in Counter(
            run.case.case_id for run in selected if run.rank_count == rank_count
        ).items():
            # a case goes to the share that contains its middle
            middle = total_count + count / 2
            by_share.setdefault(int(middle / fair_count), []).append(case_id)
            total_count += count
        shares += [Share(tuple(case_ids), rank_count) for case_ids in by_share.values()]
    return tuple(shares)


def _own_version() -> str:
    """Version of roofwatch, and a digest of the bundled kernels."""
    return f"{HARNESS_VERSION} {digest_of_own_suite()[:12]}"


@dataclass(frozen=True)
class ShippedSuite:
    """A suite at a commit that can be sent to another machine."""

    suite: SuiteAt
    """Its paths are relative to the folder."""
    folder: Path | None
    """Folder to send; None for the bundled suite, which must be installed there."""
    version: str = field(default_factory=_own_version)

    def unpacked(self, folder: Path) -> SuiteAt:
        """The suite in the folder to which it was sent.

        Raises:
            CollectorError: this machine has another roofwatch.
        """
        if self.version != _own_version():
            raise CollectorError(
                f"this machine has roofwatch {_own_version()}, the sender {self.version}: install "
                f"that commit of it"
            )
        source = self.suite.source
        if source.path is None:
            return self.suite
        tree: Path | None = None
        if source.tree is not None:
            tree = folder
        return replace(self.suite, source=prepare_suite(folder / source.path, tree))


def ship(suite: SuiteAt) -> ShippedSuite:
    """Prepare a suite to be sent: with its repository, or with its folder if it has none."""
    path = suite.source.path
    if path is None:
        return ShippedSuite(replace(suite, source=SuiteSource()), None)
    folder = find_repository(path)
    if folder is None:
        folder = path
        if not path.is_dir():
            folder = path.parent
    folder = folder.resolve()
    tree = None
    if suite.source.root is not None:
        tree = Path()
    source = SuiteSource(path.resolve().relative_to(folder), tree=tree)
    return ShippedSuite(replace(suite, source=source), folder)


def measure_share(suite: ShippedSuite, plan: RunPlan, share: Share) -> bytes:
    """Measure one share on this machine; return the record as JSON. The suite is in the current
    folder.

    Raises:
        CollectorError: this machine cannot measure it.
    """
    with ForkServer() as fork_server:
        (record,) = measure(
            [suite.unpacked(Path.cwd())],
            share.plan(plan),
            fork_server=fork_server,
        )
    return record.to_json()


@dataclass(frozen=True)
class Cluster:
    """A connection to a Ray cluster that has the files of a suite."""

    ray: Any  # mostly untyped
    address: str
    suite: ShippedSuite

    @property
    def has_gpus(self) -> bool:
        return bool(self._counts("GPU"))

    @property
    def device_count(self) -> int:
        """Number of GPUs; without GPUs, number of machines."""
        return sum(self._counts("GPU")) or len(self._counts("CPU"))

    def measure(
        self,
        plan: RunPlan,
        shares: Sequence[Share],
    ) -> Iterator[tuple[Share, RunRecord | CollectorError]]:
        """Measure all shares.

        Yields:
            Each share with its record, or the reason why there is none.

        Raises:
            CollectorError: no machine is left.
        """
        task = self.ray.remote(measure_share)
        running = {}
        for share in shares:
            if self.has_gpus:
                needs = {"num_gpus": share.rank_count, "num_cpus": 1}
            else:  # more than half of the smallest machine: never two shares on one
                needs = {"num_cpus": min(self._counts("CPU")) // 2 + 1}
            options = task.options(
                **needs,
                max_retries=MAX_RETRIES,
                retry_exceptions=False,
                name=share.case_ids[0],
            )
            running[options.remote(self.suite, plan, share)] = share
        while running:
            done, _ = self.ray.wait(list(running), timeout=_POLL_S)
            for result in done:
                yield running.pop(result), self._result(result)
            if not done and not self.device_count:
                raise CollectorError(
                    f"Ray cluster {self.address}: no machine is left; {len(running)} shares wait"
                )

    def _result(self, done: Any) -> RunRecord | CollectorError:
        """The record of a share, or the error that took it."""
        try:
            return RunRecord.from_json(self.ray.get(done), name="a share's record")
        except self.ray.exceptions.RayTaskError as error:
            return CollectorError(str(error.cause))
        except self.ray.exceptions.RayError as error:
            return CollectorError(
                f"lost with its machine {MAX_RETRIES + 1} times, at last: {_first_line(error)}"
            )

    def _counts(self, resource: str) -> list[int]:
        """GPUs or cores of each machine that has some."""
        machines = [node["Resources"] for node in self.ray.nodes() if node["Alive"]]
        return [int(machine[resource]) for machine in machines if machine.get(resource)]


@contextmanager
def connect(address: str, suite: ShippedSuite) -> Iterator[Cluster]:
    """Connect to a Ray cluster at an address as in `ray.init`, and send the suite's files to every
    machine.

    Raises:
        CollectorError: Ray is not installed, or the cluster cannot be reached.
    """
    try:
        import ray
    except ImportError:
        raise CollectorError("--ray needs Ray: pip install 'roofwatch[ray]'") from None
    environment: dict[str, Any] = {}
    if suite.folder is not None:
        environment = {"working_dir": str(suite.folder), "excludes": _EXCLUDED_FILES}
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        ray.init(
            address=address,
            runtime_env=environment,
            log_to_driver=False,
            logging_level=logging.CRITICAL,
        )
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise CollectorError(
            f"Ray cluster {address}: cannot be reached: {_first_line(error)}"
        ) from None
    try:
        yield Cluster(
            ray=ray,
            address=address,
            suite=suite,
        )
    finally:
        ray.shutdown()


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]


def spread_run(
    suite: SuiteAt,
    plan: RunPlan,
    address: str,
    on_progress: OnProgress = lambda _: None,
    *,
    journal: Journal,
) -> tuple[RunRecord, ...]:
    """Check, compile and time a suite at one commit on all devices of a Ray cluster.

    The journal stores each share's record, and holds those of an interrupted run.

    Returns:
        One record per kind of machine.

    Raises:
        SuiteError: the suite cannot be loaded, or nothing in it matches the plan.
        CollectorError: the cluster has no device, or some shares failed; the journal holds the
        others. JournalError: a result cannot be stored.
    """
    on_progress(
        Progress(
            done=0,
            total=0,
            text="connecting to the cluster",
        )
    )
    with connect(address, ship(suite)) as cluster:
        if not cluster.device_count:
            raise CollectorError(f"Ray cluster {address}: no machine has a free GPU or CPU")
        fastest_device = "cpu"
        if cluster.has_gpus:
            fastest_device = "cuda"
        device = plan.device or fastest_device
        usual_tag = "small"
        if device == "cuda":
            usual_tag = "quick"
        plan = replace(
            plan,
            device=device,
            usual_tag=plan.usual_tag or usual_tag,
        )
        settings = WorkerSettings(source=suite.source, device="cpu")
        with ForkServer() as fork_server, Worker(fork_server, settings) as worker:
            selected = select(worker.start(), plan)
        records = [entry.share for entry in journal.entries() if entry.share is not None]
        measured = {case.case_id for record in records for case in record.cases}
        missing = [run for run in selected if run.case.case_id not in measured]
        shares = deal(missing, _SHARES_PER_DEVICE * cluster.device_count)
        noun = "machine"
        if cluster.has_gpus:
            noun = "GPU"
        on_progress(
            Progress(
                done=0,
                total=len(shares),
                text=f"measuring on {cluster.device_count} {noun}(s)",
            )
        )
        failures = []
        for done_count, (share, result) in enumerate(cluster.measure(plan, shares), start=1):
            if isinstance(result, CollectorError):
                case_count = len(share.case_ids)
                failures.append(f"{case_count} cases from {share.case_ids[0]}: {result}")
            else:
                journal.append(Entry(share=result))
                records.append(result)
            on_progress(
                Progress(
                    done=done_count,
                    total=len(shares),
                    text=f"measured {share.case_ids[-1]}",
                )
            )
    if failures:
        raise CollectorError(
            f"{len(failures)} of {len(shares)} shares failed: {'; '.join(failures)}"
        )
    position = {run.case.case_id: number for number, run in enumerate(selected)}
    records.sort(key=lambda record: position[record.cases[0].case_id])
    return join(records, journal.header.run_ids[ALONE])


def join(records: Sequence[RunRecord], run_id: uuid.UUID) -> tuple[RunRecord, ...]:
    """Join the records of shares that were measured in equal environments.

    The highest ceiling of each kind counts. Device readings between blocks are left out, as they
    come from several devices.

    Returns:
        One record per environment; the first has the ID of the run.
    """
    by_environment = group_by(
        records,
        key=lambda record: record.environment.model_dump_json(),
    )
    joined: list[RunRecord] = []
    for environment, same in by_environment.items():
        joined_id = run_id
        # two records cannot have one ID
        if joined:
            joined_id = uuid.uuid5(run_id, environment)
        joined.append(_joined(same, joined_id))
    return tuple(joined)


_RESULTS = (
    "cases",
    "measurements",
    "accuracies",
    "static_facts",
    "overflow_proofs",
    "operator_costs",
    "counters",
    "profiles",
)


def _joined(records: Sequence[RunRecord], run_id: uuid.UUID) -> RunRecord:
    spent_ns: Counter[str] = Counter()
    ceilings: list[Ceiling] = []
    source_lines: list[SourceLine] = []
    source_digests: dict[str, str] = {}
    host_digests: dict[str, str] = {}
    implementation_digests: dict[str, str] = {}
    for record in records:
        spent_ns.update(record.spent_ns)
        ceilings += record.ceilings
        source_lines += record.source_lines
        source_digests |= record.source_digests
        host_digests |= record.host_digests
        implementation_digests |= record.implementation_digests
    changed: dict[str, Any] = {
        "run_id": run_id,
        "started_at": min(record.started_at for record in records),
        "finished_at": max(record.finished_at for record in records),
        "ceilings": highest_ceilings(ceilings),
        "telemetry": None,
        "spent_ns": dict(spent_ns),
        # each line once, in the order of the records
        "source_lines": tuple(dict.fromkeys(source_lines)),
        "source_digests": source_digests,
        "host_digests": host_digests,
        "implementation_digests": implementation_digests,
    }
    # those of several devices cannot be told apart
    if len(records) == 1:
        changed["telemetry"] = records[0].telemetry
    for results in _RESULTS:
        changed[results] = tuple(
            chain.from_iterable(getattr(record, results) for record in records)
        )
    return RunRecord.model_validate(records[0].model_copy(update=changed).model_dump())

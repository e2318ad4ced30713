"""Ship a suite to other machines, and measure a share of it there."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from roofwatch.collector.cluster.shares import Share
from roofwatch.collector.errors import CollectorError
from roofwatch.collector.git import SuiteAt, find_repository
from roofwatch.collector.record.record import Commit
from roofwatch.collector.run import collect_run
from roofwatch.collector.run_plan import HARNESS_VERSION, RunPlan
from roofwatch.collector.suite_digest import digest_of_own_suite
from roofwatch.collector.suite_source import SuiteSource
from roofwatch.collector.workers.fork_server import ForkServer


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

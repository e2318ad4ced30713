"""One backfill from what is asked for to its end: what the store knows, what is measured here, and what is sent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from roofwatch.backfill.measuring import (
    Backfill,
    Filled,
    Known,
    fill,
    find_useless,
    known_to_records,
    known_to_source,
    plan_backfill,
)
from roofwatch.collector.errors import SuiteError
from roofwatch.collector.run_plan import RunPlan
from roofwatch.collector.workers.fork_server import ForkServer
from roofwatch.measuring.suite_history import commit_refs, commits_between, sha_of
from roofwatch.measuring.this_machine import describe_machine, own_target
from roofwatch.settings import load_settings
from roofwatch.store.pushing import sender_and_spool, summary
from roofwatch.store.source import open_source
from roofwatch.terminal import print_error, progress


@dataclass(frozen=True)
class BackfillJob:
    """What to fill, and where to.

    Args:
        path: Benchmark file or folder; None for the suite that comes with roofwatch.
        project: That it belongs to.
        commits: `A..B`, the commits after A up to B.
        plan: What to measure, and how.
        output: Folder of the records.
        records: Folder that says what was measured; None asks what is stored.
        fork_server: Forks the workers.
        url: Of the server to ask that through; left out as `open_source` says.
    """

    path: Path | None
    project: str
    commits: str
    plan: RunPlan
    output: Path
    records: Path | None
    fork_server: ForkServer
    url: str | None = None

    def plan_it(self, *, skips_same: bool) -> Backfill:
        """What there is to do, the most informative first.

        Raises:
            SuiteError: the range is none.
            GitError: there is no such commit.
            StoreError: the store cannot be read.
            SpoolError: the server cannot be asked.
        """
        first, dots, last = self.commits.partition("..")
        if not (first and dots and last) or last.startswith("."):
            raise SuiteError(f"range {self.commits!r}: write A..B, for the commits after A up to B")
        before = sha_of(self.path, first)
        shas = commits_between(self.path, before, last)
        if not shas:
            raise SuiteError(f"range {self.commits!r}: no commits lie there; A has to be the older of the two")
        refs = commit_refs(self.path, before, shas)
        environment = describe_machine(self.path, self.plan.device, self.plan.thread_count, self.fork_server)
        known = self._known(environment.runner_class)
        useless: dict[str, str] = {}
        if skips_same:
            with progress("what commits are made from") as on_progress:
                target = own_target(environment)
                useless = find_useless(self.path, before, refs, self.plan, target, self.fork_server, on_progress)
        return plan_backfill(refs, known, useless)

    def run(self, backfill: Backfill, *, max_runs: int | None, max_minutes: float | None) -> list[Filled]:
        """Measure, and send what was measured where a server is configured."""
        max_seconds = None if max_minutes is None else 60 * max_minutes
        with progress("backfill") as on_progress:
            done = list(
                fill(
                    self.path,
                    backfill.todo,
                    self.plan,
                    self.output,
                    max_runs=max_runs,
                    max_seconds=max_seconds,
                    fork_server=self.fork_server,
                    on_progress=on_progress,
                )
            )
        _send(done)
        return done

    def _known(self, runner_class: str) -> Known:
        own = known_to_records([self.output], self.project, runner_class)
        if self.records is not None:
            there = known_to_records([self.records], self.project, runner_class)
        else:
            with open_source(self.url) as source:
                there = known_to_source(source, self.project, runner_class)
        return Known(own.measured | there.measured, there.changes)


def _send(done: Sequence[Filled]) -> None:
    """What cannot be sent stays in the spool, for `roofwatch push`."""
    records = [one.record for one in done if one.record is not None]
    if not records or load_settings().server_url is None:
        return
    sender, spool = sender_and_spool(None, None)
    for record in records:
        spool.submit(record)
    for line in summary(spool.deliver(sender), spool):
        print_error(line)

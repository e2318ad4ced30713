"""Measure commits that were never measured, the most informative first."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.table import Table

from roofwatch.bisection.commits import (
    CommitRange,
    describe_machine,
    list_commits,
    own_target,
    read_build_inputs,
    suite_at_commit,
)
from roofwatch.ci.bisect.backfill_order import Choice, KnownChange, choose_order
from roofwatch.ci.bisect.search import BuildInputs, compare_inputs
from roofwatch.collector.errors import SuiteError
from roofwatch.collector.outbox.journal import ALONE, make_header
from roofwatch.collector.record.record import RunRecord
from roofwatch.collector.run import OnProgress, collect_run
from roofwatch.collector.run_plan import RunPlan
from roofwatch.collector.workers.fork_server import ForkServer
from roofwatch.db.values import CommitRef
from roofwatch.measurement.run import resumable
from roofwatch.records import RECORD_SUFFIX, failed_results, read_records
from roofwatch.settings import load_settings
from roofwatch.store.reading import open_source
from roofwatch.store.source import Source
from roofwatch.store.transfer import sender_and_spool, summary
from roofwatch.terminal import one_line, print_error, printable, progress


@dataclass(frozen=True)
class Known:
    """What is known of a project's history."""

    measured: frozenset[str]
    """Commits with a run of this runner class."""
    changes: tuple[tuple[str, str, str], ...] = ()
    """Last commit before a change, first commit with it, summary."""


@dataclass(frozen=True)
class Backfill:
    """A range of commits, in the order to measure them."""

    todo: tuple[tuple[CommitRef, Choice], ...]
    """The most informative first."""
    skipped: tuple[tuple[CommitRef, str], ...]
    """With the reason."""
    measured: tuple[CommitRef, ...]


@dataclass(frozen=True)
class Filled:
    """A commit that was measured, or could not be."""

    commit: CommitRef
    file: Path | None = None
    record: RunRecord | None = None
    error: str = ""

    @property
    def failures(self) -> list[str]:
        return [] if self.record is None else list(failed_results(self.record))

    @property
    def has_failed(self) -> bool:
        return self.record is None or bool(self.failures)


def known_to_source(source: Source, project: str, runner_class: str) -> Known:
    """Read what is stored of a project on a runner class."""
    runs = [run for run in source.list_runs(project, None) if not run.is_dirty and not run.is_pair_side]
    regressions = [one.regression for one in source.list_regressions(project)]
    return Known(
        frozenset(run.commit.sha for run in runs if run.runner_class == runner_class),
        tuple(
            (point.previous_commit.sha, point.commit.sha, regression.summary)
            for regression in regressions
            for point in regression.change_points[:1]
        ),
    )


def known_to_records(folder: Path, project: str, runner_class: str) -> Known:
    """Read what the records of a folder have; a missing folder has none.

    Raises:
        RecordError: a file cannot be read.
    """
    records = read_records([folder]) if any(folder.glob("*.json*")) else []
    return Known(
        frozenset(
            record.commit.sha
            for record in records
            if record.project == project
            and record.environment.runner_class == runner_class
            and record.pairing is None
            and not record.commit.is_dirty
        )
    )


def plan_backfill(refs: Sequence[CommitRef], known: Known, skipped: dict[str, str]) -> Backfill:
    """Order what is to be measured.

    Args:
        refs: The range, the oldest first.
        known: What was measured, and known changes.
        skipped: By SHA, why a commit is not worth measuring.
    """
    positions = {ref.sha: position for position, ref in enumerate(refs)}
    measured = {positions[sha] for sha in known.measured if sha in positions}
    changes = [
        KnownChange(positions.get(before, -1), positions[after], summary)
        for before, after, summary in known.changes
        if after in positions
    ]
    left_out = {position for sha, position in positions.items() if sha in skipped} - measured
    order = choose_order(len(refs), measured=measured, skipped=left_out, changes=changes)
    return Backfill(
        todo=tuple((refs[choice.position], choice) for choice in order),
        skipped=tuple((refs[position], skipped[refs[position].sha]) for position in sorted(left_out)),
        measured=tuple(refs[position] for position in sorted(measured)),
    )


def why_skipped(shas: Sequence[str], inputs: Sequence[BuildInputs]) -> dict[str, str]:
    """Return the commits that need no measurement, with the reason.

    Args:
        shas: The commit before the range, then those of the range.
        inputs: What the suite is built from at each.
    """
    skipped: dict[str, str] = {}
    last: BuildInputs | None = None
    for sha, one in zip(shas, inputs, strict=True):
        if one.error:
            skipped[sha] = f"cannot be loaded: {one.error}"
            continue
        reason = "" if last is None else compare_inputs(last, one).reason
        if reason:
            skipped[sha] = reason
        last = one
    return skipped


@dataclass(frozen=True)
class BackfillJob:
    """A range of commits to measure, and the folders of the records."""

    path: Path | None
    """Benchmark file or folder; None for the bundled suite."""
    project: str
    commits: str
    """`A..B`: the commits after A up to B."""
    plan: RunPlan
    output: Path
    records: Path | None
    """Folder of earlier records; None for the store."""
    fork_server: ForkServer
    url: str | None = None

    def plan_it(self, *, skips_same: bool) -> Backfill:
        """Plan what to measure.

        Raises:
            SuiteError: the range has no commits.
            GitError: a revision does not exist.
            StoreError: the store cannot be read.
            SpoolError: the server does not answer.
        """
        first, dots, last = self.commits.partition("..")
        if not (first and dots and last) or last.startswith("."):
            raise SuiteError(f"range {self.commits!r}: write A..B, for the commits after A up to B")
        commits = list_commits(self.path, first, last)
        machine = describe_machine(self.path, self.plan, self.fork_server)
        skipped = self._skipped(commits, own_target(machine)) if skips_same else {}
        return plan_backfill(commits.commits, self._known(machine.runner_class), skipped)

    def run(self, backfill: Backfill, *, max_runs: int | None, max_minutes: float | None) -> list[Filled]:
        """Measure commits until the budget is spent, and send the records if a server is configured."""
        deadline = time.monotonic() + (float("inf") if max_minutes is None else 60 * max_minutes)
        done = []
        with progress("backfill") as on_progress:
            for commit, _ in backfill.todo[:max_runs]:
                if time.monotonic() > deadline:
                    break
                done.append(self._measure(commit, on_progress))
        _send([one.record for one in done if one.record is not None])
        return done

    def _known(self, runner_class: str) -> Known:
        own = known_to_records(self.output, self.project, runner_class)
        if self.records is not None:
            stored = known_to_records(self.records, self.project, runner_class)
        else:
            with open_source(self.url) as source:
                stored = known_to_source(source, self.project, runner_class)
        return Known(own.measured | stored.measured, stored.changes)

    def _skipped(self, commits: CommitRange, target: str | None) -> dict[str, str]:
        shas = [commits.good_sha, *commits.shas]
        with progress("sources of commits") as on_progress:
            inputs = read_build_inputs(self.path, shas, self.plan, target, self.fork_server, on_progress)
        return why_skipped(shas, inputs)

    def _measure(self, commit: CommitRef, on_progress: OnProgress) -> Filled:
        try:
            with suite_at_commit(self.path, commit.sha) as suite:
                file = self.output / f"{commit.sha[:12]}-{suite.project.replace('/', '-')}{RECORD_SUFFIX}"
                header = make_header({ALONE: suite}, self.plan)
                with resumable(file, header, is_resumed=True, is_discarded=False) as journal:
                    record = collect_run(suite, self.plan, on_progress, fork_server=self.fork_server, journal=journal)
                    record.write(file)
                    journal.remove()
        except SuiteError as error:
            return Filled(commit, error=str(error))
        return Filled(commit, file, record)


def _send(records: Sequence[RunRecord]) -> None:
    """Send records; those that cannot be sent stay in the spool for `roofwatch push`."""
    if not records or load_settings().server_url is None:
        return
    sender, spool = sender_and_spool(None, None)
    for record in records:
        spool.submit(record)
    for line in summary(spool.deliver(sender), spool):
        print_error(line)


def order_table(backfill: Backfill) -> Table:
    shown = Table("#", "commit", "subject", "why", header_style="bold")
    for number, (commit, choice) in enumerate(backfill.todo, start=1):
        shown.add_row(str(number), commit.short_sha, printable(commit.subject[:60]), printable(choice.reason))
    return shown


def sentences(backfill: Backfill, done: Sequence[Filled]) -> Iterator[str]:
    """Write what was skipped and why, what was measured, and what is left."""
    for commit, reason in backfill.skipped:
        yield f"skipped: {commit.short_sha} {one_line(commit.subject[:60])}: {one_line(reason)}"
    for filled in done:
        what = f"record: {filled.file}" if filled.file is not None else f"not measured: {one_line(filled.error)}"
        yield f"{filled.commit.short_sha} {what}"
        yield from (f"  {one_line(failure)}" for failure in filled.failures)
    left = len(backfill.todo) - len(done)
    yield f"{len(backfill.measured)} measured before, {len(done)} now, {left} left"


def as_json_document(backfill: Backfill, done: Sequence[Filled]) -> dict[str, Any]:
    return {
        "measured_before": [commit.sha for commit in backfill.measured],
        "skipped": [{"sha": commit.sha, "reason": reason} for commit, reason in backfill.skipped],
        "order": [{"sha": commit.sha, "aim": choice.aim, "reason": choice.reason} for commit, choice in backfill.todo],
        "done": [
            {
                "sha": one.commit.sha,
                "record": None if one.file is None else str(one.file),
                "error": one.error,
                "failures": one.failures,
            }
            for one in done
        ],
    }

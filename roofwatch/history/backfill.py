"""Measure commits that were never measured, the most informative first."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.table import Table

from roofwatch.ci.bisect.backfill import Choice, KnownChange, choose_order
from roofwatch.ci.bisect.search import SAME_CODE, SAME_SOURCES
from roofwatch.collector.errors import SuiteError
from roofwatch.collector.outbox.journal import ALONE, make_header
from roofwatch.collector.record.record import RunRecord
from roofwatch.collector.run import OnProgress, collect_run
from roofwatch.collector.run_plan import RunPlan
from roofwatch.collector.workers.fork_server import ForkServer
from roofwatch.db.values import CommitRef
from roofwatch.history.survey import (
    Surveyed,
    commit_refs,
    commits_between,
    describe_machine,
    machine_code_digest,
    own_target,
    sha_of,
    suite_then,
    survey,
)
from roofwatch.measuring.unfinished import kept
from roofwatch.records import RECORD_SUFFIX, failed_results, read_records
from roofwatch.settings import load_settings
from roofwatch.store.pushing import sender_and_spool, summary
from roofwatch.store.source import Source, open_source
from roofwatch.terminal import one_line, print_error, printable, progress


@dataclass(frozen=True)
class Known:
    """What is known of a project's past."""

    measured: frozenset[str]
    """Commits with a run of the runner class."""
    changes: tuple[tuple[str, str, str], ...] = ()
    """The last commit before a change, the first that is known to have it, and the change in words."""


@dataclass(frozen=True)
class Skipped:
    commit: CommitRef
    reason: str


@dataclass(frozen=True)
class Todo:
    commit: CommitRef
    choice: Choice


@dataclass(frozen=True)
class Backfill:
    """What is to be done for a range."""

    todo: tuple[Todo, ...]
    """The most informative first."""
    skipped: tuple[Skipped, ...]
    measured: tuple[CommitRef, ...]


@dataclass(frozen=True)
class Filled:
    """A commit that was measured, or could not be."""

    commit: CommitRef
    file: Path | None
    record: RunRecord | None
    trouble: str = ""
    """Why it could not be measured."""

    @property
    def failures(self) -> list[str]:
        """A sentence for everything in it that failed."""
        return [] if self.record is None else list(failed_results(self.record))

    @property
    def has_failed(self) -> bool:
        return self.record is None or bool(self.failures)


def known_to_source(source: Source, project: str, runner_class: str) -> Known:
    """What is stored of a project on a runner class."""
    runs = [run for run in source.list_runs(project, None) if not run.is_dirty and not run.is_pair_side]
    found = [one.regression for one in source.list_regressions(project)]
    return Known(
        frozenset(run.commit.sha for run in runs if run.runner_class == runner_class),
        tuple(
            (point.previous_commit.sha, point.commit.sha, regression.summary)
            for regression in found
            for point in regression.change_points[:1]
        ),
    )


def known_to_records(folders: Sequence[Path], project: str, runner_class: str) -> Known:
    """What folders of records have of it; one that is not there has nothing.

    Raises:
        RecordError: a file cannot be read.
    """
    there = [folder for folder in folders if any(folder.glob("*.json*"))]
    records = read_records(there) if there else []
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


def plan_backfill(refs: Sequence[CommitRef], known: Known, useless: dict[str, str]) -> Backfill:
    """Order what is to be measured.

    Args:
        refs: The range, the oldest first.
        known: What was measured, and what is known to have changed.
        useless: By sha, why a commit would tell nothing.
    """
    places = {ref.sha: place for place, ref in enumerate(refs)}
    measured = {places[sha] for sha in known.measured if sha in places}
    changes = [
        KnownChange(places.get(before, -1), places[after], what)
        for before, after, what in known.changes
        if after in places
    ]
    skipped = {places[sha] for sha in useless if sha in places} - measured
    order = choose_order(len(refs), measured=measured, useless=skipped, changes=changes)
    return Backfill(
        todo=tuple(Todo(refs[choice.place], choice) for choice in order),
        skipped=tuple(Skipped(refs[place], useless[refs[place].sha]) for place in sorted(skipped)),
        measured=tuple(refs[place] for place in sorted(measured)),
    )


def find_useless(
    path: Path | None,
    good: str,
    refs: Sequence[CommitRef],
    plan: RunPlan,
    target: str | None,
    fork_server: ForkServer,
    on_progress: OnProgress,
) -> dict[str, str]:
    """By sha, why measuring a commit would tell nothing: it cannot be loaded, or is made from what the commit before is
    made from.

    Args:
        path: Of the suite; None for our own.
        good: The commit before the range.
        refs: The range.
        plan: What would be measured.
        target: This machine's, to compare machine code; None where sources are all to go by.
        fork_server: Forks the workers that load the suite.
        on_progress: Called after every commit.
    """
    shas = [good, *(ref.sha for ref in refs)]
    surveyed = survey(path, shas, fork_server, on_progress)
    useless: dict[str, str] = {}
    last: tuple[str, Surveyed] | None = None
    codes: dict[str, str | None] = {}
    for sha, found in zip(shas, surveyed, strict=True):
        if found.trouble:
            useless[sha] = f"cannot be loaded: {found.trouble}"
            continue
        if last is not None:
            before, there = last
            if found.sources and found.sources == there.sources:
                useless[sha] = f"as at {before[:8]}: {SAME_SOURCES}"
                codes[sha] = codes.get(before)
            elif target is not None:
                for each in (before, sha):
                    if each not in codes:
                        codes[each] = machine_code_digest(path, each, replace(plan, targets=(target,)))
                if codes[sha] is not None and codes[sha] == codes[before]:
                    useless[sha] = f"as at {before[:8]}: {SAME_CODE}"
        last = sha, found
    return useless


def fill(
    path: Path | None,
    todo: Sequence[Todo],
    plan: RunPlan,
    output: Path,
    *,
    max_runs: int | None,
    max_seconds: float | None,
    fork_server: ForkServer,
    on_progress: OnProgress,
) -> Iterator[Filled]:
    """Measure commits in their order, until the budget is spent. Each record is on the disk before it is yielded.

    Args:
        path: Of the suite; None for our own.
        todo: What to measure.
        plan: What of it, and how.
        output: Folder of the records.
        max_runs: No more runs than these.
        max_seconds: No run is begun after so many.
        fork_server: Forks the workers.
        on_progress: Called after every step.
    """
    began = time.monotonic()
    for number, one in enumerate(todo):
        is_late = max_seconds is not None and time.monotonic() - began > max_seconds
        if is_late or (max_runs is not None and number >= max_runs):
            return
        yield _measured(path, one.commit, plan, output, fork_server, on_progress)


def _measured(
    path: Path | None, commit: CommitRef, plan: RunPlan, output: Path, fork_server: ForkServer, on_progress: OnProgress
) -> Filled:
    with tempfile.TemporaryDirectory(prefix="roofwatch-backfill-") as folder:
        try:
            with suite_then(path, commit.sha, Path(folder) / "suite") as suite:
                destination = output / f"{commit.sha[:12]}-{suite.project.replace('/', '-')}{RECORD_SUFFIX}"
                header = make_header({ALONE: suite}, plan)
                with kept(destination, header, is_resumed=True, is_discarded=False) as journal:
                    record = collect_run(suite, plan, on_progress, fork_server=fork_server, journal=journal)
                    record.write(destination)
                    journal.remove()
        except SuiteError as error:
            return Filled(commit, None, None, str(error).replace(f"{folder}/suite/", ""))
    return Filled(commit, destination, record)


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


def order_table(backfill: Backfill) -> Table:
    """What is to be measured, the most informative first."""
    shown = Table("#", "commit", "subject", "why", header_style="bold")
    for number, one in enumerate(backfill.todo, start=1):
        shown.add_row(
            str(number), one.commit.short_sha, printable(one.commit.subject[:60]), printable(one.choice.reason)
        )
    return shown


def sentences(backfill: Backfill, done: Sequence[Filled]) -> Iterator[str]:
    """What was skipped and why, what was measured, and what is left."""
    for one in backfill.skipped:
        yield f"skipped: {one.commit.short_sha} {one_line(one.commit.subject[:60])}: {one_line(one.reason)}"
    for filled in done:
        what = f"record: {filled.file}" if filled.file is not None else f"not measured: {one_line(filled.trouble)}"
        yield f"{filled.commit.short_sha} {what}"
        yield from (f"  {one_line(failure)}" for failure in filled.failures)
    left = len(backfill.todo) - len(done)
    yield f"{len(backfill.measured)} were measured before, {len(done)} now, {left} are left"


def as_json_document(backfill: Backfill, done: Sequence[Filled]) -> dict[str, Any]:
    """The whole of it for machines."""
    return {
        "measured_before": [commit.sha for commit in backfill.measured],
        "skipped": [{"sha": one.commit.sha, "reason": one.reason} for one in backfill.skipped],
        "order": [{"sha": one.commit.sha, "aim": one.choice.aim, "reason": one.choice.reason} for one in backfill.todo],
        "done": [
            {
                "sha": one.commit.sha,
                "record": None if one.file is None else str(one.file),
                "trouble": one.trouble,
                "failures": one.failures,
            }
            for one in done
        ],
    }

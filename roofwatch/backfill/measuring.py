"""Measure commits that nobody measured, the most informative first."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from roofwatch.ci.bisect.backfill import Choice, KnownChange, choose_order
from roofwatch.ci.bisect.weights import SAME_CODE, SAME_SOURCES
from roofwatch.collector.errors import SuiteError
from roofwatch.collector.outbox.journal_entries import ALONE, header_of
from roofwatch.collector.record.record import RunRecord
from roofwatch.collector.run import OnProgress, collect_run
from roofwatch.collector.run_plan import RunPlan
from roofwatch.collector.workers.fork_server import ForkServer
from roofwatch.db.values import CommitRef
from roofwatch.measuring.suite_history import suite_then
from roofwatch.measuring.surveying import Surveyed, machine_code_digest, survey
from roofwatch.measuring.unfinished import kept
from roofwatch.records import RECORD_SUFFIX, failed_results, read_records
from roofwatch.store.source import Source


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
                header = header_of({ALONE: suite}, plan)
                with kept(destination, header, is_resumed=True, is_discarded=False) as journal:
                    record = collect_run(suite, plan, on_progress, fork_server=fork_server, journal=journal)
                    record.write(destination)
                    journal.remove()
        except SuiteError as error:
            return Filled(commit, None, None, str(error).replace(f"{folder}/suite/", ""))
    return Filled(commit, destination, record)

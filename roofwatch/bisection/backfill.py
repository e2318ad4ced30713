"""Measure commits that were never measured, the most informative first.

Known changes are narrowed down first by halving, then the newest commit is measured, then the
longest gap is halved. Of equal choices the later commit is first.
"""

import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby
from pathlib import Path
from typing import Any

from rich.table import Table

from roofwatch.bisection.commits import (
    CommitRange,
    describe_machine,
    list_commits,
    own_target,
    read_build_inputs,
)
from roofwatch.ci.bisect.search import BuildInputs, compare_inputs
from roofwatch.ci.messages import on_one_line
from roofwatch.collector.runs.run_plan import RunPlan
from roofwatch.collector.workers.fork_server import ForkServer
from roofwatch.measurement.revisions import open_suite
from roofwatch.measurement.run import measure_suite
from roofwatch.model.errors import SuiteError
from roofwatch.model.history import CommitRef, Regression
from roofwatch.records import RECORD_SUFFIX, failed_results, read_record_files
from roofwatch.settings import load_settings
from roofwatch.store.reading import Source, open_source
from roofwatch.store.transfer import sender_and_spool, summary
from roofwatch.terminal import make_table, print_error, progress


class Aim(StrEnum):
    """Why to measure a commit, the most important first."""

    CHANGE = "change"
    """A change is known to be in this gap."""
    NEWEST = "newest"
    """Nothing later was measured."""
    GAP = "gap"


@dataclass(frozen=True)
class Choice:
    commit: CommitRef
    aim: Aim
    reason: str


@dataclass(frozen=True)
class Backfill:
    """A range of commits, in the order to measure them."""

    todo: tuple[Choice, ...]
    """The most informative first."""
    skipped: tuple[tuple[CommitRef, str], ...]
    """With the reason."""
    measured: tuple[CommitRef, ...]


@dataclass(frozen=True)
class Filled:
    """A commit that was measured, or could not be."""

    commit: CommitRef
    file: Path | None = None
    error: str = ""
    failures: tuple[str, ...] = ()
    """Cases that failed."""


# --- the order


def plan_backfill(
    refs: Sequence[CommitRef],
    known: Collection[str],
    regressions: Iterable[Regression],
    skipped: Mapping[str, str],
) -> Backfill:
    """Order what to measure of a range (oldest first), without known and skipped SHAs (with the
    reason).
    """
    places = {ref.sha: place for place, ref in enumerate(refs)}
    changes = [
        (places.get(point.previous_commit.sha, -1), places[point.commit.sha], regression.summary)
        for regression in regressions
        for point in regression.change_points[:1]
        if point.commit.sha in places
    ]
    done = {place for sha, place in places.items() if sha in known}
    left = {place for sha, place in places.items() if sha not in skipped} - done
    order = []
    while left:
        choices = [_halving(gap, changes) for gap in _gaps(done, left)]
        if max(done, default=-1) < max(left):
            choices.append((Aim.NEWEST, 1, max(left), "the newest commit"))
        aim, _, place, reason = max(
            choices, key=lambda choice: (-list(Aim).index(choice[0]), *choice[1:3])
        )
        order.append(Choice(refs[place], aim, reason))
        done.add(place)
        left.remove(place)
    return Backfill(
        todo=tuple(order),
        skipped=tuple(
            (ref, skipped[ref.sha]) for ref in refs if ref.sha in skipped and ref.sha not in known
        ),
        measured=tuple(ref for ref in refs if ref.sha in known),
    )


def _gaps(done: Collection[int], left: Collection[int]) -> list[list[int]]:
    """Group unmeasured commits that have no measured commit between them."""
    groups = groupby(sorted((*done, *left)), key=lambda place: place in left)
    return [list(places) for is_left, places in groups if is_left]


def _halving(
    gap: Sequence[int], changes: Sequence[tuple[int, int, str]]
) -> tuple[Aim, int, int, str]:
    """Return the aim, the size of the gap, the place of its middle, and the reason."""
    reason = f"halves {len(gap)} unmeasured commits" if len(gap) > 1 else "fills the gap"
    for before, after, change in changes:
        if before < gap[-1] and after > gap[0]:
            return Aim.CHANGE, len(gap), gap[len(gap) // 2], f"{reason}: {change}"
    return Aim.GAP, len(gap), gap[len(gap) // 2], reason


# --- what was measured, and what needs no measurement


def measured_in_source(source: Source, project: str, runner_class: str) -> frozenset[str]:
    """Return the commits with a stored run on a runner class."""
    return frozenset(
        run.commit.sha
        for run in source.list_runs(project, None)
        if run.runner_class == runner_class and not run.is_dirty and not run.is_pair_side
    )


def measured_in_records(folders: Sequence[Path], project: str, runner_class: str) -> frozenset[str]:
    """Return the commits that the records of folders measure; a missing folder has none.

    Raises:
        RecordError: a file cannot be read.
    """
    return frozenset(
        record.commit.sha
        for _, record in read_record_files(
            [folder for folder in folders if any(folder.glob("*.json*"))]
        )
        if (record.project, record.environment.runner_class) == (project, runner_class)
        and record.pairing is None
        and not record.commit.is_dirty
        and record.foreign_code is None
    )


def why_skipped(commits: CommitRange, inputs: Sequence[BuildInputs]) -> dict[str, str]:
    """Return the commits that need no measurement, with the reason, by what the good end and each
    are built from.
    """
    skipped: dict[str, str] = {}
    last, *others = inputs
    for sha, one in zip(commits.shas, others, strict=True):
        reason = f"cannot be loaded: {one.error}" if one.error else compare_inputs(last, one).reason
        if reason:
            skipped[sha] = reason
        if not one.error:
            last = one
    return skipped


# --- measuring


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
    benchmarks: Path | None = None
    """The suite whose benchmark files are used at every commit; None for each its own."""

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
        path, plan, server = self.path, self.plan, self.fork_server
        commits = list_commits(path, first, last)
        machine = describe_machine(path, plan, server)
        skipped: dict[str, str] = {}
        if skips_same:
            target = own_target(machine)
            with progress("sources of commits") as on_progress:
                inputs = read_build_inputs(
                    path, commits, plan, target, server, on_progress, self.benchmarks
                )
            skipped = why_skipped(commits, inputs)
        where, regressions = (self.project, machine.runner_class), []
        measured = measured_in_records([*filter(None, (self.output, self.records))], *where)
        if self.records is None:
            with open_source(self.url) as source:
                measured |= measured_in_source(source, *where)
                regressions = [one.regression for one in source.list_regressions(self.project)]
        return plan_backfill(commits.commits, measured, regressions, skipped)

    def run(
        self, backfill: Backfill, *, max_runs: int | None, max_minutes: float | None
    ) -> list[Filled]:
        """Measure commits until the budget is spent, and send the records if a server is
        configured.

        Records that cannot be sent stay in the spool for `roofwatch push`.
        """
        deadline = time.monotonic() + (float("inf") if max_minutes is None else 60 * max_minutes)
        done = []
        for choice in backfill.todo[:max_runs]:
            if time.monotonic() > deadline:
                break
            done.append(self._measure(choice.commit))
        files = [one.file for one in done if one.file is not None]
        if files and load_settings().server_url is not None:
            sender, spool = sender_and_spool(None, None)
            for _, record in read_record_files(files):
                spool.submit(record)
            for line in summary(spool.deliver(sender), spool):
                print_error(line)
        return done

    def _measure(self, commit: CommitRef) -> Filled:
        try:
            with open_suite(self.path, commit.sha, self.fork_server, self.benchmarks) as suite:
                file = (
                    self.output
                    / f"{commit.sha[:12]}-{suite.project.replace('/', '-')}{RECORD_SUFFIX}"
                )
                ((_, record),) = measure_suite(suite, self.plan, file, is_resumed=True)
                record.require_own_code()
        except SuiteError as error:
            return Filled(commit, error=str(error))
        return Filled(commit, file, failures=tuple(failed_results(record)))


# --- output


def order_table(backfill: Backfill) -> Table:
    rows = [
        (number, choice.commit.short_sha, choice.commit.subject[:60], choice.reason)
        for number, choice in enumerate(backfill.todo, start=1)
    ]
    return make_table(("#", "commit", "subject", "why"), rows)


def sentences(backfill: Backfill, done: Sequence[Filled]) -> Iterator[str]:
    """Write what was skipped and why, what was measured, and what is left."""
    for commit, reason in backfill.skipped:
        yield (
            f"skipped: {commit.short_sha} {on_one_line(commit.subject[:60])}: {on_one_line(reason)}"
        )
    for filled in done:
        what = (
            f"record: {filled.file}"
            if filled.file is not None
            else f"not measured: {on_one_line(filled.error)}"
        )
        yield f"{filled.commit.short_sha} {what}"
        yield from (f"  {on_one_line(failure)}" for failure in filled.failures)
    left = len(backfill.todo) - len(done)
    yield f"{len(backfill.measured)} measured before, {len(done)} now, {left} left"


def as_json_document(backfill: Backfill, done: Sequence[Filled]) -> dict[str, Any]:
    return {
        "measured_before": [commit.sha for commit in backfill.measured],
        "skipped": [{"sha": commit.sha, "reason": reason} for commit, reason in backfill.skipped],
        "order": [
            {"sha": one.commit.sha, "aim": one.aim, "reason": one.reason} for one in backfill.todo
        ],
        "done": [
            {
                "sha": one.commit.sha,
                "record": one.file and str(one.file),
                "error": one.error,
                "failures": one.failures,
            }
            for one in done
        ],
    }

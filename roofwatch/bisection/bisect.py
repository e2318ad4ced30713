"""Find the commit in which a series changed: measure commits against the good end, as few as
possible.
"""

import glob
import hashlib
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from roofwatch.bisection.commits import (
    CommitRange,
    choose_implementation,
    describe_machine,
    own_target,
    read_build_inputs,
)
from roofwatch.ci.bisect.pairs import PairResult, read_pair
from roofwatch.ci.bisect.search import (
    Measure,
    SearchEnd,
    SearchPlan,
    begin_search,
    compare_ends,
    next_move,
    with_inputs,
    with_pair,
)
from roofwatch.collector.runs.journal import journal_path, make_header
from roofwatch.collector.runs.measure import measure
from roofwatch.collector.runs.run_plan import OnProgress, RunPlan
from roofwatch.collector.suite import SuiteAt
from roofwatch.collector.workers.fork_server import ForkServer
from roofwatch.collector.workers.worker import Worker
from roofwatch.measurement.revisions import open_suite
from roofwatch.measurement.run import resumable
from roofwatch.model.case_key import kernel_of
from roofwatch.model.errors import JournalError, SuiteError
from roofwatch.model.files import atomic_write, reason_of
from roofwatch.model.record import RunRecord, utc_now
from roofwatch.model.triage import BisectionProgress, BisectionRange, BisectionState, CommitStatus
from roofwatch.model.worker_protocol import Subject, WorkerSettings
from roofwatch.reporting.records import RECORD_SUFFIX

# What is known so far; it is written after each measurement.
_STATE_FILE = "bisection.json"
_PROGRESS = TypeAdapter(BisectionProgress)
_MAX_LOST_BLOCKS = 20
"""Blocks of one visit that a throttled or shared device may cost."""


@dataclass(frozen=True)
class BisectPlan:
    """What to bisect, and how."""

    path: Path | None
    """Benchmark file or folder in a git repository; None for the bundled suite."""
    commit_range: BisectionRange
    """The ends may be any revisions."""
    run: RunPlan
    """The series is filled in."""
    output: Path
    """Folder of all bisections; each has its own subfolder."""
    search: SearchPlan
    budget_s: float | None = None
    is_resumed: bool = False
    benchmarks: Path | None = None
    """The suite whose benchmark files are used at every commit; None for each its own."""

    @property
    def series(self) -> str:
        return "/".join(filter(None, (self.commit_range.case_id, self.commit_range.implementation)))

    def folder(self, commits: CommitRange) -> Path:
        """Return the folder of this bisection, the same for the same suite, series, ends and
        settings.
        """
        run = self.run
        search = self.search
        how = (
            run.device,
            run.thread_count,
            run.timer,
            run.cache,
            search.threshold,
            search.error_rate,
            self.benchmarks,
        )
        path = self.path and self.path.resolve()
        text = f"{path} {self.series} {how}"
        digest = hashlib.sha256(text.encode()).hexdigest()
        ends = f"{commits.good_sha[:12]}-{commits.shas[-1][:12]}"
        return self.output / f"{ends}-{digest[:8]}"


def bisect(
    plan: BisectPlan,
    commits: CommitRange,
    fork_server: ForkServer,
    on_progress: OnProgress,
    on_step: Callable[[BisectionProgress], None],
) -> tuple[BisectionProgress, SearchEnd]:
    """Find the commit. Every measurement is on disk before the next begins; `on_step` is called
    after each.

    Raises:
        SuiteError: the series cannot be measured at one of the ends.
        JournalError: another bisection is in the folder, or it cannot be written.
        CollectorError: the machine cannot be measured.
    """
    with open_suite(
        path=plan.path,
        revision=commits.good_sha,
        fork_server=fork_server,
        benchmarks=plan.benchmarks,
    ) as good:
        return _Bisection(
            plan=plan,
            commits=commits,
            good=good,
            fork_server=fork_server,
            on_progress=on_progress,
            on_step=on_step,
        ).run()


@dataclass
class _Bisection:
    plan: BisectPlan
    commits: CommitRange
    good: SuiteAt
    fork_server: ForkServer
    on_progress: OnProgress
    on_step: Callable[[BisectionProgress], None]

    def __post_init__(self) -> None:
        plan = self.plan
        commit_range = self.plan.commit_range
        budget_s = math.inf if plan.budget_s is None else plan.budget_s
        self.deadline = time.monotonic() + budget_s
        self.folder = plan.folder(self.commits)
        self.found = self._begin()
        with Worker(
            self.fork_server, WorkerSettings(source=self.good.source, device=plan.run.device)
        ) as worker:
            implementation = choose_implementation(
                worker.start(), commit_range.case_id, commit_range.implementation
            )
        self.subject = Subject(commit_range.case_id, implementation)
        self.run_plan = replace(
            plan.run,
            kernels=(kernel_of(commit_range.case_id),),
            # A name may contain characters of a pattern.
            cases=(glob.escape(commit_range.case_id),),
            implementations=(glob.escape(implementation),),
            # Machine code is compared before, for all commits at once.
            targets=(),
        )

    def _begin(self) -> BisectionProgress:
        path = self.folder / _STATE_FILE
        if not path.exists():
            return begin_search(self.commits.commits)
        # Two bisections in one folder would mix their records.
        if not self.plan.is_resumed:
            raise JournalError(
                f"{path}: this bisection exists: --resume continues it; delete the folder to "
                f"start again"
            )
        try:
            return _PROGRESS.validate_json(path.read_bytes())
        except OSError as error:
            raise JournalError(f"{path}: cannot be read: {reason_of(error)}") from None
        except ValidationError:
            raise JournalError(
                f"{path}: damaged, or written by another version: delete the folder"
            ) from None

    def run(self) -> tuple[BisectionProgress, SearchEnd]:
        if not self.found.steps and self._has_same_sources():
            return self.found, SearchEnd(BisectionState.NO_CHANGE)
        while True:
            move = self._next_move(self.found)
            # The ends differ: now it is worth compiling the commits between them.
            if move is None:
                path = self.plan.path
                plan = self.run_plan
                server = self.fork_server
                target = own_target(describe_machine(path, plan, server))
                benchmarks = self.plan.benchmarks
                inputs = read_build_inputs(
                    path=path,
                    commits=self.commits,
                    plan=plan,
                    target=target,
                    fork_server=server,
                    on_progress=self.on_progress,
                    benchmarks=benchmarks,
                )
                self._save(with_inputs(self.found, inputs))
            elif isinstance(move, SearchEnd):
                return self.found, move
            # At least one pair is measured, whatever the budget.
            elif time.monotonic() > self.deadline and self.found.steps:
                return self.found, SearchEnd(BisectionState.UNDECIDED)
            else:
                sha = self.commits.shas[move.position]
                destination = self.folder / f"{len(self.found.steps):02}-{sha[:12]}"
                pair = self._measure(sha, move, destination)
                self._save(
                    with_pair(
                        progress=self.found,
                        position=move.position,
                        pair=pair,
                        finished_at=utc_now(),
                    )
                )
                self.on_step(self.found)
                # The records are written, so nothing is left to resume.
                journal_path(destination).unlink(missing_ok=True)

    def _has_same_sources(self) -> bool:
        """Whether all that the kernel may use is the same at both ends, so that nothing needs to be
        measured.
        """
        good, bad = read_build_inputs(
            path=self.plan.path,
            # Only the bad end: the commits between are compiled later, if at all.
            commits=replace(self.commits, commits=self.commits.commits[-1:]),
            plan=self.run_plan,
            target=None,
            fork_server=self.fork_server,
            on_progress=self.on_progress,
            benchmarks=self.plan.benchmarks,
        )
        return good.sources is not None and good.sources == bad.sources

    def _next_move(
        self,
        progress: BisectionProgress,
        current: int | None = None,
    ) -> Measure | SearchEnd | None:
        """Choose what to do next; None once the ends are known to differ."""
        if progress.is_weighed:
            return next_move(progress.commits, self.plan.search, current=current)
        bad_end = progress.commits[-1]
        if bad_end.status is CommitStatus.SKIPPED:
            raise SuiteError(f"the bad end cannot be measured: {bad_end.reason}")
        # The ends come first: without a difference there is nothing to search.
        missing = compare_ends(bad_end.log_ratios, self.plan.search)
        if isinstance(missing, SearchEnd):
            return missing
        if not missing:
            return None
        return Measure(len(progress.commits) - 1, missing)

    def _save(self, progress: BisectionProgress) -> None:
        path = self.folder / _STATE_FILE
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            atomic_write(path, _PROGRESS.dump_json(progress, indent=1))
        except OSError as error:
            raise JournalError(f"{path}: cannot be written: {reason_of(error)}") from None
        self.found = progress

    def _measure(self, sha: str, move: Measure, destination: Path) -> PairResult:
        """Measure a commit against the good end, with more blocks while it is in doubt."""
        subject = self.subject

        def more(good: RunRecord, commit: RunRecord) -> Mapping[Subject, int]:
            pair = read_pair(
                good=good,
                commit=commit,
                case_id=subject.case_id,
                implementation=subject.implementation,
            )
            lost_count = pair.block_count - len(pair.log_ratios)
            # Blocks that do not count on a throttled device would be repeated for ever.
            if pair.error or time.monotonic() > self.deadline or lost_count > _MAX_LOST_BLOCKS:
                return {}
            then = self._next_move(
                with_pair(
                    progress=self.found,
                    position=move.position,
                    pair=pair,
                    finished_at=utc_now(),
                ),
                current=move.position,
            )
            # Another commit may be worth more than another block here.
            if isinstance(then, Measure) and then.position == move.position:
                return {subject: pair.block_count + then.pair_count}
            return {}

        try:
            with open_suite(
                path=self.plan.path,
                revision=sha,
                fork_server=self.fork_server,
                benchmarks=self.plan.benchmarks,
            ) as commit:
                plan = replace(self.run_plan, block_count=move.pair_count)
                header = make_header({"base": self.good, "head": commit}, plan)
                with resumable(destination, header, is_resumed=True) as journal:
                    good, bad = measure(
                        [self.good, commit],
                        plan,
                        self.on_progress,
                        fork_server=self.fork_server,
                        more=more,
                        journal=journal,
                    )
            # A pair of other code than the commits' would name a wrong commit.
            for record in (good, bad):
                record.require_own_code()
        except SuiteError as error:
            return PairResult(error=str(error))
        for side, record in zip(("good", "commit"), (good, bad), strict=True):
            record.write(destination.with_name(f"{destination.name}-{side}{RECORD_SUFFIX}"))
        pair = read_pair(
            good=good,
            commit=bad,
            case_id=subject.case_id,
            implementation=subject.implementation,
        )
        if pair.log_ratios or pair.error:
            return pair
        return replace(pair, error="the device was throttled or shared all the time")

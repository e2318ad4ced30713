"""Find the commit in which a series changed: measure commits against the good end, as few as possible."""

import glob
import hashlib
import shutil
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, Self

from pydantic import AwareDatetime, BaseModel, ConfigDict, ValidationError

from roofwatch.bisection.commits import (
    CommitRange,
    choose_implementation,
    describe_machine,
    own_target,
    read_build_inputs,
)
from roofwatch.ci.bisect.pairs import PairResult, read_pair
from roofwatch.ci.bisect.search import (
    BuildInputs,
    Evidence,
    Measure,
    Result,
    SearchPlan,
    compare_ends,
    next_move,
    prior_weights,
)
from roofwatch.collector.errors import JournalError, SuiteError
from roofwatch.collector.outbox.files import atomic_write, reason_of
from roofwatch.collector.outbox.journal import discard, journal_path, make_header
from roofwatch.collector.record.record import RunRecord, utc_now
from roofwatch.collector.run import measure_pair
from roofwatch.collector.run_plan import OnProgress, RunPlan, Subject
from roofwatch.collector.suite import SuiteAt
from roofwatch.collector.workers.fork_server import ForkServer
from roofwatch.collector.workers.protocol import WorkerSettings
from roofwatch.collector.workers.worker import Worker
from roofwatch.db.values import BisectionRange, BisectionState
from roofwatch.measurement.revisions import open_suite
from roofwatch.measurement.run import resumable
from roofwatch.records import RECORD_SUFFIX

_STATE_FILE = "bisection.json"
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
    is_discarded: bool = False
    """Delete the bisection in the folder first."""
    benchmarks: Path | None = None
    """The suite whose benchmark files are used at every commit; None for each its own."""

    @property
    def series(self) -> str:
        return "/".join(filter(None, (self.commit_range.case_id, self.commit_range.implementation)))

    def folder(self, commits: CommitRange) -> Path:
        """Return the folder of this bisection, the same for the same suite, series, ends and settings."""
        run, search = self.run, self.search
        settings = (
            run.device,
            run.thread_count,
            run.timer,
            run.cache,
            search.threshold,
            search.error_rate,
            self.benchmarks,
        )
        digest = hashlib.sha256(f"{self.path and self.path.resolve()} {self.series} {settings}".encode()).hexdigest()
        return self.output / f"{commits.good_sha[:12]}-{commits.shas[-1][:12]}-{digest[:8]}"


class _Document(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Visit(_Document):
    """One commit measured against the good end."""

    position: int
    """From 0, the commit after the good end."""
    pair: PairResult
    probability: float = 1.0
    """Probability, after the visit, that the change is in this commit or an earlier one."""
    finished_at: AwareDatetime


class BisectState(_Document):
    """Everything known about a bisection; written to a file after every visit."""

    format: Literal[1] = 1
    commits: tuple[str, ...]
    """From the one after the good end to the bad end."""
    implementation: str
    inputs: tuple[BuildInputs, ...] | None = None
    """Inputs of the good end and of each commit; None until the ends are known to differ."""
    visits: tuple[Visit, ...] = ()

    def evidence(self) -> Evidence:
        positions = range(len(self.commits))
        weights = [1.0] * len(positions) if self.inputs is None else [one.value for one in prior_weights(self.inputs)]
        return Evidence(
            weights=tuple(weights),
            log_ratios=tuple(
                tuple(ratio for visit in self.visits if visit.position == position for ratio in visit.pair.log_ratios)
                for position in positions
            ),
            is_unmeasurable=tuple(bool(self.error_at(position)) for position in positions),
        )

    def error_at(self, position: int) -> str:
        """Return why a commit cannot be measured; empty if no reason is known."""
        errors = [] if self.inputs is None else [self.inputs[position + 1].error]
        errors += [visit.pair.error for visit in self.visits if visit.position == position]
        return next(filter(None, errors), "")

    def with_visit(self, position: int, pair: PairResult, probability: float = 1.0) -> Self:
        visit = Visit(position=position, pair=pair, probability=probability, finished_at=utc_now())
        return self.model_copy(update={"visits": (*self.visits, visit)})

    def write(self, path: Path) -> None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            atomic_write(path, self.model_dump_json(indent=1).encode())
        except OSError as error:
            raise JournalError(f"{path}: cannot be written: {reason_of(error)}") from None

    @classmethod
    def read(cls, path: Path) -> Self | None:
        """Read the state; None if there is none.

        Raises:
            JournalError: the file is damaged or has another version.
        """
        try:
            return cls.model_validate_json(path.read_bytes())
        except FileNotFoundError:
            return None
        except OSError as error:
            raise JournalError(f"{path}: cannot be read: {reason_of(error)}") from None
        except ValidationError:
            raise JournalError(f"{path}: damaged, or written by another version: --discard removes it") from None


def bisect(
    plan: BisectPlan,
    commits: CommitRange,
    fork_server: ForkServer,
    on_progress: OnProgress,
    on_step: Callable[[BisectState], None],
) -> tuple[BisectState, Result]:
    """Find the commit. Every measurement is on disk before the next begins; `on_step` is called after each.

    Raises:
        SuiteError: the series cannot be measured at one of the ends.
        JournalError: another bisection is in the folder, or it cannot be written.
        CollectorError: the machine cannot be measured.
    """
    with open_suite(plan.path, commits.good_sha, fork_server, plan.benchmarks) as good:
        return _Bisection(plan, commits, good, fork_server, on_progress, on_step).run()


@dataclass
class _Bisection:
    plan: BisectPlan
    commits: CommitRange
    good: SuiteAt
    fork_server: ForkServer
    on_progress: OnProgress
    on_step: Callable[[BisectState], None]

    def __post_init__(self) -> None:
        plan = self.plan
        self.deadline = time.monotonic() + (float("inf") if plan.budget_s is None else plan.budget_s)
        self.folder = plan.folder(self.commits)
        self.state = self._begin()
        self.subject = Subject(plan.commit_range.case_id, self.state.implementation)
        self.run_plan = replace(
            plan.run,
            kernels=(self.subject.case_id.partition("/")[0],),
            cases=(glob.escape(self.subject.case_id),),
            implementations=(glob.escape(self.subject.implementation),),
            targets=(),
        )

    def run(self) -> tuple[BisectState, Result]:
        while True:
            move = self._next_move(self.state)
            if move is None:
                path, plan, server = self.plan.path, self.run_plan, self.fork_server
                target = own_target(describe_machine(path, plan, server))
                benchmarks = self.plan.benchmarks
                inputs = read_build_inputs(path, self.commits, plan, target, server, self.on_progress, benchmarks)
                self._save(self.state.model_copy(update={"inputs": tuple(inputs)}))
            elif isinstance(move, Result):
                return self.state, move
            elif time.monotonic() > self.deadline and self.state.visits:
                return self.state, Result(BisectionState.UNDECIDED)
            else:
                self._visit(move)

    def _next_move(self, state: BisectState, at: int | None = None) -> Measure | Result | None:
        """Choose what to do next; None once the ends are known to differ."""
        evidence = state.evidence()
        if state.inputs is not None:
            return next_move(evidence, self.plan.search, at=at)
        bad_end = len(state.commits) - 1
        if state.error_at(bad_end):
            raise SuiteError(f"the bad end cannot be measured: {state.error_at(bad_end)}")
        missing = compare_ends(evidence.log_ratios[bad_end], self.plan.search)
        if isinstance(missing, Result):
            return missing
        return Measure(bad_end, missing) if missing else None

    def _begin(self) -> BisectState:
        """Resume the bisection in the folder, or begin one."""
        if self.plan.is_discarded:
            shutil.rmtree(self.folder, ignore_errors=True)
        path = self.folder / _STATE_FILE
        state = BisectState.read(path)
        if state is not None:
            if self.plan.is_resumed:
                return state
            raise JournalError(f"{path}: this bisection exists: --resume continues it, --discard deletes it")
        settings = WorkerSettings(source=self.good.source, device=self.plan.run.device)
        with Worker(self.fork_server, settings) as worker:
            info = worker.start()
        asked = self.plan.commit_range
        implementation = choose_implementation(info, asked.case_id, asked.implementation)
        return BisectState(commits=tuple(self.commits.shas), implementation=implementation)

    def _save(self, state: BisectState) -> None:
        state.write(self.folder / _STATE_FILE)
        self.state = state

    def _visit(self, move: Measure) -> None:
        """Measure a commit against the good end, and save the result."""
        destination = self.folder / f"{len(self.state.visits):02}-{self.state.commits[move.position][:12]}"
        pair = self._measure(move, destination)
        state = self.state.with_visit(move.position, pair)
        if state.inputs is not None and not pair.error:
            share = min(1.0, float(state.evidence().probabilities()[: move.position + 1].sum()))
            state = self.state.with_visit(move.position, pair, share)
        self._save(state)
        self.on_step(state)
        discard(journal_path(destination))

    def _measure(self, move: Measure, destination: Path) -> PairResult:
        subject = self.subject

        def more(good: RunRecord, commit: RunRecord) -> Mapping[Subject, int]:
            pair = read_pair(good, commit, subject.case_id, subject.implementation)
            lost_count = pair.block_count - len(pair.log_ratios)
            if pair.error or time.monotonic() > self.deadline or lost_count > _MAX_LOST_BLOCKS:
                return {}
            then = self._next_move(self.state.with_visit(move.position, pair), at=move.position)
            if isinstance(then, Measure) and then.position == move.position:
                return {subject: pair.block_count + then.pair_count}
            return {}

        try:
            sha = self.state.commits[move.position]
            with open_suite(self.plan.path, sha, self.fork_server, self.plan.benchmarks) as commit:
                plan = replace(self.run_plan, block_count=move.pair_count)
                header = make_header({"base": self.good, "head": commit}, plan, pair_id=uuid.uuid4())
                with resumable(destination, header, is_resumed=True, is_discarded=False) as journal:
                    records = measure_pair(
                        self.good,
                        commit,
                        plan,
                        fork_server=self.fork_server,
                        more=more,
                        on_progress=self.on_progress,
                        journal=journal,
                    )
        except SuiteError as error:
            return PairResult(error=str(error))
        for side, record in zip(("good", "commit"), records, strict=True):
            record.write(destination.with_name(f"{destination.name}-{side}{RECORD_SUFFIX}"))
        pair = read_pair(*records, subject.case_id, subject.implementation)
        if pair.log_ratios or pair.error:
            return pair
        return replace(pair, error="the device was throttled or shared all the time")

"""Find the commit that a series changed with: measure commits against the good end, as few as it takes."""

from __future__ import annotations

import shutil
import tempfile
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from roofwatch.ci.ab.compare import FIRST_LOOK_BLOCKS, Comparison, looks_after
from roofwatch.ci.bisect.measurements import Reading, compare_pairs, read_pair
from roofwatch.ci.bisect.search import MadeFrom, Measure, Move, Named, Stuck, next_move
from roofwatch.collector.errors import JournalError, SuiteError
from roofwatch.collector.outbox.journal import discard, journal_path, make_header
from roofwatch.collector.record.record import RunRecord, utc_now
from roofwatch.collector.run import OnProgress, Progress, measure_pair
from roofwatch.collector.run_plan import RunPlan, Subject
from roofwatch.collector.suite import SuiteAt
from roofwatch.collector.workers.fork_server import ForkServer
from roofwatch.collector.workers.worker import Worker
from roofwatch.db.values import Verdict
from roofwatch.history.plan import (
    BisectPlan,
    choose_implementation,
    folder_of,
    literal_pattern,
    missing_from,
    what_was_asked,
)
from roofwatch.history.state import BisectState, Visit
from roofwatch.history.survey import commits_between, machine_code_digest, own_target, sha_of, suite_then, survey
from roofwatch.measuring.unfinished import kept
from roofwatch.records import RECORD_SUFFIX

_STATE_FILE = "bisection.json"
_SPARE_BLOCKS = 20
"""So many more than are wanted of a commit may be lost to a device that is held back or shared."""


@dataclass(frozen=True)
class Bisected:
    """How a bisection ended."""

    state: BisectState
    good_sha: str
    project: str
    ends: Comparison
    """The bad end against the good end."""
    named: Named | None
    """None where the ends do not differ, or the time was spent before they were known to."""
    is_decided: bool
    """`named` is as sure as was asked for."""


Watcher = Callable[[BisectState], None]
"""Told of every state that was reached."""


def bisect(
    asked: BisectPlan, fork_server: ForkServer, on_progress: OnProgress, watcher: Watcher = lambda _: None
) -> Bisected:
    """Find the commit. What was measured is on the disk before the next is begun, and gone on with if resumed.

    Raises:
        GitError: there is no such commit, or no history between the two.
        SuiteError: the series cannot be measured at one of the ends.
        JournalError: another bisection is there, or it cannot be kept.
        CollectorError: the machine cannot be measured.
    """
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="roofwatch-bisect-")))
        good = stack.enter_context(suite_then(asked.path, sha_of(asked.path, asked.good), scratch / "good"))
        search = _Search(asked, good, fork_server, scratch, on_progress, watcher)
        return search.run()


class _Search:
    def __init__(
        self,
        asked: BisectPlan,
        good: SuiteAt,
        fork_server: ForkServer,
        scratch: Path,
        on_progress: OnProgress,
        watcher: Watcher,
    ) -> None:
        self._asked = asked
        self._good = good
        self._fork_server = fork_server
        self._scratch = scratch
        self._on_progress = on_progress
        self._watcher = watcher
        self._deadline = None if asked.budget_s is None else time.monotonic() + asked.budget_s
        self._folder = folder_of(asked)
        self._state = self._opened()
        self._plan = replace(
            asked.plan,
            kernels=(asked.case_id.partition("/")[0],),
            cases=(literal_pattern(asked.case_id),),
            implementations=(literal_pattern(self._state.implementation),),
            targets=(),
        )

    @property
    def _bad_end(self) -> int:
        return len(self._state.commits) - 1

    @property
    def _is_late(self) -> bool:
        return self._deadline is not None and time.monotonic() > self._deadline

    def run(self) -> Bisected:
        ends = self._ends()
        if not ends.is_significant:
            return self._ended(ends, None, is_decided=ends.verdict is Verdict.UNCHANGED)
        if self._state.made is None:
            self._keep(made=self._made())
        while True:
            move = next_move(self._state.evidence(), self._asked.search)
            if isinstance(move, Named):
                return self._ended(ends, move, is_decided=True)
            if isinstance(move, Stuck):
                return self._ended(ends, move.named, is_decided=False)
            if self._is_late:
                return self._ended(ends, None, is_decided=False)
            self._visit(move.position, move.pair_count, self._wanted_in_search)

    def _ended(self, ends: Comparison, named: Named | None, *, is_decided: bool) -> Bisected:
        return Bisected(self._state, self._good.commit.sha, self._good.project, ends, named, is_decided)

    def _opened(self) -> BisectState:
        """What is there to go on with, else a new one.

        Raises:
            JournalError: something is there, and it is neither gone on with nor discarded, or is another's.
        """
        if self._asked.is_discarded:
            shutil.rmtree(self._folder, ignore_errors=True)
        path = self._folder / _STATE_FILE
        there = BisectState.read(path)
        asked = what_was_asked(self._asked)
        if there is None:
            return self._begun(asked)
        if not self._asked.is_resumed:
            raise JournalError(
                f"{path}: this bisection was begun before: --resume goes on from there, --discard removes it"
            )
        changed = [key for key in asked if there.asked.get(key) != asked[key]]
        if changed:
            key = changed[0]
            raise JournalError(
                f"{path}: cannot go on from it, {key} was {there.asked.get(key)} then and is {asked[key]} now: ask for "
                "the same, or --discard it"
            )
        return there

    def _begun(self, asked: dict[str, object]) -> BisectState:
        commits = commits_between(self._asked.path, self._good.commit.sha, self._asked.bad)
        if not commits:
            raise SuiteError(
                f"no commits between {self._asked.good} and {self._asked.bad}: the good end has to be the older of the "
                "two, on one line of first parents"
            )
        with Worker(self._fork_server, self._good.source, device=self._asked.plan.device) as worker:
            info = worker.start()
        implementation = choose_implementation(info, self._asked.case_id, self._asked.implementation)
        return BisectState(asked=asked, commits=tuple(commits), implementation=implementation)

    def _keep(self, **fields: object) -> None:
        self._state = self._state.with_fields(**fields)
        self._state.write(self._folder / _STATE_FILE)
        self._watcher(self._state)

    # --- measuring

    def _ends(self) -> Comparison:
        """The bad end against the good end, until they are known to differ or not to."""
        pairs = self._state.evidence().log_ratios[self._bad_end]
        if len(pairs) < FIRST_LOOK_BLOCKS:
            self._visit(self._bad_end, FIRST_LOOK_BLOCKS - len(pairs), self._wanted_of_ends)
            if self._state.trouble_at(self._bad_end):
                raise SuiteError(f"the bad end cannot be measured: {self._state.trouble_at(self._bad_end)}")
            pairs = self._state.evidence().log_ratios[self._bad_end]
        return compare_pairs(pairs, threshold=self._asked.threshold)

    def _wanted_of_ends(self, visit: Visit) -> int:
        """How many more pairs of the ends to take."""
        count = len(visit.log_ratios)
        missing = FIRST_LOOK_BLOCKS - count
        if missing > 0:
            return missing
        seen = compare_pairs(visit.log_ratios, threshold=self._asked.threshold)
        is_clear = seen.is_significant or seen.verdict is Verdict.UNCHANGED
        if is_clear or count >= self._asked.search.max_pairs:
            return 0
        return next(islice(looks_after(count), 1)) - count

    def _wanted_in_search(self, visit: Visit) -> int:
        """How many more pairs of the commit to take before another has its turn."""
        evidence = self._state.with_fields(visits=(*self._state.visits, visit)).evidence()
        move: Move = next_move(evidence, self._asked.search, at=visit.position)
        return move.pair_count if isinstance(move, Measure) and move.position == visit.position else 0

    def _visit(self, position: int, pair_count: int, wanted: Callable[[Visit], int]) -> None:
        """Measure a commit against the good end, and keep what came of it."""
        name = f"{len(self._state.visits):02}-{self._state.commits[position][:12]}"
        visit = self._measured(position, name, pair_count, wanted)
        reached = self._state.with_fields(visits=(*self._state.visits, visit))
        until = 1.0
        if not visit.trouble and position != self._bad_end:
            until = float(reached.evidence().probabilities()[: position + 1].sum())
        self._keep(visits=(*self._state.visits, visit.model_copy(update={"probability": min(until, 1.0)})))
        discard(journal_path(self._folder / name))

    def _measured(self, position: int, name: str, pair_count: int, wanted: Callable[[Visit], int]) -> Visit:
        subject = Subject(self._asked.case_id, self._state.implementation)

        def visit_of(good: RunRecord, commit: RunRecord) -> Visit:
            return _visit_of(position, read_pair(good, commit, subject.case_id, subject.implementation))

        def more(good: RunRecord, commit: RunRecord) -> Mapping[Subject, int]:
            visit = visit_of(good, commit)
            lost = visit.block_count - len(visit.log_ratios)
            count = 0 if visit.trouble or lost > _SPARE_BLOCKS or self._is_late else wanted(visit)
            return {subject: visit.block_count + count} if count else {}

        try:
            with suite_then(self._asked.path, self._state.commits[position], self._scratch / name) as commit:
                records = self._pair(commit, replace(self._plan, block_count=pair_count), more, self._folder / name)
        except SuiteError as error:
            return _visit_of(position, Reading((), 0, str(error).replace(f"{self._scratch / name}/", "")))
        for side, record in zip(("good", "commit"), records, strict=True):
            record.write(self._folder / f"{name}-{side}{RECORD_SUFFIX}")
        self._state = self._state.with_fields(runner_class=records[0].environment.runner_class)
        visit = visit_of(*records)
        if visit.log_ratios or visit.trouble:
            return visit
        return visit.model_copy(update={"trouble": "the device was held back, or shared, all the time"})

    def _pair(
        self,
        commit: SuiteAt,
        plan: RunPlan,
        more: Callable[[RunRecord, RunRecord], Mapping[Subject, int]],
        destination: Path,
    ) -> tuple[RunRecord, RunRecord]:
        header = make_header({"base": self._good, "head": commit}, plan, pair_id=uuid.uuid4())
        with kept(destination, header, is_resumed=True, is_discarded=False) as journal:
            return measure_pair(
                self._good,
                commit,
                plan,
                fork_server=self._fork_server,
                more=more,
                on_progress=self._on_progress,
                journal=journal,
            )

    # --- what cannot matter

    def _made(self) -> tuple[MadeFrom, ...]:
        """What the series is made from at the good end and at each commit."""
        path, kernel = self._asked.path, self._plan.kernels[0]
        shas = (self._good.commit.sha, *self._state.commits)
        surveyed = survey(path, shas, self._fork_server, self._on_progress)
        made: list[MadeFrom] = []
        for number, (sha, found) in enumerate(zip(shas, surveyed, strict=True)):
            trouble = found.trouble or missing_from(found.info, self._asked.case_id, self._state.implementation)
            sources = None if trouble else found.sources.get(kernel)
            code = None
            if not trouble:
                before = made[-1] if made else None
                if before is not None and before.sources is not None and before.sources == sources:
                    code = before.machine_code
                elif (target := self._own_target()) is not None:
                    self._on_progress(Progress(number, len(shas), f"compiling {sha[:12]}"))
                    code = machine_code_digest(path, sha, replace(self._plan, targets=(target,)))
            made.append(MadeFrom(sources, code, trouble))
        return tuple(made)

    def _own_target(self) -> str | None:
        """What to compile for to know what was measured; None where nothing is compiled."""
        good = min(self._folder.glob(f"*-good{RECORD_SUFFIX}"), default=None)
        return None if good is None else own_target(RunRecord.read(good).environment)


def _visit_of(position: int, reading: Reading) -> Visit:
    return Visit(
        position=position,
        log_ratios=reading.log_ratios,
        block_count=reading.block_count,
        trouble=reading.trouble,
        finished_at=utc_now(),
    )

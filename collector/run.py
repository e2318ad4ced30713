"""Measure a suite at one commit, or at two commits with interleaved blocks."""

import os
import random
import tempfile
import uuid
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from roofwatch.collector.compile.static_compiler import compilers
from roofwatch.collector.device.device_session import DeviceSession
from roofwatch.collector.outbox.journal import Journal
from roofwatch.collector.record.record import Pairing, RunRecord, Side
from roofwatch.collector.run_plan import Activity, OnProgress, Progress, RunPlan, Subject
from roofwatch.collector.suite import SuiteAt
from roofwatch.collector.suite_run import SuiteRun, share_ceilings
from roofwatch.collector.workers.fork_server import ForkServer
from roofwatch.collector.workers.protocol import Mode, WorkerSettings
from roofwatch.collector.workers.worker_pool import WorkerPool

_MAX_PARALLEL_CHECKS = 8


MoreBlocks = Callable[[RunRecord, RunRecord], Mapping[Subject, int]]
"""From the base and head records so far, the number of blocks per side that each undecided subject needs."""


class _Steps:
    """Counts finished steps and reports progress."""

    def __init__(self, on_progress: OnProgress) -> None:
        self._on_progress = on_progress
        self._notices: set[str] = set()
        self._done = 0
        self.total = 0

    def say(self, text: str) -> None:
        self._on_progress(Progress(self._done, self.total, text))

    def note(self, text: str) -> None:
        """Report a notice once, even if both suites report it."""
        if text not in self._notices:
            self._notices.add(text)
            self._on_progress(Progress(self._done, self.total, text, is_to_stay=True))

    def step(self, text: str) -> None:
        self._done += 1
        self.say(text)


def collect_run(
    suite: SuiteAt,
    plan: RunPlan,
    on_progress: OnProgress = lambda _: None,
    *,
    fork_server: ForkServer,
    journal: Journal | None = None,
) -> RunRecord:
    """Check, compile and time a suite at one commit.

    Nothing else runs while a kernel is timed.

    Args:
        suite: The suite to measure.
        plan: What to measure, and for how long.
        on_progress: Called after every step.
        fork_server: Forks the workers.
        journal: Stores each result as it arrives; results of an interrupted run are read from it, not measured again.

    Raises:
        SuiteError: the suite cannot be loaded, or nothing in it matches the plan.
        CollectorError: the machine cannot be measured.
        JournalError: a result cannot be stored, or the run was started on another machine.
    """
    steps = _Steps(on_progress)
    session = _device_session(plan, journal)
    run = SuiteRun(suite.source, plan, journal, session)
    with session, _device_workers(fork_server, run) as workers:
        steps.say("loading the suite")
        with run.spent.on(Activity.START):
            info = workers.start()
        run.select(info)
        _prepare(fork_server, run, session, workers, steps, plan.block_count)
        if plan.has_fresh_processes:
            _load_torch_compile(fork_server, run)
        _take_blocks(run, workers, steps)
        _profile(run, workers, steps)
    return run.record(suite.commit, suite.project)


def _take_blocks(run: SuiteRun, workers: WorkerPool, steps: _Steps) -> None:
    """Take block after block over all subjects, so that a disturbance affects all of them."""
    for number in range(run.plan.block_count):
        if run.plan.has_fresh_processes and any(run.lacks_block(subject, number) for subject in run.to_time):
            workers.stop()  # the next job starts new processes
        for subject in run.to_time:
            if run.lacks_block(subject, number):
                run.cool_down(steps.note)
                run.take_block(workers, subject)
            steps.step(f"timed {subject}")


def measure_pair(
    base: SuiteAt,
    head: SuiteAt,
    plan: RunPlan,
    *,
    fork_server: ForkServer,
    only: frozenset[Subject] | None = None,
    more: MoreBlocks = lambda _base, _head: {},
    on_progress: OnProgress = lambda _: None,
    journal: Journal | None = None,
) -> tuple[RunRecord, RunRecord]:
    """Measure two commits in one job on one device, so that drift and clock changes cancel out.

    Every block comes from a fresh process. The two sides of a block run directly after each other in random order. Each
    side has its own compiler and autotuning cache, empty at the start. A subject of only one side is measured there.

    Args:
        base: The suite to compare against.
        head: The changed suite.
        plan: `block_count` is the number of blocks per side before the first interim analysis.
        fork_server: Forks the workers.
        only: Time only these subjects; default all that can run.
        more: Called after each interim analysis, returns what else to measure.
        on_progress: Called after every step.
        journal: As in `collect_run`; a block without its other side is measured again.

    Returns:
        The records of base and head; block i of one ran next to block i of the other.

    Raises:
        SuiteError: a suite cannot be loaded, or nothing in both matches the plan.
        CollectorError: the machine cannot be measured.
        JournalError: a result cannot be stored, or the job was started on another machine.
    """
    steps = _Steps(on_progress)
    steps.say("loading torch and Triton")
    fork_server.load("triton")
    pair_id = (None if journal is None else journal.header.pair_id) or uuid.uuid4()
    session = _device_session(plan, journal)
    suites = {Side.BASE: base, Side.HEAD: head}
    runs = {side: SuiteRun(suite.source, plan, journal, session, side) for side, suite in suites.items()}

    def records() -> tuple[RunRecord, RunRecord]:
        base_record, head_record = (
            run.record(suites[side].commit, suites[side].project, Pairing(pair_id=pair_id, side=side))
            for side, run in runs.items()
        )
        return base_record, head_record

    with session, tempfile.TemporaryDirectory(prefix="roofwatch-caches-") as folder:
        pair = _Pair(fork_server, runs, Path(folder), random.Random(pair_id.int), steps)  # noqa: S311  no secret
        has_results = False
        for side, run in runs.items():
            with pair.workers(side) as workers:
                steps.say(f"loading the suite of the {side}")
                with run.spent.on(Activity.START):
                    info = workers.start()
                # a new kernel is missing in the base, a removed one in the head
                has_results |= run.select(info, may_be_empty=side is Side.BASE or has_results)
                _prepare(fork_server, run, session, workers, steps)
                _load_torch_compile(fork_server, run)
        share_ceilings(list(runs.values()))
        pair.drop_unpaired_blocks()
        subjects = {subject for run in runs.values() for subject in run.to_time}
        wanted: Mapping[Subject, int] = dict.fromkeys(subjects if only is None else subjects & only, plan.block_count)
        timed_s = 2e-3 * plan.block_count * len(wanted) * (plan.sampling.warmup_ms + plan.sampling.budget_ms)
        steps.note(
            f"{len(wanted)} to time, {plan.block_count} blocks per side: up to {timed_s:.0f} s, plus starting workers"
        )
        while pair.take_blocks(wanted):
            wanted = more(*records())
        for side, run in runs.items():
            with pair.workers(side) as workers:
                _profile(run, workers, steps)
    return records()


@dataclass(frozen=True)
class _Pair:
    """Two suites that are timed in turn."""

    fork_server: ForkServer
    runs: dict[Side, SuiteRun]
    cache_folder: Path
    random: random.Random
    steps: _Steps

    def workers(self, side: Side) -> WorkerPool:
        return _device_workers(self.fork_server, self.runs[side], self.cache_folder / side)

    def drop_unpaired_blocks(self) -> None:
        """Drop blocks of an interrupted job whose other side is missing."""
        for subject in set.intersection(*(set(run.to_time) for run in self.runs.values())):
            count = min(run.block_count(subject) for run in self.runs.values())
            for run in self.runs.values():
                run.keep_blocks(subject, count)

    def take_blocks(self, wanted: Mapping[Subject, int]) -> bool:
        """Take blocks until every subject has the wanted number; return False if none was missing."""
        missing_count = sum(
            run.lacks_block(subject, number)
            for subject, count in wanted.items()
            for number in range(count)
            for run in self.runs.values()
        )
        self.steps.total += missing_count
        for number in range(max(wanted.values(), default=0)):
            subjects = [
                subject
                for subject, count in sorted(wanted.items())
                if number < count and any(run.lacks_block(subject, number) for run in self.runs.values())
            ]
            if subjects:
                self._take_one_block_each(subjects, number)
        return missing_count > 0

    def _take_one_block_each(self, subjects: list[Subject], number: int) -> None:
        with self.workers(Side.BASE) as base, self.workers(Side.HEAD) as head, ThreadPoolExecutor(2) as pool:
            list(pool.map(WorkerPool.start, (base, head)))
            workers = {Side.BASE: base, Side.HEAD: head}
            self.random.shuffle(subjects)
            for subject in subjects:
                sides = list(Side)
                self.random.shuffle(sides)
                self.runs[sides[0]].cool_down(self.steps.note)
                for side in sides:
                    if self.runs[side].lacks_block(subject, number):
                        # both sides use the launches per sample of the side that is timed first
                        chosen = (run.launches_per_sample(subject) for run in self.runs.values())
                        self.runs[side].take_block(workers[side], subject, next(filter(None, chosen), None))
                        self.steps.step(f"timed {subject} on the {side}")


def _device_session(plan: RunPlan, journal: Journal | None) -> DeviceSession:
    earlier = () if journal is None else journal.seen
    return DeviceSession(plan.lock_clocks, earlier=earlier, unfit=plan.device_check)


def _device_workers(fork_server: ForkServer, run: SuiteRun, cache_folder: Path | None = None) -> WorkerPool:
    settings = WorkerSettings(
        source=run.source, device=run.plan.device, thread_count=run.plan.thread_count, cache_folder=cache_folder
    )
    return WorkerPool(fork_server, settings)


def _prepare(
    fork_server: ForkServer,
    run: SuiteRun,
    session: DeviceSession,
    workers: WorkerPool,
    steps: _Steps,
    blocks_per_subject: int = 0,
) -> None:
    """Do everything between selecting and the first block: measure the machine, compile and check."""
    run.describe_machine(workers)
    if run.chosen is not None and run.chosen.was_a_choice:
        steps.note(str(run.chosen))
    if session.warning is not None:
        steps.note(session.warning)
    steps.total += len(run.to_compile) + len(run.to_interpret) + len(run.to_check) * (1 + blocks_per_subject)
    if run.to_interpret:
        fork_server.preload(Mode.INTERPRETER)
    # not during checks on the device, in which Triton's autotuner times kernels
    with compilers(fork_server, run.source) as workers_without_device:
        run.compile(workers_without_device, steps.step)
    worker_count = _parallel_check_count(run)
    if run.to_interpret:
        settings = WorkerSettings(
            source=run.source, mode=Mode.INTERPRETER, device="cpu", thread_count=run.plan.thread_count
        )
        with WorkerPool(fork_server, settings) as interpreter:
            run.check(interpreter, run.to_interpret, steps.step, worker_count=worker_count)
    if worker_count > 1:
        _load_torch_compile(fork_server, run)
    run.check(workers, run.to_check, steps.step, worker_count=worker_count)


def _load_torch_compile(fork_server: ForkServer, run: SuiteRun) -> None:
    if run.is_on_cpu and run.has_torch_compile:
        with run.spent.on(Activity.CHECK):
            fork_server.load("torch_compile")


def _parallel_check_count(run: SuiteRun) -> int:
    """On a CPU one check per free core, at most eight, as they share the memory. On a GPU one, as Triton's autotuner
    times kernels during a check.
    """
    if not run.is_on_cpu:
        return 1
    cores = len(os.sched_getaffinity(0))
    most = min(cores // (run.plan.thread_count or cores), run.plan.checks_at_once or cores, _MAX_PARALLEL_CHECKS)
    return max(1, most)


def _profile(run: SuiteRun, workers: WorkerPool, steps: _Steps) -> None:
    """Profile in a fresh process: the timer may hold the profiling interface."""
    if run.to_profile:
        steps.total += len(run.to_profile)
        workers.stop()
        run.profile(workers, steps.step, steps.note)
